"""The same model as a program for a machine: the CPU decode program. Equal to `core` by proof."""

from transpect.runtime.kept import Loan
from transpect.runtime.memory import Layout
from transpect.runtime.program import Program

__all__ = ["Layout", "Loan", "Program"]
