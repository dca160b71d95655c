"""The text of a Gemma 3 that reads images too: its language model alone is loaded, and saved as one.

Images would come in through a vision tower and a projector, which are not read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from transpect.base.errors import CheckpointError
from transpect.core import CausalLM, ModelConfig
from transpect.interop.families import gemma3, llama_like
from transpect.interop.options import words
from transpect.interop.tensors import Alias, Row, Table

PREFIX, HEAD = "language_model.model.", "language_model.lm_head"


def table(config: ModelConfig) -> Table:
    """The tensors of ``Gemma3ForConditionalGeneration`` that are about text."""
    text = llama_like.table(config)
    return replace(
        text,
        prefix=PREFIX,
        head=(Row(f"{HEAD}.*", "head.project.*"),),
        aliases=(Alias(f"{HEAD}.weight", f"{PREFIX}embed_tokens.weight"),) if text.aliases else (),
        void=(*text.void, "vision_tower.@", "multi_modal_projector.@"),
    )


def flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the text, and what stands beside them."""
    text = data.get("text_config")
    if not isinstance(text, dict):
        raise CheckpointError("a config.json of type gemma3 must have a text_config", value=text)
    return {**{name: value for name, value in data.items() if name != "text_config"}, **text}


FAMILY = replace(
    gemma3.FAMILY,
    model_type="gemma3",
    table=table,
    heads={"Gemma3ForConditionalGeneration": CausalLM()},
    void=gemma3.FAMILY.void
    | words("vision_config mm_tokens_per_image boi_token_index eoi_token_index image_token_index image_token_id"),
    bare=frozenset(),
    flat=flat,
    opens_there=lambda config: False,  # there is no such model without images
)
