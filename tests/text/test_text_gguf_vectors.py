"""The vectors that llama.cpp keeps for its vocabularies."""

from pathlib import Path

import pytest

from transpect.text import Tokenizer, load_tokenizer

NAMES = ("gpt-2", "llama-spm", "bert-bge", "qwen2")
BETWEEN = "\n__ggml_vocab_test__\n"


@pytest.fixture(scope="module", params=NAMES)
def vocabulary(request: pytest.FixtureRequest, shared: Path) -> tuple[Tokenizer, Path]:
    file = shared / "vocab" / f"ggml-vocab-{request.param}.gguf"
    return load_tokenizer(file), file


def test_every_vector(vocabulary: tuple[Tokenizer, Path]) -> None:
    tokenizer, file = vocabulary
    with Path(f"{file}.inp").open(encoding="utf-8", newline="") as source:
        texts = source.read().split(BETWEEN)
    wanted = [[int(i) for i in line.split()] for line in Path(f"{file}.out").read_text().split("\n")]
    assert len(texts) == len(wanted) > 40
    found = [tokenizer.encode(text, parse_special=False) for text in texts]
    assert found == wanted


def test_it_survives_saving(vocabulary: tuple[Tokenizer, Path], tmp_path: Path) -> None:
    tokenizer, file = vocabulary
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    texts = Path(f"{file}.inp").read_text(encoding="utf-8").split(BETWEEN)
    assert again.encode_batch(texts, add_special_tokens=True) == tokenizer.encode_batch(texts, add_special_tokens=True)
    assert again.special_tokens == tokenizer.special_tokens


def test_what_llama_2_says_of_itself(shared: Path) -> None:
    tokenizer = load_tokenizer(shared / "vocab" / "ggml-vocab-llama-spm.gguf")
    assert tokenizer.special_tokens == {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
    assert tokenizer.encode("Hello", add_special_tokens=True) == [1, 15043]
    assert tokenizer.encode("</s>", parse_special=True) == [2]
    assert 2 not in tokenizer.encode("</s>", parse_special=False)
    assert tokenizer.decode(tokenizer.encode("Hello  world 猫\n")) == "Hello  world 猫\n"


def test_bert_has_its_frame(shared: Path) -> None:
    tokenizer = load_tokenizer(shared / "vocab" / "ggml-vocab-bert-bge.gguf")
    assert tokenizer.encode("Hello WORLD", add_special_tokens=True) == [101, 7592, 2088, 102]
    assert tokenizer.encode("[CLS] hello", parse_special=True) == [101, 7592]


def test_qwen_keeps_its_chat_template_and_unicode_form(shared: Path) -> None:
    tokenizer = load_tokenizer(shared / "vocab" / "ggml-vocab-qwen2.gguf")
    assert "<|im_start|>" in tokenizer.chat_templates["default"]
    assert tokenizer.encode("e\u0301") == tokenizer.encode("\u00e9")  # its tokenizer.json normalises to form C
    assert tokenizer.encode("a  b") == [*tokenizer.encode("a"), *tokenizer.encode(" "), *tokenizer.encode(" b")]
