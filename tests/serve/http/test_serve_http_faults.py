"""What fails around a server: a full disk. Requests are answered, and it goes on."""

from __future__ import annotations

import errno
import json
import os
from io import StringIO
from typing import Any

from transpect.serve.http.logs import Log

BODY = {"prompt": "The", "max_tokens": 4}


class Full(StringIO):
    """A file on a disk that may be full."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_a_full_disk_stops_no_request(app: Any) -> None:
    api, file = app(), Full()
    api.service.log = Log(file)
    for _ in range(3):
        assert api("/v1/completions", BODY).status == 200
    file.full = False
    assert api("/v1/completions", BODY).status == 200
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(own["event"], own.get("count")) for own in lines] == [("lines lost", 3), ("request", None)]
    file.close()
    assert api("/v1/completions", BODY).status == 200 and api.service.log.lost == 1
