"""Who computes what an engine's requests read: its own process, or several that share out the model's matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from transpect.core import Transformer
from transpect.decode.stepper import ReadsAhead, Stepper
from transpect.lm import LanguageModel
from transpect.serve.calls import Call, answer

__all__ = ["ALONE", "Team"]


class Team(Protocol):
    """See above. All but `notes` is called by the engine's thread."""

    @property
    def why_in_turn(self) -> str | None:
        """Why requests can't share passes; None where that is the model's matter."""

    def begin(self, lost: Callable[[Exception], None]) -> None:
        """Be ready to compute.

        Args:
            lost: is told, from any thread, of what ends the engine.
        """

    def steps(
        self,
        model: Transformer,
        prompts: Sequence[Sequence[int]],
        horizons: Sequence[int],
        sources: Sequence[Sequence[int]] | None,
    ) -> ReadsAhead:
        """What reads the rows of one request (see `Stepper`)."""

    def answer(self, lm: LanguageModel, calls: Sequence[Call], batch_size: int) -> None:
        """See `calls.answer`."""

    def end(self) -> None:
        """Let go of what `begin` took."""


class Alone:
    """One process."""

    why_in_turn = None

    def begin(self, lost: Callable[[Exception], None]) -> None:
        pass

    def steps(self, model: Transformer, prompts: Any, horizons: Any, sources: Any) -> ReadsAhead:
        return Stepper(model, prompts, horizons=horizons, sources=sources)

    def answer(self, lm: LanguageModel, calls: Sequence[Call], batch_size: int) -> None:
        answer(lm, calls, batch_size)

    def end(self) -> None:
        pass


ALONE: Final[Team] = Alone()
