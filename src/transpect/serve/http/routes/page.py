"""``GET /``: a page to talk to the models, in one file that loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response


async def show(request: Request) -> Response:
    """The page."""
    text, policy = _page()
    headers = {"content-security-policy": policy, "referrer-policy": "no-referrer", "cache-control": "no-cache"}
    return Response(text, media_type="text/html", headers=headers)


@cache
def _page() -> tuple[str, str]:
    """The page, and what a browser lets it do: run its own script, wear its own style, and ask this server."""
    text = Path(__file__).parent.with_name("page.html").read_text(encoding="utf-8")
    marks = {}
    for name in ("script", "style"):
        (inside,) = re.findall(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
        marks[name] = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    rules = [
        "default-src 'none'",
        "connect-src 'self'",
        "img-src data:",
        f"script-src 'sha256-{marks['script']}'",
        f"style-src 'sha256-{marks['style']}'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
    return text, "; ".join(rules)
