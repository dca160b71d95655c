"""One row an architecture."""

from __future__ import annotations

from typing import Final

from transpect.interop.gguf import bert, gemma, gpt2, llama, qwen
from transpect.interop.gguf.table import Architecture

ARCHITECTURES: Final[dict[str, Architecture]] = {
    each.name: each
    for each in (
        llama.ARCHITECTURE,
        qwen.QWEN2,
        qwen.QWEN3,
        gemma.GEMMA2,
        gemma.GEMMA3,
        gpt2.ARCHITECTURE,
        bert.ARCHITECTURE,
    )
}
