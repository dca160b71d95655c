"""One listener before several processes that serve the same models: who is asked, and what becomes of those who die."""

from transpect.serve.http.replicas.fleet import Answer, Asked, Fleet, LostError
from transpect.serve.http.replicas.front import Front
from transpect.serve.http.replicas.local import Local
from transpect.serve.http.replicas.replica import Replica
from transpect.serve.http.replicas.routing import Router
from transpect.serve.http.replicas.server import FrontServer, front_server

__all__ = [
    "Answer",
    "Asked",
    "Fleet",
    "Front",
    "FrontServer",
    "Local",
    "LostError",
    "Replica",
    "Router",
    "front_server",
]
