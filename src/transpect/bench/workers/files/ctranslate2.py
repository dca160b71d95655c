"""CTranslate2's own converter of Hugging Face directories, and of our encoder–decoders by way of transformers'.

It needs transformers and torch, which an environment of CTranslate2 alone does not have: it runs in ours, which borrows
CTranslate2 from its.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``packages``: the folder of packages that has CTranslate2; what ours has too is taken from ours."""
    sys.path.append(options["packages"])
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        config = json.loads((Path(asked["directory"]) / "config.json").read_text(encoding="utf-8"))
        if config["model_type"] == "transpect":
            translator(asked["directory"], config).save(asked["target"])
        else:
            TransformersConverter(asked["directory"]).convert(asked["target"], force=True)
        return {}

    return {"versions": {"ctranslate2": ctranslate2.__version__}}, run


class Written:
    """A specification that is saved as its converter does it."""

    def __init__(self, spec: Any) -> None:
        self._spec = spec

    def save(self, target: str) -> None:
        """Into a folder, which is made."""
        self._spec.validate()
        self._spec.optimize(quantization=None)
        Path(target).mkdir(parents=True, exist_ok=True)
        self._spec.save(target)


def translator(directory: str, config: dict[str, Any]) -> Written:
    """An encoder–decoder of ours; the words of its vocabulary are ids."""
    from ctranslate2.converters.transformers import M2M100Loader

    beside = runpy.run_path(str(Path(__file__).parents[1] / "translate" / "transformers.py"))
    model = beside["built"](directory)
    spec = M2M100Loader().get_model_spec(model)
    words = list(map(str, range(model.config.vocab_size)))
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    start, end = str(config["decoder_start_token_id"]), str(config["eos_token_id"])
    spec.config.bos_token = spec.config.decoder_start_token = start
    spec.config.eos_token, spec.config.unk_token = end, "0"
    return Written(spec)
