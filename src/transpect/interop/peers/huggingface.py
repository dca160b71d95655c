"""Hugging Face transformers on the same directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transpect.base.errors import CheckpointError, first_line
from transpect.interop.native import MODEL_TYPE
from transpect.interop.peers.base import Reading, Sample, installed
from transpect.interop.weights import read_json

__all__ = ["PACKAGE", "lacks", "read"]

PACKAGE = "transformers"


def lacks(place: Path) -> str:
    """Why it can't open ``place``, as a row of the table of messages; empty where it can."""
    if installed(PACKAGE) is None:
        return "verify.lacks.package"
    if not (place / "config.json").is_file():
        return "verify.lacks.directory"
    if read_json(place / "config.json").get("model_type") == MODEL_TYPE:
        return "verify.lacks.family"
    return ""


def read(place: Path, samples: Sequence[Sample], dtype: torch.dtype) -> list[Reading]:
    """Each sample by itself, through the class that config.json names; no code from the checkpoint is run.

    Raises:
        CheckpointError: transformers can't open the directory, or can't run its model.
    """
    model = _open(place, dtype)
    out = []
    with torch.inference_mode():
        for sample in samples:
            fed: dict[str, Any] = {"input_ids": torch.tensor([sample.source or sample.ids])}
            fed["attention_mask"] = torch.ones_like(fed["input_ids"])
            if sample.source:
                fed["decoder_input_ids"] = torch.tensor([sample.ids])
            if sample.marked:
                fed["global_attention_mask"] = (torch.arange(len(sample.ids)) < sample.marked).long()[None]
            try:
                out.append(_reading(model(**fed)))
            except Exception as error:  # as in `_open`
                raise CheckpointError(f"transformers can't run it: {first_line(error)}", file=place) from error
    return out


def _open(place: Path, dtype: torch.dtype) -> Any:
    import transformers

    names = read_json(place / "config.json").get("architectures") or ["AutoModel"]
    kind = getattr(transformers, str(names[0]), transformers.AutoModel)
    log: Any = transformers.logging
    level = log.get_verbosity()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        return kind.from_pretrained(place, dtype=dtype, trust_remote_code=False, local_files_only=True).eval()
    except Exception as error:  # it has no tree of errors of its own
        raise CheckpointError(f"transformers can't open it: {first_line(error)}", file=place) from error
    finally:
        log.set_verbosity(level)
        log.enable_progress_bar()


def _reading(output: Any) -> Reading:
    logits: Tensor | None = getattr(output, "logits", None)
    if logits is not None:
        return {"logits": logits[0].cpu()}
    hidden: Tensor = output.last_hidden_state
    return {"hidden": hidden[0].cpu()}
