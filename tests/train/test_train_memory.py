"""Training and evaluation with memories: equal to one pass, whatever the micro-batches, and resumed bit for bit."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from transpect.base.errors import ConfigError, DataError
from transpect.core import Tags, Transformer
from transpect.data.documents import Document, Listed
from transpect.data.objectives import Causal, Masked, Recurrent
from transpect.text import Tokenizer
from transpect.train import Recipe, evaluate_documents, parse_recipe, read_metrics, train, update
from transpect.train.evaluate import evaluate_pass
from transpect.train.job import build
from transpect.train.loss import accumulate_gradient
from transpect.train.memories import Memories
from transpect.train.state import read_state

STEPS = 20
POSITIONS = {
    "transformer-xl": {"kind": "transformer_xl"},
    "rope": {"kind": "rope"},
    "alibi": {"kind": "alibi"},
    "t5": {"kind": "t5"},
    "sinusoidal": {"kind": "sinusoidal"},
    "none": {"kind": "none"},
}
DOCUMENTS = Listed([Document(text) for text in ("the cat eats fish", "a dog runs home at dawn", "rain", "birds sing")])

Make = Callable[..., Recipe]
Same = Callable[[Path, Path], None]
Stop = Callable[..., None]


@pytest.fixture(scope="session")
def recurrent(plain: Callable[..., dict[str, Any]]) -> Make:
    """A recipe with memory and dotted changes."""

    def make(changes: dict[str, Any] | None = None) -> Recipe:
        data = plain("causal")
        data["model"] |= {"positions": {"kind": "transformer_xl"}, "n_layers": 2}
        data["data"] |= {"objective": {"kind": "recurrent", "memory": 7, "eval_memory": 11}, "seq_len": 5}
        data["train"] |= {"max_steps": STEPS, "batch_size": 3, "eval_every": 6, "save_every": 5}
        return parse_recipe(data, (changes or {}).items())

    return make


@pytest.fixture(scope="session")
def never_stopped(tmp_path_factory: pytest.TempPathFactory, recurrent: Make) -> Path:
    run = tmp_path_factory.mktemp("memory") / "run"
    train(recurrent(), run)
    return run


# resuming


@pytest.mark.parametrize("step", [1, 6, 8, 19])
def test_twenty_steps_are_k_steps_and_the_rest(
    step: int, never_stopped: Path, recurrent: Make, tmp_path: Path, assert_same: Same, stop_at: Stop
) -> None:
    stop_at(recurrent(), tmp_path / "run", step)
    torch.manual_seed(999)
    assert train(recurrent(), tmp_path / "run", resume="auto").step == STEPS
    assert_same(tmp_path / "run", never_stopped)


def test_separate_documents_are_resumed_too(recurrent: Make, tmp_path: Path, assert_same: Same, stop_at: Stop) -> None:
    recipe = recurrent({"data.objective.separate": True, "train.max_steps": 9})
    train(recipe, tmp_path / "straight")
    stop_at(recipe, tmp_path / "run", 4)
    train(recipe, tmp_path / "run", resume="auto")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_the_grid_stops_within_epochs_and_keeps_the_memory_of_each_slot(never_stopped: Path) -> None:
    epochs = [line["epoch"] for line in read_metrics(never_stopped)]
    assert len(set(epochs)) > 1 and len(set(epochs)) < len(epochs)
    memory = read_state(never_stopped).part("memory")
    for slot in ("0", "1"):
        assert memory[f"{slot}/0"].shape == memory[f"{slot}/1"].shape == (3, 7, 16)
        assert memory[f"{slot}/position"].shape == (3, 7)


def test_the_memory_is_needed_to_go_on(recurrent: Make, tmp_path: Path, stop_at: Stop, monkeypatch: Any) -> None:
    """The grid can only see what is kept; and nothing goes on in silence without it."""
    stop_at(recurrent(), tmp_path / "run", 8)
    monkeypatch.setattr(Memories, "load", lambda *_: None)
    with pytest.raises(ConfigError, match="needs the memory of the batch before it"):
        train(recurrent(), tmp_path / "run", resume="auto")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.objective.memory", 8),
        ("data.objective.eval_memory", 8),
        ("train.batch_size", 2),
        ("train.accumulate", 1),
    ],
)
def test_lanes_and_memories_can_not_change_on_the_way(
    key: str, value: int, recurrent: Make, tmp_path: Path, stop_at: Stop
) -> None:
    stop_at(recurrent(), tmp_path / "run", 3)
    with pytest.raises(ConfigError, match=f"must keep ({key}|{key.rpartition('.')[2]})="):
        train(recurrent({key: value}), tmp_path / "run", resume="auto")


# training


def double(model: Transformer) -> Transformer:
    return model.double().eval()


class Detaching:
    """One pass in which the layers' inputs of the first tokens have no gradient."""

    length, next_position = 0, 0

    def __init__(self, past: int) -> None:
        self.past = past

    def admit(self, tags: Tags) -> Tags:
        return tags

    def extend(self, layer: int, hidden: Tensor) -> Tensor:
        return torch.cat([hidden[:, : self.past].detach(), hidden[:, self.past :]], 1)


@pytest.mark.parametrize("positions", POSITIONS)
def test_gradients_are_those_of_one_long_row_with_a_detached_past(positions: str, recurrent: Make) -> None:
    changes = {"model.positions": POSITIONS[positions], "data.objective.memory": 1000, "train.accumulate": 1}
    job = build(recurrent(changes))
    model, memories, read = double(job.model), Memories(), []
    for batch in islice(job.batches, 4):
        read.append(batch)
        loss = accumulate_gradient(model, batch, n_labels=1, memory=memories.of(batch))
        found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
        model.zero_grad()
        ids = torch.cat([earlier.ids for earlier in read], 1)
        past = ids.shape[1] - batch.ids.shape[1]
        logits = model(ids, memory=Detaching(past))[:, past:]
        expected = functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum")
        expected.backward()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                assert float((found[name] - weight.grad).abs().max()) <= 1e-10, name
        model.zero_grad()
    assert [batch.stretch.first for batch in read if batch.stretch] == [True, False, False, False]


@pytest.mark.parametrize(("batch_size", "accumulate"), [(6, 1), (1, 6)])
def test_micro_batches_are_one_large_batch(batch_size: int, accumulate: int, recurrent: Make, tmp_path: Path) -> None:
    still = {"model.dropout": 0.0, "model.attention.dropout": 0.0, "model.embedding.dropout": 0.0}
    shapes = ((3, 2), (batch_size, accumulate))
    for number, (rows, slots) in enumerate(shapes):
        changes = {
            **still,
            "train.batch_size": rows,
            "train.accumulate": slots,
            "train.max_steps": 8,
            "train.save_every": 8,
        }
        train(recurrent(changes), tmp_path / str(number))
    one, other = (read_metrics(tmp_path / str(number)) for number in range(2))
    assert [line["loss"] for line in other] == pytest.approx([line["loss"] for line in one], rel=1e-4)
    assert [line["tokens"] for line in other] == [line["tokens"] for line in one]


def test_training_reads_with_memory_from_the_second_segment_on(recurrent: Make, tmp_path: Path) -> None:
    losses = []
    for memory in (7, 0):
        train(recurrent({"data.objective.memory": memory, "train.max_steps": 2}), tmp_path / str(memory))
        losses.append([line["loss"] for line in read_metrics(tmp_path / str(memory))])
    assert losses[0][0] == losses[1][0]
    assert losses[0][1] != losses[1][1]


def test_an_evaluation_does_not_touch_what_training_remembers(recurrent: Make, tmp_path: Path) -> None:
    for every in (1, 100):
        train(recurrent({"train.eval_every": every, "train.max_steps": 6}), tmp_path / str(every))
    often, once = (read_state(tmp_path / str(every)).tensors for every in (1, 100))
    assert often.keys() == once.keys()
    assert all(torch.equal(often[name], once[name]) for name in often)


def test_an_update_that_goes_on_needs_memories(recurrent: Make) -> None:
    job = build(recurrent({"train.accumulate": 1}))
    optimizer = torch.optim.SGD(job.model.parameters(), lr=0.1)
    update(job.model.train(), optimizer, [next(job.batches)], rate=0.1)
    with pytest.raises(ConfigError, match=r"slot 0.*Pass the same Memories to every update"):
        update(job.model, optimizer, [next(job.batches)], rate=0.1)


# evaluation


def one_pass(model: Transformer, tokenizer: Tokenizer) -> tuple[Tensor, int]:
    """Σ −log p over all documents end to end, in one row."""
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    rows = [[bos, *tokenizer.encode(document.text), eos] for document in DOCUMENTS]
    ids = torch.tensor([[token for row in rows for token in row[:-1]]])
    labels = torch.tensor([token for row in rows for token in row[1:]])
    with torch.no_grad():
        return functional.cross_entropy(model(ids)[0], labels, reduction="sum"), len(labels)


@pytest.mark.parametrize("positions", POSITIONS)
def test_with_a_memory_as_long_as_the_past_it_is_one_pass(positions: str, recurrent: Make) -> None:
    job = build(recurrent({"model.positions": POSITIONS[positions], "model.context_length": 24}))
    for model, tolerance in ((job.model.eval(), 1e-5), (double(build(job.recipe).model), 1e-12)):
        total, count = one_pass(model, job.tokenizer)
        for seq_len in (3, 24) if positions != "transformer-xl" else (1, 5, 7, 24):
            for objective in (Recurrent(0), Causal(separate=False)):
                found = evaluate_documents(
                    model, job.tokenizer, DOCUMENTS, objective=objective, seq_len=seq_len, memory=10_000
                )
                assert found.n_tokens == count
                assert found.total_nats == pytest.approx(total.item(), rel=tolerance)
        short = evaluate_documents(model, job.tokenizer, DOCUMENTS, objective=Recurrent(10_000), seq_len=3, memory=2)
        assert short.n_tokens == count
        assert abs(short.total_nats - total.item()) > 1e-4


@pytest.mark.parametrize("positions", ["transformer-xl", "sinusoidal"])
def test_separate_documents_are_as_good_as_alone(positions: str, recurrent: Make) -> None:
    job = build(recurrent({"model.positions": POSITIONS[positions]}))
    model = double(build(job.recipe).model)
    alone = evaluate_documents(model, job.tokenizer, DOCUMENTS, objective=Causal(pack=False), seq_len=24)
    for seq_len in (1, 5, 24):
        options: dict[str, Any] = {"seq_len": seq_len, "memory": 1000}
        for objective in (Recurrent(0, separate=True), Causal()):
            found = evaluate_documents(model, job.tokenizer, DOCUMENTS, objective=objective, **options)
            assert found.total_nats == pytest.approx(alone.total_nats, rel=1e-12)
        together = evaluate_documents(model, job.tokenizer, DOCUMENTS, objective=Recurrent(0), **options)
        assert abs(together.total_nats - alone.total_nats) > 1e-3


@pytest.mark.parametrize("batch_size", [None, 1, 2, 3, 50])
def test_each_token_is_counted_once_in_any_number_of_lanes(batch_size: int | None, recurrent: Make) -> None:
    job = build(recurrent())
    model = double(job.model)
    found = evaluate_documents(
        model, job.tokenizer, DOCUMENTS, objective=Recurrent(4), seq_len=6, batch_size=batch_size
    )
    assert found.n_tokens == sum(len(document.text) + 1 for document in DOCUMENTS)
    assert found.n_characters == sum(len(document.text) for document in DOCUMENTS)
    one = evaluate_documents(model, job.tokenizer, DOCUMENTS, objective=Recurrent(4), seq_len=6, batch_size=1)
    assert (found.total_nats == pytest.approx(one.total_nats, rel=1e-12)) == (batch_size in (None, 1))


def test_the_memory_of_evaluation_is_its_own(recurrent: Make) -> None:
    found = {}
    for memory, evaluation in ((7, 0), (0, 7), (7, None), (7, 7)):
        job = build(recurrent({"data.objective": {"kind": "recurrent", "memory": memory, "eval_memory": evaluation}}))
        assert job.valid is not None
        assert job.recipe.train.eval_batch_size == 1
        found[memory, evaluation] = evaluate_pass(job.model, job.valid, job.objective)
        assert evaluate_pass(job.model, job.valid, job.objective) == found[memory, evaluation]
    assert found[0, 7] == found[7, None] == found[7, 7] != found[7, 0]


# refusals


@pytest.mark.parametrize(
    ("objective", "changes", "says"),
    [
        ("causal", {"model.positions": {"kind": "learned"}}, "positions go on from segment to segment"),
        ("causal", {"model.visibility": {"kind": "full"}}, "sees only the past"),
        (
            "causal",
            {"model.positions": {"kind": "rope", "scaling": {"kind": "dynamic", "factor": 2.0, "original_length": 8}}},
            "how long the whole",
        ),
        ("masked", {}, "needs a model of kind decoder"),
        ("seq2seq", {}, "needs a model of kind decoder"),
    ],
)
def test_models_that_can_not_remember_are_refused(
    objective: str, changes: dict[str, Any], says: str, plain: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    data = plain(objective)
    data["data"] |= {"objective": {"kind": "recurrent", "memory": 4}, "train": plain("causal")["data"]["train"]}
    with pytest.raises(ConfigError, match=says):
        train(parse_recipe(data, changes.items()), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["causal", "masked", "seq2seq"])
def test_other_objectives_have_no_memory(kind: str, plain: Callable[..., dict[str, Any]]) -> None:
    data = plain(kind)
    data["data"]["objective"] = {"kind": kind, "memory": 4}
    with pytest.raises(ConfigError, match="has no key 'memory'"):
        parse_recipe(data)


def test_only_next_tokens_are_evaluated_with_memory(recurrent: Make) -> None:
    job = build(recurrent())
    with pytest.raises(ConfigError, match="for the prediction of each next token"):
        evaluate_documents(job.model, job.tokenizer, DOCUMENTS, objective=Masked(), memory=4)
    with pytest.raises((ConfigError, DataError), match="memory must be at least 0"):
        evaluate_documents(job.model, job.tokenizer, DOCUMENTS, memory=-1)
