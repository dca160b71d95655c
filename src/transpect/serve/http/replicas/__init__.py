"""One listener before several processes that serve the same models: who is asked, and what becomes of those who die."""

from transpect.serve.http.replicas.front import Front, front_server
from transpect.serve.http.replicas.replica import LostError, Replica
from transpect.serve.http.replicas.routing import Router

__all__ = ["Front", "LostError", "Replica", "Router", "front_server"]
