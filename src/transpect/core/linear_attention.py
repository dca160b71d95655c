"""Self-attention by sums over keys, which goes on from what it carried instead of from all keys.

Axes: B batch, T query, S key, D model, H heads, K key-value heads, E head.
"""

from __future__ import annotations

from torch import Tensor

from transpect.core.attention import Attention, AttentionConfig, Pass
from transpect.core.kernels.linear import SumsWay
from transpect.core.summaries import NoSummaries


class LinearSelfAttention(Attention):
    """As `SelfAttention` under a kernel that keeps sums: a cache may hold those alone (`transpect.cache.SumsCache`), a
    state of one size however long the sequence is (Katharopoulos et al. 2020, §3.4).

    The positions add nothing to the scores, since there are none.
    """

    kernel: SumsWay

    def __init__(self, config: AttentionConfig, d_model: int, context_length: int, summaries: NoSummaries) -> None:
        super().__init__(config, d_model, context_length)
        self.summaries = summaries

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        context, geometry = run.context, run.geometry
        seen = self.summaries(context.memory.extend(run.layer, x), run.shares)
        query = geometry.rotate_query(self.query_norm(self.heads_of(x, self.query, context)))
        key = geometry.rotate_key(self.key_norm(self.heads_of(seen, self.key, context)))
        key, value, carry = context.cache.carry(run.layer, key, self.heads_of(seen, self.value, context))
        return self.join(self.kernel.go_on(query, key, value, run.self_view, carry, self.scale), context)
