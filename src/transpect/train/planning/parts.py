"""A model part by part: its parameters, its matrix products, and what it keeps for the backward pass.

Axes: N tokens of a micro-batch, B rows, T queries, S keys, D model, H heads, K key-value heads, E head, F feed-forward,
V vocabulary.

What is kept is what `transpect.train.recompute` and torch's functions keep on a CPU, counted in numbers a token; on a
GPU, where nothing is computed again, a norm's and an activation's results are kept as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from transpect.core.attention import AttentionConfig
from transpect.core.config import ModelConfig
from transpect.core.feedforward import FeedForward, Glu, Mlp
from transpect.core.heads import CausalLM, MaskedLM
from transpect.core.kernels import Naive
from transpect.core.model import Transformer
from transpect.core.moe import Moe
from transpect.core.norms import LayerNorm, Norm, PlainLayerNorm, RMSNorm
from transpect.core.positions import Alibi, Rope
from transpect.core.stack_config import StackConfig
from transpect.interop.blank import blank
from transpect.train.pieces import beside, rows_at_once
from transpect.train.precision import Precision
from transpect.train.recompute import AT_ONCE
from transpect.train.watching.measures import part_of

WIDE = 4
"""Bytes of a number in float32."""


@dataclass(frozen=True)
class Work:
    """What one micro-batch on one device is.

    Attributes:
        rows: B.
        length: T, padding included.
        source: S, of an encoder–decoder's source; 0 without one.
        labels: how many of the B·T tokens are predicted.
        tokens: how many tokens are real, as ``tokens_per_s`` counts them.
        precision: of the arithmetic.
        masked: attention is given a mask, as packed documents and padded rows need it.
        again: activations are computed again as `recompute_activations` does, which is on a CPU.
        checkpointed: of each layer only its input is kept, and all of it is computed again.
        by_rows: its loss is a sum over rows, so that a CPU may read some at a time (`transpect.train.pieces`).
        readers: who read pieces of it side by side (`transpect.train.readers`).
    """

    rows: int
    length: int
    source: int = 0
    labels: int | None = None
    tokens: int | None = None
    precision: Precision = "fp32"
    masked: bool = False
    again: bool = True
    checkpointed: bool = False
    by_rows: bool = True
    readers: int = 1

    @property
    def n_labels(self) -> int:
        """Tokens that pass through the head."""
        return self.rows * self.length if self.labels is None else self.labels

    @property
    def n_tokens(self) -> int:
        """Real tokens."""
        return self.rows * (self.length + self.source) if self.tokens is None else self.tokens

    @property
    def low(self) -> int:
        """Bytes of a number that a matrix product gives."""
        return WIDE if self.precision == "fp32" else 2

    def scaled(self, rows: int) -> Work:
        """The same with another number of rows."""
        share = rows / self.rows
        labels = None if self.labels is None else max(1, round(self.labels * share))
        tokens = None if self.tokens is None else max(1, round(self.tokens * share))
        return replace(self, rows=rows, labels=labels, tokens=tokens)

    def in_pieces(self) -> tuple[Work, int]:
        """What is read at a time, and how often."""
        if not (self.again and self.by_rows):
            return replace(self, readers=1), 1
        tokens = self.length + self.source
        size = rows_at_once(self.rows, tokens, self.readers)
        piece = replace(self.scaled(size), readers=self.readers if beside(tokens, self.readers) else 1)
        return piece, -(-self.rows // size)


@dataclass(frozen=True)
class Product:
    """[m, k] · [k, n], once forward and twice backward."""

    m: int
    k: int
    n: int
    times: int = 1

    @property
    def flops(self) -> int:
        """Multiplications and additions forward."""
        return 2 * self.m * self.k * self.n * self.times


@dataclass(frozen=True)
class Scores:
    """Attention: q·kᵀ and the weighted sum of values.

    Attributes:
        fused: computed without writing T·S numbers down, and so a part of it again in the backward pass.
    """

    rows: int
    heads: int
    queries: int
    keys: int
    head_dim: int
    fused: bool = True

    @property
    def flops(self) -> int:
        """2·2·B·H·T·S·E forward, all pairs counted, as torch's FlopCounter does."""
        return 4 * self.rows * self.heads * self.queries * self.keys * self.head_dim


@dataclass(frozen=True)
class Part:
    """Embeddings, a branch of a layer, what stands between, or the head.

    Attributes:
        name: ``decoder.3.self``.
        parameters: trainable numbers of its own.
        products: with weights.
        scores: of attention.
        kept: bytes from its forward pass to its backward pass.
        casts: bytes of weights in lower precision, kept likewise.
        passing: bytes at work for a moment in its backward pass.
        moved: bytes that its pointwise operations read and write in a forward pass.
        calls: operations that a forward pass starts.
    """

    name: str
    parameters: int = 0
    products: tuple[Product, ...] = ()
    scores: Scores | None = None
    kept: int = 0
    casts: int = 0
    passing: int = 0
    moved: int = 0
    calls: int = 0

    @property
    def flops(self) -> int:
        """Of a forward pass."""
        return sum(one.flops for one in self.products) + (self.scores.flops if self.scores else 0)

    @property
    def layer(self) -> str:
        """``decoder.3``, or the name where it is in no layer."""
        words = self.name.split(".")
        return ".".join(words[:2]) if len(words) > 1 and words[1].isdigit() else self.name


def parts_of(config: ModelConfig, work: Work) -> list[Part]:
    """The parts in the order of a forward pass. Their parameters are those of the built model, which is built without
    numbers.

    Raises:
        ConfigError: a model that can't be built.
    """
    counts = parameters_by_part(blank(config))
    found = [_embeddings(config, work)]
    for name, stack in config.towers.items():
        both = len(config.towers) > 1
        queries = work.source if name == "encoder" and both else work.length
        unique = stack.n_layers if stack.n_unique is None else stack.n_unique
        for layer, kind in enumerate(stack.kind_of):
            own = layer if unique == stack.n_layers else layer * unique // stack.n_layers
            first = layer == 0 or own != (layer - 1) * unique // stack.n_layers
            for part in _layer(config, stack.kinds[kind], f"{name}.{layer}", queries, work):
                weights = counts.pop(f"{name}.{own}.{part.name.rpartition('.')[2]}", 0) if first else 0
                found.append(replace(part, parameters=weights))
        rest = sum(counts.pop(key) for key in list(counts) if key.startswith(f"{name}."))
        found.append(_ending(config, stack, f"{name}.final_norm", queries, work, rest))
    head = _head(config, work, counts.pop("head", 0))
    found[0] = replace(found[0], parameters=sum(counts.values()))
    return [*found, head]


def parameters_by_part(model: Transformer) -> dict[str, int]:
    """Trainable numbers under the names of `part_of`, by branch."""
    counts: dict[str, int] = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            part = part_of(name, "branch")
            counts[part] = counts.get(part, 0) + weight.numel()
    return counts


def of_norm(norm: Norm, n: int, width: int, work: Work) -> int:
    """Bytes that a norm keeps besides its input: mean and 1/σ; of an RMSNorm, which a CPU computes step by step, also
    x/rms, for its gain."""
    if isinstance(norm, LayerNorm | PlainLayerNorm):
        return 2 * WIDE * n
    return (1 + (width if work.again else 0)) * WIDE * n


def _embeddings(config: ModelConfig, work: Work) -> Part:
    n, d = work.rows * (work.length + work.source), config.d_model
    inner = config.embedding.inner_width(d)
    kept = n * WIDE * inner if config.embedding.dropout else 0
    if config.embedding.norm is not None:
        kept += n * WIDE * inner + of_norm(config.embedding.norm, n, inner, work)
    products: tuple[Product, ...] = ()
    if config.embedding.factor is not None:
        products = (Product(n, config.embedding.factor.width, d),)
        kept += n * work.low * config.embedding.factor.width
    table = config.vocab_size * config.embedding.width(d) * WIDE
    # the table's gradient is a whole table, which is added to what is there
    return Part("embeddings", products=products, kept=kept, passing=table, moved=6 * n * WIDE * inner, calls=6)


def _layer(config: ModelConfig, kind: StackConfig, name: str, queries: int, work: Work) -> Iterable[Part]:
    d, n, place = config.d_model, work.rows * queries, kind.placement
    for step in kind.steps:
        shared = kind.shared_norm and place.before
        for number, branch in enumerate(step):
            part = _BRANCHES[branch](config, kind, queries, work)
            kept, first = part.kept, number == 0
            own_norm = place.before and (first or not shared)
            if own_norm or (place.enter and first):
                kept += of_norm(kind.norm, n, d, work) + (n * d * WIDE if first else 0)
            held = shared or place.enter  # by branches that have no norm of their own to compute again
            if (own_norm or place.enter) and first and ((held and work.again) or (not work.again and work.low == WIDE)):
                kept += n * d * WIDE
            if not (place.before or place.enter) and first and (work.again or work.low == WIDE):
                kept += n * d * WIDE  # the input itself
            if place.after_branch:
                wide = WIDE if isinstance(kind.norm, RMSNorm) else work.low
                kept += n * d * wide + of_norm(kind.norm, n, d, work)
            if kind.dropout:
                kept += n * d * work.low
            if place.after and number == len(step) - 1:
                kept += n * d * WIDE + of_norm(kind.norm, n, d, work)
            moved = part.moved + 8 * n * d * WIDE
            # slopes of the residual stream, of what the norm gave and of its input; and what it gave, computed again
            passing = part.passing + 4 * n * d * WIDE
            yield replace(part, name=f"{name}.{branch}", kept=kept, moved=moved, passing=passing, calls=part.calls + 4)


def _self(config: ModelConfig, kind: StackConfig, queries: int, work: Work) -> Part:
    positions = kind.positions
    part = _attention(
        *(config, kind.attention, queries, queries, work),
        turns=isinstance(positions, Rope),
        learned=positions.scores != "nothing" and not isinstance(positions, Alibi),
        own=True,
    )
    if isinstance(positions, Alibi) and kind.attention.dropout == 0.0 and not work.masked:
        out = work.rows * queries * kind.attention.n_heads * kind.attention.width(config.d_model)
        # what sees nothing is set to 0 afterwards; the bias is lowered in each layer, or shared by all
        lowered = 0 if work.low == WIDE else work.rows * kind.attention.n_heads * queries**2 * work.low
        part = replace(part, kept=part.kept + out * work.low + lowered)
    return part


def _cross(config: ModelConfig, kind: StackConfig, queries: int, work: Work) -> Part:
    return _attention(
        config, kind.cross or kind.attention, queries, work.source, work, turns=False, learned=False, own=False
    )


def _attention(
    config: ModelConfig,
    attention: AttentionConfig,
    queries: int,
    keys: int,
    work: Work,
    *,
    turns: bool,
    learned: bool,
    own: bool,
) -> Part:
    d, e = config.d_model, attention.width(config.d_model)
    n, m = work.rows * queries, work.rows * keys
    q, kv = attention.n_heads * e, attention.kv_heads * e
    naive = isinstance(attention.kernel, Naive)
    products = (Product(n, d, q), Product(m, d, kv), Product(m, d, kv), Product(n, q, d))
    scores = Scores(work.rows, attention.n_heads, queries, keys, e, fused=not (attention.dropout or learned or naive))
    pairs = work.rows * attention.n_heads * queries * keys
    kept = (n * 2 * q + m * 2 * kv) * work.low
    if scores.fused:
        kept += n * attention.n_heads * WIDE
        if work.masked:  # as numbers to add; and what sees nothing is set to 0 afterwards
            kept += work.rows * queries * keys * work.low + n * q * work.low
    else:
        # softmax, and with dropout its noise and their product; in bfloat16 the softmax is made and kept in float32
        a_pair = (WIDE + work.low) if naive else (WIDE if work.low == WIDE else 6)
        kept += pairs * (a_pair + (2 * WIDE if attention.dropout else 0)) - (0 if work.low == WIDE else n * q * 2)
        kept += m * 2 * (q - kv) * work.low  # keys and values of each query's head
    if attention.qk_norm is not None:
        norm = attention.qk_norm.norm
        kept += (2 * n * q + m * kv) * work.low + of_norm(norm, n, q, work) + of_norm(norm, m, kv, work)
    casts = 0
    if work.low != WIDE:  # each projection has its input in lower precision, and each weight
        kept += (n * d * (3 if own else 1) + (0 if own else 2 * m * d)) * work.low
        casts = work.low * (2 * d * q + 2 * d * kv)
    passing = (n * 3 * q + m * 3 * kv) * work.low + (0 if scores.fused else 2 * pairs * work.low)
    moved = (n * 2 * q + m * 2 * kv) * work.low * (3 if turns else 1) + (0 if scores.fused else 6 * pairs * work.low)
    calls = 8 + (12 if turns else 0) + (0 if scores.fused else 6) + (3 if work.masked else 0)
    return Part("", products=products, scores=scores, kept=kept, casts=casts, passing=passing, moved=moved, calls=calls)


def _ffn(config: ModelConfig, kind: StackConfig, queries: int, work: Work) -> Part:
    return _feed_forward(kind.ffn, work.rows * queries, config.d_model, work)


def _feed_forward(ffn: FeedForward, n: int, d: int, work: Work) -> Part:
    if isinstance(ffn, Moe):
        visits = n * ffn.active
        inner = _feed_forward(ffn.ffn, visits, d, replace(work, again=False))
        router = Product(n, d, ffn.experts)
        kept = inner.kept + visits * d * work.low * 3 + n * ffn.experts * WIDE * 2
        casts = inner.casts * ffn.experts
        return replace(inner, products=(*inner.products, router), kept=kept, casts=casts, calls=ffn.experts * 8)
    assert isinstance(ffn, Mlp | Glu)
    f, ways = ffn.width(d), 2 if isinstance(ffn, Glu) else 1
    products = (*(Product(n, d, f) for _ in range(ways)), Product(n, f, d))
    again = work.again and not ffn.dropout
    hidden = ways if again else (2 * ways if ways > 1 else 2)  # ways in; what the activation and the gate give
    if ffn.dropout:
        hidden += 1  # the noise; the product with it stands for what was before it
    kept, casts = n * f * hidden * work.low, 0
    if work.low != WIDE:
        kept += n * d * ways * work.low
        casts = work.low * d * f * (ways if again else ways + 1)
    passing = n * f * (ways + (0 if again else 1)) * work.low
    if again:  # a chunk's slope, square, steepness and value; of a gate by autograd, results and slopes of both ways
        passing += min(AT_ONCE, n * f) * (4 if ways == 1 else 6) * WIDE
    return Part(
        "",
        products=products,
        kept=kept,
        casts=casts,
        passing=passing,
        moved=n * f * (ways + 2) * work.low,
        calls=3 + ways + (1 if ffn.dropout else 0),
    )


_BRANCHES: dict[str, Callable[[ModelConfig, StackConfig, int, Work], Part]] = {
    "self": _self,
    "cross": _cross,
    "ffn": _ffn,
}


def _ending(config: ModelConfig, stack: StackConfig, name: str, queries: int, work: Work, parameters: int) -> Part:
    n, d = work.rows * queries, config.d_model
    read = name.startswith("encoder") and work.source and (work.low == WIDE or work.again)
    source = n * d * WIDE if read else 0  # by cross-attention
    if isinstance(stack.positions, Alibi) and work.low == WIDE:
        source += work.rows * stack.attention.n_heads * queries**2 * WIDE
    if not stack.ends_with_norm:
        return Part(name, parameters, kept=source)
    kept = n * d * WIDE + of_norm(stack.norm, n, d, work) + source
    return Part(name, parameters, kept=kept, passing=n * d * WIDE, moved=3 * n * d * WIDE, calls=1)


def _head(config: ModelConfig, work: Work, parameters: int) -> Part:
    n, d, v = work.n_labels, config.d_model, config.vocab_size
    w = config.embedding.width(d)
    products = [Product(n, w, v)]
    kept = n * w * WIDE + v * w * WIDE  # the gradients of features and of the weight, known as soon as the logits are
    chosen = n != work.rows * work.length
    if isinstance(config.head, MaskedLM):
        products.insert(0, Product(n, d, w))
        kept += n * (d * work.low + 2 * w * work.low) + of_norm(config.head.norm, n, w, work)
    elif isinstance(config.head, CausalLM) and config.embedding.factor is not None:
        products.insert(0, Product(n, d, w))
        kept += n * d * work.low
    passing = n * w * WIDE + v * w * WIDE + (n * d * WIDE if chosen else 0)
    return Part("head", parameters, tuple(products), kept=kept, passing=passing, moved=n * v * WIDE * 6, calls=20)
