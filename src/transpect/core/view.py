"""One rule of visibility applied to one pass.

Axes: B batch, T query, S key, H heads, t and s the queries and keys of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

from transpect.base.errors import MaskError
from transpect.core.plan import Tile, plan
from transpect.core.tags import Columns, Tags
from transpect.core.visibility import Causal, Full, Visibility

Made = TypeVar("Made")

KEPT = 1024
"""How many bytes a query the masks of tiles may take to be kept: those of a window are, or those of the blocks on a
diagonal, while a whole triangle's are in part."""


class View:
    """One rule applied to one pass; made once, read by every layer.

    Attributes:
        rule, query, key: what it is made of.
        everything: every query is known to see every key, so no mask is needed.
        triangle: T = S and the mask is known to be the lower triangle.
    """

    def __init__(self, rule: Visibility, query: Tags, key: Tags) -> None:
        self.rule, self.query, self.key = rule, query, key
        (batch, queries), (keys_batch, keys) = query.shape, key.shape
        if batch != keys_batch:
            raise MaskError("queries and keys must come in the same number of rows", value=f"{batch} and {keys_batch}")
        known = query.start is not None and key.start is not None
        last = known and queries == 1 and query.start == (key.start or 0) + keys - 1
        square = known and queries == keys and query.start == key.start
        plain = rule.plain()
        self.everything = known and (plain == Full() or (plain == Causal() and last))
        self.triangle = plain == Causal() and square and not last
        self._biased: tuple[Tensor, Tensor] | None = None
        self._tiles: dict[Hashable, tuple[Columns, Tensor]] = {}
        self._room = KEPT * batch * queries
        self._made: dict[Hashable, Any] = {}

    def once(self, name: Hashable, make: Callable[[], Made]) -> Made:
        """What ``make`` gives, made once a view under each name: layers share it."""
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made

    def plan(self, size_q: int, size_k: int) -> list[Tile]:
        """See `transpect.core.plan.plan`; made once for each pair of sizes."""
        return self.once((size_q, size_k), lambda: plan(self.rule, self.query, self.key, size_q, size_k))

    def tile(self, rows: slice, columns: Columns) -> Tensor | None:
        """The part of `mask` for some queries and keys: [B, 1, t, s], or [1, 1, t, s] where the rows of the batch are
        known to be alike; None under `everything`.

        Layers share a view, so tiles are kept, within memory that is linear in T (`KEPT`); where only distances matter,
        those that lie alike to the diagonal are one.
        """
        if self.everything:
            return None
        rule, query, key = self.apart
        alike = rule.reads_distance_alone and query.start is not None and key.start is not None
        if isinstance(columns, Tensor):
            name: Hashable = rows.start, rows.stop, id(columns)
        elif alike:
            name = columns.start - rows.start, rows.stop - rows.start, columns.stop - columns.start
        else:
            name = rows.start, rows.stop, columns.start, columns.stop
        if name not in self._tiles:
            tile = rule.mask(query.columns(rows), key.columns(columns))[:, None]
            if tile.numel() > self._room:
                return tile
            self._room -= tile.numel()
            self._tiles[name] = (columns, tile)  # an id is the name of a tensor only while that lives
        return self._tiles[name][1]

    # properties are made by `once`, since `functools.cached_property` holds a lock, which no graph can be made of

    @property
    def apart(self) -> tuple[Visibility, Tags, Tags]:
        """The rule and the tags from which parts are computed: rows that are known to be alike are one."""
        return self.once("apart", self._apart)

    def _apart(self) -> tuple[Visibility, Tags, Tags]:
        query, key = self.query, self.key
        known = query.start is not None and key.start is not None and len(key.position) > 0
        if not known or (self.rule.reads_length and bool((key.horizon != key.horizon[:1]).any())):
            return self.rule, query, key
        first = torch.zeros(1, dtype=torch.int64, device=key.position.device)
        return self.rule.plain(), query.rows(first), key.rows(first)

    @property
    def mask(self) -> Tensor:
        """[B, 1, T, S] bool, True where visible."""
        return self.once("mask", lambda: self.rule.mask(self.query, self.key)[:, None])

    @property
    def blind(self) -> Tensor:
        """[B, 1, T, 1] bool: the query sees no key."""
        return self.once("blind", lambda: ~self.mask.any(-1, keepdim=True))

    @property
    def opened(self) -> Tensor:
        """The mask with rows that see nothing opened, so that a softmax over them is finite; see `blind`."""
        return self.once("opened", lambda: self.mask | self.blind)

    def biased(self, bias: Tensor) -> Tensor:
        """``bias`` [B|1, H, T, S] with −inf where hidden (rows that see nothing are left open); made once a bias."""
        if self._biased is None or self._biased[0] is not bias:
            self._biased = (bias, bias if self.everything else bias.masked_fill(~self.opened, float("-inf")))
        return self._biased[1]
