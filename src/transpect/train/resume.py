"""Where a run starts: anew, or from the state of a run; and what may have changed since."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import ConfigError
from transpect.base.files import check_writable
from transpect.interop import settled
from transpect.train.best import TOP
from transpect.train.state import FOLDER, FORMER, has_state

BEST, LAST, EMA = "best", "last", "ema"
METRICS, RECIPE, TENSORBOARD = "metrics.jsonl", "recipe.yaml", "tensorboard"
SAMPLES = "samples.jsonl"

FIXED = (
    *("model", "tokenizer", "data.objective", "data.seq_len"),
    *(
        "train.seed",
        "train.loss",
        "train.optimizer.kind",
        "train.best.metric",
        "train.best.mode",
        "train.freeze",
        "train.adapter",
    ),
)
"""What a run can't change on its way. The documents are compared by what they hold, not by where they are."""


def origin(run: Path, resume: str | Path) -> Path | None:
    """The run directory to go on from, or None to start anew.

    Args:
        run: the directory that is written to.
        resume: ``auto`` goes on where ``run`` holds a state and else starts anew; ``never`` starts anew; a directory
            is gone on from.

    Raises:
        ConfigError: a new run would write over what ``run`` holds, it can't be written to, or the directory to go on
            from has no state.
    """
    check_writable(run)
    if resume == "auto" and has_state(run):
        return run
    if resume not in ("auto", "never"):
        given = Path(resume)
        if not has_state(given):
            raise ConfigError(
                "--resume must be auto, never, or a run directory that holds a training state",
                value=given,
                remedy="A run directory has state/ in it.",
            )
        if given.resolve() == run.resolve():
            return run
        _check_free(run)
        return given
    _check_free(run)
    return None


def adopt(source: Path, run: Path) -> None:
    """Bring another run's metrics and best checkpoint into a new directory, so that it stands alone."""
    run.mkdir(parents=True, exist_ok=True)
    for name in (METRICS, SAMPLES):
        if (source / name).is_file():
            shutil.copyfile(source / name, run / name)
    for name in (BEST, TOP):
        if settled(source / name).is_dir():
            shutil.copytree(settled(source / name), run / name)


def changes(before: Data, now: Data) -> list[str]:
    """What differs between the recipe of a state and the one to go on with, as ``key: before → now``.

    Raises:
        ConfigError: something that a run can't change on its way.
    """
    old, new = dict(leaves(before)), dict(leaves(now))
    different = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    for key in different:
        if any(key == fixed or key.startswith(f"{fixed}.") for fixed in FIXED):
            raise ConfigError(
                f"a run that goes on must keep {key}={old.get(key)!r}",
                value=new.get(key),
                remedy="Set it back, or start a new run in another directory.",
            )
    return [f"{key}: {old.get(key)!r} → {new.get(key)!r}" for key in different]


def command_to_go_on(run: Path) -> str:
    """A command line that goes on with a run: its own resolved recipe needs no other option."""
    out = shlex.quote(str(run))
    return f"transpect train {shlex.quote(str(run / RECIPE))} --out {out} --resume auto"


def _check_free(run: Path) -> None:
    if run.exists() and not run.is_dir():
        raise ConfigError("a run needs a directory to write to, and this is a file", value=run)
    held = [name for name in (BEST, LAST, EMA, FOLDER, FORMER) if settled(run / name).exists()]
    held += [METRICS] if (run / METRICS).exists() else []
    if held:
        remedy = "Choose another directory, or remove it."
        if has_state(run):
            remedy = "Go on with it by --resume auto, choose another directory, or remove it."
        raise ConfigError(f"this directory already holds a run ({', '.join(held)})", value=run, remedy=remedy)


def leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values, of nested mappings."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, data
