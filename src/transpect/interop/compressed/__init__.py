"""Hugging Face directories whose weights are in few bits, as the package compressed-tensors lays them out.

A matrix ``name.weight`` [N, D] is stored as ``name.weight_packed`` (codes of b bits, 32/b to an int32),
``name.weight_scale`` [N, G], ``name.weight_shape`` and, where the zero has a code, ``name.weight_zero_point``; the
entry ``quantization_config`` of config.json says b, the groups and which modules. It is what
llm-compressor writes, and `transformers` and vLLM read. Their library is not needed here.
"""

from transpect.interop.compressed.scheme import Scheme, schemes_of
from transpect.interop.compressed.weights import CompressedWeights
from transpect.interop.compressed.write import Packed, check, holds, packed_state

__all__ = ["CompressedWeights", "Packed", "Scheme", "check", "holds", "packed_state", "schemes_of"]
