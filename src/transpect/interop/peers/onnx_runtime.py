"""onnxruntime on the graphs that `interop.onnx` writes, or graphs with the same inputs.

Axes: B batch, T tokens, P cached tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from transpect.base.errors import CheckpointError, first_line
from transpect.interop.peers.base import Reading, Sample, installed

__all__ = ["PACKAGE", "Session", "lacks", "read"]

PACKAGE = "onnxruntime"
Array = NDArray[Any]
NAMES = {"logits": "logits", "last_hidden_state": "hidden", "sentence_embedding": "pooled"}
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


def lacks(files: Sequence[Path]) -> str:
    """Why it can't open the graphs, as a row of the table of messages; empty where it can."""
    if installed(PACKAGE) is None:
        return "verify.lacks.onnx"
    return "" if files else "verify.lacks.graph"


def read(files: Sequence[Path], samples: Sequence[Sample], *, step: int | None = None) -> list[Reading]:
    """All samples as one batch, padded on the left.

    Args:
        files: one graph, or an encoder–decoder's three in the order of `interop.onnx.FILES`.
        samples: what to read.
        step: feed a decoder in pieces of so many columns through its cache; None is all at once.

    Raises:
        CheckpointError: onnxruntime can't open a file.
    """
    sessions = [Session(file) for file in files]
    if len(sessions) == 3:
        return [_answer(sessions, sample, step) for sample in samples]
    return _batch(sessions[0], samples, step)


class Session:
    """One graph, opened on the CPU."""

    def __init__(self, file: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common ancestor
            raise CheckpointError(f"onnxruntime can't open it: {first_line(error)}", file=file) from error
        self._file = file
        self.inputs = {node.name: node for node in self._session.get_inputs()}
        self.outputs = [node.name for node in self._session.get_outputs()]

    def run(self, fed: dict[str, Array]) -> dict[str, Array]:
        """Outputs by name; of ``fed`` only what the graph asks for goes in.

        Raises:
            CheckpointError: onnxruntime can't run the graph on it, e.g. because it asks for more.
        """
        given = {name: array for name, array in fed.items() if name in self.inputs}
        try:
            found = self._session.run(None, given)
        except Exception as error:  # as above
            raise CheckpointError(f"onnxruntime can't run it: {first_line(error)}", file=self._file) from error
        return dict(zip(self.outputs, found, strict=True))

    def empty(self, batch: int) -> dict[str, Array]:
        """A cache of no tokens."""
        return {
            name: np.zeros((batch, node.shape[1], 0, node.shape[3]), TYPES[node.type])
            for name, node in self.inputs.items()
            if name.startswith("past_key_values.")
        }


def _batch(session: Session, samples: Sequence[Sample], step: int | None) -> list[Reading]:
    longest = max(len(sample.ids) for sample in samples)
    pads = [longest - len(sample.ids) for sample in samples]
    ids = np.array([[0] * pad + list(sample.ids) for pad, sample in zip(pads, samples, strict=True)], np.int64)
    mask = np.array([[0] * pad + [1] * len(sample.ids) for pad, sample in zip(pads, samples, strict=True)], np.int64)
    column = np.arange(longest) - np.array(pads)[:, None]
    marks = np.array([[sample.marked] for sample in samples])
    fed: dict[str, Array] = {
        "token_type_ids": np.zeros_like(ids),
        "global_attention_mask": ((column >= 0) & (column < marks)).astype(np.int64),
        "prefix_length": np.array([sample.prefix for sample in samples], np.int64),
    }
    past = session.empty(len(samples))
    found = []
    # a prefix that sees itself both ways is one piece
    first = (
        max(pad + sample.prefix for pad, sample in zip(pads, samples, strict=True))
        if any(sample.prefix for sample in samples)
        else 0
    )
    start, width = 0, step if step and past else longest
    while start < longest:
        end = min(max(start + width, first), longest)
        part = slice(start, end)
        now = {"input_ids": ids[:, part], "attention_mask": mask[:, :end], "position_ids": column[:, part]}
        out = session.run({**fed, **now, **past})
        past, start = _renamed(out), end
        found.append({ours: out[name] for name, ours in NAMES.items() if name in out})
    whole = {
        name: np.concatenate([out[name] for out in found], 1) if len(found) > 1 else found[0][name] for name in found[0]
    }
    return [
        {name: torch.from_numpy(array[row][pad:] if array.ndim == 3 else array[row]) for name, array in whole.items()}
        for row, pad in enumerate(pads)
    ]


def _answer(sessions: Sequence[Session], sample: Sample, step: int | None) -> Reading:
    encoder, start, follow = sessions
    source = np.array([sample.source], np.int64)
    fed: dict[str, Array] = {"encoder_attention_mask": np.ones_like(source)}
    nothing = np.zeros_like(source)
    out = encoder.run({"input_ids": source, "attention_mask": np.ones_like(source), "global_attention_mask": nothing})
    fed["encoder_hidden_states"] = out["last_hidden_state"]
    ids = np.array([sample.ids], np.int64)
    width = step or ids.shape[1]
    past: dict[str, Array] = {}
    found = []
    for begin in range(0, ids.shape[1], width):
        out = (follow if past else start).run({**fed, "input_ids": ids[:, begin : begin + width], **past})
        past |= _renamed(out)
        found.append(out["logits"])
    return {"logits": torch.from_numpy(np.concatenate(found, 1)[0])}


def _renamed(out: dict[str, Array]) -> dict[str, Array]:
    return {name.replace("present", "past_key_values"): x for name, x in out.items() if name.startswith("present.")}
