"""Tables and packed files: CSV, Parquet, data sets on the disk, gzip and zstd."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from transpect.base.codec import from_data
from transpect.base.errors import ConfigError, DataError
from transpect.data.sources import Csv, HubDataset, Jsonl, Parquet, Source, Text, source_from_path

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\r\0\ufeff")
TEXT = st.text(CHARACTERS, min_size=1, max_size=12).filter(str.strip)
ROWS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6)


def put(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def pairs(source: Source) -> list[tuple[str, str | None]]:
    return [(document.text, document.target) for document in source.documents()]


@settings(max_examples=40)
@given(ROWS, st.sampled_from(",;\t|"), st.booleans())
def test_csv_gives_back_what_was_written(rows: list[tuple[str, str]], delimiter: str, headed: bool) -> None:
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([*([("zh", "en")] if headed else []), *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", lambda *_, **__: io.BytesIO(written.getvalue().encode()))
        patch.setattr(Path, "exists", lambda _: True)
        columns = None if headed else ("zh", "en")
        assert pairs(Csv("x.csv", "zh", "en", delimiter, columns)) == rows
        assert pairs(Csv("x.csv", "en", None, delimiter, columns)) == [(en, None) for _, en in rows]


def test_rows_of_csv_know_their_lines(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv", 'id,text\r\n1,"two\r\nlines, ""quoted"""\r\n\r\n3,天\r\n')
    assert [(d.text, d.line) for d in Csv(path).documents()] == [('two\r\nlines, "quoted"', 2), ("天", 5)]


BAD_ROWS = [
    (b"text,b\na,b\nc\n", 3, "a row must have 2 columns; it has 1"),
    (b"text,b\na,b,c\n", 2, "it has 3"),
    (b'text,b\n"a"x,b\n', 2, "a row must be comma-separated values"),
    (b'text,b\na,b\n"a,b\nc,d\n', 3, "a row must be comma-separated values"),
    (b"text,b\na,b\n\xff,b\n", 3, "byte 11 of the file is not"),
    (b'text,b\n"a\n\xe4",b\n', 3, "byte 10 of the file is not"),
    (b"text,b\n ,b\n", 2, "must hold text"),
]


@pytest.mark.parametrize(("content", "line", "message"), BAD_ROWS)
def test_a_bad_row_is_named(content: bytes, line: int, message: str, tmp_path: Path) -> None:
    path = put(tmp_path / "bad.csv", content)
    with pytest.raises(DataError) as caught:
        Csv(path).documents()
    assert str(caught.value).startswith(f"{path}:{line}: ") and message in str(caught.value)
    assert caught.value.remedy


def test_a_table_without_the_field_is_refused_whatever_is_skipped(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv", "txt\na\n")
    with pytest.raises(DataError, match=r"must have the field 'text'\. Did you mean 'txt'"):
        Csv(path, on_bad_line="skip").documents()
    for options in ({"delimiter": ""}, {"delimiter": ",,"}, {"delimiter": '"'}, {"columns": ["a"]}):
        with pytest.raises(ConfigError):
            from_data(Source, {"kind": "csv", "path": path, **options})


def test_long_fields_are_documents_too(tmp_path: Path) -> None:
    text = "长" * 300_000
    assert pairs(Csv(put(tmp_path / "x.csv", f"text\n{text}\n"))) == [(text, None)]


# packed files

PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".GZ": lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:]),
    ".Zst": lambda data: zstandard.ZstdCompressor().compress(data[:7]) + zstandard.ZstdCompressor().compress(data[7:]),
}
LINES = "".join(json.dumps({"text": f"第 {i} 句"}, ensure_ascii=False) + "\n" for i in range(5000))


@pytest.mark.parametrize("end", PACKED)
def test_a_packed_file_is_what_was_packed(end: str, tmp_path: Path) -> None:
    path = put(tmp_path / f"x.jsonl{end}", PACKED[end](LINES.encode()))
    assert source_from_path(path) == Jsonl(path)
    assert type(source_from_path(str(tmp_path))) is Jsonl
    documents = Jsonl(path).documents()
    assert [document.text for document in documents] == [f"第 {i} 句" for i in range(5000)]
    assert documents[41].line == 42


@pytest.mark.parametrize("end", [".gz", ".zst"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_packed_file_that_is_cut_short_is_refused(end: str, part: float, tmp_path: Path) -> None:
    data = PACKED[end](LINES.encode())
    path = put(tmp_path / f"x.jsonl{end}", data[: int(len(data) * part)])
    for broken in (path, put(tmp_path / f"y.jsonl{end}", b"not packed at all")):
        with pytest.raises(DataError, match="damaged or cut short") as caught:
            Jsonl(broken, on_bad_line="skip").documents()
        assert caught.value.file is not None


def test_a_pointer_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Git LFS pointer"):
        Text(put(tmp_path / "x.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n")).documents()


# bad lines

BAD: dict[str, tuple[Callable[..., Source], bytes, list[str], list[int]]] = {
    "jsonl": (Jsonl, b'{"text": "a"}\n{\n{"text": "\xff"}\n{"text": "b"}\n{"text": 3}', ["a", "b"], [2, 3, 5]),
    "tsv": (source_from_path, b"a\tb\nc\n\nd\te\n\xff\tx\n", ["a", "d"], [2, 5]),
    "csv": (Csv, b'text\na\n"b\nc"x\nd,e\n\xff\nf\n', ["a", "f"], [3, 5, 6]),
    "txt": (Text, b"a\n\xff\nb\n", ["a", "b"], [2]),
    "md": (Text, b"a\nb\n\nc\n\xffd\n\ne\n", ["a\nb", "e"], [5]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_lines_are_counted_where_that_is_asked_for(name: str, tmp_path: Path) -> None:
    from transpect.data.sources import with_bad_lines

    make, content, good, bad = BAD[name]
    path = put(tmp_path / f"x.{name}", content)
    with pytest.raises(DataError) as caught:
        make(path).documents()
    assert caught.value.line == bad[0]
    documents = with_bad_lines(make(path), "skip").documents()
    assert [document.text for document in documents] == good
    assert documents.skipped.count == len(bad)
    named = [f"{path}:{line}: " for line in bad[:3]]
    assert [text[: len(start)] for text, start in zip(documents.skipped.named, named, strict=True)] == named


def test_a_file_of_bad_lines_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="every line of this one is bad"):
        Jsonl(put(tmp_path / "x.jsonl", "{\n"), on_bad_line="skip").documents()
    with pytest.raises(DataError, match=r"UTF-8; byte 8 of"):  # the mark counts
        Text(put(tmp_path / "x.txt", b"\xef\xbb\xbfab\n\nc\xff"), by="file").documents()


# pyarrow and datasets


def test_parquet_is_read_by_column(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"zh": ["一", None, " ", "四"] * 700, "en": ["one", "two", "three", "four"] * 700, "n": list(range(2800))}
    path = str(tmp_path / "x.parquet")
    parquet.write_table(arrow.table(rows), path, row_group_size=100)
    assert pairs(Parquet(path, "en", "zh", on_bad_line="skip"))[:2] == [("one", "一"), ("four", "四")]
    documents = from_data(Source, {"kind": "parquet", "path": path, "field": "zh", "on_bad_line": "skip"}).documents()
    assert (documents.size, documents.skipped.count) == (1400, 1400)
    assert documents[1].line == 4
    assert source_from_path(path, like=Jsonl("x", "en")) == Parquet(path)
    for field, message in (("zh", "x.parquet:2: .*string"), ("n", "must be a string"), ("z", "Did you mean 'zh'")):
        with pytest.raises(DataError, match=message):
            Parquet(path, field).documents()
    with pytest.raises(DataError, match="not a Parquet file"):
        Parquet(put(tmp_path / "y.parquet", "no")).documents()


def test_a_saved_data_set_is_read_by_split(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    train = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    train.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": train, "test": train.select([1])}).save_to_disk(str(tmp_path / "two"))
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert pairs(source_from_path(one)) == pairs(source_from_path(two)) == [("a", None), ("b", None)]
    assert pairs(HubDataset(two, split="test")) == [("b", None)]
    for source, message in (
        (HubDataset(two, split="valid"), "It has train, test"),
        (HubDataset(one, field="txt"), "Did you mean 'text'"),
        (HubDataset("squad"), "needs hf: before it"),
    ):
        with pytest.raises(DataError, match=message):
            source.documents()
    (tmp_path / "one" / "state.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="can't be opened"):
        HubDataset(one).documents()


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "datasets"])
def test_targets_may_be_whole_numbers(kind: str, tmp_path: Path) -> None:
    """Classes mostly are. What else is no text stays an error, and so does a text that is a number."""
    labels, path = [3, -1, 0], tmp_path / f"x.{kind}"
    if kind == "jsonl":
        put(path, "".join(f'{{"text": "a", "label": {label}}}\n' for label in [*labels, "true"]))
        source: Source = Jsonl(str(path), target="label")
    elif kind == "parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"text": ["a"] * 4, "label": [*labels, 1]}), path)
        source = Parquet(str(path), target="label")
    else:
        datasets = pytest.importorskip("datasets")
        datasets.Dataset.from_dict({"text": ["a"] * 4, "label": [*labels, 1]}).save_to_disk(str(path))
        source = HubDataset(str(path), target="label")
    assert [target for _, target in pairs(source)][:3] == ["3", "-1", "0"]
    assert pairs(source)[3][1] == ("true" if kind == "jsonl" else "1")
    with pytest.raises(DataError, match=r"'label' must be a string \(got 3\)"):
        replace(source, field="label", target=None).documents()  # type: ignore[call-arg]
    for value in ("1.5", "null", "[1]"):
        with pytest.raises(DataError, match="'y' must be a string"):
            Jsonl(put(tmp_path / "y.jsonl", f'{{"text": "a", "y": {value}}}\n'), target="y").documents()


def test_a_data_set_that_names_its_classes_gives_the_names(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    rows.save_to_disk(str(tmp_path / "one"))
    found = HubDataset(str(tmp_path / "one"), target="label", on_bad_line="skip").documents()
    assert [document.target for document in found] == ["yes", "no"] and found.skipped.count == 1


def test_what_is_no_table_is_refused_in_a_few_words(tmp_path: Path) -> None:
    for header in ("x" * 10**6, ",".join(f"c{number}" for number in range(10**5))):
        with pytest.raises(DataError, match="every line must have the field 'text'") as caught:
            Csv(put(tmp_path / "x.csv", f"{header}\n1\n")).documents()
        assert len(str(caught.value)) < 1000
