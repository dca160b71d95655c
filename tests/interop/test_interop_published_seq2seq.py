"""Published config.json files of encoder–decoders, and what their checkpoints hold besides weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from transpect.base.errors import CheckpointError
from transpect.core import CausalLM, ModelConfig, Post, Pre, Transformer
from transpect.core.positions import Learned, Position, RepeatedBlock, Sinusoidal, T5Buckets
from transpect.interop import load_model, save_model
from transpect.interop.families import FAMILIES
from transpect.interop.family import canonical

SIZES: dict[str, Any] = {
    "d_model": 1024,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 12,
    "num_hidden_layers": 12,
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "max_position_embeddings": 1024,
    "use_cache": True,
}
LABELS = {
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
}
BART_LARGE_CNN: dict[str, Any] = {
    **SIZES,
    **LABELS,
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "gelu",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "architectures": ["BartForConditionalGeneration"],
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "early_stopping": True,
    "eos_token_id": 2,
    "force_bos_token_to_be_generated": True,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
    "gradient_checkpointing": False,
    "length_penalty": 2.0,
    "max_length": 142,
    "min_length": 56,
    "model_type": "bart",
    "no_repeat_ngram_size": 3,
    "normalize_before": False,
    "num_beams": 4,
    "output_past": True,
    "pad_token_id": 1,
    "prefix": " ",
    "scale_embedding": False,
    "task_specific_params": {"summarization": {"early_stopping": True}},
    "vocab_size": 50264,
}
BART_LARGE_MNLI: dict[str, Any] = {
    **{
        name: value
        for name, value in BART_LARGE_CNN.items()
        if name not in ("force_bos_token_to_be_generated", "prefix")
    },
    "architectures": ["BartForSequenceClassification"],
    "id2label": {"0": "contradiction", "1": "neutral", "2": "entailment"},
    "label2id": {"contradiction": 0, "entailment": 2, "neutral": 1},
    "vocab_size": 50265,
}
MBART_50: dict[str, Any] = {
    **SIZES,
    "_name_or_path": "mbart-50",
    "activation_dropout": 0.0,
    "activation_function": "gelu",
    "add_bias_logits": False,
    "add_final_layer_norm": True,
    "architectures": ["MBartForConditionalGeneration"],
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
    "gradient_checkpointing": False,
    "max_length": 200,
    "model_type": "mbart",
    "normalize_before": True,
    "normalize_embedding": True,
    "num_beams": 5,
    "output_past": True,
    "pad_token_id": 1,
    "scale_embedding": True,
    "static_position_embeddings": False,
    "tokenizer_class": "MBart50Tokenizer",
    "vocab_size": 250054,
}
OPUS_MT: dict[str, Any] = {
    **SIZES,
    **LABELS,
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "swish",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "architectures": ["MarianMTModel"],
    "attention_dropout": 0.0,
    "bad_words_ids": [[58100]],
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "d_model": 512,
    "decoder_attention_heads": 8,
    "decoder_ffn_dim": 2048,
    "decoder_layers": 6,
    "decoder_start_token_id": 58100,
    "decoder_vocab_size": 58101,
    "dropout": 0.1,
    "encoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "encoder_layers": 6,
    "eos_token_id": 0,
    "extra_pos_embeddings": 58101,
    "forced_eos_token_id": 0,
    "max_length": 512,
    "max_position_embeddings": 512,
    "model_type": "marian",
    "normalize_before": False,
    "normalize_embedding": False,
    "num_beams": 6,
    "num_hidden_layers": 6,
    "pad_token_id": 58100,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "static_position_embeddings": True,
    "vocab_size": 58101,
}
PEGASUS_XSUM: dict[str, Any] = {
    **SIZES,
    **LABELS,
    "activation_dropout": 0.1,
    "activation_function": "relu",
    "add_bias_logits": False,
    "add_final_layer_norm": True,
    "architectures": ["PegasusForConditionalGeneration"],
    "attention_dropout": 0.1,
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "decoder_layers": 16,
    "decoder_start_token_id": 0,
    "dropout": 0.1,
    "encoder_layers": 16,
    "eos_token_id": 1,
    "extra_pos_embeddings": 0,
    "force_bos_token_to_be_generated": False,
    "forced_eos_token_id": 1,
    "length_penalty": 0.6,
    "max_length": 64,
    "max_position_embeddings": 512,
    "model_type": "pegasus",
    "normalize_before": True,
    "normalize_embedding": False,
    "num_beams": 8,
    "num_hidden_layers": 16,
    "pad_token_id": 0,
    "save_step": 58,
    "scale_embedding": True,
    "static_position_embeddings": True,
    "vocab_size": 96103,
}
NLLB: dict[str, Any] = {
    **SIZES,
    "activation_dropout": 0.0,
    "activation_function": "relu",
    "architectures": ["M2M100ForConditionalGeneration"],
    "attention_dropout": 0.1,
    "bos_token_id": 0,
    "decoder_layerdrop": 0,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "encoder_layerdrop": 0,
    "eos_token_id": 2,
    "max_length": 200,
    "model_type": "m2m_100",
    "pad_token_id": 1,
    "scale_embedding": True,
    "tokenizer_class": "NllbTokenizer",
    "vocab_size": 256206,
}
BIGBIRD_PEGASUS: dict[str, Any] = {
    **SIZES,
    "activation_dropout": 0.0,
    "activation_function": "gelu_new",
    "architectures": ["BigBirdPegasusForConditionalGeneration"],
    "attention_dropout": 0.0,
    "attention_type": "block_sparse",
    "block_size": 64,
    "bos_token_id": 2,
    "classifier_dropout": 0.0,
    "decoder_layers": 16,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "encoder_layers": 16,
    "eos_token_id": 1,
    "gradient_checkpointing": False,
    "length_penalty": 0.8,
    "max_length": 256,
    "max_position_embeddings": 4096,
    "model_type": "bigbird_pegasus",
    "num_beams": 5,
    "num_hidden_layers": 16,
    "num_random_blocks": 3,
    "pad_token_id": 0,
    "scale_embedding": True,
    "tokenizer_class": "PegasusTokenizer",
    "use_bias": False,
    "vocab_size": 96103,
}
MT5: dict[str, Any] = {
    "architectures": ["MT5ForConditionalGeneration"],
    "d_ff": 1024,
    "d_kv": 64,
    "d_model": 512,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "mt5",
    "num_decoder_layers": 8,
    "num_heads": 6,
    "num_layers": 8,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
    "tokenizer_class": "T5Tokenizer",
    "vocab_size": 250112,
}
UMT5: dict[str, Any] = {
    **MT5,
    "architectures": ["UMT5ForConditionalGeneration"],
    "classifier_dropout": 0.0,
    "dense_act_fn": "gelu_new",
    "is_gated_act": True,
    "model_type": "umt5",
    "output_past": True,
    "relative_attention_max_distance": 128,
    "scalable_attention": True,
    "vocab_size": 256384,
}
LONGT5: dict[str, Any] = {
    **MT5,
    "architectures": ["LongT5ForConditionalGeneration"],
    "d_ff": 2048,
    "d_model": 768,
    "dense_act_fn": "gelu_new",
    "encoder_attention_type": "local",
    "global_block_size": 16,
    "is_gated_act": True,
    "local_radius": 127,
    "model_type": "longt5",
    "n_positions": 4096,
    "num_decoder_layers": 12,
    "num_heads": 12,
    "num_layers": 12,
    "output_past": True,
    "relative_attention_max_distance": 128,
    "vocab_size": 32128,
}
TGLOBAL = {**LONGT5, "encoder_attention_type": "transient-global"}
BART_POSITIONS, MARIAN_POSITIONS = Learned(offset=2), Sinusoidal(halves=True)
# the config, then: parameters as their makers count them (with no fixed table), norms, positions, activation
SPARSE = RepeatedBlock(64, times=3, above=704, inner=Learned())
T5, OWN, BLOCKS = T5Buckets(), T5Buckets(per_layer=True), T5Buckets(of_blocks=True)
PUBLISHED: dict[str, tuple[dict[str, Any], int, type, bool, Position, str]] = {
    "bart-large-cnn": (BART_LARGE_CNN, 406_290_432, Post, True, BART_POSITIONS, "gelu"),
    # its own layer and its classes
    "bart-large-mnli": (
        BART_LARGE_MNLI,
        406_290_432 + 1024 + (1024 * 1024 + 1024) + (3 * 1024 + 3),
        Post,
        True,
        BART_POSITIONS,
        "gelu",
    ),
    "mbart-large-50": (MBART_50, 610_879_488, Pre, True, BART_POSITIONS, "gelu"),
    "opus-mt-en-de": (OPUS_MT, 73_886_208, Post, False, MARIAN_POSITIONS, "silu"),
    "pegasus-xsum": (PEGASUS_XSUM, 568_699_904, Pre, False, MARIAN_POSITIONS, "relu"),
    "nllb-200-distilled-600M": (
        NLLB,
        615_073_792,
        Pre,
        False,
        Sinusoidal(halves=True, spread=True, offset=2),
        "relu",
    ),
    "bigbird-pegasus-large-arxiv": (BIGBIRD_PEGASUS, 576_891_904, Pre, False, SPARSE, "gelu_tanh"),
    "mt5-small": (MT5, 300_176_768, Pre, False, T5, "gelu_tanh"),
    "umt5-small": (UMT5, 306_601_984, Pre, False, OWN, "gelu_tanh"),
    "long-t5-local-base": (LONGT5, 222_903_552, Pre, False, T5, "gelu_tanh"),
    # 12 norms and one more table of 32 × 12
    "long-t5-tglobal-base": (TGLOBAL, 222_903_552 + 12 * 768 + 32 * 12, Pre, False, BLOCKS, "gelu_tanh"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_is_the_model_that_it_is_known_to_be(name: str) -> None:
    data, parameters, placement, embedding_norm, positions, act = PUBLISHED[name]
    family = FAMILIES[data["model_type"]]
    config = family.read(data)
    with torch.device("meta"):
        model = Transformer(config, seed=None)
    counted = {name: p.numel() for name, p in model.named_parameters()}
    bias = counted.pop("head.project.bias", 0) if isinstance(config.head, CausalLM) else 0  # there, it is no parameter
    assert bias in (0, config.vocab_size)
    assert sum(counted.values()) == parameters
    assert (config.embedding.norm is not None) == embedding_norm
    first = next(iter(config.towers.values()))
    assert first.positions == positions
    for stack in config.towers.values():
        assert isinstance(stack.placement, placement)
        assert isinstance(stack.positions, type(positions) | Learned)
        assert stack.ffn.act == act
    written = family.write(config)
    assert written is not None
    assert canonical(family.read(written)) == canonical(config)
    for entry in written.keys() & data.keys() - {"id2label", "label2id"}:
        assert written[entry] == data[entry], entry


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (BART_LARGE_CNN, {"normalize_before": True}),
        (BART_LARGE_CNN, {"static_position_embeddings": True}),
        (BART_LARGE_CNN, {"num_hidden_layers": 3}),
        (BART_LARGE_CNN, {"tie_word_embeddings": False}),
        (MBART_50, {"add_final_layer_norm": False}),
        (OPUS_MT, {"share_encoder_decoder_embeddings": False}),
        (OPUS_MT, {"decoder_vocab_size": 1000}),
        (NLLB, {"pad_token_id": None}),
        (NLLB, {"num_experts": 8}),
        (BIGBIRD_PEGASUS, {"attention_type": "sparse"}),
        (LONGT5, {"encoder_attention_type": "global"}),
        (UMT5, {"feed_forward_proj": "gated-gated-gelu"}),
    ],
    ids=lambda value: "-".join(value) if len(value) == 1 else value["model_type"],
)
def test_what_cannot_be_built_is_refused_by_name(data: dict[str, Any], changes: dict[str, Any]) -> None:
    family = FAMILIES[data["model_type"]]
    family.read(data)
    with pytest.raises(CheckpointError, match=next(iter(changes))):
        family.read(data | changes)


@pytest.mark.parametrize(
    ("data", "architecture"),
    [
        (BART_LARGE_CNN, "BartForQuestionAnswering"),
        (BART_LARGE_CNN, "BartForCausalLM"),
        (OPUS_MT, "MarianForCausalLM"),
        (NLLB, "M2M100ForSequenceClassification"),
        (MT5, "MT5EncoderModel"),
        (UMT5, "UMT5ForTokenClassification"),
        (LONGT5, "LongT5EncoderModel"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_architecture_that_is_not_built_is_named(data: dict[str, Any], architecture: str) -> None:
    with pytest.raises(CheckpointError, match=architecture):
        FAMILIES[data["model_type"]].read(data | {"architectures": [architecture]})


DISTILBART = {"extra_pos_embeddings": 2, "replacing_rate": 0, "student_encoder_layers": None, "save_step": 4}
CODET5 = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "gradient_checkpointing": False}


@pytest.mark.parametrize(
    ("data", "more"),
    [(BART_LARGE_CNN, DISTILBART), (MT5, CODET5), (OPUS_MT, {"num_labels": 3})],
    ids=["bart", "t5", "mt"],
)
def test_void_options_of_published_configs_change_nothing(data: dict[str, Any], more: dict[str, Any]) -> None:
    family = FAMILIES[data["model_type"]]
    assert family.read(data | more) == family.read(data)


def tiny(data: dict[str, Any]) -> ModelConfig:
    if "num_heads" in data:
        small: dict[str, Any] = {"num_layers": 2, "num_decoder_layers": 2, "d_kv": 8, "tie_word_embeddings": True}
    else:
        small = dict.fromkeys(("encoder_layers", "decoder_layers", "num_hidden_layers"), 2)
        small["max_position_embeddings"] = 20
    small |= {"decoder_vocab_size": 97} if data is OPUS_MT else {}
    return FAMILIES[data["model_type"]].read(data | small | {"vocab_size": 97, "d_model": 32})


@pytest.mark.parametrize(
    ("data", "table"),
    [(OPUS_MT, "embed_positions.weight"), (PEGASUS_XSUM, "embed_positions.weight"), (NLLB, "embed_positions.weights")],
    ids=["marian", "pegasus", "m2m_100"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_stored_table_of_sinusoids_is_checked(
    data: dict[str, Any], table: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """It is what it should be, or the checkpoint is refused: it might have been trained."""
    model = Transformer(tiny(data)).to(dtype)
    save_model(model, tmp_path)
    file = tmp_path / "model.safetensors"
    stored = load_file(file)
    names = [f"model.{side}.{table}" for side in ("encoder", "decoder")]
    if data is NLLB:
        half = torch.arange(16)
        angle = torch.arange(22)[:, None] * 10000.0 ** (-half / 15)
        numbers = torch.cat([angle.sin(), angle.cos()], -1)
        numbers[1] = 0.0
        stored |= {name: numbers.to(dtype).clone() for name in names}
        save_file(stored, file, {"format": "pt"})
    assert stored[names[0]].dtype == dtype
    again = load_model(tmp_path)
    assert all(torch.equal(again.state_dict()[name], value) for name, value in model.state_dict().items())
    save_file(stored | {names[1]: stored[names[1]] + 0.1}, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match=names[1]):
        load_model(tmp_path)
    without = {name: value for name, value in stored.items() if name not in names}
    save_file(without, file, {"format": "pt"})
    load_model(tmp_path)


@pytest.mark.parametrize(
    "data",
    [BART_LARGE_CNN, MBART_50, OPUS_MT, PEGASUS_XSUM, NLLB, MT5, UMT5, LONGT5],
    ids=lambda data: data["model_type"],
)
def test_any_name_of_the_shared_table_will_do(data: dict[str, Any], tmp_path: Path) -> None:
    """Tools that leave copies out keep whichever name they come upon; a copy that differs is refused."""
    model = Transformer(tiny(data))
    save_model(model, tmp_path)
    file = tmp_path / "model.safetensors"
    stored = load_file(file)
    aliases = [alias.theirs for alias in FAMILIES[data["model_type"]].table(model.config).aliases]
    assert len(aliases) >= 2
    shared = stored.pop(next(name for name in stored if name.endswith("shared.weight")))
    for name in aliases:
        save_file(stored | {name: shared}, file, {"format": "pt"})
        again = load_model(tmp_path).state_dict()
        assert all(torch.equal(again[key], value) for key, value in model.state_dict().items())
    save_file(stored | {aliases[0]: shared, aliases[1]: shared + 1}, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match="must be equal"):
        load_model(tmp_path)


@pytest.mark.parametrize("data", [BART_LARGE_CNN, MBART_50, OPUS_MT], ids=lambda data: data["model_type"])
def test_a_checkpoint_of_the_body_alone_writes_too(data: dict[str, Any], tmp_path: Path) -> None:
    """``BartModel`` has all that a tied head needs; a bias over the vocabulary that is not there is zeros."""
    model = Transformer(tiny(data))
    save_model(model, tmp_path)
    file, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    stored = load_file(file)
    assert stored.pop("final_logits_bias").shape == (1, 97)
    body = {name.removeprefix("model."): value for name, value in stored.items()}
    body["encoder.version"] = torch.tensor([3.0])  # as in 2019
    save_file(body | {"encoder.embed_tokens.weight": body["shared.weight"].clone()}, file, {"format": "pt"})
    name = "BartModel" if data is BART_LARGE_CNN else "MBartModel" if data is MBART_50 else "MarianModel"
    text = config.read_text()
    config.write_text(text.replace(data["architectures"][0], name))
    again = load_model(tmp_path)
    assert all(torch.equal(again.state_dict()[key], value) for key, value in model.state_dict().items())
