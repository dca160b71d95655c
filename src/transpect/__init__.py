"""transpect: one readable Transformer core, trained, loaded, decoded, served and looked into.

The names below are imported when they are first used, so that ``import transpect`` waits for no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transpect.lm import LanguageModel, load
    from transpect.text import load_tokenizer

__version__ = "0.1.0"
__all__ = ["LanguageModel", "__version__", "load", "load_tokenizer"]

_HOMES = {"LanguageModel": "transpect.lm", "load": "transpect.lm", "load_tokenizer": "transpect.text"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'transpect' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
