"""The routes, put together."""

from __future__ import annotations

from starlette.routing import Route, Router
from starlette.types import ASGIApp

from transpect.serve.http.gate import Gate
from transpect.serve.http.routes import (
    chat,
    completions,
    embeddings,
    masks,
    operations,
    page,
    reading,
    responses,
    tokens,
)
from transpect.serve.http.service import Service

__all__ = ["ROUTES", "application"]

ROUTES = (
    Route("/v1/completions", completions.create, methods=["POST"]),
    Route("/v1/chat/completions", chat.create, methods=["POST"]),
    Route("/v1/responses", responses.create, methods=["POST"]),
    Route("/v1/embeddings", embeddings.create, methods=["POST"]),
    Route("/v1/classify", reading.classify, methods=["POST"]),
    Route("/v1/fill-mask", masks.fill, methods=["POST"]),
    Route("/v1/translate", completions.translate, methods=["POST"]),
    Route("/tokenize", tokens.tokenize, methods=["POST"]),
    Route("/detokenize", tokens.detokenize, methods=["POST"]),
    Route("/v1/models", operations.models),
    Route("/v1/models/{model:path}", operations.model),
    Route("/health", operations.health),
    Route("/ready", operations.ready),
    Route("/metrics", operations.metrics),
    Route("/openapi.json", operations.openapi),
    Route("/", page.show),
)


def application(service: Service, *, local: bool = True) -> ASGIApp:
    """The server as an ASGI app.

    Args:
        service: what it serves.
        local: whether it listens on the loopback interface only.
    """
    router = Router(ROUTES, redirect_slashes=False)
    return Gate(router, service, frozenset(route.path for route in ROUTES), local=local)
