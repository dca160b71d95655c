"""Other people's programs that open the same files, to compare with: transformers, llama.cpp, onnxruntime."""

from transpect.interop.peers import huggingface, llama_cpp, onnx_runtime
from transpect.interop.peers.base import Reading, Sample, installed

__all__ = ["Reading", "Sample", "huggingface", "installed", "llama_cpp", "onnx_runtime"]
