"""Tensor parallelism: several processes share out each matrix product (Shoeybi et al. 2019, "Megatron-LM", §3)."""

from transpect.train.parallel.matrices.checks import check_matrices
from transpect.train.parallel.matrices.sharing import share_matrices
from transpect.train.parallel.matrices.vocabulary import share_vocabulary

__all__ = ["check_matrices", "share_matrices", "share_vocabulary"]
