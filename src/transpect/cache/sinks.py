"""The first tokens and the last ones: generation without end, within the positions that a model was trained on.

Axes: B batch, T new, n sinks, W window, S held, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.cache.dense import DenseCache
from transpect.cache.folded import Folded
from transpect.cache.source import SourceKeys
from transpect.core.context import NO_CARRY, Carry
from transpect.core.positions import Mover
from transpect.core.tags import Tags

Pair = tuple[Tensor, Tensor]


class SinksCache:
    """Attention sinks (Xiao et al. 2023, §3.2): a token sees the first n tokens of its sequence, the M before it, and
    itself. Positions are those *in the cache*, 0 … n+M, whatever has been dropped between the two.

    As scores depend on differences of positions alone, this is done from the other side: the sinks follow the window.
    Token p has dropped d = max(0, p − n − M) tokens; for it sink i stands at d + i, its key turned on by d. All others
    stay where they are, so a step turns n keys instead of n + M, each once from where it was first: nothing adds up.
    Until the first token is dropped this is a `DenseCache`, with all that this can do; from then on tokens come one at
    a time, and none is taken back.

    O(n + M) memory a row, and no row feels another. For inference: gradients do not flow through it.

    Args:
        n_sinks: n.
        limit: M.
        movers: for each layer, what moves its keys (`Position.mover`).
    """

    def __init__(self, n_sinks: int, limit: int, movers: Sequence[Mover]) -> None:
        self.n_sinks, self.limit, self._movers = n_sinks, limit, movers
        self._held: DenseCache | Folded = DenseCache()
        self._source = SourceKeys()

    @property
    def length(self) -> int:
        """How many columns are held, sinks included."""
        return self._held.length

    @property
    def next_position(self) -> Tensor | int:
        """The position after the last real token: a number where all rows agree, else [B, 1]."""
        return self._held.next_position

    @property
    def nbytes(self) -> int:
        """Memory of keys and values in bytes."""
        return self._held.nbytes

    def admit(self, tags: Tags) -> Tags:
        """Note the new tokens, give the tags of all keys as the new ones see them.

        Raises:
            ConfigError: several tokens at once where some token falls out.
        """
        if isinstance(self._held, DenseCache) and self._last(tags) > self.n_sinks + self.limit:
            self._check_single(tags)
            self._held = Folded(self._held, self.n_sinks, self.limit)
        self._check_single(tags)
        return self._held.admit(tags)

    def extend(self, layer: int, key: Tensor, value: Tensor) -> Pair:
        """Add one layer's new keys and values [B, K, T, E]; give all that are seen [B, K, S, E]."""
        if isinstance(self._held, DenseCache):
            return self._held.extend(layer, key, value)
        return self._held.extend(layer, key, value, self._movers[layer])

    def carry(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Carry]:
        """As `extend`: all that is seen is here."""
        return *self.extend(layer, key, value), NO_CARRY

    def cross(self, layer: int, compute: Callable[[], Pair]) -> Pair:
        """Keys and values of the encoder's output, computed once a layer."""
        return self._source.get(layer, compute)

    def crop(self, length: int) -> None:
        """Forget all columns from ``length`` on. What is known of an encoder's output stays.

        Raises:
            ConfigError: after tokens have fallen out, unless everything goes (0).
        """
        if length >= self.length:
            return
        if not length:
            self._held = DenseCache()
            return
        self._whole(f"crop({length}) of {self.length}").crop(length)

    def forget(self, keep: Tensor) -> None:
        """See `Cache.forget`.

        Raises:
            ConfigError: after tokens have fallen out.
        """
        if not bool(keep.all()):
            self._whole(f"forget of {int((~keep).sum())} tokens").forget(keep)

    def compact(self) -> None:
        """Forget columns that hold nothing of any row, and note where rows are alike again."""
        self._held.compact()

    def select(self, rows: Tensor) -> None:
        """Keep the rows ``rows`` [B'] of the batch, in that order; a row may be chosen more than once or not at all."""
        self._held.select(rows)
        self._source = self._source.rows(rows)

    def fork(self) -> SinksCache:
        """An independent copy."""
        twin = SinksCache(self.n_sinks, self.limit, self._movers)
        twin._held, twin._source = self._held.fork(), self._source.fork()
        return twin

    def _last(self, tags: Tags) -> int:
        if tags.start is not None:
            return tags.start + tags.shape[1] - 1
        return int(tags.position.max()) if tags.position.numel() else -1

    def _check_single(self, tags: Tags) -> None:
        if isinstance(self._held, Folded) or self._last(tags) > self.n_sinks + self.limit:
            if tags.shape[1] == 1:
                return
            raise ConfigError(
                "once tokens fall out between sinks and window, each new token has sinks of its own, so they come one "
                "at a time",
                value=f"{tags.shape[1]} tokens, up to position {self._last(tags)}, where {self.n_sinks} sinks and "
                f"{self.limit} others are kept",
                remedy="Read a long prompt token by token (prefill_chunk=1), and draft no tokens.",
            )

    def _whole(self, asked: str) -> DenseCache:
        if isinstance(self._held, DenseCache):
            return self._held
        raise ConfigError(
            "a cache of sinks and window can't take tokens back once others have fallen out",
            value=asked,
            remedy="Take a fork before what may be taken back.",
        )
