"""A Ray Serve application: replicas on the machines of a cluster, as many as there is to do.

`application` builds it; a file for ``serve deploy`` names it as ``transpect.serve.ray:application``.
"""

from importlib.util import find_spec

from transpect.base.errors import ConfigError

if find_spec("ray") is None:
    raise ConfigError("transpect.serve.ray needs Ray", value="ray", remedy="pip install 'transpect[ray]'")

from transpect.serve.ray.app import application  # what it needs is there now

__all__ = ["application"]
