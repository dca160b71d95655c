"""The loop of a worker: JSON lines in, JSON lines out, one answer a request.

    python loop.py FILE         FILE defines ``load``, see the folder's ``__init__``

    {"do": "load", "options": {...}}   ->  {"facts": {...}}
    {"do": "run", "options": {...}}    ->  {"count": n, "seconds": {...}, ...}
    anything that fails                ->  {"error": "..."}
    end of input                       ->  the process ends

It runs in the environment of a peer, so it imports nothing but Python's own library.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[[dict[str, Any]], dict[str, Any]]


def main(file: str) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    here = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != here]  # holds names of theirs
    call: Call | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any]
        try:
            if asked["do"] == "load":
                facts, call = _script(file).load(asked["options"])
                answer = {"facts": facts}
            elif call is None:
                answer = {"error": "run before load"}
            else:
                answer = call(asked["options"])
        except Exception as error:  # whoever asked is told, and decides
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _script(file: str) -> Any:
    spec = importlib.util.spec_from_file_location("worker", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["worker"] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1])
