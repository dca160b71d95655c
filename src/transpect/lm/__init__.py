"""A language model as people use it: text in, text out. The facade that the CLI, the server and notebooks share."""

from transpect.lm.facade import LanguageModel, load
from transpect.lm.parts import Prompt
from transpect.lm.reading import Classes, TokenClasses

__all__ = ["Classes", "LanguageModel", "Prompt", "TokenClasses", "load"]
