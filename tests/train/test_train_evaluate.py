"""What an evaluation says is true, and it leaves no trace: modes, generators, weights, the place in the data."""

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from transpect.base.errors import ConfigError, DataError
from transpect.core import Transformer, override
from transpect.data.batch import IGNORE
from transpect.data.documents import Document, Listed
from transpect.data.objectives import Causal, Masked, Objective, Seq2Seq
from transpect.text import Tokenizer, train_tokenizer
from transpect.train import Evaluation, Recipe, evaluate, evaluate_documents, loss
from transpect.train.evaluate import adapted, evaluate_pass, evaluating
from transpect.train.job import Job, build

OBJECTIVES = ["causal", "masked", "seq2seq"]


@pytest.fixture
def job(recipe_of: Callable[..., Recipe]) -> Callable[[str], Job]:
    return lambda objective: build(recipe_of(objective))


def by_hand(job: Job) -> tuple[float, int]:
    """(Σ −log p, how many), a label at a time."""
    assert job.valid is not None
    model, total, count = job.model.eval(), 0.0, 0
    for batch in job.valid.once():
        source = {}
        if batch.source_ids is not None:
            source = {"source": model.encode(batch.source_ids, tags=batch.source_tags)}
        log_p = model(batch.ids, tags=batch.tags, **source).double().log_softmax(-1)
        for row, labels in zip(log_p, batch.labels.tolist(), strict=True):
            for at, label in enumerate(labels):
                if label != IGNORE:
                    total -= row[at, label].item()
                    count += 1
    return total, count


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_adds_up_every_label_once(objective: str, job: Callable[[str], Job]) -> None:
    built = job(objective)
    assert built.valid is not None
    measured = evaluate_pass(built.model, built.valid, built.objective)
    total, count = by_hand(built)
    assert measured.n_tokens == count
    assert measured.total_nats == pytest.approx(total, rel=1e-5)
    assert measured.loss == pytest.approx(total / count, rel=1e-5)
    assert measured.perplexity == pytest.approx(math.exp(total / count), rel=1e-4)


def test_bits_are_per_character_of_text_and_pay_for_the_ends(job: Callable[[str], Job]) -> None:
    built = job("causal")
    texts = ["ab a", "b", "cats eat"]
    documents = Listed([Document(text) for text in texts])
    measured = evaluate_documents(built.model, built.tokenizer, documents)
    characters = sum(map(len, texts))
    assert measured.n_characters == characters
    assert measured.n_tokens == characters + len(texts)
    assert measured.bits_per_character == pytest.approx(measured.total_nats / math.log(2) / characters)


def test_bits_mean_nothing_where_only_some_tokens_are_predicted(job: Callable[[str], Job]) -> None:
    built = job("masked")
    assert built.valid is not None
    measured = evaluate_pass(built.model, built.valid, built.objective)
    assert measured.bits_per_character is None
    assert set(measured.as_dict()) == {"loss", "perplexity", "n_tokens"}


def test_a_hopeless_model_has_infinite_perplexity() -> None:
    assert Evaluation(1e6, 10).perplexity == math.inf


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_leaves_no_trace(objective: str, job: Callable[[str], Job]) -> None:
    """Trap 6, and dropout: a run with an evaluation in it goes on as one without."""
    built = job(objective)
    assert built.valid is not None
    model = built.model.train()
    inner = next(module for module in model.modules() if isinstance(module, torch.nn.Dropout))
    inner.eval()  # somebody froze a part
    modes = [module.training for module in model.modules()]
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn = (torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=True))
    places = (built.batches.state(), built.valid.state())
    first = evaluate_pass(model, built.valid, built.objective)
    assert evaluate_pass(model, built.valid, built.objective) == first
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn[0])
    assert random.getstate() == drawn[1]
    assert str(np.random.get_state(legacy=True)) == str(drawn[2])
    assert (built.batches.state(), built.valid.state()) == places
    assert all(weight.grad is None for weight in model.parameters())


def test_the_modes_come_back_after_an_error() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout()).train()

    def fail() -> None:
        with evaluating(model):
            assert not any(module.training for module in model.modules())
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert all(module.training for module in model.modules())


def test_batch_size_and_pieces_do_not_change_it(job: Callable[[str], Job], monkeypatch: pytest.MonkeyPatch) -> None:
    built = job("causal")
    documents = Listed([Document(text) for text in ("ab a", "b", "cats eat", "the fish", "a dog runs")])
    whole = evaluate_documents(built.model, built.tokenizer, documents, batch_size=16)
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", 50)
    for batch_size in (1, 2, 3):
        part = evaluate_documents(built.model, built.tokenizer, documents, batch_size=batch_size)
        assert part.n_tokens == whole.n_tokens
        assert part.total_nats == pytest.approx(whole.total_nats, rel=1e-6)


@pytest.mark.parametrize("separate", [True, False])
def test_packed_documents_are_as_good_as_alone(separate: bool, job: Callable[[str], Job]) -> None:
    """Case 22: the model that is saved knows no segments; on packed rows it is made to keep them apart."""
    built = job("causal")
    model = Transformer(built.config).eval()
    documents = Listed([Document(text) for text in ("ab a", "b", "cats eat", "the fish")])
    alone = evaluate_documents(model, built.tokenizer, documents, objective=Causal(pack=False))
    packed = evaluate_documents(model, built.tokenizer, documents, objective=Causal(separate=separate))
    assert packed.n_tokens == alone.n_tokens
    assert (packed.total_nats == pytest.approx(alone.total_nats, rel=1e-6)) == separate


DYNAMIC = {"kind": "rope", "scaling": {"kind": "dynamic", "factor": 2, "original_length": 4}}


@pytest.mark.parametrize(
    "changes",
    [{"kernel": "linear"}, {"kernel": "performer"}, {"positions": DYNAMIC}],
    ids=["linear", "performer", "dynamic"],
)
def test_where_documents_can_t_be_kept_apart_each_has_a_row(
    changes: dict[str, object], job: Callable[[str], Job]
) -> None:
    built = job("causal")
    config = override(built.config, {"positions": "rope", "attention.dropout": 0, **changes}.items())
    model = Transformer(config).eval()
    documents = Listed([Document(text) for text in ("ab a", "b", "cats eat", "the fish")])
    alone = evaluate_documents(model, built.tokenizer, documents, objective=Causal(pack=False))
    assert evaluate_documents(model, built.tokenizer, documents).total_nats == alone.total_nats
    objective = Causal()
    with pytest.raises(ConfigError) as told:
        objective.check(config, built.tokenizer, 8)
    assert "documents that share" in told.value.rule
    assert "data.objective.pack: false" in str(told.value.remedy)


def test_an_adapted_model_has_the_same_storage(job: Callable[[str], Job]) -> None:
    model = Transformer(job("causal").config)
    twin = adapted(model, Causal())
    assert twin is not model
    assert {p.data_ptr() for p in twin.parameters()} == {p.data_ptr() for p in model.parameters()}
    assert adapted(model, Causal(pack=False)) is model


def test_smoothing_and_dropout_are_for_training_alone(job: Callable[[str], Job]) -> None:
    built = job("causal")
    model = built.model.train()
    batch = next(built.batches)
    logits = model.eval()(batch.ids, tags=batch.tags)
    expected = functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum")
    assert evaluate(model.train(), [batch]).total_nats == pytest.approx(expected.item(), rel=1e-6)


def test_bf16_is_near_fp32(job: Callable[[str], Job]) -> None:
    built = job("causal")
    assert built.valid is not None
    exact = evaluate_pass(built.model, built.valid, built.objective)
    rough = evaluate_pass(built.model, built.valid, built.objective, precision="bf16")
    assert rough.loss == pytest.approx(exact.loss, rel=1e-2)
    assert rough.loss != exact.loss


def test_refuses_what_can_not_be_measured(job: Callable[[str], Job], tmp_path: Path) -> None:
    built = job("causal")
    batch = next(built.batches)
    with pytest.raises(DataError, match="at least one token"):
        evaluate(built.model, [replace(batch, labels=torch.full_like(batch.labels, IGNORE))])
    documents = Listed([Document("ab")])
    with pytest.raises(ConfigError, match="needs a model of kind encoder"):
        evaluate_documents(built.model, built.tokenizer, documents, objective=Masked())
    with pytest.raises(ConfigError, match=f"context of .*Lower seq_len to {built.config.context_length}"):
        evaluate_documents(built.model, built.tokenizer, documents, seq_len=999)
    larger: Tokenizer = train_tokenizer("byte-bpe", ["ab"], 300)
    with pytest.raises(ConfigError, match=r"tokenizer is another model's.*at most 9 ids"):
        evaluate_documents(Transformer(override(built.config, [("vocab_size", 9)])), larger, documents)


@pytest.mark.parametrize("objective", [Causal(), Masked(), Seq2Seq()], ids=lambda objective: objective.kind)
def test_no_remedy_is_to_set_what_a_finished_model_has(objective: Objective, job: Callable[[str], Job]) -> None:
    built = job("causal")
    larger: Tokenizer = train_tokenizer("byte-bpe", ["ab"], 300)
    small = Transformer(override(built.config, [("vocab_size", 9)]))
    for model, tokenizer, length in ((small, larger, 8), (built.model, built.tokenizer, 999)):
        with pytest.raises(ConfigError) as error:
            evaluate_documents(model, tokenizer, Listed([Document("ab")]), objective=objective, seq_len=length)
        assert error.value.remedy and not re.search(r"model\.|data\.|preset", error.value.remedy)
