"""Encoders."""

from typing import Any

from torch import nn
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    BigBirdConfig,
    BigBirdForMaskedLM,
    BigBirdForSequenceClassification,
    BigBirdForTokenClassification,
    BigBirdModel,
    CamembertConfig,
    CamembertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    DistilBertModel,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForSequenceClassification,
    ElectraForTokenClassification,
    ElectraModel,
    LongformerConfig,
    LongformerForMaskedLM,
    LongformerForSequenceClassification,
    LongformerForTokenClassification,
    LongformerModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaForSequenceClassification,
)

from family_cases.base import PAD, Case, Options

BERT: Options = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 60,
    "max_position_embeddings": 64,
    "type_vocab_size": 3,
}
UNTIED: Options = {"hidden_act": "relu", "tie_word_embeddings": False, "layer_norm_eps": 1e-2}
ROBERTA: Options = {**BERT, "max_position_embeddings": 64 + PAD + 1}
DISTILBERT: Options = {
    "vocab_size": 97,
    "dim": 48,
    "n_layers": 3,
    "n_heads": 3,
    "hidden_dim": 60,
    "max_position_embeddings": 64,
}
ELECTRA: Options = {**BERT, "embedding_size": 20}
ALBERT: Options = {**ELECTRA, "num_hidden_layers": 6, "num_hidden_groups": 2}
MODERN: Options = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 3,
    "intermediate_size": 60,
    "max_position_embeddings": 64,
    "local_attention": 10,
    "cls_token_id": None,
    "sep_token_id": None,
}
MODERN_ODD: Options = {
    **MODERN,
    "layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
    "hidden_activation": "silu",
    "attention_bias": True,
    "mlp_bias": True,
    "norm_bias": True,
    "norm_eps": 1e-2,
    "classifier_bias": True,
    "classifier_activation": "relu",
}
LONGFORMER: Options = {**ROBERTA, "attention_window": [4, 8, 40], "sep_token_id": 2}
BIG_BIRD: Options = {
    **BERT,
    "max_position_embeddings": 64 + PAD,  # there, what fills a block up has the padding's id for a position
    "block_size": 4,
    "num_random_blocks": 1,
    "sep_token_id": 2,
}
# heads that read no pooler have one there all the same
POOLER = ("bert.pooler.weight", "bert.pooler.bias")
CLASSES: Options = {"num_labels": 5}


def without_pooler(model: type[nn.Module]) -> type[nn.Module]:
    """The base model as `transformers` builds it inside heads that need no pooler."""

    class Bare(model):  # type: ignore[valid-type,misc]
        def __init__(self, config: Any) -> None:
            super().__init__(config, add_pooling_layer=False)

    Bare.__name__ = model.__name__
    return Bare


CASES = [
    Case("bert", BertConfig, BertForMaskedLM, BERT),
    Case(
        "bert-untied",
        BertConfig,
        BertForMaskedLM,
        {**BERT, **UNTIED},
        unread=("cls.predictions.bias",),  # a second one
    ),
    Case("bert-pooler", BertConfig, BertModel, BERT),
    Case("bert-no-pooler", BertConfig, without_pooler(BertModel), BERT),
    Case("bert-classes", BertConfig, BertForSequenceClassification, {**BERT, **CLASSES}),
    Case("bert-token-classes", BertConfig, BertForTokenClassification, {**BERT, **CLASSES}),
    Case("roberta", RobertaConfig, RobertaForMaskedLM, ROBERTA, first_position=None),
    Case(
        "roberta-untied",
        RobertaConfig,
        RobertaForMaskedLM,
        {**ROBERTA, **UNTIED, "max_position_embeddings": 50 + PAD},
        unread=("lm_head.bias",),
        first_position=PAD + 1,
    ),
    Case("roberta-pooler", RobertaConfig, RobertaModel, ROBERTA, first_position=None),
    Case("roberta-no-pooler", RobertaConfig, without_pooler(RobertaModel), ROBERTA, first_position=None),
    Case(
        "roberta-classes", RobertaConfig, RobertaForSequenceClassification, {**ROBERTA, **CLASSES}, first_position=None
    ),
    Case(
        "roberta-token-classes",
        RobertaConfig,
        RobertaForTokenClassification,
        {**ROBERTA, **CLASSES},
        first_position=None,
    ),
    Case("xlm-roberta", XLMRobertaConfig, XLMRobertaForMaskedLM, ROBERTA, first_position=None),
    Case(
        "xlm-roberta-classes",
        XLMRobertaConfig,
        XLMRobertaForSequenceClassification,
        {**ROBERTA, **CLASSES},
        first_position=None,
    ),
    Case("camembert", CamembertConfig, CamembertForMaskedLM, ROBERTA, first_position=None),
    Case("distilbert", DistilBertConfig, DistilBertForMaskedLM, DISTILBERT),
    Case(
        "distilbert-untied",
        DistilBertConfig,
        DistilBertForMaskedLM,
        {**DISTILBERT, "activation": "relu", "tie_word_embeddings": False, "sinusoidal_pos_embds": True},
    ),
    Case("distilbert-base", DistilBertConfig, DistilBertModel, DISTILBERT),
    Case("distilbert-classes", DistilBertConfig, DistilBertForSequenceClassification, {**DISTILBERT, **CLASSES}),
    Case("distilbert-token-classes", DistilBertConfig, DistilBertForTokenClassification, {**DISTILBERT, **CLASSES}),
    Case("electra", ElectraConfig, ElectraForPreTraining, {**ELECTRA, "hidden_act": "relu"}),
    Case("electra-generator", ElectraConfig, ElectraForMaskedLM, ELECTRA),
    Case("electra-untied", ElectraConfig, ElectraForMaskedLM, {**ELECTRA, **UNTIED}),
    Case("electra-same-width", ElectraConfig, ElectraForPreTraining, {**ELECTRA, "embedding_size": 48}),
    Case("electra-base", ElectraConfig, ElectraModel, ELECTRA),
    Case("electra-classes", ElectraConfig, ElectraForSequenceClassification, {**ELECTRA, **CLASSES}),
    Case("electra-token-classes", ElectraConfig, ElectraForTokenClassification, {**ELECTRA, **CLASSES}),
    Case("albert", AlbertConfig, AlbertForMaskedLM, ALBERT),
    Case(
        "albert-untied",
        AlbertConfig,
        AlbertForMaskedLM,
        {**ALBERT, **UNTIED, "num_hidden_groups": 1},
        unread=("predictions.bias",),
    ),
    Case("albert-same-width", AlbertConfig, AlbertForMaskedLM, {**ALBERT, "embedding_size": 48}),
    Case("albert-pooler", AlbertConfig, AlbertModel, ALBERT),
    Case("albert-no-pooler", AlbertConfig, without_pooler(AlbertModel), ALBERT),
    Case("albert-classes", AlbertConfig, AlbertForSequenceClassification, {**ALBERT, **CLASSES}),
    Case("albert-token-classes", AlbertConfig, AlbertForTokenClassification, {**ALBERT, **CLASSES}),
    Case("modernbert", ModernBertConfig, ModernBertForMaskedLM, MODERN),
    Case(
        "modernbert-odd",
        ModernBertConfig,
        ModernBertForMaskedLM,
        {**MODERN_ODD, "decoder_bias": False, "tie_word_embeddings": False},
    ),
    Case(
        "modernbert-thetas",
        ModernBertConfig,
        ModernBertForMaskedLM,
        {
            **MODERN,
            "global_attn_every_n_layers": 2,
            "global_rope_theta": 5000.0,
            "local_rope_theta": 20.0,
            "local_attention": 7,
        },
    ),
    Case("modernbert-base", ModernBertConfig, ModernBertModel, MODERN),
    Case("modernbert-classes", ModernBertConfig, ModernBertForSequenceClassification, {**MODERN_ODD, **CLASSES}),
    Case(
        "modernbert-classes-mean",
        ModernBertConfig,
        ModernBertForSequenceClassification,
        {**MODERN, **CLASSES, "classifier_pooling": "mean"},
    ),
    Case("modernbert-token-classes", ModernBertConfig, ModernBertForTokenClassification, {**MODERN_ODD, **CLASSES}),
    Case("longformer", LongformerConfig, LongformerForMaskedLM, LONGFORMER, first_position=None),
    Case(
        "longformer-untied",
        LongformerConfig,
        LongformerForMaskedLM,
        {**LONGFORMER, **UNTIED, "attention_window": 6},
        unread=("lm_head.bias",),
        first_position=None,
    ),
    Case("longformer-pooler", LongformerConfig, LongformerModel, LONGFORMER, first_position=None),
    Case("longformer-no-pooler", LongformerConfig, without_pooler(LongformerModel), LONGFORMER, first_position=None),
    Case(
        "longformer-classes",
        LongformerConfig,
        LongformerForSequenceClassification,
        {**LONGFORMER, **CLASSES},
        first_position=None,
    ),
    Case(
        "longformer-token-classes",
        LongformerConfig,
        LongformerForTokenClassification,
        {**LONGFORMER, **CLASSES},
        first_position=None,
    ),
    # their blocks are counted from the first column, and the last one is the batch's
    Case("big-bird", BigBirdConfig, BigBirdForMaskedLM, BIG_BIRD, row_by_row=True, unread=POOLER),
    Case(
        "big-bird-odd",
        BigBirdConfig,
        BigBirdForMaskedLM,
        {
            **BIG_BIRD,
            **UNTIED,
            "block_size": 2,
            "num_random_blocks": 3,
            "use_bias": False,
            "rescale_embeddings": True,
        },
        unread=("cls.predictions.bias", *POOLER),
        row_by_row=True,
    ),
    Case(
        "big-bird-short",
        BigBirdConfig,
        BigBirdForMaskedLM,
        {**BIG_BIRD, "block_size": 6},
        row_by_row=True,
        unread=POOLER,
    ),
    Case(
        "big-bird-full",
        BigBirdConfig,
        BigBirdForSequenceClassification,
        {**BIG_BIRD, **CLASSES, "attention_type": "original_full", "hidden_act": "relu"},
        unread=POOLER,
    ),
    Case("big-bird-pooler", BigBirdConfig, BigBirdModel, BIG_BIRD, row_by_row=True),
    Case("big-bird-no-pooler", BigBirdConfig, without_pooler(BigBirdModel), BIG_BIRD, row_by_row=True),
    Case(
        "big-bird-classes",
        BigBirdConfig,
        BigBirdForSequenceClassification,
        {**BIG_BIRD, **CLASSES},
        row_by_row=True,
        unread=POOLER,
    ),
    Case(
        "big-bird-token-classes",
        BigBirdConfig,
        BigBirdForTokenClassification,
        {**BIG_BIRD, **CLASSES},
        row_by_row=True,
        unread=POOLER,
    ),
]
