"""Encoders."""

from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

from family_cases.base import Case, Options

BERT: Options = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 60,
    "max_position_embeddings": 64,
    "type_vocab_size": 3,
}

CASES = [
    Case("bert", BertConfig, BertForMaskedLM, BERT),
    Case(
        "bert-untied",
        BertConfig,
        BertForMaskedLM,
        {**BERT, "hidden_act": "relu", "tie_word_embeddings": False, "layer_norm_eps": 1e-2},
        unread=("cls.predictions.bias",),  # a second one
    ),
    Case("bert-pooler", BertConfig, BertModel, BERT),
    Case("bert-classes", BertConfig, BertForSequenceClassification, {**BERT, "num_labels": 5}),
    Case("bert-token-classes", BertConfig, BertForTokenClassification, {**BERT, "num_labels": 5}),
]
