"""Whatever file of a state is cut short, zeroed or changed: the run goes on from the state before it, and says so."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from transpect.base.errors import CheckpointError, TranspectError
from transpect.train import Recipe, TrainingError, train
from transpect.train.state import read_state

Make = Callable[..., Recipe]


def damages(content: bytes) -> Iterator[bytes]:
    """Cut at several lengths; zeros in the place of all, of a block, of the end; one bit."""
    n = len(content)
    yield from (content[:length] for length in {0, 1, 7, 8, n // 3, n // 2, n - 1} if length < n)
    yield bytes(n)
    yield content[: n // 2] + bytes(n - n // 2)
    yield bytes(min(n, 512)) + content[512:]
    yield content[: n // 2] + bytes([content[n // 2] ^ 1]) + content[n // 2 + 1 :]
    yield content + b"\0"


def test_every_file_and_every_damage(recipe_of: Make, tmp_path: Path, stop_at: Any) -> None:
    recipe, run = recipe_of("causal", {"train.freeze": ["embedding"], "train.ema": {"decay": 0.9}}), tmp_path / "run"
    stop_at(recipe, run, 3)
    files = [file for file in (run / "state").rglob("*") if file.is_file()]
    assert {file.name for file in files} > {"state.json", "state.safetensors", "tokenizer.json"}
    tried = 0
    for file in files:
        if file.name == "frozen.safetensors":  # which both states share
            continue
        content = file.read_bytes()
        for damaged in damages(content):
            if damaged.strip() == content.strip():
                continue  # JSON without its last line end
            file.unlink()
            file.write_bytes(damaged)
            state = read_state(run)
            assert state.step == 2 and "Going on from step 2" in state.remark, (file, len(damaged))
            tried += 1
        file.write_bytes(content)
        assert read_state(run).step == 3
    assert tried >= 40


@pytest.mark.slow
@pytest.mark.parametrize("left", [("state",), ("state.former",), ()])
def test_directories_that_are_gone(left: tuple[str, ...], recipe_of: Make, tmp_path: Path, stop_at: Any) -> None:
    stop_at(recipe_of("causal"), tmp_path, 3)
    for name in {"state", "state.former"}.difference(left):
        shutil.rmtree(tmp_path / name)
    if left:
        assert read_state(tmp_path).step == (3 if left == ("state",) else 2)
    else:
        with pytest.raises(CheckpointError, match="holds no training state"):
            read_state(tmp_path)


@pytest.mark.slow
def test_what_is_no_state_may_be_damaged(
    recipe_of: Make, straight: Callable[[str], Path], tmp_path: Path, stop_at: Any
) -> None:
    """Checkpoints are written again, and lines that can't be read are cut off."""
    stop_at(recipe_of("causal"), tmp_path, 3)
    for file in [*(tmp_path / "last").rglob("*"), tmp_path / "recipe.yaml", tmp_path / "metrics.jsonl"]:
        if file.is_file():
            file.write_bytes(bytes(file.stat().st_size))
    assert train(recipe_of("causal"), tmp_path, resume="auto").step == 7
    one, other = read_state(tmp_path).tensors, read_state(straight("causal")).tensors
    assert all(bool((one[name] == other[name]).all()) for name in other)


def full_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(name, refuse)


@pytest.mark.parametrize(
    ("where", "error", "said"),
    [
        ("transpect.train.parallel.world.save_file", CheckpointError, r"No space left.*Make room"),
        pytest.param(
            *("transpect.interop.directory._sync", CheckpointError, r"No space left.*Make room"),
            marks=pytest.mark.slow,
        ),
        (
            "transpect.train.watching.logger.kept_bytes",
            TrainingError,
            r"metrics\.jsonl: a run must be able to write its lines: No space left",
        ),
    ],
)
def test_a_full_disk_is_named_and_the_run_goes_on_later(
    where: str,
    error: type[TranspectError],
    said: str,
    recipe_of: Make,
    straight: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    assert_same: Any,
    stop_at: Any,
) -> None:
    stop_at(recipe_of("causal"), tmp_path, 3)
    with monkeypatch.context() as patch:
        full_disk(patch, where)
        with pytest.raises(error, match=said):
            train(recipe_of("causal"), tmp_path, resume="auto")
    assert read_state(tmp_path).step == 3
    train(recipe_of("causal"), tmp_path, resume="auto")
    assert_same(tmp_path, straight("causal"))
