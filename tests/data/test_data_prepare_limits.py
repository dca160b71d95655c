"""`prepare` and token files under hard limits: a corpus larger than the memory, and a process that is killed."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transpect.text import train_tokenizer

pytestmark = pytest.mark.slow

LIMIT = 64 * 2**20
"""How much more memory of its own a process may take than it has when it begins."""

PREPARE = """
import sys
from transpect.data.sources import Jsonl
from transpect.data.tokens import prepare
from transpect.text import load_tokenizer
corpus, tokenizer, out, shard = sys.argv[1:5]
source, tokenizer = Jsonl(corpus), load_tokenizer(tokenizer)
{limit}
print(prepare(source, tokenizer, out, shard_tokens=int(shard)).manifest.tokens)
"""
READ = """
import sys
import torch
from transpect.data.loader import Batches
from transpect.data.objectives import Causal
from transpect.data.sources import Tokens
from transpect.text import load_tokenizer
tokenizer = load_tokenizer(sys.argv[2])
{limit}
documents = Tokens(sys.argv[3]).documents()
batches = Batches(documents, Causal(), tokenizer, batch_size=64, seq_len=1024)
places = set()
for _ in range(int(sys.argv[4])):
    next(batches)
    places.add(batches.place[0])
print(len(places))
"""
HOLD = """
import resource
kinds = dict(line.split(":", 1) for line in open("/proc/self/status"))
now = int(kinds["VmData"].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (now + {limit}, now + {limit}))
"""


def run(code: str, *words: object, limit: int | None = None) -> str:
    held = "" if limit is None else HOLD.format(limit=limit)
    done = subprocess.run(
        [sys.executable, "-c", code.format(limit=held), *map(str, words)],
        env=os.environ | {"RAYON_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def write_corpus(path: Path, megabytes: int) -> None:
    text = "the cat eats the fish and the dog barks at the moon " * 40
    with path.open("w", encoding="utf-8") as stream:
        for number in range(megabytes * 2**20 // (len(text) + 30)):
            stream.write(json.dumps({"text": f"{number} {text}"}) + "\n")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts a process's own memory on Linux alone")
def test_a_corpus_larger_than_the_memory_is_prepared_and_read(tmp_path: Path) -> None:
    corpus = tmp_path / "x.jsonl"
    write_corpus(corpus, 64)  # as tokens twice the limit
    tokenizer = train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyz 0123456789"])
    tokenizer.save(tmp_path / "tok")
    n = int(run(PREPARE, corpus, tmp_path / "tok", tmp_path / "out", 2**24, limit=LIMIT))
    assert n * 2 > 1.9 * LIMIT
    assert int(run(READ, corpus, tmp_path / "tok", tmp_path / "out", 70, limit=LIMIT)) > 2


def test_a_killed_command_is_gone_on_with(tmp_path: Path) -> None:
    corpus = tmp_path / "x.jsonl"
    write_corpus(corpus, 4)
    train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyz 0123456789"]).save(tmp_path / "tok")
    words = [str(corpus), str(tmp_path / "tok")]
    run(PREPARE, *words, tmp_path / "whole", 2**17)
    out = tmp_path / "out"
    code = [sys.executable, "-c", PREPARE.format(limit=""), *words, str(out), str(2**17)]
    for wanted in (1, 4, 9):  # killed in the midst of a later shard each time
        process = subprocess.Popen(code, stdout=subprocess.DEVNULL)
        while len(list(out.glob("0*.bin"))) < wanted and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
    run(PREPARE, *words, out, 2**17)
    sums = [
        {file.name: hashlib.sha256(file.read_bytes()).digest() for file in folder.iterdir() if file.is_file()}
        for folder in (tmp_path / "whole", out)
    ]
    assert sums[0] == sums[1]
