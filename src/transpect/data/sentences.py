"""Sentences as runs of characters: where each begins."""

from __future__ import annotations

import re
from typing import Final

_END: Final = re.compile(
    r"""
    (?: [。！？…]+ [”’」』）》\])"']*          # Chinese marks end a sentence wherever they stand
      | [.!?]+ [”’)\]"']* (?=\s)               # Latin ones before a space, so that 3.5 and a.b are whole
      | \n )
    \s*
    """,
    re.VERBOSE,
)


def sentence_starts(text: str) -> list[int]:
    """The place of the first character of each sentence; the first is 0. A sentence has the space after it along.

    A sentence ends with its mark (``。！？…``, or ``. ! ?`` before a space), closing quotes and brackets included, or
    with its line.
    """
    ends = [match.end() for match in _END.finditer(text)]
    return [0, *(end for end in ends if end < len(text))] if text else []
