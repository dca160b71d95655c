"""From a configuration to an application of Ray Serve."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from transpect.base.codec import from_data, load_yaml
from transpect.base.errors import ConfigError
from transpect.serve.http.keys import VARIABLE
from transpect.serve.http.opening import ServerConfig, keys_of
from transpect.serve.ray.front import Front
from transpect.serve.ray.replica import Replica

__all__ = ["application", "configured"]

ROUTER: Final = "transpect.serve.ray.router.BeginningsRouter"
_LISTENING: Final = ("host", "port")


def application(args: dict[str, Any]) -> Application:
    """What ``serve deploy`` deploys: a deployment ``Front``, which requests come to, and behind it ``Replica``, each
    with all models.

    Args:
        args: a `ServerConfig` as data; or ``{"file": PATH}``, a YAML file of one. ``replicas`` is how many there are
            where the file for Ray does not say.

    Raises:
        ConfigError: no API keys; a host or a port, which are Ray's matter.
    """
    data = load_yaml(Path(args["file"]))[0] if set(args) == {"file"} else args
    config = configured(data)
    if not len(keys_of(config, os.environ)):
        raise ConfigError(
            "an application of Ray Serve needs API keys: Ray listens, and says to whom",
            remedy=f"Name a file as `api_keys`, or set {VARIABLE} in `runtime_env: {{env_vars: …}}`.",
        )
    limits = config.limits
    replica = serve.deployment(
        Replica,
        name="Replica",
        num_replicas=config.replicas,
        max_ongoing_requests=limits.active,
        graceful_shutdown_timeout_s=limits.drain_seconds,
        request_router_config=RequestRouterConfig(request_router_class=ROUTER),
    )
    front = serve.deployment(
        serve.ingress()(Front),
        name="Front",
        max_ongoing_requests=limits.active,
        graceful_shutdown_timeout_s=limits.drain_seconds,
    )
    built: Application = front.bind(data, replica.bind(data))
    return built


def configured(data: dict[str, Any]) -> ServerConfig:
    """The configuration that data are.

    Raises:
        ConfigError: they are none; a host or a port.
    """
    if said := [name for name in _LISTENING if name in data]:
        raise ConfigError(
            "Ray listens, and no server of ours", value=said, remedy="Write `http_options: {host: …, port: …}`."
        )
    return from_data(ServerConfig, data)
