"""OPT (Zhang et al. 2022) and Galactica: learned positions from row 2 on, norms before or after the branches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core import AttentionConfig, CausalLM, Mlp, ModelConfig, NormalInit, StackConfig
from transpect.core.positions import Learned
from transpect.interop.families.decoder import BODY, CAUSAL, FFN, FINAL, LAST, SELF, head_rows, tied_head
from transpect.interop.family import Family
from transpect.interop.options import Allowed, Entry, Key, Labels, Options, Override, activations, at, words
from transpect.interop.tensors import Row, Table, step


def table(config: ModelConfig) -> Table:
    """The tensors of ``OPTForCausalLM`` and its sibling."""
    assert config.decoder is not None
    before = config.decoder.placement.before
    norms = (f"{SELF}.before", f"{FFN}.before") if before else (f"{step('decoder', b)}.after" for b in ("self", "ffn"))
    after_self, after_ffn = norms
    return Table(
        prefix="model.",
        body=(
            Row("decoder.embed_tokens.*", "token.*"),
            Row("decoder.project_in.*", "towers.decoder.embeddings.widen.*"),
            Row("decoder.embed_positions.*", "towers.decoder.stack.positions.table.*"),
            Row("decoder.layers.#.self_attn_layer_norm.*", f"{after_self}.*"),
            Row("decoder.layers.#.self_attn.q_proj.*", f"{SELF}.body.query.*"),
            Row("decoder.layers.#.self_attn.k_proj.*", f"{SELF}.body.key.*"),
            Row("decoder.layers.#.self_attn.v_proj.*", f"{SELF}.body.value.*"),
            Row("decoder.layers.#.self_attn.out_proj.*", f"{SELF}.body.out.*"),
            Row("decoder.layers.#.final_layer_norm.*", f"{after_ffn}.*"),
            Row("decoder.layers.#.fc1.*", f"{FFN}.body.up.*"),
            Row("decoder.layers.#.fc2.*", f"{FFN}.body.down.*"),
            Row("decoder.final_layer_norm.*", f"{FINAL}.*"),
            Row("decoder.project_out.*", "head.narrow.*"),
        ),
        head=head_rows(config),
        aliases=tied_head(config, "model.decoder.embed_tokens.weight"),
        void=("decoder.version",),
    )


@dataclass(frozen=True)
class Norms(Entry):
    """Where norms stand, and whether they have weights; a stack with norms before its branches may lack the final one.

    ``_remove_final_layer_norm`` marks checkpoints that were fine-tuned by a version that forgot it.
    """

    def defaults(self) -> Mapping[str, Any]:
        return {
            "do_layer_norm_before": True,
            "_remove_final_layer_norm": False,
            "layer_norm_elementwise_affine": True,
        }

    def read(self, options: Options) -> Iterable[Override]:
        before = bool(options["do_layer_norm_before"])
        affine = bool(options["layer_norm_elementwise_affine"])
        yield "decoder.placement.kind", "pre" if before else "post"
        yield "decoder.final_norm", before and not options["_remove_final_layer_norm"]
        yield "decoder.norm", {"kind": "layernorm" if affine else "plain_layernorm"}

    def write(self, ours: Data) -> Mapping[str, Any]:
        before = at(ours, "decoder.placement.kind") == "pre"
        return {
            "do_layer_norm_before": before,
            "_remove_final_layer_norm": before and not at(ours, "decoder.final_norm"),
            "layer_norm_elementwise_affine": at(ours, "decoder.norm.kind") == "layernorm",
        }


@dataclass(frozen=True)
class TokenWidth(Entry):
    """Token vectors narrower than the model (opt-350m), widened on the way in and narrowed on the way out."""

    def defaults(self) -> Mapping[str, Any]:
        return {"word_embed_proj_dim": None}

    def read(self, options: Options) -> Iterable[Override]:
        width, d_model = options["word_embed_proj_dim"], options["hidden_size"]
        if width in (None, d_model):
            return []
        if options.head not in CAUSAL:
            raise CheckpointError(
                f"with a head for classes word_embed_proj_dim can't be other than hidden_size={d_model} here",
                value=width,
            )
        return [("embedding.factor", {"width": width, "bias": False, "early": True})]

    def write(self, ours: Data) -> Mapping[str, Any]:
        factor = at(ours, "embedding.factor")
        return {"word_embed_proj_dim": at(ours, "d_model") if factor is None else factor["width"]}


FAMILY = Family(
    model_type="opt",
    table=table,
    template=ModelConfig(
        vocab_size=50272,
        d_model=768,
        context_length=2048,
        decoder=StackConfig(
            n_layers=12,
            attention=AttentionConfig(n_heads=12),
            ffn=Mlp(d_ff=3072, act="relu"),
            positions=Learned(offset=2),
        ),
        init=NormalInit(residual_scaling=False),
    ),
    heads={
        "OPTForCausalLM": CausalLM(),
        "OPTForSequenceClassification": LAST,
        "OPTModel": BODY,
    },
    entries=(
        Key("vocab_size", "vocab_size", 50272),
        Key("hidden_size", "d_model", 768),
        Key("max_position_embeddings", "context_length", 2048),
        Key("num_hidden_layers", "decoder.n_layers", 12),
        Key("num_attention_heads", "decoder.attention.n_heads", 12),
        Key("ffn_dim", "decoder.ffn.d_ff", 3072),
        Key("activation_function", "decoder.ffn.act", "relu", activations("relu", "gelu")),
        Key("enable_bias", ("decoder.attention.qkv_bias", "decoder.attention.out_bias", "decoder.ffn.bias"), True),
        Norms(),
        TokenWidth(),
        Key("dropout", "decoder.dropout", 0.1),
        Key("attention_dropout", "decoder.attention.dropout", 0.0),
        Key("init_std", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=CAUSAL),
        Labels(),
    ),
    allowed=Allowed({"learned_embeddings": (True,), "scale_embeddings": (False,)}),  # Galactica says so
    # layers that are skipped in training, and what was never read
    void=words("layerdrop activation_dropout output_projection"),
    bare=frozenset({"OPTModel"}),
)
