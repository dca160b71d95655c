"""transpect: `train`, the whole of it, as ``transpect train`` calls it; and what of its time is no update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

SHARES = {"evaluation": "_evaluate", "checkpoints": "save", "best checkpoint": "_judge", "logging": "_record"}
"""Part of a run → what does it, a method of a session; logging is what is left of it without the best checkpoint."""


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``recipe``, ``threads``, ``keep``, and what the others read. No two runs share a thing but the process."""
    from transpect.base.allocator import keep_freed_memory

    kept = options["keep"] and keep_freed_memory()
    import torch

    import transpect
    from transpect.train import load_recipe, session, train
    from transpect.train.watching.logger import Quiet

    taken: Counter[str] = Counter()
    watched: list[tuple[str, Any, str]] = [("input", session, "draw")]
    watched += [(name, session.Session, method) for name, method in SHARES.items()]
    for name, owner, function in watched:
        setattr(owner, function, timed(name, getattr(owner, function), taken))
    recipe = load_recipe(Path(options["recipe"]), [("train.threads", str(options["threads"]))])

    class Clock(Quiet):
        """When the first update is about to be made."""

        def start(self, run: Any) -> None:
            self.begun = perf_counter()

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        clock = Clock()
        taken.clear()
        with TemporaryDirectory() as folder:
            done = train(recipe, folder, loggers=[clock])
            seconds = perf_counter() - clock.begun
        assert done.evaluation is not None and done.step == asked["steps"]
        taken["logging"] -= taken["best checkpoint"]
        return {
            "count": {"run": asked["steps"] * options["tokens"]},
            "seconds": {"run": seconds},
            "sizes": {"peak memory": peak()},
            "loss": done.evaluation.loss,
            "shares": {name: taken[name] / seconds for name in ("input", *SHARES)},
        }

    return {"versions": {"transpect": transpect.__version__, "torch": str(torch.__version__)}, "kept": kept}, run


def timed(name: str, function: Callable[..., Any], taken: Counter[str]) -> Callable[..., Any]:
    """The same function, whose seconds are added up under a name."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        begun = perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            taken[name] += perf_counter() - begun  # type: ignore[assignment] # seconds

    return call


def peak() -> float:
    """The most memory that this process has held, MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
