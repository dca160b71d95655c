"""Saving and opening: what is on disk, where roles come from, and what is said of files that are no tokenizer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from transpect.base.errors import TokenizerError
from transpect.text import Tokenizer, load_tokenizer, train_tokenizer
from transpect.text.tokenizer import ROLES

CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}"


def with_template(tokenizer: Tokenizer, **templates: str) -> Tokenizer:
    return Tokenizer(
        tokenizer.backend, tokenizer.special_tokens, chat_templates=templates, extra_config={"model_max_length": 512}
    )


def test_what_is_saved_is_opened(tokenizer: Tokenizer, corpora: dict[str, str], tmp_path: Path) -> None:
    with_template(tokenizer, default=CHAT).save(tmp_path / "new" / "folder")
    again = load_tokenizer(tmp_path / "new" / "folder")
    assert again.backend.to_str() == tokenizer.backend.to_str()
    assert again.special_tokens == tokenizer.special_tokens
    assert again.chat_templates == {"default": CHAT}
    assert again.extra_config == {"model_max_length": 512}
    for text in corpora.values():
        assert again.encode(text, add_special_tokens=True) == tokenizer.encode(text, add_special_tokens=True)
    again.save(tmp_path / "again")
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "new/folder" / file).read_bytes()


def test_named_templates_are_kept(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    with_template(trained["char"], default=CHAT, tool_use="tools").save(tmp_path)
    assert Tokenizer.load(tmp_path).chat_templates == {"default": CHAT, "tool_use": "tools"}
    (tmp_path / "chat_template.jinja").write_text("from a file")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("rag")
    assert load_tokenizer(tmp_path).chat_templates == {"default": "from a file", "tool_use": "tools", "rag": "rag"}


@pytest.mark.parametrize("broken", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["mkdir", "open", "replace"])
@pytest.mark.parametrize("times", range(4))
def test_all_files_are_saved_or_none(
    trained: dict[str, Tokenizer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: BaseException,
    step: str,
    times: int,
) -> None:
    folder = tmp_path / "saved"
    trained["char"].save(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert sorted(before) == ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    usual, calls = getattr(Path, step), iter(range(100))
    expected = TokenizerError if isinstance(broken, OSError) else KeyboardInterrupt

    def breaks(self: Path, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == times:
            raise broken
        return usual(self, *args, **kwargs)

    for target, wanted in ((folder, before), (tmp_path / "new" / "folder", None)):
        calls = iter(range(100))
        with monkeypatch.context() as patch:
            patch.setattr(Path, step, breaks)
            try:
                trained["wordpiece"].save(target)
            except expected:
                failed = True
            else:
                failed = False
        assert failed == (next(calls) > times)
        if failed and wanted:
            assert {file.name: file.read_bytes() for file in target.iterdir()} == wanted
        elif failed:
            assert sorted(tmp_path.iterdir()) == [folder]
        else:
            assert sorted(file.name for file in target.iterdir()) == sorted(before)
        trained["char"].save(folder)


def test_a_file_is_no_directory_to_save_into(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TokenizerError, match="can be written"):
        trained["char"].save(tmp_path / "file")


def test_a_path_may_be_a_directory_a_file_or_a_run(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    trained["char"].save(tmp_path / "run" / "last")
    want = trained["char"].encode("小猫")
    shutil.copy(tmp_path / "run/last/tokenizer.json", tmp_path / "other-name.json")
    for path in (
        tmp_path / "run/last",
        tmp_path / "run/last/tokenizer.json",
        tmp_path / "run",
        tmp_path / "other-name.json",
    ):
        assert load_tokenizer(path).encode("小猫") == want
        assert load_tokenizer(str(path)).encode("小猫") == want
    trained["bpe"].save(tmp_path / "run" / "best")
    assert load_tokenizer(tmp_path / "run").backend.to_str() == trained["bpe"].backend.to_str()


# roles


def write(folder: Path, tokenizer: Tokenizer, **files: Any) -> Path:
    tokenizer.save(folder)
    for name in ("tokenizer_config", "special_tokens_map"):
        (folder / f"{name}.json").unlink()
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("files", "bos", "eos"),
    [
        ({}, "<s>", "</s>"),  # by convention
        ({"config": {"model_type": "llama"}}, "<s>", "</s>"),
        ({"config": {"bos_token_id": 3, "eos_token_id": [2, 1]}}, "</s>", "<s>"),
        ({"special_tokens_map": {"bos_token": {"content": "</s>", "lstrip": False}}}, "</s>", None),
        ({"tokenizer_config": {"bos_token": "<pad>"}, "special_tokens_map": {"bos_token": "</s>"}}, "</s>", None),
        (
            {
                "tokenizer_config": {"bos_token": "<pad>", "added_tokens_decoder": {}},
                "special_tokens_map": {"bos_token": "</s>"},
            },
            "<pad>",
            None,
        ),
        ({"tokenizer_config": {"eos_token": "</s>"}, "config": {"bos_token_id": 2}}, "<s>", "</s>"),
        ({"tokenizer_config": {"bos_token": None}, "config": {"bos_token_id": 2, "eos_token_id": 3}}, None, "</s>"),
        ({"tokenizer_config": {"tokenizer_class": "X"}, "config": {"bos_token_id": None}}, None, None),
    ],
)
def test_where_roles_come_from(
    files: dict[str, Any], bos: str | None, eos: str | None, trained: dict[str, Tokenizer], tmp_path: Path
) -> None:
    opened = load_tokenizer(write(tmp_path, trained["char"], **files))
    assert opened.special_tokens.get("bos") == bos
    assert opened.special_tokens.get("eos") == eos
    assert opened.bos_id == (None if bos is None else opened.token_to_id(bos))


def test_a_role_of_an_ordinary_or_new_token_makes_it_special(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    files = {"tokenizer_config": {"sep_token": "猫", "cls_token": "<new>"}}
    opened = load_tokenizer(write(tmp_path, trained["char"], **files))
    size = trained["char"].vocab_size
    assert (opened.cls_id, opened.vocab_size) == (size, size + 1)
    assert opened.sep_id == trained["char"].token_to_id("猫")
    assert opened.decode(opened.encode("小<new>猫"), skip_special_tokens=True) == "小"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("spelled", ["<nope>", {"content": "<nope>", "lstrip": False}], ids=str)
def test_a_role_whose_token_is_not_in_the_vocabulary_is_told(
    role: str, legacy: bool, spelled: Any, trained: dict[str, Tokenizer], tmp_path: Path
) -> None:
    said = {"tokenizer_config": {f"{role}_token": spelled}}
    if legacy:
        (tmp_path / "vocab.txt").write_text("[UNK]\n[PAD]\n[CLS]\n[SEP]\na\n", encoding="utf-8")
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(said["tokenizer_config"]), encoding="utf-8")
    else:
        write(tmp_path, trained["char"], **said)
    if legacy and role in ("unk", "cls", "sep"):  # without which no WordPiece works
        with pytest.raises(TokenizerError, match=f"must have its {role} token .*<nope>"):
            load_tokenizer(tmp_path)
        return
    with pytest.warns(UserWarning, match=f"{role}_token '<nope>'") as told:
        opened = load_tokenizer(tmp_path)
    assert len(told) == 1 and opened.special_tokens[role] == "<nope>"


def test_roles_that_are_in_the_vocabulary_are_no_news(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, tokenizer in trained.items():
            tokenizer.save(tmp_path / kind)
            assert load_tokenizer(tmp_path / kind).special_tokens == tokenizer.special_tokens


def test_truncation_and_padding_in_the_file_are_off(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    write(tmp_path, trained["char"])
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 16},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert len(load_tokenizer(tmp_path).encode("小猫爱吃鱼")) == 5
    assert [len(ids) for ids in load_tokenizer(tmp_path).encode_batch(["小", "小猫爱吃鱼"])] == [1, 5]


# errors


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"absent: no such file or directory\. Give a directory"):
        load_tokenizer(tmp_path / "absent")


@pytest.mark.parametrize(
    ("file", "says"),
    [(None, "whose best/ or last/ has one"), ("tokenizer.model", "must have pieces"), ("vocab.txt", "vocab.txt")],
)
def test_a_directory_without_a_tokenizer(file: str | None, says: str, tmp_path: Path) -> None:
    if file:
        (tmp_path / file).write_text("")
    with pytest.raises(TokenizerError, match=says):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "tokenizer.json:1: not valid JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b"[]", "JSON object"),
        (b"{}", "no 'model'"),
        (b'{"model": 3}', "no 'model'"),
        (b'{"model": {"type": "Unknown"}}', "not a tokenizer that the tokenizers package"),
        (b"[" * 100_000, "not valid JSON|JSON object"),
    ],
)
def test_a_file_that_is_no_tokenizer(content: bytes, rule: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=rule) as error:
        load_tokenizer(tmp_path)
    assert error.value.file == tmp_path / "tokenizer.json"
    assert error.value.remedy


def test_every_truncation_is_told(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    trained["char"].save(tmp_path)
    whole = (tmp_path / "tokenizer.json").read_bytes()
    for size in range(1, len(whole) - 1, max(1, len(whole) // 40)):
        (tmp_path / "tokenizer.json").write_bytes(whole[:size])
        with pytest.raises(TokenizerError, match=r"cut short|UTF-8"):
            load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("tokenizer_config.json", "{", "tokenizer_config.json:1: not valid JSON"),
        ("special_tokens_map.json", '{"bos_token": 3}', "bos_token must be a string"),
        ("tokenizer_config.json", '{"chat_template": [1]}', "chat_template must be"),
    ],
)
def test_a_damaged_file_beside_it(
    name: str, content: str, rule: str, trained: dict[str, Tokenizer], tmp_path: Path
) -> None:
    write(tmp_path, trained["char"])
    (tmp_path / name).write_text(content)
    with pytest.raises(TokenizerError, match=rule):
        load_tokenizer(tmp_path)


# the class


def test_unknown_roles_are_refused(trained: dict[str, Tokenizer]) -> None:
    with pytest.raises(TokenizerError, match="Roles: bos, eos, pad, unk, mask, cls, sep"):
        Tokenizer(trained["char"].backend, {"start": "<s>"})


def test_vocab_size_covers_gaps_and_added_tokens() -> None:
    tokenizer = train_tokenizer("char", ["abc"])
    tokenizer.backend.add_tokens(["later"])
    assert tokenizer.vocab_size == len(tokenizer) == 8
    from tokenizers import Tokenizer as Backend
    from tokenizers import models

    gaps = Tokenizer(Backend(models.WordLevel({"a": 0, "b": 41}, unk_token="a")), {})
    assert gaps.vocab_size == 42
    assert gaps.id_to_token(7) is None
    assert gaps.decode([7, 41, 0]) == "b a"
    assert gaps.tokens([7, 41]) == ["<id 7>", "b"]


@pytest.mark.parametrize("text", [None, b"a", 3, "\ud83d"])
def test_what_is_no_text_is_refused(text: Any, trained: dict[str, Tokenizer]) -> None:
    for call in (
        trained["char"].encode,
        trained["char"].encode_with_offsets,
        lambda t: trained["char"].encode_batch([t]),
    ):
        with pytest.raises(TokenizerError, match="text"):
            call(text)


@pytest.mark.parametrize("ids", [[-1], [2**32], [0.5], ["a"], [None], [[1]]])
def test_what_is_no_id_is_refused(ids: Any, trained: dict[str, Tokenizer]) -> None:
    with pytest.raises(TokenizerError, match="whole number"):
        trained["char"].decode(ids)
    with pytest.raises(TokenizerError, match="whole number"):
        trained["char"].tokens(ids)


def test_batches_are_rows(tokenizer: Tokenizer, corpora: dict[str, str]) -> None:
    texts = [*corpora.values(), ""]
    rows = tokenizer.encode_batch(texts, add_special_tokens=True)
    assert rows == [tokenizer.encode(text, add_special_tokens=True) for text in texts]
    assert tokenizer.decode_batch(rows) == [tokenizer.decode(row) for row in rows]
    assert tokenizer.decode_batch(rows, skip_special_tokens=True)[-1] == ""


def test_offsets_point_into_the_text(trained: dict[str, Tokenizer], corpora: dict[str, str]) -> None:
    for name, tokenizer in trained.items():
        for text in corpora.values():
            ids, offsets = tokenizer.encode_with_offsets(text)
            assert ids == tokenizer.encode(text)
            assert all(0 <= start <= end <= len(text) for start, end in offsets)
            if not name.startswith("wordpiece"):  # BERT's cleaning drops accents and invisible characters
                covered = {at for start, end in offsets for at in range(start, end)}
                assert covered == set(range(len(text)))
    ids, offsets = trained["wordpiece"].encode_with_offsets("The Cat", add_special_tokens=True)
    assert ["The Cat"[a:b] for a, b in offsets if b > a and b - a == 3] == ["The", "Cat"]
    assert offsets[0] == offsets[-1] == (0, 0)


def test_tokens_are_shown_as_text(trained: dict[str, Tokenizer]) -> None:
    def shown(name: str, text: str) -> list[str]:
        return trained[name].tokens(trained[name].encode(text))

    for name in ("byte-bpe", "bpe", "unigram-no-prefix", "char"):
        assert "".join(shown(name, "The cat 小猫")) == "The cat 小猫"
    assert shown("byte-bpe", "龘") == ["\\xe9", "\\xbe", "\\x98"]
    assert shown("bpe+bytes", "龘") == ["<0xE9>", "<0xBE>", "<0x98>"]
    assert shown("byte-bpe", "</s>") == ["</s>"]
    assert trained["byte-bpe"].id_to_token(trained["byte-bpe"].encode(" ")[0]) == "Ġ"


def test_importing_the_room_imports_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "numpy", "jinja2")
    code = f"import sys, transpect.text; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
