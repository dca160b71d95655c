"""The way in: pages in two languages, errors in one line, exit codes, a closed pipe, Ctrl-C."""

import os
import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.main import get_command

from transpect.base.errors import ConfigError, DataError
from transpect.base.messages import TABLE
from transpect.cli import main as entry
from transpect.cli.page import COMMANDS

SCRIPT = "import sys; from transpect.cli.main import main; sys.exit(main())"


def squeezed(text: str) -> str:
    """Without the spaces and lines that the layout put in."""
    return "".join(text.split())


def process(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *words],
        env=os.environ | {"COLUMNS": "200", "PYTHONUTF8": "1"} | environ,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_front_page_lists_every_command_with_its_line(lang: str) -> None:
    page = process("--help", TRANSPECT_LANG=lang)
    assert page.returncode == 0
    assert page.stderr == ""
    for name, below in COMMANDS.items():
        for key in [f"cli.{name}.{child}" for child in below] or [f"cli.{name}"]:
            words = key.removeprefix("cli.").replace(".", " ")
            line, _, more = TABLE[key][lang].partition("\n\n")  # type: ignore[literal-required]
            assert squeezed(words + line) in squeezed(page.stdout)
            assert not more or squeezed(more) not in squeezed(page.stdout)


@pytest.mark.parametrize("words", [(), ("-h",), ("help",)])
def test_nothing_at_all_asks_for_the_front_page(cli, words) -> None:
    answer = cli(*words)
    assert (answer.code, answer.out) == (0, cli("--help").out)


def test_a_group_alone_explains_itself(cli) -> None:
    answer = cli("model")
    assert answer.code == 0
    assert answer.out == cli("model", "--help").out
    assert squeezed(TABLE["cli.model.show"]["en"]) in squeezed(answer.out)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_front_page_and_the_modules_name_the_same_commands(name: str) -> None:
    command = get_command(import_module(f"transpect.cli.{name.replace('-', '_')}").app)
    assert tuple(getattr(command, "commands", ())) == COMMANDS[name]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_command_s_page_speaks_the_language(lang: str) -> None:
    page = process("generate", "--help", TRANSPECT_LANG=lang).stdout
    for key in ("cli.generate", "cli.param.temperature", "cli.options", "cli.decoding"):
        assert squeezed(TABLE[key][lang]) in squeezed(page)  # type: ignore[literal-required]


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("train", "--help"), ("tokenizer", "encode", "--help")])
def test_pages_come_without_torch_and_its_like(words: tuple[str, ...]) -> None:
    code = (
        f"import sys; from transpect.cli.main import main; main({list(words)}); "
        "print(sorted({'torch', 'numpy', 'tokenizers', 'rich'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


def test_the_front_page_needs_no_typer() -> None:
    code = "import sys; from transpect.cli.main import main; main(['--help']); print('typer' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "False"


def test_version(cli) -> None:
    import transpect

    assert cli("--version").out == f"transpect {transpect.__version__}\n"


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(words: list[str]) -> int:
        raise error

    monkeypatch.setattr(entry, "_run", run)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            DataError("a line must be JSON", value="x", file="a.jsonl", line=3, remedy="Mend it."),
            "a.jsonl:3: a line must",
        ),
        (ConfigError("first\nsecond   third"), "first second third"),
        (PermissionError(13, "Permission denied", "runs/x"), "runs/x: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_code_2(cli, error, line, monkeypatch) -> None:
    raising(error, monkeypatch)
    answer = cli("train")
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith(f"error: {line}")
    assert answer.err.count("\n") == 1


def test_debug_shows_where_an_error_came_from(cli, monkeypatch) -> None:
    monkeypatch.setenv("TRANSPECT_DEBUG", "1")
    raising(DataError("no such file"), monkeypatch)
    with pytest.raises(DataError):
        cli("train")


def test_a_bug_keeps_its_traceback(cli, monkeypatch) -> None:
    raising(ZeroDivisionError("a bug"), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        cli("train")


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (BrokenPipeError(), 1)])
def test_ctrl_c_and_a_closed_pipe_say_nothing(cli, error, code, monkeypatch) -> None:
    raising(error, monkeypatch)
    monkeypatch.setattr(entry, "_forget_stdout", lambda: None)
    answer = cli("train")
    assert answer.code == code
    assert answer.err.strip() == ""


@pytest.mark.parametrize("error", [typer.Abort(), KeyboardInterrupt()])
def test_ctrl_c_inside_a_command_is_130(cli, error, monkeypatch) -> None:
    from transpect.cli import inputs

    def read(argument: str | None) -> str:
        raise error

    monkeypatch.setattr(inputs, "read_text", read)
    monkeypatch.setattr("transpect.text.load_tokenizer", lambda path: type("T", (), {"encode": lambda *_a, **_k: []})())
    answer = cli("tokenizer", "encode", "anywhere", "text")
    assert answer.code == 130
    assert "Traceback" not in answer.err


def test_a_terminal_without_chinese_shows_codes_instead_of_failing() -> None:
    page = process("--help", TRANSPECT_LANG="zh", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert page.returncode == 0
    assert "\\u" in page.stdout


def test_a_warning_is_a_line_without_our_sources(cli, tiny, tmp_path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in tiny.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    (model / "generation_config.json").write_text('{"force_words_ids": [[[5]]]}', encoding="utf-8")
    answer = cli("generate", model, "小猫", "--max-new-tokens", 1)
    assert answer.code == 0
    assert answer.err.startswith("warning: ")
    assert "force_words_ids" in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["model", "list"], ["model", "show", "gpt2"]])
def test_a_reader_that_leaves_early_gets_no_traceback(words: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_a_stream_that_is_closed_is_an_empty_one(cli, closed, monkeypatch) -> None:
    """Python gives None for it: `transpect … <&-`, or a service without streams."""
    monkeypatch.setattr(sys, closed, None)
    seen: list[bool] = []

    def run(words: list[str]) -> int:
        print("said")
        sys.stderr.write("said\n")
        seen.append(sys.stdin.isatty())
        return 0

    monkeypatch.setattr(entry, "_run", run)
    assert entry.main(["train"]) == 0
    assert len(seen) == 1
    if closed == "stdin":
        assert sys.stdin.read() == ""
