"""Our own format, for what belongs to no family: our config and our names in the same directory layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transpect.base.codec import Data, from_data, to_data
from transpect.base.errors import CheckpointError
from transpect.core import ModelConfig
from transpect.interop.options import COMMON_VOID

__all__ = ["MODEL_TYPE", "read_native", "write_native"]

MODEL_TYPE = "transpect"
_KNOWN = COMMON_VOID | {"config", "id2label", "label2id"}


def read_native(data: Mapping[str, Any]) -> ModelConfig:
    """Our config in a config.json.

    Raises:
        CheckpointError: an entry that we did not write.
        ConfigError: a config that can't be built.
    """
    unknown = sorted(data.keys() - _KNOWN)
    if unknown:
        raise CheckpointError(f"a config.json of type {MODEL_TYPE} has no such entries", value=", ".join(unknown))
    return from_data(ModelConfig, data.get("config"), ("config",))


def write_native(config: ModelConfig) -> Data:
    """The config.json of our config."""
    return {"model_type": MODEL_TYPE, "config": to_data(config)}
