"""Several processes that share out the matrices of one model: the engine is in the first, and all compute the same
passes, each its part."""

from transpect.serve.tensor.partners import Partners, TensorParallelError, shared

__all__ = ["Partners", "TensorParallelError", "shared"]
