"""LongT5 (Guo et al. 2022) with local attention: T5 whose encoder sees a window."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.core import Window
from transpect.interop.families.t5 import family
from transpect.interop.options import Entry, Options, Override, at


@dataclass(frozen=True)
class Radius(Entry):
    """``local_radius``: how far a token sees to either side."""

    def defaults(self) -> Mapping[str, Any]:
        return {"local_radius": 127}

    def read(self, options: Options) -> Iterable[Override]:
        return [("encoder.visibility.width", options["local_radius"] + 1)]

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {"local_radius": at(ours, "encoder.visibility.width") - 1}


@dataclass(frozen=True)
class Scaling(Entry):
    """``tie_word_embeddings`` says whether the head is rescaled; it is tied exactly where the checkpoint has none."""

    def defaults(self) -> Mapping[str, Any]:
        return {"tie_word_embeddings": True, "scale_decoder_outputs": None}

    def read(self, options: Options) -> Iterable[Override]:
        scaled = options["scale_decoder_outputs"]
        yield "head.rescaled", options["tie_word_embeddings"] if scaled is None else scaled
        yield "head.tied", "lm_head.weight" not in options.tensors()

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {"tie_word_embeddings": at(ours, "head.rescaled")}


FAMILY = family(
    "longt5",
    ("LongT5ForConditionalGeneration", "LongT5Model"),
    visibility=Window(128, both_ways=True),
    tying=Scaling(),
    entries=(Radius(),),
    allowed={"encoder_attention_type": ("local",)},
    void="global_block_size",  # of the other kind of attention
)
