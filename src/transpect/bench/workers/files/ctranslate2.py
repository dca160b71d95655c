"""CTranslate2's own converter of Hugging Face directories.

It needs transformers and torch, which an environment of CTranslate2 alone does not have: it runs in ours, which borrows
CTranslate2 from its.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``packages``: the folder of packages that has CTranslate2; what ours has too is taken from ours."""
    sys.path.append(options["packages"])
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        TransformersConverter(asked["directory"]).convert(asked["target"], force=True)
        return {}

    return {"versions": {"ctranslate2": ctranslate2.__version__}}, run
