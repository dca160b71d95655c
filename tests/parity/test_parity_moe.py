"""Mixtures of experts against `transformers`: the balance loss, and experts that were saved in one piece."""

from pathlib import Path

import pytest
import torch
from family_cases.decoders import EXPERTS, LLAMA
from transformers import MixtralConfig, MixtralForCausalLM, MixtralModel, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from transpect.core import Tags, balance_loss
from transpect.interop import load_model, save_model

MIXTRAL = {**LLAMA, "num_local_experts": 5}


@pytest.mark.parametrize("active", [1, 2, 5])
@pytest.mark.parametrize("pads", [0, 3])
def test_the_balance_loss_is_theirs(active: int, pads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = [torch.randn(3, 11, 5, generator=generator) for _ in range(4)]
    real = (torch.arange(11) >= pads).expand(3, 11)
    theirs = load_balancing_loss_func(
        tuple(layer.flatten(0, 1) for layer in logits), num_experts=5, top_k=active, attention_mask=real.long()
    )
    assert abs(float(balance_loss(logits, Tags.padded(real), active) - theirs)) <= 1e-5


@pytest.mark.parametrize(
    ("config", "model", "options"),
    [
        (MixtralConfig, MixtralForCausalLM, MIXTRAL),
        (MixtralConfig, MixtralModel, MIXTRAL),
        (Qwen3MoeConfig, Qwen3MoeForCausalLM, {**EXPERTS, "mlp_only_layers": [1]}),
    ],
)
@torch.no_grad()
def test_experts_in_one_piece_are_the_same_experts(config: type, model: type, options: dict, tmp_path: Path) -> None:
    """As `transformers` 5 holds them in memory, and saves them when asked to; we write them one by one."""
    theirs = model(config(**options)).eval()
    theirs.save_pretrained(tmp_path / "single")
    theirs.save_pretrained(tmp_path / "whole", save_original_format=False)
    single, whole = load_model(tmp_path / "single"), load_model(tmp_path / "whole")
    assert single.config == whole.config
    state = whole.state_dict()
    assert state.keys() == single.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in single.state_dict().items())
    save_model(whole, tmp_path / "again")
    assert load_model(tmp_path / "again").state_dict().keys() == state.keys()
