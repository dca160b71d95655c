"""Sources: what is a document, in which order, and what is said of a file that can't be read."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError, DataError
from transpect.data.fable import Fable
from transpect.data.sources import Jsonl, Source, Stories, Text, Tsv, source_from_path


def put(path: Path, content: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def texts(source: Source) -> list[str]:
    return [document.text for document in source.documents()]


# text

POEMS = "床前明月光\n疑是地上霜\n\n \t\n春眠不覺曉\n處處聞啼鳥\n"


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("line", [("床前明月光", 1), ("疑是地上霜", 2), ("春眠不覺曉", 5), ("處處聞啼鳥", 6)]),
        ("paragraph", [("床前明月光\n疑是地上霜", 1), ("春眠不覺曉\n處處聞啼鳥", 5)]),
        ("auto", [("床前明月光\n疑是地上霜", 1), ("春眠不覺曉\n處處聞啼鳥", 5)]),
        ("file", [(POEMS, 1)]),
    ],
)
def test_a_text_file_is_cut_as_asked(by: str, expected: list[tuple[str, int]], tmp_path: Path) -> None:
    path = put(tmp_path / "poems.txt", POEMS)
    documents = from_data(Source, {"kind": "text", "path": path, "by": by}).documents()
    assert [(document.text, document.line) for document in documents] == expected
    assert {document.file for document in documents} == {path}
    assert documents.size == len(expected)


@pytest.mark.parametrize("text", ["a\nb\nc", "\n\na\nb\nc\n\n"])
def test_auto_takes_lines_where_no_blank_line_stands_between_text(text: str, tmp_path: Path) -> None:
    assert texts(Text(put(tmp_path / "x.txt", text))) == ["a", "b", "c"]


def test_auto_decides_file_by_file(tmp_path: Path) -> None:
    put(tmp_path / "1.txt", "a\nb")
    put(tmp_path / "2.txt", "c\nd\n\ne")
    assert texts(Text(str(tmp_path))) == ["a", "b", "c\nd", "e"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb", ["a", "b"]),
        ("a\u2028b\u0085c\x0bd\x0ce\x1cf\ng".encode(), ["a\u2028b\u0085c\x0bd\x0ce\x1cf", "g"]),
        (b"  a \n\tb", ["  a ", "\tb"]),
        (b"\x00", ["\x00"]),
        ("👩‍👩‍👧\né".encode(), ["👩‍👩‍👧", "é"]),
    ],
)
def test_only_line_ends_are_touched(content: bytes, expected: list[str], tmp_path: Path) -> None:
    assert texts(Text(put(tmp_path / "x.txt", content), by="line")) == expected


# folders, globs, paths


def test_a_folder_is_read_in_the_order_of_names_with_hidden_and_other_files_left_out(tmp_path: Path) -> None:
    for name in ["b.txt", "a/z.txt", "a/c/d.TXT", "c.md", ".hidden.txt", ".git/x.txt", "table.tsv", "README"]:
        put(tmp_path / name, name)
    (tmp_path / "folder.txt").mkdir()
    assert texts(Text(str(tmp_path))) == ["a/c/d.TXT", "a/z.txt", "b.txt", "c.md"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("*.txt", ["a.txt", "b.txt"]), ("**/*.txt", ["a.txt", "b.txt", "x/c.txt"]), ("?.log", ["e.log"])],
)
def test_a_glob_takes_what_it_matches_whatever_the_ending(pattern: str, expected: list[str], tmp_path: Path) -> None:
    for name in ["b.txt", "a.txt", "x/c.txt", "d.jsonl", "e.log"]:
        put(tmp_path / name, name)
    assert texts(Text(f"{tmp_path}/{pattern}")) == expected


def test_a_file_that_looks_like_a_glob_is_itself(tmp_path: Path) -> None:
    put(tmp_path / "1.txt", "not me")
    assert texts(Text(put(tmp_path / "[1].txt", "me"))) == ["me"]


def test_a_relative_path_starts_where_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "here" / "x.txt", "a")
    monkeypatch.chdir(tmp_path / "here")
    assert texts(Text("x.txt")) == texts(Text("./x.txt")) == texts(Text("*.txt")) == texts(Text(".")) == ["a"]


@pytest.mark.parametrize("path", ["~/x.txt", "$HOME/x.txt", "~"])
def test_a_path_is_not_expanded_and_the_message_says_so(path: str) -> None:
    with pytest.raises(DataError, match=r"no such file or folder.*not expanded"):
        Text(path).documents()


@pytest.mark.parametrize("kind", [Text, Jsonl, Tsv])
@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: folder / "none.txt", "no such file or folder"),
        (lambda folder: folder / "*.none", "the pattern must match a file"),
        (lambda folder: folder, "the folder must hold a file that ends in"),
        (lambda folder: put(folder / "empty", ""), "must hold text"),
        (lambda folder: put(folder / "blank", " \n\n\t\r\n\ufeff"[:-1]), "must hold text"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_the_path(
    kind: Callable[[str], Source], prepare: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    path = str(prepare(tmp_path))
    with pytest.raises(DataError, match=message) as caught:
        kind(path).documents()
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    path = put(tmp_path / "x.txt", "a")
    Path(path).chmod(0)
    with pytest.raises(DataError, match="can't be read: Permission denied"):
        Text(path).documents()


# JSON lines and pairs


def test_json_lines_give_the_field_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path / "x.jsonl", '{"text": "一", "en": "one"}\r\n\n{"en": "two\\n", "text": "二\u2028"}')
    assert texts(Jsonl(path)) == ["一", "二\u2028"]
    assert texts(Jsonl(path, field="en")) == ["one", "two\n"]
    pairs = Jsonl(path, field="en", target="text").documents()
    assert [(pair.text, pair.target, pair.line) for pair in pairs] == [("one", "一", 1), ("two\n", "二\u2028", 3)]


def test_pairs_are_two_columns(tmp_path: Path) -> None:
    path = put(tmp_path / "x.tsv", 'Power grid\t电网\n\n"a" \' \t "b"\n')
    assert [(pair.text, pair.target) for pair in Tsv(path).documents()] == [("Power grid", "电网"), ('"a" \' ', ' "b"')]
    swapped = Tsv(path, swap=True).documents()[0]
    assert (swapped.text, swapped.target) == ("电网", "Power grid")
    assert list(Tsv(path).texts()) == ["Power grid", "电网", '"a" \' ', ' "b"']


BAD_LINES = [
    (Text, b"good\n\xff\xfe", 2, "must be UTF-8"),
    (Text, "好\n坏".encode("gb18030"), 1, "GB 18030"),
    (Text, b"a\nb\n\n\xe4\xbd", 4, "must be UTF-8"),
    (Jsonl, b'{"text": "\xff"}', 1, "must be UTF-8"),
    (Jsonl, b'{"text": "a"}\n{"text": "b"', 2, "one JSON object: Expecting ',' delimiter at column 13"),
    (Jsonl, b'{"text": "a"}\n\n{text: "b"}\n', 3, "one JSON object"),
    (Jsonl, b'{"text": "a"} {"text": "b"}', 1, "one JSON object: Extra data"),
    (Jsonl, b'["a"]', 1, "one JSON object"),
    (Jsonl, b'"a"', 1, "one JSON object"),
    (Jsonl, b"[" * 100_000, 1, "nested too deep"),
    (Jsonl, b'{"text": ' + b"9" * 5000 + b"}", 1, "too many digits"),
    (Jsonl, b'{"text": "a"}\n{"txt": "b"}', 2, "must have the field 'text'. Did you mean 'txt'? The line has 'txt'."),
    (Jsonl, b"{}", 1, "The line has no keys"),
    (Jsonl, b'{"text": 5}', 1, "the field 'text' must be a string (got 5)"),
    (Jsonl, b'{"text": null}', 1, "must be a string"),
    (Jsonl, b'{"text": ["a"]}', 1, "must be a string (got ['a'])"),
    (Jsonl, b'{"text": "a"}\n{"text": " "}', 2, "must hold text"),
    (Jsonl, b'{"text": "a\\ud83d"}', 1, "half of a surrogate pair"),
    (Tsv, b"a\tb\nc\n", 2, "2 columns parted by one tab; it has 1"),
    (Tsv, b"a\tb\tc", 1, "it has 3"),
    (Tsv, b"a\tb\na\t \n", 2, "both columns of a line must hold text"),
    (Tsv, b"\tb", 1, "both columns"),
]


@pytest.mark.parametrize(("kind", "content", "line", "message"), BAD_LINES)
def test_a_bad_line_is_named(
    kind: Callable[[str], Source], content: bytes, line: int, message: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "bad", content)
    with pytest.raises(DataError) as caught:
        kind(path).documents()
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


# a bare path


@pytest.mark.parametrize(
    ("name", "expected"),
    [("x.txt", Text), ("x.TXT", Text), ("x.md", Text), ("x.jsonl", Jsonl), ("x.ndjson", Jsonl), ("x.tsv", Tsv)],
)
def test_an_ending_tells_the_kind(name: str, expected: type[Source], tmp_path: Path) -> None:
    path = put(tmp_path / name, "x")
    assert type(source_from_path(path)) is type(source_from_path(str(tmp_path))) is expected


def test_a_source_of_the_same_kind_lends_its_options(tmp_path: Path) -> None:
    text, jsonl = put(tmp_path / "x.txt", "a"), put(tmp_path / "x.jsonl", '{"body": "a"}')
    assert source_from_path(text, like=Text("old.txt", by="file")) == Text(text, by="file")
    assert source_from_path(jsonl, like=Jsonl("old", field="body")) == Jsonl(jsonl, field="body")
    assert source_from_path(text, like=Jsonl("old", field="body")) == Text(text)
    assert source_from_path(text, like=Stories()) == Text(text)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["x.docx"],
            "must end in .txt, .text, .md, .jsonl, .ndjson, .tsv, .csv, .parquet for its kind to be known (.gz or .zst "
            "may follow) (got '.docx')",
        ),
        (["x"], "for its kind to be known"),
        (["a.txt", "b.jsonl"], "must be of one kind (got ['a.txt', 'b.jsonl'])"),
    ],
)
def test_a_path_of_no_clear_kind_is_refused(names: list[str], message: str, tmp_path: Path) -> None:
    for name in names:
        put(tmp_path / name, "x")
    with pytest.raises(DataError) as caught:
        source_from_path(str(tmp_path / names[0] if len(names) == 1 else tmp_path))
    assert message in str(caught.value)


# stories


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_stories_are_those_of_the_world_by_number(lang: str) -> None:
    world = Fable("en" if lang == "en" else "zh")
    endless = from_data(Source, {"kind": "fable", "lang": lang, "seed": 3, "start": 2}).documents()
    assert endless.size is None
    expected = [story.text(world.lang) for story in islice(world.stories(3), 2, 8)]
    assert [document.text for document in islice(endless, 6)] == expected
    assert endless[5].text == expected[5]
    some = from_data(Source, {"kind": "fable", "lang": lang, "seed": 3, "stories": 4}).documents()
    assert [document.text for document in some] == [world.story(3, i).text(world.lang) for i in range(4)]
    assert some.segmenter is not None
    assert list(some.segmenter(some[0].text)) == list(world.story(3, 0).words(world.lang))
    for outside in (-1, 4):
        with pytest.raises(IndexError):
            some[outside]


def test_texts_of_a_source_without_end_need_a_limit() -> None:
    assert list(Stories().texts(3)) == list(Stories(stories=3).texts())
    with pytest.raises(ConfigError, match="without end"):
        list(Stories().texts())


@pytest.mark.parametrize("data", [{"stories": 0}, {"stories": -1}, {"start": -1}, {"lang": "fr"}])
def test_stories_that_can_not_be(data: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        from_data(Source, {"kind": "fable", **data})


# the whole


@pytest.mark.parametrize(
    "source", [Text("a", by="line"), Jsonl("a", "b", "c"), Tsv("a", swap=True), Stories("en", 5, 1)]
)
def test_a_source_goes_through_data_and_back(source: Source) -> None:
    assert from_data(Source, json.loads(json.dumps(to_data(source)))) == source


def test_sources_and_splits_need_no_torch() -> None:
    code = "import sys, transpect.data.sources, transpect.data.split; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_shared_data_is_read_whole(shared: Path) -> None:
    data = shared / "data"
    lines = Text(f"{data}/tang_quatrains.txt", by="line").documents()
    rows = Jsonl(f"{data}/tang_quatrains.train.jsonl").documents()
    assert [line.text for line in lines] == [row.text for row in rows]
    assert lines.size == 12_471
    assert Tsv(f"{data}/ui_en_zh.train.tsv").documents().size == 8_058
    assert source_from_path(f"{data}/*.tsv") == Tsv(f"{data}/*.tsv")
    assert len(set(Text(f"{data}/alice29.txt").documents())) > 700
