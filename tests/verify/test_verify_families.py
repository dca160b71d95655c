"""Whatever family a model is saved as, transformers is asked the same question and gives the same answer."""

from pathlib import Path

import pytest
import torch

from transpect import interop
from transpect.core import Transformer, override, preset
from transpect.verify.rows import Setting, peer_rows
from transpect.verify.samples import samples_for

SIZES = {"vocab_size": 97, "d_model": 48, "context_length": 64, "n_layers": 2, "n_heads": 3}
PRESETS = {
    "gpt2": {},
    "bert-base": {},
    "llama": {"n_kv_heads": 1, "d_ff": 60},
    "t5-small": {"head_dim": 10, "d_ff": 60},
}


@pytest.mark.parametrize("name", PRESETS)
def test_transformers_agrees_and_a_changed_weight_is_seen(name: str, tmp_path: Path) -> None:
    model = Transformer(override(preset(name), [*{**SIZES, **PRESETS[name]}.items()])).eval()
    interop.save_model(model, tmp_path / "m", generation={"decoder_start_token_id": 0} if "t5" in name else {})
    for change, verdict in ((0.0, "pass"), (0.05, "fail")):
        with torch.no_grad():
            model.token.weight[1:] += change * torch.randn(model.token.weight[1:].shape)
        samples = samples_for(model.config, None, {}, seed=0)
        row = next(iter(peer_rows(Setting.of(model, samples), tmp_path / "m")))
        assert (row.detail, row.verdict) == ("transformers", verdict), row
