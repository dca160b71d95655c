"""BigBird-Pegasus (Zaheer et al. 2020, §4): Pegasus whose encoder has BigBird's attention, with learned positions."""

from dataclasses import replace

from transpect.core import ModelConfig
from transpect.core.positions import Learned, RepeatedBlock
from transpect.interop.families.bart_like import SIDES, Kind, both, family
from transpect.interop.families.big_bird import SparseAttention
from transpect.interop.options import Key
from transpect.interop.tensors import Row, Table

# what attention's parts are called in the encoder
PARTS = {"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value", "out_proj": "output"}
PLACES = {
    f"encoder.layers.#.self_attn.{theirs}.*": f"encoder.layers.#.self_attn.{it}.*" for theirs, it in PARTS.items()
}


def table(config: ModelConfig, shared: Table) -> Table:
    """The final norm of a tower goes by the name that it has on BART's embeddings."""
    norms = {f"{side}.layernorm_embedding.*": f"{side}.layer_norm.*" for side in SIDES}
    ours = {row.theirs: row.ours for row in shared.body}
    rows = [
        replace(row, theirs=PLACES.get(row.theirs, row.theirs), ours=ours[norms.get(row.theirs, row.theirs)])
        for row in shared.body
        if row.theirs not in norms.values()
    ]
    assert config.encoder is not None
    if isinstance(config.encoder.positions, RepeatedBlock):
        rows.append(Row("encoder.embed_positions.*", "towers.encoder.stack.positions.inner.table.*"))
    return replace(shared, body=tuple(rows))


FAMILY = family(
    Kind(
        model_type="bigbird_pegasus",
        architectures=("BigBirdPegasusForConditionalGeneration", "BigBirdPegasusModel"),
        classes="BigBirdPegasusForSequenceClassification",
        positions=Learned(),
        pre=True,
        embedding_norm=False,
        defaults={
            "vocab_size": 96103,
            "max_position_embeddings": 4096,
            "encoder_layers": 16,
            "decoder_layers": 16,
            "activation_function": "gelu_new",
            "scale_embedding": True,
        },
        entries=(
            SparseAttention(),
            Key("use_bias", (*both("attention.qkv_bias"), *both("attention.out_bias")), False),
        ),
        table=table,
    )
)
