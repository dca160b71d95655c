"""Gemma (Gemma team 2024), the decoder of PaliGemma too: Llama with scaled embeddings and a gelu gate."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.interop.families import gemma_like, llama_like
from transpect.interop.family import Family
from transpect.interop.options import Allowed, Entry, Options, Override, activations, at, is_one_of
from transpect.interop.rope import RopeOptions

WORDS = activations("gelu_pytorch_tanh")


@dataclass(frozen=True)
class Activation(Entry):
    """``hidden_activation``, else ``hidden_act``. The first release calls the tanh form that it was trained with
    ``gelu``, and every later reader takes it so."""

    def defaults(self) -> Mapping[str, Any]:
        return {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": None}

    def read(self, options: Options) -> Iterable[Override]:
        word = options["hidden_activation"] or options["hidden_act"]
        word = "gelu_pytorch_tanh" if word == "gelu" else word
        if not is_one_of(word, WORDS):
            raise CheckpointError(f"hidden_act must be one of {', '.join(WORDS)}", value=word)
        yield "decoder.ffn.act", WORDS[word]

    def write(self, ours: Data) -> Mapping[str, Any]:
        act = at(ours, "decoder.ffn.act")
        return {"hidden_act": next(word for word, mine in WORDS.items() if mine == act)}


FAMILY = Family(
    model_type="gemma",
    table=llama_like.table,
    template=gemma_like.TEMPLATE,
    heads=llama_like.heads("Gemma", tied=True),
    entries=llama_like.entries(
        {
            **gemma_like.DEFAULTS,
            "hidden_size": 3072,
            "intermediate_size": 24576,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
        },
        Activation(),
        RopeOptions("decoder.positions"),
        without=("hidden_act", "mlp_bias"),
    ),
    allowed=Allowed({"use_bidirectional_attention": (None, False)}),
    bare=frozenset({"GemmaModel"}),
)
