"""Peers: their scripts, their environments, what they are asked for."""

from pathlib import Path

import pytest

from transpect.base.errors import ConfigError
from transpect.bench import peers, prefill
from transpect.bench.decode import bars, same
from transpect.bench.formats import FORMATS, known_formats
from transpect.bench.peers import PEERS, check_peers, interpreter, named
from transpect.bench.worker import SCRIPTS, PeerError


def test_every_script_is_of_a_known_program() -> None:
    known = {"ours", *(name.replace(".", "_").replace("-", "_") for name in PEERS)}
    scripts = {file for file in SCRIPTS.glob("*/*.py") if file.stem != "__init__"}
    assert scripts and {file.stem for file in scripts} <= known


def test_peers_scripts_import_nothing_of_ours() -> None:
    files = [file for file in SCRIPTS.rglob("*.py") if file.stem != "ours"]
    assert not [
        file for file in files if "import transpect" in file.read_text() or "from transpect" in file.read_text()
    ]


def test_peers_are_known_by_task() -> None:
    check_peers("decode", ["llama.cpp", "ctranslate2", "transformers"])
    check_peers("prefill", ["llama.cpp"], "decode")
    with pytest.raises(ConfigError, match="no such peer for `bench load`"):
        check_peers("load", ["ctranslate2"])


def test_an_environment_is_made_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ran: list[list[str]] = []
    fails = [True]

    class Done:
        returncode, stdout, stderr = 0, "", "error: no compiler\n"

    def run(command: list[str], **_: object) -> Done:
        ran.append(command)
        done = Done()
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)
        else:
            done.returncode = int(fails[0])
        return done

    monkeypatch.setattr(peers.subprocess, "run", run)
    with pytest.raises(PeerError, match=r"llama\.cpp can't be installed: error: no compiler"):
        interpreter("llama.cpp", {})
    fails[0] = False
    folder = tmp_path / "transpect" / "peers" / "llama.cpp"
    assert [interpreter("llama.cpp", {}) for _ in range(2)] == [folder / "bin" / "python"] * 2
    assert len(ran) == 4  # two attempts of two commands; the third call finds all there
    assert interpreter("llama.cpp", {"llama.cpp": tmp_path}) == tmp_path


def test_names_of_interpreters(tmp_path: Path) -> None:
    file = tmp_path / "python"
    file.touch()
    assert named([f"llama.cpp={file}"]) == {"llama.cpp": file}


def test_bars_are_those_of_equal_bits() -> None:
    for name, form in FORMATS.items():
        alone = bars(form, 1)
        assert alone["llama.cpp", "steps"].value == (1.0 if form.bits >= 16 else 1.4), name
        assert (("transformers", "steps") in alone) == bool(form.transformers)
        assert prefill.bars(form)["llama.cpp", "prompt"].value == 1.3
        assert (("transformers", "prompt") in prefill.bars(form)) == (name == "bfloat16")
    assert known_formats(("float32",)) == ("float32",)


def test_equal_tokens_are_counted() -> None:
    ours, theirs = {"ids": [[1, 2, 3], [4, 5, 6]]}, {"ids": [[1, 2, 3], [4, 7, 6]]}
    assert same(ours, theirs) == "the same tokens as ours in 1 of 2 rows (at least the first 1)"
