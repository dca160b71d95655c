"""Marian (Junczys-Dowmunt et al. 2018), as the OPUS-MT models are: sines, then cosines; norms after the branches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core.positions import Sinusoidal
from transpect.interop.families.bart_like import Kind, family
from transpect.interop.options import Entry, Like, Options, Override


@dataclass(frozen=True)
class OneVocabulary(Entry):
    """Both towers read one table of tokens; a decoder with a vocabulary of its own is refused."""

    def defaults(self) -> Mapping[str, Any]:
        return {"decoder_vocab_size": Like("vocab_size"), "share_encoder_decoder_embeddings": True}

    def read(self, options: Options) -> Iterable[Override]:
        sizes = options["decoder_vocab_size"], options["vocab_size"]
        if options["share_encoder_decoder_embeddings"] is not True or sizes[0] != sizes[1]:
            raise CheckpointError(
                "encoder and decoder must share one table of tokens (share_encoder_decoder_embeddings) here",
                value=f"decoder_vocab_size={sizes[0]}, vocab_size={sizes[1]}",
            )
        return []

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {"decoder_vocab_size": ours["vocab_size"], "share_encoder_decoder_embeddings": True}


FAMILY = family(
    Kind(
        model_type="marian",
        architectures=("MarianMTModel", "MarianModel"),
        positions=Sinusoidal(halves=True),
        pre=False,
        embedding_norm=False,
        defaults={"vocab_size": 58101},
        entries=(OneVocabulary(),),
        legacy={
            "normalize_before": False,
            "add_final_layer_norm": False,
            "normalize_embedding": False,
            "static_position_embeddings": True,
        },
        void="extra_pos_embeddings",
    )
)
