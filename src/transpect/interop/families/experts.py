"""What families with a mixture of experts share: the experts' tensors, one by one or in one piece."""

from dataclasses import replace

from transpect.core import ModelConfig, Moe
from transpect.interop.families import llama_like
from transpect.interop.families.decoder import FFN
from transpect.interop.layouts import Stacked
from transpect.interop.tensors import Row, Table

ROUTER, EXPERTS = f"{FFN}.body.router.*", f"{FFN}.body.experts"


def table(config: ModelConfig, *, block: str, names: tuple[str, str, str]) -> Table:
    """The tensors of a relative of Llama with experts; its variant is how `transformers` 5 holds them in memory.

    Args:
        config: of the model.
        block: their name for the branch.
        names: their names for gate, up and down of one expert.
    """
    gate, up, down = (f"layers.#.{block}.experts.#.{name}.*" for name in names)
    single = (
        Row(f"layers.#.{block}.gate.*", ROUTER),
        Row(gate, f"{EXPERTS}.#.gate.*"),
        Row(up, f"{EXPERTS}.#.up.*"),
        Row(down, f"{EXPERTS}.#.down.*"),
    )
    count = n_experts(config)
    pairs = tuple(f"{EXPERTS}.{index}.{name}.weight" for index in range(count) for name in ("gate", "up"))
    downs = tuple(f"{EXPERTS}.{index}.down.weight" for index in range(count))
    whole = (
        Row("layers.#.mlp.gate.*", ROUTER),
        Row("layers.#.mlp.experts.gate_up_proj", pairs, Stacked(count)),
        Row("layers.#.mlp.experts.down_proj", downs, Stacked(count)),
    )
    dense = llama_like.GATED
    variant = llama_like.table(config, ffn=(*dense, *whole))
    return replace(llama_like.table(config, ffn=(*dense, *single)), variants=(variant,) if count else ())


def n_experts(config: ModelConfig) -> int:
    """How many experts a layer has, or 0 where no layer has any."""
    assert config.decoder is not None
    return max((kind.ffn.experts for kind in config.decoder.kinds if isinstance(kind.ffn, Moe)), default=0)
