"""What an operator, or a load balancer, asks: whether the server lives, what it serves, what it does."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from transpect.serve.http.models import Served
from transpect.serve.http.service import service_of
from transpect.serve.http.streams import Json


async def models(request: Request) -> Response:
    """``GET /v1/models``: all models, under each of their names."""
    all_of_them = service_of(request).models.all
    return Json({"object": "list", "data": [_card(own, name) for own in all_of_them for name in own.names]})


async def model(request: Request) -> Response:
    """``GET /v1/models/NAME``: one of them."""
    name = request.path_params["model"]
    return Json(_card(service_of(request).models.get(name), name))


async def health(request: Request) -> Response:
    """``GET /health``: whether every engine lives. 503 where one has failed and is not back yet."""
    service = service_of(request)
    dead = service.models.dead
    status = "dead" if dead else "draining" if service.draining else "ok"
    return Json({"status": status}, 503 if dead else 200)


async def ready(request: Request) -> Response:
    """``GET /ready``: whether requests are taken: every engine is ready, and the server is not about to stop."""
    service = service_of(request)
    states = {own.id: own.engine.state for own in service.models.all}
    takes = not service.draining and set(states.values()) == {"ready"}
    return Json({"ready": takes, "models": states}, 200 if takes else 503)


async def metrics(request: Request) -> Response:
    """``GET /metrics``: numbers for Prometheus."""
    return Response(service_of(request).metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def openapi(request: Request) -> Response:
    """``GET /openapi.json``: the API's own description."""
    from transpect.serve.http.openapi import document  # which names all routes

    service = service_of(request)
    return Json(document(service.limits, keys=len(service.keys) > 0, models=service.models))


def _card(served: Served, name: str) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": served.created,
        "owned_by": "transpect",
        "root": served.id,
        "max_model_len": served.context,
    }
