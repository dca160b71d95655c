"""Recipes of a size that trains in a blink, runs of them, and what it means that two runs are the same."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from transpect.train import Quiet, Recipe, Record, Run, parse_recipe, read_metrics, train
from transpect.train.state import read_state

LINES = ["the cat eats fish", "a dog runs home", "birds sing at dawn", "the fish swims", "rain falls on hills"]
PAIRS = ["cat\tmao", "dog\tgou", "big fish\tda yu", "bird\tniao", "rain falls\txia yu", "hill\tshan"]

MODELS: dict[str, dict[str, Any]] = {
    "causal": {"preset": "gpt2"},
    "masked": {"preset": "bert-base"},
    "seq2seq": {"preset": "transformer-base", "d_ff": 32},
}
CLOCKS = {"seconds", "tokens_per_s"}
SMALL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "context_length": 24, "dropout": 0.1, "attention.dropout": 0.1}


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file for each objective."""
    folder = tmp_path_factory.mktemp("corpora")
    text, pairs = folder / "lines.txt", folder / "pairs.tsv"
    text.write_text("\n".join(LINES * 3) + "\n", encoding="utf-8")
    pairs.write_text("\n".join(PAIRS * 2) + "\n", encoding="utf-8")
    return {"causal": text, "masked": text, "seq2seq": pairs}


@pytest.fixture(scope="session")
def plain(corpora: dict[str, Path]) -> Callable[..., dict[str, Any]]:
    """A recipe as plain data: ``plain("causal")``."""

    def make(objective: str = "causal") -> dict[str, Any]:
        kind = "tsv" if objective == "seq2seq" else "text"
        return {
            "model": {**MODELS[objective], **SMALL},
            "tokenizer": {"kind": "char", "special_tokens": {"mask": "<mask>"}},
            "data": {"train": {"kind": kind, "path": str(corpora[objective])}, "valid": 0.2, "objective": objective},
            "train": {
                "max_steps": 7,
                "batch_size": 3,
                "accumulate": 2,
                "optimizer": {"kind": "adamw", "lr": 1e-2},
                "schedule": {"kind": "cosine", "warmup": 2},
                "eval_every": 3,
                "save_every": 2,
                "log_every": 1,
                "threads": 1,
            },
            "logging": {"tensorboard": False, "progress": "none"},
        }

    return make


@pytest.fixture(scope="session")
def recipe_of(plain: Callable[..., dict[str, Any]]) -> Callable[..., Recipe]:
    """A recipe with dotted changes: ``recipe_of("causal", {"train.max_steps": 3})``."""

    def make(objective: str = "causal", changes: dict[str, Any] | None = None) -> Recipe:
        return parse_recipe(plain(objective), (changes or {}).items())

    return make


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fsync gives, safety from a power cut, no test here can see; the time that it takes they can."""
    monkeypatch.setattr("os.fsync", lambda _handle: None)


class Told(Quiet):
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def start(self, run: Run) -> None:
        self.heard.append(("start", run))

    def advance(self, step: int) -> None:
        self.heard.append(("advance", step))

    def record(self, record: Record) -> None:
        self.heard.append(("record", dict(record)))

    def note(self, text: str) -> None:
        self.heard.append(("note", text))

    def close(self) -> None:
        self.heard.append(("close", None))

    def all(self, what: str) -> list[Any]:
        """Everything of one kind."""
        return [value for kind, value in self.heard if kind == what]


@pytest.fixture
def told() -> Told:
    """A logger that keeps what it is told."""
    return Told()


def lines_of(run: Path) -> list[dict[str, Any]]:
    """The metrics without what a clock says."""
    return [{key: value for key, value in line.items() if key not in CLOCKS} for line in read_metrics(run)]


def state_of(run: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything that the future depends on."""
    state = read_state(run)
    data = {key: value for key, value in state.data.items() if key != "recipe"}
    data["progress"] = {key: value for key, value in data["progress"].items() if key not in CLOCKS}
    return state.tensors, data


def compare(a: Path, b: Path) -> None:
    """Weights, optimizer memory, generators, counters, data position, metrics, and both checkpoints."""
    (tensors_a, data_a), (tensors_b, data_b) = state_of(a), state_of(b)
    assert data_a == data_b
    assert tensors_a.keys() == tensors_b.keys()
    assert [name for name in tensors_a if not torch.equal(tensors_a[name], tensors_b[name])] == []
    assert lines_of(a) == lines_of(b)
    for name in ("best", "last"):
        one, other = (load_file(run / name / "model.safetensors") for run in (a, b))
        assert all(torch.equal(one[key], other[key]) for key in one), name
        for file in ("config.json", "tokenizer.json", "generation_config.json"):
            assert (a / name / file).read_bytes() == (b / name / file).read_bytes()


@pytest.fixture
def assert_same() -> Callable[[Path, Path], None]:
    """Asserts that two run directories are bit for bit the same, but for clocks."""
    return compare


@pytest.fixture
def lines() -> Callable[[Path], list[dict[str, Any]]]:
    """The metrics of a run without what a clock says."""
    return lines_of


@pytest.fixture
def stop_at() -> Callable[..., None]:
    """``stop_at(recipe, run, step)`` trains, or goes on, up to a step and stops there as if interrupted."""

    def run(recipe: Recipe, run: Path, step: int, resume: str = "auto") -> None:
        result = train(recipe, run, resume=resume, should_stop=lambda made: made == step)
        assert (result.step, result.reason) == (step, "interrupted")

    return run


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory, recipe_of: Callable[..., Recipe]) -> Callable[[str], Path]:
    """The run that never stopped, for each objective."""
    runs: dict[str, Path] = {}

    def run(objective: str) -> Path:
        if objective not in runs:
            runs[objective] = tmp_path_factory.mktemp(objective) / "run"
            train(recipe_of(objective), runs[objective])
        return runs[objective]

    return run


def _as_process(
    pipes: list[tuple[Connection, Connection]],
    rank: int,
    environment: dict[str, str],
    work: Callable[..., Any],
    given: Any,
) -> None:
    os.environ.update(environment)
    sender = pipes[rank][1]
    for _, other in pipes[:rank] + pipes[rank + 1 :]:
        other.close()
    try:
        sender.send((work(*given), ""))
    except BaseException:  # what a test is told, whatever it is
        sender.send((None, traceback.format_exc()))


def _answer(receiver: Connection, seconds: float) -> tuple[Any, str]:
    try:
        return receiver.recv() if receiver.poll(seconds) else ("silent", "")
    except EOFError:
        return "died", ""


@pytest.fixture
def together() -> Callable[..., list[Any]]:
    """``together(n, work, *given)`` calls ``work`` in n processes, as `torchrun` would, and gives what each returned,
    or ``died``, or ``silent``.

    They are forked, so that nothing is imported again.
    """

    def run(size: int, work: Callable[..., Any], *given: Any, seconds: float = 100.0) -> list[Any]:
        torch.set_num_threads(1)
        fork = multiprocessing.get_context("fork")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
        pipes = [fork.Pipe(duplex=False) for _ in range(size)]
        processes = [
            fork.Process(target=_as_process, args=(pipes, rank, {**place, "RANK": str(rank)}, work, given))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        for _, sender in pipes:
            sender.close()
        try:
            said = [_answer(receiver, seconds) for receiver, _ in pipes]
        finally:
            for process in processes:
                process.kill()
                process.join()
        assert not any(error for _, error in said), "\n".join(error for _, error in said)
        return [value for value, _ in said]

    return run
