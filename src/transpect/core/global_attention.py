"""Self-attention in which global tokens look through projections of their own.

Axes: B batch, T query, S key, D model, K key-value heads, E head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transpect.core.attention import Attention, AttentionConfig, Pass, projection
from transpect.core.positions import Relation
from transpect.core.summaries import NoSummaries
from transpect.core.view import View


class GlobalSelfAttention(Attention):
    """out(local_i), or out(global_i) where token i is global (Longformer §3.1, "Linear projections for global
    attention"): the second is attention by projections of its own on all sides, q_g, k_g and v_g. A token that is not
    global looks at global ones by the usual projections.

    The second is computed under a rule that shows other queries nothing, so that a kernel which skips what is hidden
    has little to do; then one of the two is taken. A cache holds the keys of both side by side, as one
    key of width 2E, and so the values.
    """

    def __init__(
        self,
        config: AttentionConfig,
        d_model: int,
        context_length: int,
        relation: Relation,
        summaries: NoSummaries,
    ) -> None:
        super().__init__(config, d_model, context_length)
        self.relation, self.summaries = relation, summaries
        kv_dim = self.kv_heads * self.head_dim
        self.query_global = projection(config, d_model, self.heads * self.head_dim)
        self.key_global = projection(config, d_model, kv_dim)
        self.value_global = projection(config, d_model, kv_dim)

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        context = run.context
        seen = self.summaries(context.memory.extend(run.layer, x), run.shares)
        keys = torch.cat([self._key(self.key, seen, run), self._key(self.key_global, seen, run)], -1)  # [B, K, S, 2E]
        values = torch.cat([self.heads_of(seen, value, context) for value in (self.value, self.value_global)], -1)
        keys, values = context.cache.extend(run.layer, keys, values)
        (key, key_global), (value, value_global) = keys.chunk(2, -1), values.chunk(2, -1)
        query, query_global = (self.heads_of(x, project, context) for project in (self.query, self.query_global))
        local = self._look(query, key, value, run, run.self_view, "self")
        overall = self._look(query_global, key_global, value_global, run, run.global_view, "self.global")
        chosen = torch.where(context.tags.is_global[:, None, :, None], overall, local)  # [B, H, T, E]
        return self.join(chosen, context)

    def _key(self, project: nn.Module, seen: Tensor, run: Pass) -> Tensor:
        return run.geometry.rotate_key(self.key_norm(self.heads_of(seen, project, run.context)))

    def _look(self, query: Tensor, key: Tensor, value: Tensor, run: Pass, view: View, name: str) -> Tensor:
        turned = run.geometry.rotate_query(self.query_norm(query))
        turned, bias = self.relation(turned, run.geometry, self.scale)
        return self.mix(turned, key, value, view, bias, run.context, f"{run.layer}.{name}")
