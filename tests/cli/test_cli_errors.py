"""Each mistake is one line on stderr that names the place and what to do, exit code 2, nothing on stdout."""

import json
import re
from pathlib import Path

import pytest

RECIPE = """\
model:
  preset: gpt2
  d_model: 32
  n_heads: 2
  n_layers: 1
tokenizer:
  kind: char
data:
  train: {kind: fable, stories: 40}
  valid: {kind: fable, stories: 10, seed: 1}
  seq_len: 16
train:
  max_steps: 2
  batch_size: 4
"""


@pytest.fixture
def place(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with good and bad files; ``model`` is a model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(tiny)
    (tmp_path / "empty").mkdir()
    files = {
        "good.txt": "小猫爱吃鱼。\n小狗爱吃肉。\n",
        "blank.txt": "\n \n",
        "bad.jsonl": '{"text": "小猫"}\n{"text": \n',
        "field.jsonl": '{"text": "小猫"}\n{"words": "小狗"}\n',
        "bad.tsv": "a\tb\nonly one\n",
        "data.xls": "a,b\n",
        "recipe.yaml": RECIPE,
        "key.yaml": RECIPE.replace("n_layers", "n_layer"),
        "section.yaml": RECIPE.replace("train:\n  max", "trainn:\n  max"),
        "value.yaml": RECIPE.replace("max_steps: 2", "max_steps: two"),
        "syntax.yaml": "model: [\n",
        "list.yaml": "- a\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("café\n".encode("latin-1"))
    return tmp_path


LONG = "小猫爱吃" * 10
TOKENIZER = [
    ("tokenizer encode model", "must not be empty"),
    ("tokenizer encode nowhere 猫", "nowhere: no such file or directory"),
    ("tokenizer encode empty 猫", "empty: no tokenizer.json"),
    ("tokenizer encode good.txt 猫", r"good.txt: a \.txt file is read as a WordPiece vocab.*unk token.*right file"),
    ("tokenizer encode bad.tsv 猫", "bad.tsv:1: not valid JSON"),
    ("tokenizer encode", r"Missing argument 'DIR'.*transpect tokenizer encode --help"),
    ("tokenizer decode model", "at least one id"),
    ("tokenizer decode model 1 two", r"whole number from 0 \(got 'two'\)"),
    ("tokenizer decode model 1,-2", r"got '-2'"),
    ("tokenizer decode model 1.5", r"got '1.5'"),
    ("tokenizer decode model 999999", r"below the size of the vocabulary.*999999"),
    ("tokenizer train --kind char --out t missing.txt", "missing.txt: no such file"),
    ("tokenizer train --kind char --out t data.xls", r"data.xls: a data file must end in .*\.txt"),
    ("tokenizer train --kind char --out t blank.txt", "blank.txt: .*blank"),
    ("tokenizer train --kind char --out t bad.jsonl", "bad.jsonl:2: .*JSON"),
    ("tokenizer train --kind char --out t field.jsonl", "field.jsonl:2: .*'text'.*The line has 'words'"),
    ("tokenizer train --kind char --out t bad.tsv", "bad.tsv:2: .*2 columns"),
    ("tokenizer train --kind char --out t latin.txt", "latin.txt:1: .*UTF-8"),
    ("tokenizer train --kind chars --out t good.txt", "kind.*'chars'.*byte-bpe"),
    ("tokenizer train --kind bpe --out t good.txt", "bpe needs a vocab_size"),
    ("tokenizer train --kind bpe --vocab-size 5 --out t good.txt", r"vocab_size ≥ \d+ \(got 5\)"),
    ("tokenizer train --kind bpe --vocab-size many --out t good.txt", "'--vocab-size'"),
    ("tokenizer train --kind bpe --vocab_sise 9 --out t good.txt", "no such option.*vocab_sise"),
    ("tokenizer train --kind char good.txt", "Missing option '--out'"),
    ("tokenizer train --kind char --out good.txt good.txt", "good.txt"),
    ("tokenizer trains", "No such command 'trains'. Did you mean 'train'"),
]
MODEL = [
    ("model show", "Missing argument 'PRESET.MODEL'"),
    ("model show gtp2", "no preset and no directory.*'gtp2'.*Did you mean 'gpt2'"),
    ("model show empty", "empty"),
    ("model show gpt2 --n_layer 2", "no key 'n_layer'.*n_layers"),
    ("model show gpt2 --decoder.attention.n_head 2", "no key 'n_head'.*Did you mean 'n_heads'"),
    ("model show gpt2 --n_layers two", "n_layers must be a whole number"),
    ("model show gpt2 --n_layers", "--n_layers needs a value"),
    ("model show gpt2 --n_heads 7", "d_model must be a multiple of n_heads"),
    ("model show gpt2 --length 0", "--length must be at least 1"),
    ("model show gpt2 --length 1025", "context of 1024 tokens.*1025"),
    ("model show gpt2 --batch x", "'--batch'"),
    ("model list more", "unexpected extra argument"),
]
GENERATE = [
    ("generate", "Missing argument 'MODEL'"),
    ("generate nowhere 猫", "no such checkpoint directory.*nowhere"),
    ("generate empty 猫", "no config.json, best/ or last/.*empty"),
    ("generate good.txt 猫", "good.txt"),
    ("generate model", "must not be empty"),
    (f"generate model {LONG}", r"context of 24 tokens.*\d+ tokens.*Shorten"),
    ("generate model 猫 --temperature -1", "temperature must be a finite number from 0.*-1"),
    ("generate model 猫 --temperature hot", "'--temperature'"),
    ("generate model 猫 --top-k -1", "top_k must be a whole number"),
    ("generate model 猫 --top-p 1.5", "top_p must be a probability.*1.5"),
    ("generate model 猫 --max-new-tokens -3", "max_new_tokens must be a whole number"),
    ("generate model 猫 --max-new-tokens 2.5", "'--max-new-tokens'"),
    ("generate model 猫 --n 0", "n must be at least 1"),
    ("generate model 猫 --seed 99999999999999999999999", "seed must be"),
    ("generate model 猫 --temprature 0", "No such option: --temprature.*--temperature"),
    ("generate model 猫 狗", "unexpected extra argument"),
    ("generate model 猫 --device gpu", "gpu"),
    ("generate model 猫 --stop ''", "stop"),
]
TRAIN = [
    ("train", "Missing argument 'RECIPE'"),
    ("train recipe.yaml", "Missing option '--out'"),
    ("train missing.yaml --out run", "missing.yaml: no such file"),
    ("train syntax.yaml --out run", r"syntax.yaml:\d: not valid YAML"),
    ("train list.yaml --out run", "list.yaml: a configuration must be a mapping"),
    ("train key.yaml --out run", "key.yaml:5: .*no key 'n_layer'.*Did you mean 'n_layers'"),
    ("train section.yaml --out run", "section.yaml:12: .*no key 'trainn'.*Did you mean 'train'"),
    ("train value.yaml --out run", "value.yaml:13: train.max_steps must be a whole number.*'two'"),
    ("train recipe.yaml --out run --model.d_modle 3", "--model.d_modle: .*Did you mean 'd_model'"),
    ("train recipe.yaml --out run --modle.d_model 3", r"'modle\.d_model'.*Did you mean 'model'"),
    ("train recipe.yaml --out run --model.n_heads 5", "multiple of n_heads.*32 and 5"),
    ("train recipe.yaml --out run --train.max_steps 0", "--train.max_steps: max_steps must be at least 1"),
    ("train recipe.yaml --out run --train.max_steps", "--train.max_steps needs a value"),
    ("train recipe.yaml --out run --data missing.txt", "missing.txt: no such file"),
    ("train recipe.yaml --out run --data bad.jsonl", "bad.jsonl:2: .*JSON"),
    ("train recipe.yaml --out run --data data.xls", "data.xls: a data file must end in"),
    ("train recipe.yaml --out run --resume later", "--resume must be auto, never, or a run directory.*later"),
    ("train recipe.yaml --out good.txt", "needs a directory.*good.txt"),
    ("train recipe.yaml --out run --resum auto", "No such option: --resum.*--resume"),
    ("train recipe.yaml --out run --data.seq_len 2000", "seq_len must not be longer than the model's context"),
]
EVAL = [
    ("eval", "Missing argument 'MODEL'"),
    ("eval nowhere --data good.txt", "no such checkpoint directory.*nowhere"),
    ("eval model", "a text to evaluate on.*--data FILE"),
    ("eval model --data missing.txt", "missing.txt: no such file"),
    ("eval model --data bad.jsonl", "bad.jsonl:2: .*JSON"),
    ("eval model --data blank.txt", "blank.txt: .*blank"),
    ("eval model --data good.txt --batch-size 0", "'--batch-size'"),
]
NOTHING = [("generatee", "no such command.*'generatee'.*Did you mean 'generate'"), ("--verbose", "no such command")]


def check(cli, line: str, says: str) -> None:
    words = [word if word != "''" else "" for word in line.split(" ")]
    answer = cli(*words)
    assert answer.code == 2, answer.out + answer.err
    assert answer.out == ""
    assert re.match(r"error: [^\n]+\n$", answer.err), answer.err
    assert "Traceback" not in answer.err
    assert re.search(says, answer.err), answer.err


@pytest.mark.parametrize(("line", "says"), [*NOTHING, *TOKENIZER, *MODEL, *GENERATE, *TRAIN, *EVAL])
def test_a_mistake_is_one_line(cli, place: Path, line: str, says: str) -> None:
    check(cli, line, says)


def test_text_that_is_not_utf8(cli, place: Path) -> None:
    answer = cli("tokenizer", "encode", "model", "\udcff")
    assert answer.code == 2
    assert "UTF-8" in answer.err


def test_a_damaged_checkpoint(cli, place: Path, tiny: Path) -> None:
    broken = place / "broken"
    broken.mkdir()
    for file in tiny.iterdir():
        (broken / file.name).write_bytes(
            file.read_bytes()[:200] if file.suffix == ".safetensors" else file.read_bytes()
        )
    answer = cli("generate", "broken", "猫")
    assert answer.code == 2
    assert answer.err.startswith("error: ")
    assert "model.safetensors" in answer.err


def test_a_wrong_key_of_a_checkpoint_s_config(cli, place: Path, tiny: Path) -> None:
    broken = place / "broken"
    broken.mkdir()
    config = json.loads((tiny / "config.json").read_text(encoding="utf-8"))
    (broken / "config.json").write_text(json.dumps(config | {"model_type": "nonsense"}), encoding="utf-8")
    answer = cli("model", "show", "broken")
    assert answer.code == 2
    assert "config.json" in answer.err
    assert "nonsense" in answer.err


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "model", ""),
        ("tokenizer", "train", "good.txt", "--kind", "char", "--out", ""),
        ("tokenizer", "train", "good.txt", "--kind", "char", "--out="),
        ("train", "recipe.yaml", "--out", ""),
        ("demo", "--out", ""),
    ],
)
def test_an_empty_place_is_not_the_one_that_a_person_is_in(cli, place: Path, words: tuple[str, ...]) -> None:
    """A variable of a script that was not set."""
    before = sorted(place.rglob("*"))
    answer = cli(*words)
    assert answer.code == 2 and "a place to write to must not be empty" in answer.err
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    [
        ("generate", "", "fish"),
        ("eval", "", "--data", "good.txt"),
        ("convert", "", "out"),
        ("verify", ""),
        ("model", "show", ""),
        ("tokenizer", "encode", "", "fish"),
    ],
)
def test_no_name_is_not_the_model_that_a_person_is_in(
    cli, tiny: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of a script that was not set."""
    monkeypatch.chdir(tiny)
    answer = cli(*words)
    assert answer.code == 2 and "a model must have a name" in answer.err and not answer.out


def test_no_format_is_not_any_format(cli, place: Path) -> None:
    answer = cli("convert", "model", "out", "--to", "")
    assert answer.code == 2 and "no such format (got '')" in answer.err
    assert not (place / "out").exists()
