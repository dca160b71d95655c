"""Choosing among all tokens of some rows in one pass over their logits, instead of sorting them.

Axes: N rows, V vocabulary, k tokens of a row, G searches, E ends of a search.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.products.attending import largest_of
from transpect.runtime.products.kernel import address

Array = Any
_PIECE = 64
"""Tokens that are passed over together where none of them is among the best."""
_NEVER = np.float32(-np.inf)


class Continued(NamedTuple):
    """What beams go on with.

    Attributes:
        row, token, total: of each beam that goes on [M], those of one search together, its best one first.
        counts: [G], how many of them each search has.
        found: (search, row, token, total) of each output that ended, [F] each, by search and then the best one first.
    """

    row: Array
    token: Array
    total: Array
    counts: Array
    found: tuple[Array, Array, Array, Array]


def best_of_rows(values: Array, less: Array, banned: Array, owners: Array, k: int) -> tuple[Array, Array]:
    """The k best tokens of each row and their values − less, the best first and of equal ones the lower id; −inf where
    a row has no more that are above it.

    Args:
        values: float32 [N, V], no NaN.
        less: float32 [N].
        banned: bool [B, V], tokens that may not come; none with B = 0.
        owners: [N], the row of ``banned`` of each.
        k: at most V.

    Returns:
        tokens [N, k], float32 [N, k].
    """
    tokens, found = np.zeros((len(values), k), np.int64), np.full((len(values), k), _NEVER)
    _best(np.ascontiguousarray(values), less, banned, owners, tokens, found)
    return tokens, found


def go_on(tokens: Array, values: Array, totals: Array, firsts: Array, ends: Array, last: Array, size: int) -> Continued:
    """Rank the continuations of each search's beams by their sums, of equal ones the earlier beam and the lower id
    first: one that ends, or is the last, is an output if it is among the first ``size``; the first ``size`` that do not
    end go on.

    Args:
        tokens, values: from `best_of_rows`.
        totals: float64 [N], of each beam.
        firsts: [G + 1], the first row of each search.
        ends: [G, E], tokens that end an output; −1 is none.
        last: bool [G], whether there is room for no more than this token.
        size: beams of a search.
    """
    searches = len(last)
    row, token = np.zeros((2, searches, 2, size), np.int64)
    total, counts = np.zeros((searches, 2, size)), np.zeros((searches, 2), np.int64)
    sums = totals[:, None] + values
    _rank(tokens, sums, firsts, ends, last, row, token, total, counts)
    there = np.arange(size) < counts[:, :, None]  # [G, 2, size]: those that go on, and those that ended
    going, ended = there[:, 0], there[:, 1]
    found = np.nonzero(ended)[0], row[:, 1][ended], token[:, 1][ended], total[:, 1][ended]
    return Continued(row[:, 0][going], token[:, 0][going], total[:, 0][going], counts[:, 0], found)


@compiled
def _best(values: Array, less: Array, banned: Array, owners: Array, tokens: Array, found: Array) -> None:
    size, k = values.shape[1], found.shape[1]
    most = np.empty(1, np.float32)
    for row in range(len(values)):
        least, count = _NEVER, 0  # what is not above this is not among the best
        for first in range(0, size, _PIECE):
            last = min(size, first + _PIECE)
            largest_of((address(values, row) + 4 * first, last - first, address(most, 0)))
            if not most[0] - less[row] > least:
                continue
            for token in range(first, last):
                own = values[row, token] - less[row]
                if not own > least or (len(banned) and banned[owners[row], token]):
                    continue
                at = min(count, k - 1)
                while at > 0 and own > found[row, at - 1]:
                    found[row, at], tokens[row, at] = found[row, at - 1], tokens[row, at - 1]
                    at -= 1
                found[row, at], tokens[row, at] = own, token
                count = min(count + 1, k)
                if count == k:
                    least = found[row, k - 1]


@compiled
def _rank(
    tokens: Array,
    sums: Array,
    firsts: Array,
    ends: Array,
    last: Array,
    row: Array,
    token: Array,
    total: Array,
    counts: Array,
) -> None:
    k, size = sums.shape[1], row.shape[2]
    for search in range(len(last)):
        begin, beams = firsts[search], firsts[search + 1] - firsts[search]
        _in_order(tokens[begin : begin + beams], sums[begin : begin + beams])
        read, rank = np.zeros(beams, np.int64), 0
        while rank < size or counts[search, 0] < size:
            best = -1
            for beam in range(beams):  # of equal ones the first
                at = read[beam]
                own = sums[begin + beam, at] if at < k else -np.inf
                if own > (sums[begin + best, read[best]] if best >= 0 else -np.inf):
                    best = beam
            if best < 0:
                break
            chosen, value = tokens[begin + best, read[best]], sums[begin + best, read[best]]
            read[best] += 1
            ending = False
            for end in ends[search]:
                ending = ending or chosen == end
            if (ending or last[search]) and rank < size:
                _put(search, 1, begin + best, chosen, value, row, token, total, counts)
            if not ending and counts[search, 0] < size:
                _put(search, 0, begin + best, chosen, value, row, token, total, counts)
            rank += 1


@compiled
def _put(
    search: int, what: int, beam: int, own: int, value: float, row: Array, token: Array, total: Array, counts: Array
) -> None:
    at = counts[search, what]
    row[search, what, at], token[search, what, at], total[search, what, at] = beam, own, value
    counts[search, what] = at + 1


@compiled
def _in_order(tokens: Array, sums: Array) -> None:
    """Of sums that have become equal the lower id first."""
    for beam in range(len(sums)):
        for n in range(1, sums.shape[1]):
            at = n
            while at > 0 and sums[beam, at] == sums[beam, at - 1] and tokens[beam, at] < tokens[beam, at - 1]:
                other = tokens[beam, at - 1]
                tokens[beam, at - 1] = tokens[beam, at]
                tokens[beam, at] = other
                at -= 1
