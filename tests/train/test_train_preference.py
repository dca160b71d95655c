"""Preference tuning: the formula in float64, finite differences, a reference that is asked once, and whole runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from transpect.base.errors import ConfigError, DataError
from transpect.core import Transformer, override, preset
from transpect.data.batch import IGNORE
from transpect.data.documents import Document, Listed
from transpect.data.loader import Batches
from transpect.data.objectives import Preference
from transpect.data.sources import Preference as Source
from transpect.text import Tokenizer, train_tokenizer
from transpect.train import parse_recipe, read_metrics, train
from transpect.train.criteria import Dpo, Ipo
from transpect.train.criteria.preference import PreferenceCriterion, PreferenceLoss, Reference, answer_log_probs
from transpect.train.cross_entropy import Readout
from transpect.train.log_probs import label_log_probs

TEMPLATE = (
    "{% for m in messages %}{{ m.role + ' ' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
)
TRIPLES = [("a", "cat", "d"), ("what now", "e", "nothing at all"), ("x", "same", "same"), ("b", "c", "cc")]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    trained = train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyz "])
    return Tokenizer(trained.backend, trained.special_tokens, chat_templates={"default": TEMPLATE})


def listed(triples: list[tuple[str, str, str]] = TRIPLES) -> Listed:
    return Listed(
        [
            Document(
                "x",
                record=json.dumps(
                    {
                        "prompt": [{"role": "user", "content": prompt}],
                        "chosen": {"role": "assistant", "content": chosen},
                        "rejected": {"role": "assistant", "content": rejected},
                    }
                ),
                line=number,
            )
            for number, (prompt, chosen, rejected) in enumerate(triples, 1)
        ]
    )


def model_of(tokenizer: Tokenizer, seed: int = 3) -> Transformer:
    small = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32, "context_length": 48}
    config = override(preset("llama"), {**small, "vocab_size": tokenizer.vocab_size}.items())
    config = override(config, {"init": {"kind": "normal", "std": 0.3}}.items())
    Preference().check(config, tokenizer, 48)
    return Transformer(Preference().adapt(config), seed=seed).double()


def batches_of(tokenizer: Tokenizer, size: int = 4) -> Batches:
    return Batches(listed(), Preference(), tokenizer, batch_size=size, seq_len=48)


def plain_log_probs(model: Transformer, tokenizer: Tokenizer) -> Tensor:
    """Each side read alone, by what `torch` has: [pairs, 2]."""
    found = []
    for prompt, *answers in TRIPLES:
        for answer in answers:
            before = tokenizer.encode(f"user {prompt}</s>assistant ")
            ids = torch.tensor(
                [([tokenizer.bos_id] if tokenizer.adds_bos else []) + before + tokenizer.encode(f"{answer}</s>")]
            )
            n = len(tokenizer.encode(f"{answer}</s>"))
            logits = model(ids[:, :-1])[0]
            found.append(-functional.cross_entropy(logits[-n:], ids[0, -n:], reduction="sum"))
    return torch.stack(found).view(-1, 2)


def plain_loss(loss: PreferenceLoss, policy: Tensor, reference: Tensor) -> Tensor:
    h = (policy - reference)[:, 0] - (policy - reference)[:, 1]
    if isinstance(loss, Dpo):
        p = 1 / (1 + torch.exp(-loss.beta * h))
        return -(1 - loss.label_smoothing) * p.log() - loss.label_smoothing * (1 - p).log()
    return (h - 1 / (2 * loss.beta)) ** 2


@pytest.mark.parametrize("loss", [Dpo(), Dpo(0.5, 0.2), Ipo(0.3)], ids=["dpo", "cdpo", "ipo"])
def test_loss_and_gradient_are_the_formula(loss: PreferenceLoss, tokenizer: Tokenizer) -> None:
    model, reference = model_of(tokenizer, 1), model_of(tokenizer, 2)
    (batch,) = batches_of(tokenizer).once()
    criterion = PreferenceCriterion(loss, Reference(reference))
    sums = criterion.training(model, batch)
    policy, frozen = plain_log_probs(model, tokenizer), plain_log_probs(reference, tokenizer).detach()
    assert torch.allclose(answer_log_probs(model, batch), policy, rtol=1e-10)
    expected = plain_loss(loss, policy, frozen).sum()
    assert float(sums.losses[0]) == pytest.approx(float(expected), rel=1e-10)
    weights = list(model.parameters())
    ours = torch.autograd.grad(sums.losses[0], weights)
    theirs = torch.autograd.grad(expected, weights)
    for name, a, b in zip(dict(model.named_parameters()), ours, theirs, strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-10), name
    assert all(weight.grad is None and not weight.requires_grad for weight in reference.parameters())
    # measures
    ratios = (policy - frozen).detach()
    said = criterion.summary(sums.measures, criterion.counts(batch))
    assert criterion.counts(batch) == (len(TRIPLES),)
    assert float(said["reward_chosen"]) == pytest.approx(loss.beta * float(ratios[:, 0].mean()))
    assert float(said["reward_margin"]) == pytest.approx(loss.beta * float((ratios[:, 0] - ratios[:, 1]).mean()))
    assert float(said["accuracy"]) == pytest.approx(float((ratios[:, 0] > ratios[:, 1] + 1e-12).double().mean()))


def test_the_gradient_is_that_of_finite_differences(tokenizer: Tokenizer) -> None:
    model = model_of(tokenizer, 1)
    (batch,) = batches_of(tokenizer).once()
    criterion = PreferenceCriterion(Dpo(0.7, 0.1), Reference(model_of(tokenizer, 2)))
    weight = model.token.weight
    (gradient,) = torch.autograd.grad(criterion.training(model, batch).losses[0], [weight])
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=weight.dtype)
    values, step = [], 1e-5
    with torch.no_grad():
        for sign in (1, -1):
            weight.add_(direction, alpha=sign * step)
            values.append(float(criterion.training(model, batch).losses[0]))
            weight.sub_(direction, alpha=sign * step)
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(float((gradient * direction).sum()), rel=1e-5)


def test_equal_answers_cost_ln_2(tokenizer: Tokenizer) -> None:
    same = Batches(listed([("a", "cat", "cat")]), Preference(), tokenizer, batch_size=1, seq_len=48)
    criterion = PreferenceCriterion(Dpo(0.9), Reference(model_of(tokenizer, 2)))
    found = criterion.training(model_of(tokenizer, 1), next(same))
    assert float(found.losses[0]) == pytest.approx(math.log(2), rel=1e-12)
    # and so does every preference before the first update
    whole = criterion.training(model_of(tokenizer, 2), next(batches_of(tokenizer)))
    assert float(whole.losses[0]) == pytest.approx(len(TRIPLES) * math.log(2), rel=1e-12)


def test_the_reference_is_asked_once(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    model = model_of(tokenizer, 2)
    inner = Transformer.hidden

    def hidden(self: Transformer, ids: Tensor, **kwargs: Any) -> Tensor:
        asked.append(len(ids))
        return inner(self, ids, **kwargs)

    monkeypatch.setattr(Transformer, "hidden", hidden)
    reference = Reference(model)
    batches = batches_of(tokenizer, 3)
    drawn = [next(batches) for _ in range(8)]  # six passes, each in an order of its own
    found = [reference.log_probs(batch) for batch in drawn]
    assert sum(asked) == len(TRIPLES)
    for batch, one in zip(drawn, found, strict=True):
        assert torch.allclose(one, answer_log_probs(model, batch), rtol=1e-10)
    assert not model.training


@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_log_probs_of_labels(at_once: int, bias: bool, cap: float | None) -> None:
    generator = torch.Generator().manual_seed(1)
    features, weight, offset = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((7, 5), (11, 5), (11,))
    )
    labels = torch.randint(11, (7,), generator=generator)
    by = torch.randn(7, generator=generator, dtype=torch.float64)
    leaves = [features, weight, *([offset] if bias else [])]
    found = label_log_probs(features, labels, Readout(weight, offset if bias else None, cap), at_once=at_once)
    logits = features @ weight.T + (offset if bias else 0.0)
    logits = logits if cap is None else cap * (logits / cap).tanh()
    expected = logits.log_softmax(-1)[torch.arange(7), labels]
    assert torch.allclose(found, expected)
    ours, theirs = (torch.autograd.grad((one * by).sum(), leaves) for one in (found, expected))
    assert all(torch.allclose(a, b) for a, b in zip(ours, theirs, strict=True))


# data


def test_every_way_to_write_a_preference(tmp_path: Path) -> None:
    user, yes, no = (
        {"role": role, "content": text} for role, text in (("user", "q"), ("assistant", "y"), ("assistant", "n"))
    )
    rows = [
        {"prompt": "q", "chosen": "y", "rejected": "n"},
        {"prompt": [user], "chosen": [yes], "rejected": [no]},
        {"prompt": "q", "chosen": [user, yes], "rejected": [user, no]},
        {"chosen": [user, yes], "rejected": [user, no]},
    ]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = [json.loads(document.record or "") for document in Source(str(path)).documents()]
    assert found == [{"prompt": [user], "chosen": yes, "rejected": no}] * 4
    for row, said in (
        ({"prompt": "q", "chosen": "y"}, "`rejected` is missing"),
        ({"prompt": "q", "chosen": "", "rejected": "n"}, "`chosen` must be a string that is not blank"),
        ({"chosen": "y", "rejected": "n"}, "`prompt` is missing"),
        ({"prompt": "q", "chosen": [user], "rejected": "n"}, "must end in one message of the assistant"),
    ):
        path.write_text(f"{json.dumps(rows[0])}\n{json.dumps(row)}\n")
        with pytest.raises(DataError, match=f"x.jsonl:2: a preference needs a prompt and two answers: .*{said}"):
            Source(str(path)).documents()


def test_labels_stand_on_the_answers(tokenizer: Tokenizer) -> None:
    (batch,) = batches_of(tokenizer).once()
    for row, (prompt, *answers) in enumerate(TRIPLES):
        for side, answer in enumerate(answers):
            own = (batch.tags.segment[row] == side) & (batch.tags.position[row] >= 0)
            labels = [label for label in batch.labels[row][own].tolist() if label != IGNORE]
            assert tokenizer.decode(labels) == f"{answer}</s>"
            assert batch.tags.position[row][own].tolist() == list(range(int(own.sum())))
            assert f"user {prompt}</s>assistant {answer}" in tokenizer.decode(batch.ids[row][own].tolist())
    with pytest.raises(DataError, match="at most seq_len = 30 places") as caught:
        Batches(listed(), Preference(), tokenizer, batch_size=1, seq_len=30)
    assert caught.value.line == 2
    assert len(list(Batches(listed(), Preference("drop"), tokenizer, batch_size=1, seq_len=30).once())) == 3


# runs


@pytest.fixture
def recipe(tmp_path: Path, tokenizer: Tokenizer) -> Callable[..., Any]:
    tokenizer.save(tmp_path / "tokenizer")
    rows = [
        {"prompt": f"{p} {n}", "chosen": c, "rejected": r}
        for n in "abcdef"
        for p, c, r in (("q", "yes", "no"), ("s", "c", "dd"))
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def make(**changes: Any) -> Any:
        plain = {
            "model": {"preset": "llama", "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "context_length": 48},
            "tokenizer": {"path": str(tmp_path / "tokenizer")},
            "data": {
                "train": {"kind": "preference", "path": str(tmp_path / "pairs.jsonl")},
                "valid": 0.25,
                "objective": "preference",
            },
            "train": {
                "max_steps": 6,
                "batch_size": 3,
                "accumulate": 2,
                "optimizer": {"kind": "adamw", "lr": 5e-3},
                "eval_every": 3,
                "save_every": 3,
                "log_every": 1,
                "threads": 1,
            },
            "logging": {"tensorboard": False, "progress": "none"},
        }
        return parse_recipe(plain, changes.items())

    return make


def test_a_run_learns_what_is_preferred_and_resumes(
    recipe: Callable[..., Any], tmp_path: Path, assert_same: Callable[[Path, Path], None]
) -> None:
    train(recipe(), tmp_path / "whole")
    lines = read_metrics(tmp_path / "whole")
    assert lines[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert lines[-1]["valid_loss"] < lines[2]["valid_loss"] < math.log(2)
    assert lines[-1]["valid_accuracy"] == 1.0
    assert lines[-1]["valid_reward_margin"] > 0 and "valid_perplexity" not in lines[-1]
    train(recipe(), tmp_path / "parts", should_stop=lambda step: step == 4)
    train(recipe(), tmp_path / "parts", resume="auto")
    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_what_does_not_go_together_is_refused(recipe: Callable[..., Any], tmp_path: Path) -> None:
    for changes, said in (
        ({"train.label_smoothing": 0.1}, "train.label_smoothing is for tokens"),
        ({"train.loss": "dpo", "data.objective": "causal"}, "needs the objective preference"),
    ):
        with pytest.raises(ConfigError, match=said):
            train(recipe(**changes), tmp_path / "run")
    for changes, said in (
        ({"train.loss.beta": 0.0}, "beta must be above 0"),
        ({"train.loss.label_smoothing": 0.5}, "below 0.5"),
    ):
        with pytest.raises(ConfigError, match=said):
            recipe(**changes)
    assert recipe(**{"train.loss.beta": 0.2}).train.loss == Dpo(0.2)
    assert recipe(**{"train.loss": "ipo"}).train.loss == Ipo()
