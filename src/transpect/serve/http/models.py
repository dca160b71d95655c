"""The models of a server: their names, their engines, and how one takes another's place while requests run."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from transpect.base.checks import within
from transpect.base.errors import ConfigError
from transpect.core import CausalLM, MaskedLM, Pooled, SequenceClass
from transpect.lm import LanguageModel
from transpect.serve import Engine, EngineConfig
from transpect.serve.http.errors import ApiError, bad, unavailable

__all__ = ["ModelSpec", "Models", "Served", "newest_change"]

_PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds between two attempts to start an engine that dies again and again."""


ABILITIES: Final = {
    "write": "write text",
    "translate": "translate",
    "embed": "give embeddings",
    "classify": "tell classes",
    "fill_mask": "fill masks",
}
"""What a route needs, in words."""


@dataclass(frozen=True)
class ModelSpec:
    """A model to serve.

    Attributes:
        path: as `transpect.lm.load` takes it.
        name: in requests; None is the last part of the path.
        aliases: other names of it.
        device: see `transpect.lm.load`; likewise dtype, quant and runtime.
        tensor_parallel: how many processes of this machine share out its matrices (see `transpect.serve.tensor`).
        chat_template: the name of one of the tokenizer's templates, or a file of Jinja.
        engine: how large its engine is.
    """

    path: str
    name: str | None = None
    aliases: tuple[str, ...] = ()
    device: str = "auto"
    dtype: str | None = None
    quant: str | None = None
    runtime: str = "auto"
    tensor_parallel: int = 1
    chat_template: str = "default"
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        within("tensor_parallel", self.tensor_parallel)
        if self.tensor_parallel == 1:
            return
        for name, able in {"device": ("auto", "cpu"), "runtime": ("auto", "torch"), "quant": (None,)}.items():
            if (value := getattr(self, name)) not in able:
                raise ConfigError(
                    f"processes that share out a model compute by torch, on CPUs, with full weights; {name} must agree",
                    value=f"{name}={value}, tensor_parallel={self.tensor_parallel}",
                    remedy="Leave one of the two away.",
                )

    @property
    def id(self) -> str:
        """The name in requests."""
        return self.name or self.path.rstrip("/").rpartition("/")[2].removeprefix("pip:")


@dataclass
class Served:
    """A model that is being served.

    Attributes:
        spec: what was asked for.
        lm: the model.
        engine: what runs it.
        changed: see `newest_change`.
        created: when it was opened, in seconds since 1970.
        restarts: how often its engine was started again after a failure.
    """

    spec: ModelSpec
    lm: LanguageModel
    engine: Engine
    changed: float = 0.0
    created: int = field(default_factory=lambda: int(time.time()))
    restarts: int = 0

    @property
    def id(self) -> str:
        """Its name."""
        return self.spec.id

    @property
    def context(self) -> int:
        """How many tokens a sequence may have."""
        own = self.lm.model.config.context_length
        return min(own, self.spec.engine.context or own)

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and its other ones."""
        return self.id, *self.spec.aliases

    def can(self, ability: str) -> bool:
        """Whether it is made for one of `ABILITIES`."""
        config = self.lm.model.config
        kinds = {"embed": Pooled, "classify": SequenceClass, "fill_mask": MaskedLM}
        between = ability != "translate" or config.kind == "encoder-decoder"
        return isinstance(config.head, kinds.get(ability, CausalLM)) and between

    def needs(self, ability: str) -> None:
        """Refuse a request that this model is not made for.

        Raises:
            ApiError: 400.
        """
        if not self.can(ability):
            raise bad("model", f"The model '{self.id}' does not {ABILITIES[ability]}.", "model_not_capable")


Open = Callable[[ModelSpec], Served]


class Models:
    """All models by name.

    Args:
        served: the models; the first is meant where a request names none and there is only one.

    Raises:
        ConfigError: two of one name.
    """

    def __init__(self, served: Iterable[Served]) -> None:
        self.all: tuple[Served, ...] = tuple(served)
        self._by_name = _by_name(self.all)

    def get(self, name: str | None) -> Served:
        """The model of a name or of an alias.

        Raises:
            ApiError: 404, there is none; 400, several and no name.
        """
        if name is None:
            if len(self.all) == 1:
                return self.all[0]
            raise bad("model", "Missing required parameter: 'model'.", "missing_required_parameter")
        if name not in self._by_name:
            message = f"The model '{name[:100]}' does not exist. There is {', '.join(map(repr, self._by_name))}."
            raise ApiError(404, message, param="model", code="model_not_found")
        return self._by_name[name]

    def replace(self, served: Iterable[Served]) -> list[Served]:
        """Put other models in the place of all; what runs on the ones that go is left to them.

        Returns:
            the models that went.

        Raises:
            ConfigError: two of one name; then nothing has changed.
        """
        new = tuple(served)
        by_name = _by_name(new)
        gone = [own for own in self.all if own not in new]
        self.all, self._by_name = new, by_name
        return gone

    @property
    def dead(self) -> list[Served]:
        """Those whose engine has failed."""
        return [own for own in self.all if own.engine.state == "dead"]

    async def keep_alive(self, tell: Callable[..., Any], *, every: float = 0.5) -> None:
        """Start engines that died again, for ever; one that dies at once waits longer and longer.

        Args:
            tell: of each start, by keywords.
            every: seconds between two looks.
        """
        tries: dict[str, tuple[int, float]] = {}
        while True:
            await asyncio.sleep(every)
            now = time.monotonic()
            for own in self.dead:
                count, after = tries.get(own.id, (0, 0.0))
                if now < after:
                    continue
                tries[own.id] = (count + 1, now + _PAUSES[min(count, len(_PAUSES) - 1)])
                own.restarts += 1
                if own.engine.failure is not None:
                    trace = "".join(traceback.format_exception(own.engine.failure))
                    tell("engine failed", level="error", model=own.id, trace=trace)
                try:
                    await asyncio.to_thread(own.engine.restart)
                    tell("engine restarted", model=own.id, restarts=own.restarts)
                except Exception as error:
                    tell("engine does not start", level="error", model=own.id, error=str(error))
            for own in self.all:
                count, after = tries.get(own.id, (0, 0.0))
                if own.engine.state == "ready" and now > after + 60:
                    tries.pop(own.id, None)


def newest_change(path: str) -> float:
    """When the newest of a checkpoint's files was written; 0 for what is no directory or file here."""
    place = Path(path)
    files = [*place.iterdir()] if place.is_dir() else [place] if place.is_file() else []
    return max((file.stat().st_mtime for file in files), default=0.0)


def alive(model: Served) -> Served:
    """The model, where its engine can take a request.

    Raises:
        ApiError: 503.
    """
    if model.engine.state == "dead":
        raise unavailable(f"The engine of '{model.id}' has failed and is being started again.", "engine_dead")
    if model.engine.state == "draining":
        raise unavailable(f"The model '{model.id}' is about to stop.", "shutting_down")
    return model


def _by_name(models: Iterable[Served]) -> dict[str, Served]:
    found: dict[str, Served] = {}
    for own in models:
        for name in own.names:
            if name in found:
                raise ConfigError("each model needs a name of its own", value=name, remedy="Write NAME=MODEL.")
            found[name] = own
    return found
