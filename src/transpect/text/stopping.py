"""Stop strings in a stream: hold what may be the beginning of one, give out the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transpect.base.errors import TokenizerError


def begun_at(text: str, strings: Sequence[str]) -> int:
    """Where the longest end of ``text`` begins that one of the strings begins with and goes beyond; or its length."""
    for at in range(max(0, len(text) - max(map(len, strings), default=0) + 1), len(text)):
        end = text[at:]
        if any(len(end) < len(string) and string.startswith(end) for string in strings):
            return at
    return len(text)


class StopMatcher:
    """Cuts a stream of text before the first stop string.

    The deltas that :meth:`push` and :meth:`flush` give out join to ``text[:first]``, where ``first`` is the smallest
    ``text.find(stop)``, or to all of ``text`` where no stop occurs, however the text was cut into pieces. Where one
    stop lies inside the beginning of another, the earlier beginning wins, so the inner one waits until that is
    decided. Less text than the longest stop is held. Time per piece: O(its length and what is held), times the stops.

    Args:
        stops: the strings, in any order; none means that all text passes.

    Raises:
        TokenizerError: a stop that is empty or not a string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str):
            raise TokenizerError("stops must be a list of strings", value=stops, remedy="Write [stop].")
        for stop in stops:
            if not isinstance(stop, str) or not stop:
                raise TokenizerError("a stop must be a non-empty string", value=stop, remedy="Leave it out.")
        # Of two that begin in one place the shorter ends first, and cuts in the same place.
        self._stops: Final = sorted(set(stops), key=lambda stop: (len(stop), stop))
        self._held = ""
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop string that was found, or None."""
        return self._matched

    @property
    def done(self) -> bool:
        """Whether a stop string was found: nothing more will be given out."""
        return self._matched is not None

    def push(self, delta: str) -> str:
        """Take the next piece of text; give out what surely stands before any stop."""
        return self._advance(delta, is_end=False)

    def flush(self) -> str:
        """The text is over: give out what was held, up to a stop that was still undecided."""
        return self._advance("", is_end=True)

    def _advance(self, delta: str, is_end: bool) -> str:
        if not self._stops:
            return delta
        if self.done:
            return ""
        text = self._held + delta
        undecided = len(text) if is_end else begun_at(text, self._stops)
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        first, stop = min(found, key=lambda match: match[0], default=(len(text), None))
        if stop is not None and first <= undecided:
            self._matched, self._held = stop, ""
            return text[:first]
        self._held = text[undecided:]
        return text[:undecided]
