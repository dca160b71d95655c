"""BigBird with random blocks: equal to `transformers` when it is made to draw the blocks that our rule draws."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BigBirdConfig, BigBirdForMaskedLM
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from transpect.core import Blocks, EdgeBlocks, RandomBlocks, Transformer, UpTo
from transpect.core.positions import Learned
from transpect.interop import load_model
from transpect.interop.checkpoint import family_of

SIZE, N_RANDOM, SEED = 4, 2, 5


@pytest.mark.parametrize("length", [57, 60])
@torch.no_grad()
def test_random_blocks_are_theirs_if_they_draw_ours(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BigBirdConfig(
        vocab_size=97,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=60,
        max_position_embeddings=64,
        block_size=SIZE,
        num_random_blocks=N_RANDOM,
    )
    theirs = BigBirdForMaskedLM(config).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in theirs.parameters():
        parameter.normal_(0.0, 0.3, generator=generator)
    theirs.save_pretrained(tmp_path)
    as_read = load_model(tmp_path, kernel="naive")
    assert as_read.config.encoder is not None
    drawn = RandomBlocks(SIZE, N_RANDOM, SEED)
    rule = UpTo(9 * SIZE) | Blocks(SIZE) | EdgeBlocks(SIZE) | drawn
    ours = Transformer(
        replace(as_read.config, encoder=replace(as_read.config.encoder, visibility=rule, positions=Learned()))
    ).eval()
    state = as_read.state_dict()
    ours.load_state_dict({name.replace("positions.inner.", "positions."): value for name, value in state.items()})
    assert family_of(ours.config) == "transpect"

    n_blocks = -(-length // SIZE)
    table = drawn.draws(n_blocks, torch.tensor([n_blocks - 1]))[0, 1:-1]
    blocks = np.stack([row.nonzero()[:, 0].numpy() for row in table])  # [N−2, r]
    monkeypatch.setattr(
        BigBirdBlockSparseAttention,
        "_bigbird_block_rand_mask_with_head",
        lambda self, *, num_heads, **_: [blocks] * num_heads,
    )
    ids = torch.randint(0, 97, (2, length), generator=generator)
    expected = theirs(ids).logits
    assert (ours(ids) - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
    assert (as_read(ids) - expected).abs().max() > 1e-2
