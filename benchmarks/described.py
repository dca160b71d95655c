"""Is a server as its own OpenAPI document says? schemathesis asks it what the document allows, and what it does not.

A part of `proofs.py`. It needs ``pip install schemathesis``, which is found beside the interpreter or on the path.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tiny import HEADS, save

from transpect.bench.workers.clients import started

KEY = "0123456789abcdef"
PHASES = "examples,coverage,fuzzing"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
"""All but those that are about stored resources, and that whatever the document allows is done: of fields that each may
be given only some may be given together, which a request is told with 400."""
SLOW = 5.0
"""Seconds that no answer may take."""


def schemathesis(examples: int, seed: int) -> bool:
    """Ask a server of five kinds of models, by an API key; tell how many requests were answered as they should be.

    Args:
        examples: requests made up at random for each route, besides those made of each bound of each field.
        seed: of all chances.
    """
    program = shutil.which("schemathesis", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        print("schemathesis: not installed (pip install schemathesis)")
        return False
    with tempfile.TemporaryDirectory() as folder:
        for kind in HEADS:
            save(Path(folder) / kind, kind)
        models = [f"{kind}={folder}/{kind}" for kind in HEADS]
        command = [sys.executable, "-m", "transpect", "serve", *models, "--limits.default_max_tokens", "16"]
        port, _ = started(
            lambda port: [*command, "--port", str(port)], os.cpu_count() or 1, {"TRANSPECT_API_KEYS": f"me:{KEY}"}
        )
        report = Path(folder) / "report.json"
        asked = [program, "run", f"http://127.0.0.1:{port}/openapi.json", "--wait-for-schema", "60"]
        asked += ["--phases", PHASES, "--checks", ",".join(CHECKS), "--header", f"Authorization: Bearer {KEY}"]
        asked += ["--max-examples", str(examples), "--seed", str(seed), "--max-response-time", str(SLOW)]
        asked += ["--continue-on-failure", "--no-shrink", "--warnings", "off", "--suppress-health-check", "all"]
        asked += ["--report", "json", "--report-json-path", str(report)]
        ended = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False)
        if not report.exists():
            print(f"schemathesis: ended with {ended.returncode}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
            return False
        found = json.loads(report.read_text(encoding="utf-8"))
    cases, routes = found["test_cases"], found["operations"]
    right = cases["generated"] - cases["with_failures"] - cases["errored"]
    done = sum(phase["accepted"] for own in found["valid_rates"].values() for phase in own.values())
    print(
        f"schemathesis: {right} of {cases['generated']} requests at {routes['tested']} of {routes['total']} routes are "
        f"answered as the document says; {done} of them were done, the others refused"
    )
    if ended.returncode:
        print(ended.stdout)
    return not ended.returncode and right == cases["generated"] and routes["tested"] == routes["total"]
