"""A language model for many at once: an engine that merges what requests read into the same passes.

The engine's half (requests, scheduler, hub, engine) knows ids and events, and nothing of networks.
"""

from transpect.serve.config import EngineConfig
from transpect.serve.engine import Engine
from transpect.serve.errors import Busy, Draining, EngineDead, Expired, ServeError
from transpect.serve.handle import Handle
from transpect.serve.request import Job, Stats, Usage

__all__ = [
    "Busy",
    "Draining",
    "Engine",
    "EngineConfig",
    "EngineDead",
    "Expired",
    "Handle",
    "Job",
    "ServeError",
    "Stats",
    "Usage",
]
