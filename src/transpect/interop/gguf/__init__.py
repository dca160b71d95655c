"""GGUF, the file format of llama.cpp, as a dialect of Hugging Face checkpoints: read and written by tables."""

from transpect.interop.gguf.reader import Checkpoint, open_gguf
from transpect.interop.gguf.weights import GgufWeights
from transpect.interop.gguf.writer import write_gguf

__all__ = ["Checkpoint", "GgufWeights", "open_gguf", "write_gguf"]
