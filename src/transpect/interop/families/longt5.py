"""LongT5 (Guo et al. 2022): T5 whose encoder sees a window, and perhaps a sum of every block of tokens."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data, to_data
from transpect.base.errors import CheckpointError
from transpect.core import BlockSparse, GlobalTokens, RMSNorm, Window
from transpect.interop.families.t5 import family, has_own_head
from transpect.interop.layer_types import whole
from transpect.interop.options import Entry, Options, Override, at


@dataclass(frozen=True)
class Sight(Entry):
    """What a token of the encoder sees: ``local_radius`` tokens to either side, and perhaps a sum of every block."""

    def defaults(self) -> Mapping[str, Any]:
        return {"local_radius": 127, "encoder_attention_type": "local", "global_block_size": 16}

    def read(self, options: Options) -> Iterable[Override]:
        radius, size = whole(options, "local_radius", least=0), whole(options, "global_block_size")
        if radius is None or size is None:
            raise CheckpointError("local_radius and global_block_size must be whole numbers", value=[radius, size])
        window, kind = Window(radius + 1, both_ways=True), options["encoder_attention_type"]
        if kind not in ("local", "transient-global"):
            raise CheckpointError("encoder_attention_type must be local or transient-global", value=kind)
        kernel = ("encoder.attention.kernel", BlockSparse())
        if kind == "local":
            return [kernel, ("encoder.visibility", to_data(window))]
        norm = {"kind": RMSNorm.kind, "eps": options["layer_norm_epsilon"]}
        return [
            kernel,
            ("encoder.visibility", to_data(window | GlobalTokens())),
            ("encoder.summaries", {"size": size, "norm": norm}),
            ("encoder.positions.of_blocks", True),
        ]

    def write(self, ours: Data) -> Mapping[str, Any]:
        sees, sums = at(ours, "encoder.visibility"), at(ours, "encoder.summaries")
        if sums is None:
            return {"local_radius": at(sees, "width") - 1, "encoder_attention_type": "local"}
        return {
            "local_radius": at(at(sees, "rules")[0], "width") - 1,
            "encoder_attention_type": "transient-global",
            "global_block_size": sums["size"],
        }


@dataclass(frozen=True)
class Scaling(Entry):
    """``tie_word_embeddings`` says whether the head is rescaled; if not, it is tied where the checkpoint has none, or
    is not there."""

    def defaults(self) -> Mapping[str, Any]:
        return {"tie_word_embeddings": True, "scale_decoder_outputs": None}

    def read(self, options: Options) -> Iterable[Override]:
        tied, scaled = options["tie_word_embeddings"], options["scale_decoder_outputs"]
        scaled = tied if scaled is None else scaled
        return [("head.rescaled", scaled), ("head.tied", scaled or not has_own_head(options.tensors()))]

    def write(self, ours: Data) -> Mapping[str, Any]:
        if at(ours, "head.rescaled") and not at(ours, "head.tied"):
            raise CheckpointError("only a tied head is rescaled")
        return {"tie_word_embeddings": at(ours, "head.rescaled")}


FAMILY = family(
    "longt5",
    ("LongT5ForConditionalGeneration", "LongT5Model"),
    visibility=Window(128, both_ways=True),
    tying=Scaling(),
    entries=(Sight(),),
)
