"""Published encoders, as their makers wrote them: their config.json, and what their weights hold besides a model."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.core import (
    Blocks,
    EdgeBlocks,
    Factor,
    Full,
    GlobalTokens,
    Glu,
    LayerNorm,
    MaskedLM,
    ModelConfig,
    OtherLayers,
    Pooled,
    SequenceClass,
    TokenClass,
    Transform,
    Transformer,
    UpTo,
    Window,
    override,
    preset,
)
from transpect.core.positions import Learned, RepeatedBlock, Rope
from transpect.interop import load_config, load_model, save_model
from transpect.interop.families import FAMILIES
from transpect.interop.family import canonical

BERT: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
# the multilingual one of 2018
BERT_2018: dict[str, Any] = {
    **BERT,
    "architectures": ["BertForMaskedLM"],
    "directionality": "bidi",
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
    "vocab_size": 119547,
}
ROBERTA: dict[str, Any] = {
    **BERT,
    "architectures": ["RobertaForMaskedLM"],
    "bos_token_id": 0,
    "eos_token_id": 2,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 514,
    "model_type": "roberta",
    "pad_token_id": 1,
    "type_vocab_size": 1,
    "vocab_size": 50265,
}
XLM_R: dict[str, Any] = {
    **ROBERTA,
    "architectures": ["XLMRobertaForMaskedLM"],
    "model_type": "xlm-roberta",
    "output_past": True,
    "position_embedding_type": "absolute",
    "transformers_version": "4.17.0.dev0",
    "use_cache": True,
    "vocab_size": 250002,
}
CAMEMBERT: dict[str, Any] = {
    **ROBERTA,
    "architectures": ["CamembertForMaskedLM"],
    "bos_token_id": 5,
    "eos_token_id": 6,
    "model_type": "camembert",
    "output_past": True,
    "vocab_size": 32005,
}
DISTILBERT: dict[str, Any] = {
    "activation": "gelu",
    "architectures": ["DistilBertForMaskedLM"],
    "attention_dropout": 0.1,
    "dim": 768,
    "dropout": 0.1,
    "hidden_dim": 3072,
    "initializer_range": 0.02,
    "max_position_embeddings": 512,
    "model_type": "distilbert",
    "n_heads": 12,
    "n_layers": 6,
    "pad_token_id": 0,
    "qa_dropout": 0.1,
    "seq_classif_dropout": 0.2,
    "sinusoidal_pos_embds": False,
    "tie_weights_": True,
    "transformers_version": "4.10.0.dev0",
    "vocab_size": 30522,
}
SENTIMENT: dict[str, Any] = {
    **DISTILBERT,
    "architectures": ["DistilBertForSequenceClassification"],
    "finetuning_task": "sst-2",
    "id2label": {"0": "NEGATIVE", "1": "POSITIVE"},
    "label2id": {"NEGATIVE": 0, "POSITIVE": 1},
    "output_past": True,
}
ELECTRA: dict[str, Any] = {
    **BERT,
    "architectures": ["ElectraForPreTraining"],
    "embedding_size": 128,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "model_type": "electra",
    "num_attention_heads": 4,
    "summary_activation": "gelu",
    "summary_last_dropout": 0.1,
    "summary_type": "first",
    "summary_use_proj": True,
}
GENERATOR: dict[str, Any] = {**ELECTRA, "architectures": ["ElectraForMaskedLM"]}
ALBERT: dict[str, Any] = {
    **BERT,
    "architectures": ["AlbertForMaskedLM"],
    "attention_probs_dropout_prob": 0,
    "bos_token_id": 2,
    "classifier_dropout_prob": 0.1,
    "down_scale_factor": 1,
    "embedding_size": 128,
    "eos_token_id": 3,
    "gap_size": 0,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0,
    "inner_group_num": 1,
    "model_type": "albert",
    "net_structure_type": 0,
    "num_hidden_groups": 1,
    "num_memory_blocks": 0,
    "vocab_size": 30000,
}
MODERNBERT: dict[str, Any] = {
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 50281,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 50281,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 50282,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 1152,
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "pad_token_id": 50283,
    "position_embedding_type": "absolute",
    "sep_token_id": 50282,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.47.0.dev0",
    "vocab_size": 50368,
}
MODERN_CLASSES: dict[str, Any] = {**MODERNBERT, "architectures": ["ModernBertForSequenceClassification"]}
LONGFORMER: dict[str, Any] = {
    **ROBERTA,
    "attention_mode": "longformer",
    "attention_window": [512] * 12,
    "ignore_attention_mask": False,
    "max_position_embeddings": 4098,
    "model_type": "longformer",
    "sep_token_id": 2,
}
del LONGFORMER["architectures"]
BIG_BIRD: dict[str, Any] = {
    **BERT,
    "architectures": ["BigBirdForPreTraining"],
    "attention_type": "block_sparse",
    "block_size": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "gelu_new",
    "max_position_embeddings": 4096,
    "model_type": "big_bird",
    "num_random_blocks": 3,
    "position_embedding_type": "absolute",
    "rescale_embeddings": False,
    "sep_token_id": 66,
    "use_bias": True,
    "use_cache": True,
    "vocab_size": 50358,
}


def bert(*changes: tuple[str, Any]) -> ModelConfig:
    return override(preset("bert-base"), changes)


EPS = [(f"{place}.eps", 1e-5) for place in ("encoder.norm", "embedding.norm", "head.norm")]
LIKE_ROBERTA = [*EPS, ("embedding.token_types", 1), ("positions", Learned(offset=2))]
SMALL_ELECTRA = [("d_model", 256), ("d_ff", 1024), ("n_heads", 4), ("embedding.factor", Factor(128))]
PLAIN_NORM = LayerNorm(bias=False)
NEAR = OtherLayers(
    at=tuple(layer for layer in range(22) if layer % 3),
    positions=Rope(theta=10000.0),
    visibility=Window(65, both_ways=True),
)
PUBLISHED = {
    "bert-2018": (BERT_2018, bert(("vocab_size", 119547))),
    "roberta": (ROBERTA, bert(("vocab_size", 50265), *LIKE_ROBERTA)),
    "xlm-roberta": (XLM_R, bert(("vocab_size", 250002), *LIKE_ROBERTA)),
    "camembert": (CAMEMBERT, bert(("vocab_size", 32005), *LIKE_ROBERTA)),
    "distilbert": (DISTILBERT, bert(("embedding.token_types", 0), ("n_layers", 6))),
    "distilbert-sst2": (
        SENTIMENT,
        bert(
            ("embedding.token_types", 0),
            ("n_layers", 6),
            ("head", SequenceClass(2, transform=Transform(act="relu"))),
        ),
    ),
    "electra-discriminator": (ELECTRA, bert(*SMALL_ELECTRA, ("head", TokenClass(1, Transform(act="gelu"))))),
    "electra-generator": (GENERATOR, bert(*SMALL_ELECTRA)),
    "albert": (
        ALBERT,
        bert(
            ("vocab_size", 30000),
            ("encoder.ffn.act", "gelu_tanh"),
            ("head.act", "gelu_tanh"),
            ("embedding.factor", Factor(128)),
            ("encoder.n_unique", 1),
        ),
    ),
    "modernbert": (
        MODERNBERT,
        bert(
            ("vocab_size", 50368),
            ("context_length", 8192),
            ("n_layers", 22),
            ("ffn", Glu(d_ff=1152, act="gelu")),
            ("embedding.norm", PLAIN_NORM),
            ("embedding.token_types", 0),
            ("norm", PLAIN_NORM),
            ("placement", "pre"),
            ("encoder.first_norm", False),
            ("attention.qkv_bias", False),
            ("attention.out_bias", False),
            ("positions", Rope(theta=160000.0)),
            ("encoder.others", [NEAR]),
            ("head", MaskedLM(dense_bias=False, norm=PLAIN_NORM)),
        ),
    ),
    "longformer": (
        LONGFORMER,
        bert(
            ("vocab_size", 50265),
            *LIKE_ROBERTA,
            ("context_length", 4096),
            ("attention.global_projections", True),
            ("visibility", Window(257, both_ways=True) | GlobalTokens()),
        ),
    ),
    "big-bird": (
        BIG_BIRD,
        bert(
            ("vocab_size", 50358),
            ("context_length", 4096),
            ("encoder.ffn.act", "gelu_tanh"),
            ("head.act", "gelu_tanh"),
            ("visibility", UpTo(704) | Blocks(64) | EdgeBlocks(64)),
            ("positions", RepeatedBlock(64, times=3, above=704)),
        ),
    ),
    "big-bird-full": (
        {**BIG_BIRD, "attention_type": "original_full", "rescale_embeddings": True, "use_bias": False},
        bert(
            ("vocab_size", 50358),
            ("context_length", 4096),
            ("encoder.ffn.act", "gelu_tanh"),
            ("head.act", "gelu_tanh"),
            ("embedding.scaled", True),
            ("attention.qkv_bias", False),
            ("visibility", Full()),
        ),
    ),
}


@pytest.mark.parametrize(("data", "config"), PUBLISHED.values(), ids=list(PUBLISHED))
def test_a_published_config_is_the_model_that_it_is_known_to_be(data: dict[str, Any], config: ModelConfig) -> None:
    family = FAMILIES[data["model_type"]]
    assert canonical(family.read(data)) == canonical(config)
    written = family.write(family.read(data))
    assert written is not None
    for name in written.keys() & data.keys() - {"architectures", "id2label", "label2id"}:
        assert written[name] == data[name], name


@pytest.mark.parametrize(
    ("data", "option"),
    [
        ({**BERT, "position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({**ROBERTA, "position_embedding_type": "relative_key_query"}, "position_embedding_type"),
        ({**BERT, "is_decoder": True}, "is_decoder"),
        ({**BERT, "architectures": ["BertForQuestionAnswering"]}, "architecture"),
        ({**ROBERTA, "pad_token_id": None}, "pad_token_id"),
        ({**ALBERT, "inner_group_num": 2}, "inner_group_num"),
        ({**ALBERT, "num_memory_blocks": 4}, "num_memory_blocks"),
        ({**MODERN_CLASSES, "classifier_pooling": "max"}, "classifier_pooling"),
        ({**MODERNBERT, "rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, "RoPE"),
        ({**MODERNBERT, "layer_types": ["chunked_attention"] * 22}, "layer_types"),
        ({**LONGFORMER, "attention_window": 7}, "attention_window"),
        ({**LONGFORMER, "attention_window": [512] * 11}, "attention_window"),
        ({**LONGFORMER, "attention_mode": "n2"}, "attention_mode"),
        ({**BIG_BIRD, "attention_type": "sparser"}, "attention_type"),
        ({**BIG_BIRD, "block_size": 0}, "block_size"),
        ({**BIG_BIRD, "num_random_blocks": None}, "num_random_blocks"),
        ({**DISTILBERT, "activation": "mish"}, "activation"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["model_type"],
)
def test_what_cannot_be_built_is_refused_by_name(data: dict[str, Any], option: str) -> None:
    with pytest.raises(CheckpointError, match=option):
        FAMILIES[data["model_type"]].read(data)


@pytest.mark.parametrize(
    ("labels", "count"),
    [
        ({}, 2),
        ({"num_labels": 7}, 7),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, 3),
        ({"id2label": {"0": "a", "1": "b"}, "num_labels": 50, "eos_token_ids": 0}, 50),  # as in 2019
    ],
    ids=str,
)
def test_how_many_classes_there_are(labels: dict[str, Any], count: int) -> None:
    config = FAMILIES["bert"].read({**BERT, "architectures": ["BertForSequenceClassification"], **labels})
    assert config.head == SequenceClass(count)


def test_distilbert_knows_the_words_of_bert() -> None:
    named = {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 3}
    bare = {name: value for name, value in DISTILBERT.items() if name not in ("dim", "n_heads", "n_layers")}
    config = FAMILIES["distilbert"].read({**bare, **named})
    assert (config.d_model, config.last.attention.n_heads, config.last.n_layers) == (96, 6, 3)
    with pytest.raises(CheckpointError, match="hidden_size"):
        FAMILIES["distilbert"].read({**DISTILBERT, "hidden_size": 96})


TINY = {"vocab_size": 97, "num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 48, "intermediate_size": 60}
Change = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]


def stored(data: Mapping[str, Any], folder: Path) -> tuple[Transformer, dict[str, Tensor]]:
    """A tiny model of a published kind, and its tensors under their names."""
    config = FAMILIES[data["model_type"]].read({**data, **TINY})
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(parameter.numel()))
    save_model(model, folder)
    return model, load_file(folder / "model.safetensors")


def pretraining_of_bert(tensors: dict[str, Tensor]) -> Mapping[str, Tensor]:
    """bert-base-uncased as it was published: norms by their old names, and a head of the next sentence."""
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        for name in tensors
    }
    assert len(old & tensors.keys()) < len(tensors)
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    return {
        **renamed,
        "bert.pooler.dense.weight": torch.randn(48, 48),
        "bert.pooler.dense.bias": torch.randn(48),
        "cls.seq_relationship.weight": torch.randn(2, 48),
        "cls.seq_relationship.bias": torch.randn(2),
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone(),
        "bert.embeddings.position_ids": torch.arange(512)[None],
    }


def pretraining_of_roberta(tensors: dict[str, Tensor]) -> Mapping[str, Tensor]:
    return {
        **tensors,
        "roberta.embeddings.position_ids": torch.arange(514)[None],
        "roberta.pooler.dense.weight": torch.randn(48, 48),
        "roberta.pooler.dense.bias": torch.randn(48),
        "lm_head.decoder.weight": tensors["roberta.embeddings.word_embeddings.weight"].clone(),
        "lm_head.decoder.bias": tensors["lm_head.bias"].clone(),
    }


def pretraining_of_albert(tensors: dict[str, Tensor]) -> Mapping[str, Tensor]:
    return {
        **tensors,
        "albert.pooler.weight": torch.randn(48, 48),
        "albert.pooler.bias": torch.randn(48),
        "sop_classifier.classifier.weight": torch.randn(2, 48),
        "sop_classifier.classifier.bias": torch.randn(2),
        "predictions.decoder.weight": tensors["albert.embeddings.word_embeddings.weight"].clone(),
        "predictions.decoder.bias": tensors["predictions.bias"].clone(),
    }


def pretraining_of_big_bird(tensors: dict[str, Tensor]) -> Mapping[str, Tensor]:
    return {
        **tensors,
        "bert.pooler.weight": torch.randn(48, 48),
        "bert.pooler.bias": torch.randn(48),
        "cls.seq_relationship.weight": torch.randn(2, 48),
        "cls.seq_relationship.bias": torch.randn(2),
    }


@pytest.mark.parametrize(
    ("data", "change"),
    [
        ({**BERT, "architectures": ["BertForMaskedLM"]}, pretraining_of_bert),
        ({**BERT, "architectures": ["BertForPreTraining"]}, pretraining_of_bert),
        (ROBERTA, pretraining_of_roberta),
        (ALBERT, pretraining_of_albert),
        ({**ALBERT, "architectures": ["AlbertForPreTraining"]}, pretraining_of_albert),
        (BIG_BIRD, pretraining_of_big_bird),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value["architectures"][0]),
)
def test_weights_of_pretraining_load(data: dict[str, Any], change: Change, tmp_path: Path) -> None:
    model, tensors = stored(data, tmp_path)
    save_file(dict(change(tensors)), tmp_path / "model.safetensors")
    again = load_model(tmp_path).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())


def test_a_second_bias_that_differs_is_refused(tmp_path: Path) -> None:
    _, tensors = stored(ROBERTA, tmp_path)
    save_file({**tensors, "lm_head.decoder.bias": torch.randn(97)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lm_head\.decoder\.bias"):
        load_model(tmp_path)


def test_a_head_of_the_next_sentence_is_a_classifier_of_two(tmp_path: Path) -> None:
    data = {**BERT, "architectures": ["BertForNextSentencePrediction"]}
    model, tensors = stored(data, tmp_path)
    assert model.config.head == SequenceClass(2, dropout=0.1)
    renamed = {name.replace("classifier.", "cls.seq_relationship."): tensor for name, tensor in tensors.items()}
    assert renamed.keys() != tensors.keys()
    save_file(renamed, tmp_path / "model.safetensors")
    again = load_model(tmp_path).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("pooler", [True, False])
@pytest.mark.parametrize(
    "data",
    [BERT, ROBERTA, {**LONGFORMER, "attention_window": 8}, ALBERT, BIG_BIRD],
    ids=lambda data: data["model_type"],
)
def test_tensors_say_whether_there_is_a_pooler(data: dict[str, Any], pooler: bool, tmp_path: Path) -> None:
    bare = next(name for name, head in FAMILIES[data["model_type"]].heads.items() if isinstance(head, Pooled))
    model, tensors = stored({**data, "architectures": [bare]}, tmp_path)
    assert any(name.startswith("pooler.") for name in tensors)
    kept = {name: tensor for name, tensor in tensors.items() if pooler or not name.startswith("pooler.")}
    save_file(kept, tmp_path / "model.safetensors")
    again = load_model(tmp_path)
    assert again.config.head == Pooled(pool="first", transform=Transform() if pooler else None)
    save_model(again, tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == kept.keys()
    ids = torch.arange(20)[None]
    assert torch.equal(again.hidden(ids), model.hidden(ids))


def test_what_only_pickled_weights_could_answer_is_asked_where_that_is_allowed(tmp_path: Path) -> None:
    """A config alone has a pooler; one beside weights has what they say, and is not guessed at."""
    bare = {**BERT, "architectures": ["BertModel"]}
    model, tensors = stored(bare, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert load_config(tmp_path) == model.config
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("pooler.")}
    torch.save(kept, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="allow_pickle=True"):
        load_config(tmp_path)
    assert load_config(tmp_path, allow_pickle=True).head == Pooled(pool="first")


def test_the_padding_of_a_tokenizer_does_not_move_positions(tmp_path: Path) -> None:
    model, _ = stored(ROBERTA, tmp_path / "own")
    save_model(model, tmp_path / "other", generation={"pad_token_id": 7})
    assert canonical(load_model(tmp_path / "other").config) == canonical(model.config)
