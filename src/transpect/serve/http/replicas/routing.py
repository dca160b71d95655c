"""Which replica a request goes to: the one that has read how it begins, unless it has far more to do than others.

A request's text is cut into pieces; the key of a piece is the hash of all that stands before its end, as in the prefix
cache of an engine. The replica that was last sent most of the pieces in a row has them in its cache. Its lead is worth
at most `SLACK` requests: beyond that the least loaded one is taken, and learns the beginning too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

PIECE: Final = 256
"""Bytes of a piece."""
MOST_PIECES: Final = 64
"""Pieces of a text that count: what differs only after them is alike."""
KNOWN: Final = 65536
"""Pieces that are remembered, those used last."""
SLACK: Final = 4
"""Requests that a replica may have more than the least loaded one, and still be asked for what it knows."""


class Router:
    """What was sent where."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, str] = OrderedDict()

    def choose(self, text: bytes, salt: bytes, loads: Mapping[str, int]) -> str:
        """The replica for a text, which is remembered.

        Args:
            text: how the request begins.
            salt: of whose it is; what another one has sent says nothing.
            loads: requests that each replica has now; at least one replica.
        """
        keys = pieces(text, salt)
        least = min(loads, key=lambda name: (loads[name], name))
        best = least
        for key in reversed(keys):
            name = self._known.get(key, "")
            if name in loads:
                best = name if loads[name] <= loads[least] + SLACK else least
                break
        self._learn(keys, best)
        return best

    def forget(self, name: str) -> None:
        """A replica has begun anew, and knows nothing."""
        for key in [key for key, own in self._known.items() if own == name]:
            del self._known[key]

    def _learn(self, keys: Sequence[bytes], name: str) -> None:
        for key in reversed(keys):  # of a text its later pieces should go first
            self._known[key] = name
            self._known.move_to_end(key)
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)


def pieces(text: bytes, salt: bytes) -> list[bytes]:
    """The keys of the whole pieces of a text."""
    hashed, keys = blake2b(salt, digest_size=16, person=b"transpect.route"), []
    for end in range(PIECE, min(len(text), PIECE * MOST_PIECES) + 1, PIECE):
        hashed.update(text[end - PIECE : end])
        keys.append(hashed.copy().digest())
    return keys
