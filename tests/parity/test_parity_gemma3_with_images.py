"""The text of a Gemma 3 with images: the same logits as theirs, and a language model when it is saved."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from family_cases.base import IDS, PAD
from family_cases.decoders import GEMMA3
from test_parity_families import randomize
from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration

from transpect.base.errors import CheckpointError
from transpect.core import Tags
from transpect.interop import load_config, load_model, save_model

VISION: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
TOKENS = {"image_token_index": 93, "boi_token_index": 94, "eoi_token_index": 95, "mm_tokens_per_image": 4}
SCALED = {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "sliding_window_pattern": 3}


@pytest.fixture(params=[{}, SCALED], ids=["plain", "scaled"])
def theirs(request: pytest.FixtureRequest) -> Gemma3ForConditionalGeneration:
    text = {**GEMMA3, **IDS, **request.param}
    config = Gemma3Config(text_config=text, vision_config=VISION, **TOKENS, **IDS, attn_implementation="eager")
    model = Gemma3ForConditionalGeneration(config).eval()
    randomize(model)
    return model


@torch.no_grad()
def test_the_text_is_theirs_and_is_saved_as_a_language_model(
    theirs: Gemma3ForConditionalGeneration, tmp_path: Path
) -> None:
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs", kernel="naive")
    ids = torch.randint(0, 90, (3, 30), generator=torch.Generator().manual_seed(0))
    real = torch.arange(30) >= torch.tensor([[0], [4], [11]])
    ids = torch.where(real, ids, PAD)
    tags = Tags.padded(real)
    given = {"attention_mask": real.long(), "position_ids": tags.position.clamp(min=0)}
    expected = theirs(ids, **given).logits[real]
    assert expected.abs().max() > 0.1
    assert (ours(ids, tags=tags)[real] - expected).abs().max() <= 1e-5
    save_model(ours, tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == "gemma3_text"
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", attn_implementation="eager").eval()
    assert (again(ids, **given).logits[real] - expected).abs().max() <= 1e-5
    state = load_model(tmp_path / "ours").state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in ours.state_dict().items())


# as its makers wrote it: whatever is not said is as in `transformers`
GEMMA_3_4B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 255999,
    "eoi_token_index": 256000,
    "eos_token_id": [1, 106],
    "image_token_index": 262144,
    "initializer_range": 0.02,
    "mm_tokens_per_image": 256,
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
}


def test_a_published_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GEMMA_3_4B))
    config = load_config(tmp_path)
    theirs = Gemma3Config(**GEMMA_3_4B).text_config
    stack = config.last
    assert (config.vocab_size, config.d_model, stack.n_layers) == (theirs.vocab_size, 2560, 34)
    assert (stack.attention.n_heads, stack.attention.n_kv_heads, stack.attention.head_dim) == (8, 4, 256)
    kinds = [stack.kinds[kind].visibility.kind for kind in stack.kind_of]
    words = {"window": "sliding_attention", "causal": "full_attention"}
    assert [words[kind] for kind in kinds] == theirs.layer_types


@pytest.mark.parametrize("wrong", [{"text_config": None}, {"audio_config": {}}, {"text_config": {"surprise": 1}}])
def test_other_parts_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**GEMMA_3_4B, **wrong}))
    with pytest.raises(CheckpointError, match=r"text_config|audio_config|surprise"):
        load_config(tmp_path)
