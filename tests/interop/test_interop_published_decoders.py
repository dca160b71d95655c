"""Published decoders from Qwen 2 to Mixtral: a config.json as its makers wrote it is the model that it describes."""

from typing import Any

import pytest

from transpect.base.errors import CheckpointError, ConfigError, TranspectError
from transpect.core import (
    BranchEnd,
    CausalLM,
    Full,
    Glu,
    ModelConfig,
    Moe,
    OtherLayers,
    Pooled,
    QkNorm,
    RMSNorm,
    Sandwich,
    Window,
    override,
    preset,
)
from transpect.core.positions import LinearScaling, LongRope, NoPosition, Rope, Yarn
from transpect.interop.families import FAMILIES
from transpect.interop.family import canonical

FULL, SLIDING = "full_attention", "sliding_attention"

COMMON: dict[str, Any] = {
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-06,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1",
    "use_cache": True,
}
QWEN_2_5: dict[str, Any] = {
    **COMMON,
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
# as its makers say to reach beyond 32768 tokens
QWEN_2_5_YARN: dict[str, Any] = {
    **QWEN_2_5,
    "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
}
QWEN_3: dict[str, Any] = {
    **COMMON,
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN_3_CODER: dict[str, Any] = {
    **COMMON,
    "architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 5472,
    "max_position_embeddings": 262144,
    "max_window_layers": 28,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "output_router_logits": False,
    "qkv_bias": False,
    "rope_scaling": None,
    "rope_theta": 10000000,
    "router_aux_loss_coef": 0.0,
    "shared_expert_intermediate_size": 0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_qk_norm": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
MIXTRAL: dict[str, Any] = {
    **COMMON,
    "architectures": ["MixtralForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mixtral",
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "output_router_logits": False,
    "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.02,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
MISTRAL: dict[str, Any] = {
    **COMMON,
    "architectures": ["MistralForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
# a fine-tuned one, in the words of `transformers` 5
MISTRAL_SMALL: dict[str, Any] = {
    **{name: value for name, value in MISTRAL.items() if name != "rope_theta"},
    "dtype": "bfloat16",
    "head_dim": 128,
    "hidden_size": 5120,
    "intermediate_size": 32768,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 40,
    "rope_parameters": {"rope_theta": 1000000000.0, "rope_type": "default"},
    "sliding_window": None,
    "unsloth_version": "2025.12.5",
    "vocab_size": 131072,
}
GEMMA_7B: dict[str, Any] = {
    **COMMON,
    "architectures": ["GemmaForCausalLM"],
    "attention_bias": False,
    "head_dim": 256,
    "hidden_act": "gelu",
    "hidden_activation": None,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "max_position_embeddings": 8192,
    "model_type": "gemma",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 16,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "vocab_size": 256000,
}
GEMMA_2_27B: dict[str, Any] = {
    **GEMMA_7B,
    "_attn_implementation": "eager",
    "architectures": ["Gemma2ForCausalLM"],
    "attn_logit_softcapping": 50.0,
    "cache_implementation": "hybrid",
    "final_logit_softcapping": 30.0,
    "head_dim": 128,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 4608,
    "intermediate_size": 36864,
    "model_type": "gemma2",
    "num_attention_heads": 32,
    "num_hidden_layers": 46,
    "num_key_value_heads": 16,
    "query_pre_attn_scalar": 144,
    "sliding_window": 4096,
    "sliding_window_size": 4096,
}
GEMMA_3_1B: dict[str, Any] = {
    **{name: value for name, value in COMMON.items() if name != "hidden_act"},
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "cache_implementation": "hybrid",
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262144,
}
# the text of the 4B model, in a mixture of dialects
GEMMA_3_4B: dict[str, Any] = {
    **{name: value for name, value in GEMMA_3_1B.items() if name not in ("sliding_window_pattern", "rope_scaling")},
    "_sliding_window_pattern": 6,
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "layer_types": [FULL if (layer + 1) % 6 == 0 else SLIDING for layer in range(34)],
    "max_position_embeddings": 131072,
    "num_attention_heads": 8,
    "num_hidden_layers": 34,
    "num_key_value_heads": 4,
    "rope_parameters": {
        FULL: {"factor": 8.0, "rope_type": "linear"},
        SLIDING: {"rope_type": "default"},
    },
    "sliding_window": 1024,
    "use_bidirectional_attention": False,
    "vocab_size": 262208,
}
EMBEDDING_GEMMA: dict[str, Any] = {
    **GEMMA_3_1B,
    "_sliding_window_pattern": 6,
    "architectures": ["Gemma3TextModel"],
    "hidden_size": 768,
    "intermediate_size": 1152,
    "layer_types": [FULL if (layer + 1) % 6 == 0 else SLIDING for layer in range(24)],
    "max_position_embeddings": 2048,
    "num_attention_heads": 3,
    "num_hidden_layers": 24,
    "use_bidirectional_attention": True,
}
SHORT, LONG = [1.0] * 48, [1.0 + 0.118320672 * i for i in range(48)]
PHI_4_MINI: dict[str, Any] = {
    **COMMON,
    "architectures": ["Phi3ForCausalLM"],
    "attention_bias": False,
    "auto_map": {
        "AutoConfig": "configuration_phi3.Phi3Config",
        "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
    },
    "embd_pdrop": 0.0,
    "full_attn_mod": 1,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "interpolate_factor": 1,
    "lm_head_bias": False,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "phi3",
    "num_attention_heads": 24,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "original_max_position_embeddings": 4096,
    "partial_rotary_factor": 0.75,
    "resid_pdrop": 0.0,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"long_factor": LONG, "short_factor": SHORT, "type": "longrope"},
    "rope_theta": 10000.0,
    "sliding_window": 262144,
    "tie_word_embeddings": True,
    "vocab_size": 200064,
}
# of its first days, when the scaling went by another name
PHI_3_128K: dict[str, Any] = {
    **PHI_4_MINI,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "partial_rotary_factor": 1.0,
    "rope_scaling": {"long_factor": LONG, "short_factor": SHORT, "type": "su"},
    "tie_word_embeddings": False,
    "vocab_size": 32064,
}
OLMO_2: dict[str, Any] = {
    **COMMON,
    "architectures": ["Olmo2ForCausalLM"],
    "attention_bias": False,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "model_type": "olmo2",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "rope_scaling": None,
    "rope_theta": 500000,
    "tie_word_embeddings": False,
    "vocab_size": 100352,
}
SMOLLM_3: dict[str, Any] = {
    **COMMON,
    "architectures": ["SmolLM3ForCausalLM"],
    "attention_bias": False,
    "bos_token_id": None,
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "layer_types": [FULL] * 36,
    "max_position_embeddings": 65536,
    "max_window_layers": 28,
    "mlp_bias": False,
    "model_type": "smollm3",
    "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0] * 9,
    "num_attention_heads": 16,
    "num_hidden_layers": 36,
    "num_key_value_heads": 4,
    "pretraining_tp": 2,
    "rope_scaling": None,
    "rope_theta": 5000000.0,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 128256,
}


def llama(size: tuple[int, int, int, int, int, int, int], **changes: Any) -> ModelConfig:
    """A relative of Llama: vocabulary, D, F, layers, heads, key-value heads, context; then what differs, by key."""
    vocab_size, d_model, d_ff, n_layers, n_heads, n_kv_heads, context_length = size
    named = {
        "vocab_size": vocab_size,
        "d_model": d_model,
        "n_layers": n_layers,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "context_length": context_length,
        "ffn": Glu(d_ff=d_ff),
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    return override(preset("llama"), named.items())


def gemma(size: tuple[int, int, int, int, int, int, int], **changes: Any) -> ModelConfig:
    _, _, d_ff, *_ = size
    common = {"norm": RMSNorm(unit_offset=True), "embedding__scaled": True, "ffn": Glu(d_ff=d_ff, act="gelu_tanh")}
    return llama(size, **{"head": CausalLM(), "head_dim": 256, **common, **changes})


def every(period: int, n_layers: int) -> tuple[int, ...]:
    return tuple(range(period - 1, n_layers, period))


SMALL_QWEN = (151936, 896, 4864, 24, 14, 2, 32768)
UNIT = QkNorm(RMSNorm(unit_offset=True))
PHI = {
    "norm__eps": 1e-5,
    "visibility": Window(262144),
}
PUBLISHED = {
    "qwen2.5-0.5b": (
        QWEN_2_5,
        llama(SMALL_QWEN, attention__qkv_bias=True, head__tied=True, positions=Rope(theta=1e6)),
    ),
    "qwen2.5-0.5b-yarn": (
        QWEN_2_5_YARN,
        llama(
            SMALL_QWEN,
            attention__qkv_bias=True,
            head__tied=True,
            positions=Rope(theta=1e6, scaling=Yarn(factor=4.0, original_length=32768)),
        ),
    ),
    "qwen3-0.6b": (
        QWEN_3,
        llama(
            (151936, 1024, 3072, 28, 16, 8, 40960),
            head_dim=128,
            attention__qk_norm=QkNorm(RMSNorm()),
            head__tied=True,
            positions=Rope(theta=1e6),
        ),
    ),
    "qwen3-coder-30b": (
        QWEN_3_CODER,
        llama(
            (151936, 2048, 1, 48, 32, 4, 262144),
            head_dim=128,
            attention__qk_norm=QkNorm(RMSNorm()),
            ffn=Moe(experts=128, active=8, ffn=Glu(d_ff=768)),
            positions=Rope(theta=1e7),
        ),
    ),
    "mixtral-8x7b": (
        MIXTRAL,
        llama(
            (32000, 4096, 1, 32, 32, 8, 32768),
            ffn=Moe(experts=8, active=2, ffn=Glu(d_ff=14336)),
            norm__eps=1e-5,
            positions=Rope(theta=1e6),
        ),
    ),
    "mistral-7b": (
        MISTRAL,
        llama((32000, 4096, 14336, 32, 32, 8, 32768), norm__eps=1e-5, visibility=Window(4096)),
    ),
    "mistral-small": (
        MISTRAL_SMALL,
        llama((131072, 5120, 32768, 40, 32, 8, 131072), head_dim=128, norm__eps=1e-5, positions=Rope(theta=1e9)),
    ),
    "gemma-7b": (GEMMA_7B, gemma((256000, 3072, 24576, 28, 16, 16, 8192))),
    "gemma-2-27b": (
        GEMMA_2_27B,
        gemma(
            (256000, 4608, 36864, 46, 32, 16, 8192),
            head_dim=128,
            head=CausalLM(soft_cap=30.0),
            kernel="naive",
            attention__soft_cap=50.0,
            attention__scale=144**-0.5,
            placement=Sandwich(),
            visibility=Window(4096),
            decoder__others=(OtherLayers(at=every(2, 46), visibility=preset("llama").last.visibility),),
        ),
    ),
    "gemma-3-1b": (
        GEMMA_3_1B,
        gemma(
            (262144, 1152, 6912, 26, 4, 1, 32768),
            placement=Sandwich(),
            attention__qk_norm=UNIT,
            visibility=Window(512),
            decoder__others=(
                OtherLayers(at=every(6, 26), positions=Rope(theta=1e6), visibility=preset("llama").last.visibility),
            ),
        ),
    ),
    "gemma-3-4b-text": (
        GEMMA_3_4B,
        gemma(
            (262208, 2560, 10240, 34, 8, 4, 131072),
            placement=Sandwich(),
            attention__qk_norm=UNIT,
            visibility=Window(1024),
            decoder__others=(
                OtherLayers(
                    at=every(6, 34),
                    positions=Rope(theta=1e6, scaling=LinearScaling(factor=8.0)),
                    visibility=preset("llama").last.visibility,
                ),
            ),
        ),
    ),
    "embeddinggemma-300m": (
        EMBEDDING_GEMMA,
        gemma(
            (262144, 768, 1152, 24, 3, 1, 2048),
            head=Pooled(pool="mean"),
            placement=Sandwich(),
            attention__qk_norm=UNIT,
            visibility=Window(257, both_ways=True),
            decoder__others=(OtherLayers(at=every(6, 24), positions=Rope(theta=1e6), visibility=Full()),),
        ),
    ),
    "phi-4-mini": (
        PHI_4_MINI,
        llama(
            (200064, 3072, 8192, 32, 24, 8, 131072),
            head__tied=True,
            positions=Rope(fraction=0.75, scaling=LongRope(tuple(SHORT), tuple(LONG), 4096, factor=32.0)),
            **PHI,
        ),
    ),
    "phi-3-mini-128k": (
        PHI_3_128K,
        llama(
            (32064, 3072, 8192, 32, 32, 32, 131072),
            positions=Rope(scaling=LongRope(tuple(SHORT), tuple(LONG), 4096, factor=32.0)),
            **PHI,
        ),
    ),
    "olmo-2-7b": (
        OLMO_2,
        llama(
            (100352, 4096, 11008, 32, 32, 32, 4096),
            placement=BranchEnd(),
            attention__qk_norm=QkNorm(RMSNorm(), over="all_heads"),
            positions=Rope(theta=5e5),
        ),
    ),
    "smollm3-3b": (
        SMOLLM_3,
        llama(
            (128256, 2048, 11008, 36, 16, 4, 65536),
            head__tied=True,
            positions=Rope(theta=5e6),
            decoder__others=(OtherLayers(at=every(4, 36), positions=NoPosition()),),
        ),
    ),
}


@pytest.mark.parametrize(("data", "config"), PUBLISHED.values(), ids=list(PUBLISHED))
def test_a_published_config_is_the_model_that_it_is_known_to_be(data: dict[str, Any], config: ModelConfig) -> None:
    family = FAMILIES[data["model_type"]]
    assert canonical(family.read(data)) == canonical(config)
    written = family.write(config)
    assert written is not None
    assert canonical(family.read(written)) == canonical(config)
    ours_alone = {"architectures", "rope_scaling", "hidden_act", "intermediate_size"} | (
        {"rope_parameters", "rope_theta"} if "rope_parameters" in data else set()
    )
    for name in written.keys() & data.keys() - ours_alone:
        assert written[name] == data[name], name


@pytest.mark.parametrize(
    ("data", "change", "named"),
    [
        (QWEN_2_5, {"layer_types": [FULL] * 23 + [SLIDING]}, "sliding_window"),
        (QWEN_2_5, {"layer_types": [FULL] * 23}, "24 layers"),
        (QWEN_2_5, {"layer_types": [FULL] * 23 + ["chunked_attention"]}, "layer_types"),
        (QWEN_2_5, {"use_sliding_window": True, "sliding_window": 0}, "sliding_window"),
        (QWEN_2_5, {"use_mrope": True}, "use_mrope"),
        (QWEN_2_5, {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, "RoPE scaling"),
        (QWEN_3_CODER, {"use_sliding_window": True, "sliding_window": 64}, "max_window_layers"),
        (QWEN_3_CODER, {"shared_expert_intermediate_size": 512}, "shared_expert_intermediate_size"),
        (QWEN_3_CODER, {"num_local_experts": 64}, "num_experts"),
        (QWEN_3_CODER, {"num_experts_per_tok": 129}, "at least 129"),
        (MISTRAL, {"layer_types": [FULL] * 32}, "layer_types"),
        (GEMMA_2_27B, {"sliding_window_size": 2048}, "sliding_window_size"),
        (GEMMA_2_27B, {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        (GEMMA_3_1B, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        (GEMMA_3_1B, {"sliding_window_pattern": 0}, "sliding_window_pattern"),
        (GEMMA_3_1B, {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, "rope_parameters"),
        (GEMMA_3_4B, {"rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 5e5}}}, "rope_theta"),
        (PHI_4_MINI, {"rope_scaling": {"type": "longrope", "short_factor": SHORT}}, r"scaling\.long"),
        (PHI_4_MINI, {"rope_scaling": {"type": "longrope", "long_factor": LONG, "short_factor": [1.0]}}, "1 and 48"),
        (PHI_4_MINI, {"lm_head_bias": True}, "lm_head_bias"),
        (SMOLLM_3, {"no_rope_layers": [1] * 35}, "36 layers"),
        (SMOLLM_3, {"no_rope_layers": [2] * 36}, "0 or 1"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(data: dict[str, Any], change: dict[str, Any], named: str) -> None:
    with pytest.raises((CheckpointError, ConfigError), match=named):
        FAMILIES[data["model_type"]].read({**data, **change})


ANYTHING = (None, True, 0, -1, 3.5, float("nan"), float("inf"), "x", [], ["x"], [[]], {"type": []}, {FULL: 1})


@pytest.mark.parametrize("name", PUBLISHED)
def test_whatever_an_option_holds_is_read_or_refused(name: str) -> None:
    """A config.json may hold anything; what comes of it is a config, or an error that says what is wrong."""
    data, _ = PUBLISHED[name]
    family = FAMILIES[data["model_type"]]
    options = {option for entry in family.entries for option in entry.defaults()} | data.keys() - {"model_type"}
    refused = 0
    for option in sorted(options):
        for value in ANYTHING:
            try:
                family.read({**data, option: value})
            except TranspectError:
                refused += 1
    assert refused > len(options)
