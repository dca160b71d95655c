"""What was measured, and on what: the certificate that lies beside the weights."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch

from transpect import interop
from transpect.base.errors import CheckpointError
from transpect.interop.directory import atomic_file
from transpect.interop.peers import installed
from transpect.interop.places import CERTIFICATE

__all__ = ["Certificate", "Row", "Verdict", "certificate_place", "check_place", "digests", "write_certificate"]

Verdict = Literal["pass", "within_quantisation", "fail", "skip"]
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.gguf")
PACKAGES = ("transpect", "torch", "numpy", "tokenizers", "transformers", "llama-cpp-python", "onnxruntime")
FORMAT = 1
_REMEDY = "Name another file: --out FILE."


@dataclass(frozen=True)
class Row:
    """One way to compute, measured against the reference.

    Attributes:
        way: its key, the same in every language and version: ``kernel``, ``cached``, ``padded``, …
        detail: which: a kernel's name, how many tokens at a time, a side, a package.
        verdict: ``pass``; ``within_quantisation`` where the other program rounds what it multiplies to 8 bits, so that
            the tolerance is wide; ``fail``; or ``skip`` for what could not be measured.
        max_delta: max |Δ| at the sample that comes nearest to its tolerance; None where only tokens are compared.
        tolerance: how large it may be there.
        sample: which one that is.
        greedy_equal: places at which the most probable token is the reference's.
        greedy_total: places in all; None where nothing is greedy.
        greedy_wrong: places that count: with another token although the margin exceeds the tolerance.
        note: why it was skipped, or what went wrong, in English.
        reason: the row of the table of messages that says why it was skipped.
        seconds: how long it took.
    """

    way: str
    detail: str
    verdict: Verdict
    max_delta: float | None = None
    tolerance: float | None = None
    sample: str = ""
    greedy_equal: int | None = None
    greedy_total: int | None = None
    greedy_wrong: int = 0
    note: str = ""
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Certificate:
    """All rows, with what a reader needs to repeat them.

    Attributes:
        model: what the person asked for.
        kind: ``encoder``, ``decoder`` or ``encoder-decoder``.
        parameters: how many numbers the model holds.
        dtype: in which the ways computed; the reference is float64.
        device: on which.
        seed: of the random ids.
        samples: what was read: a label and the number of tokens of each.
        weights: SHA-256 of each file of weights.
        rows: what was measured.
        versions: of this program, its dependencies and its peers.
        date: UTC.
    """

    model: str
    kind: str
    parameters: int
    dtype: str
    device: str
    seed: int
    samples: tuple[tuple[str, int], ...]
    weights: dict[str, str]
    rows: tuple[Row, ...]
    versions: dict[str, str]
    date: str

    @property
    def passes(self) -> bool:
        """Whether no row failed."""
        return all(row.verdict != "fail" for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON; an infinite difference is null there, and its row says why."""
        data = asdict(self)
        for row in data["rows"]:
            if row["max_delta"] is not None and row["max_delta"] == float("inf"):
                row["max_delta"] = None
        for row in data["rows"]:
            del row["reason"]
        return {"format": FORMAT, "passes": self.passes, **data}


def now() -> str:
    """The date, to the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Versions of what has a part in the result, as far as it is installed."""
    found = {name: installed(name) for name in PACKAGES}
    machine = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    return {
        **{name: v for name, v in found.items() if v is not None},
        "threads": str(torch.get_num_threads()),
        **machine,
    }


def digests(place: Path) -> dict[str, str]:
    """SHA-256 of the files of weights, as ``sha256sum`` prints it."""
    files = [place] if place.is_file() else sorted({file for pattern in WEIGHTS for file in place.glob(pattern)})
    found = {}
    for file in files:
        with file.open("rb") as stream:
            found[file.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def certificate_place(name: str | Path, *, allow_pickle: bool = False) -> Path:
    """Where a certificate goes: beside the weights; in the working directory where those are a package's or a cache's,
    or can't be written to.

    Args:
        name: what `interop.locate` understands; it is somebody else's where it is no local path.
        allow_pickle: see there.
    """
    place, foreign = interop.locate(name, allow_pickle=allow_pickle), not Path(name).exists()
    folder = place.parent if place.is_file() else place
    if not foreign and os.access(folder, os.W_OK):
        return folder / (f"{place.stem}.{CERTIFICATE}" if place.is_file() else CERTIFICATE)
    # pip:NAME, hf:OWNER/NAME@REVISION, or a path
    called = place.name if not foreign else str(name).rpartition(":")[2].partition("@")[0].rpartition("/")[2]
    return Path.cwd() / f"{called.removesuffix('.gguf')}.{CERTIFICATE}"


def check_place(file: Path) -> None:
    """Refuse a place that a certificate can't be written to, so that nobody measures for minutes in vain.

    Raises:
        CheckpointError: a directory, or a file in a directory that is not there or is not the person's.
    """
    fault = ""
    if file.is_dir():
        fault = "it is a directory"
    elif not file.parent.is_dir():  # which may be a slip
        fault = f"there is no directory {file.parent}"
    elif not os.access(file.parent, os.W_OK):
        fault = f"the directory {file.parent} can't be written to"
    if fault:
        raise CheckpointError(f"can't write the certificate: {fault}", value=file, remedy=_REMEDY)


def write_certificate(certificate: Certificate, file: Path) -> None:
    """Write it whole, or leave what was there.

    Raises:
        CheckpointError: it can't be written.
    """
    text = json.dumps(certificate.as_dict(), ensure_ascii=False, indent=2) + "\n"
    check_place(file)
    try:
        with atomic_file(file) as staging:
            staging.write_text(text, encoding="utf-8")
    except CheckpointError as error:
        error.remedy = _REMEDY
        raise
