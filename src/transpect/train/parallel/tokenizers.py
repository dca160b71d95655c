"""One tokenizer for all processes: made by the leading one, since training one twice need not give the same."""

from __future__ import annotations

import json
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

from transpect.text import Tokenizer, load_tokenizer
from transpect.train.parallel.world import World


def made_once(make: Callable[[], Tokenizer], world: World) -> Tokenizer:
    """What ``make`` makes in the leading process; the others open a copy."""
    if world.size == 1:
        return make()
    made: list[Tokenizer] = []

    def packed() -> bytes:
        made.append(make())
        with tempfile.TemporaryDirectory() as folder:
            made[0].save(Path(folder))
            files = {file.name: b64encode(file.read_bytes()).decode() for file in Path(folder).iterdir()}
        return json.dumps(files).encode()

    files = json.loads(world.tell(packed))
    if made:
        return made[0]
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(b64decode(content))
        return load_tokenizer(Path(folder))
