"""The losses are the model's own, spelled out from its logits."""

import pytest
import torch

from transpect.compare.measure import measure
from transpect.compare.rows import cut_rows
from transpect.data.batch import IGNORE
from transpect.train import parse_recipe
from transpect.train.evaluate import evaluate
from transpect.train.job import build

from .conftest import PART


@pytest.mark.parametrize("objective", ["causal", "masked"])
@pytest.mark.parametrize("positions", ["rope", "t5"])
@pytest.mark.parametrize("batch_size", [1, 5])
def test_over_all_tokens_and_over_the_last_part(plain, objective, positions, batch_size) -> None:
    content = plain(objective)
    del content["compare"]
    job = build(parse_recipe(content, [("model.positions", positions), ("model.dropout", 0.5)]))
    for n, rows in cut_rows(job.recipe, job.tokenizer, [1, 2, 4]).items():
        found = measure(job.model.train(), rows, batch_size=batch_size)
        assert job.model.training, "the mode is put back"
        nats: list[float] = []
        late: list[float] = []
        with torch.no_grad():
            for example in rows.examples:
                logprobs = job.model.eval()(torch.tensor(example.ids)[None]).double().log_softmax(-1)[0]
                for place, label in enumerate(example.labels.tolist()):
                    if label != IGNORE:
                        nats.append(-float(logprobs[place, label]))
                        if place >= (n - 1) * PART:
                            late.append(nats[-1])
        assert (found.n_rows, found.n_tokens) == (len(rows.examples), len(nats))
        assert found.loss == pytest.approx(sum(nats) / len(nats), abs=1e-6)
        assert found.last == pytest.approx(sum(late) / len(late), abs=1e-6)
        assert found.loss == pytest.approx(evaluate(job.model, rows.batches(3)).loss, abs=1e-6)
        if n == 1:
            assert found.loss == found.last


def test_the_head_in_pieces_gives_the_same(plain, monkeypatch) -> None:
    from transpect.train import loss

    content = plain()
    del content["compare"]
    job = build(parse_recipe(content))
    rows = cut_rows(job.recipe, job.tokenizer, [2])[2]
    whole = measure(job.model, rows, batch_size=8)
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", 7 * job.model.config.vocab_size)
    pieces = measure(job.model, rows, batch_size=8)
    assert (pieces.loss, pieces.last) == pytest.approx((whole.loss, whole.last), abs=1e-6)
