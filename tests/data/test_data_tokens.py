"""Token files: the same documents, rows and batches as the text gives, however they were made and left."""

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transpect.base.errors import ConfigError, DataError
from transpect.data import passes
from transpect.data.batch import Batch
from transpect.data.draws import Permutation
from transpect.data.loader import Batches
from transpect.data.objectives import Causal, Masked, Objective, Recurrent, Seq2Seq
from transpect.data.ragged import Ragged
from transpect.data.sources import Jsonl, Stories, Text, Tokens, Tsv, source_from_path
from transpect.data.split import split
from transpect.data.tokens import MANIFEST, fingerprint, open_tokens, prepare, verify, writing
from transpect.text import Tokenizer, load_tokenizer, train_tokenizer

MakeTokenizer = Callable[..., Tokenizer]
TEXTS = [("abc天地 "[i % 5 :] * (1 + i % 7)).strip() + chr(97 + i % 26) for i in range(61)]


@pytest.fixture
def tokenizer(letters: MakeTokenizer) -> Tokenizer:
    return letters(mask="<mask>")


@pytest.fixture
def corpus(tmp_path: Path) -> Text:
    (tmp_path / "x.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    return Text(str(tmp_path / "x.txt"), by="line")


def equal(a: Batch, b: Batch) -> bool:
    """Bit for bit."""
    pairs = [(a.ids, b.ids), (a.labels, b.labels)]
    pairs += [(getattr(a.tags, tag), getattr(b.tags, tag)) for tag in ("position", "segment")]
    return a.stretch == b.stretch and all(torch.equal(one, other) for one, other in pairs)


def files(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.is_file()}


@pytest.mark.parametrize("shard_tokens", [40, 10**6])
def test_what_was_written_is_read(shard_tokens: int, corpus: Text, tokenizer: Tokenizer, tmp_path: Path) -> None:
    made = prepare(corpus, tokenizer, tmp_path / "out", shard_tokens=shard_tokens).manifest
    documents = open_tokens(tmp_path / "out")
    ids = [tokenizer.encode(text, parse_special=False) for text in TEXTS]
    assert (made.documents, made.tokens, made.dtype) == (61, sum(map(len, ids)), "uint16")
    assert all(shard.tokens >= shard_tokens for shard in made.shards[:-1])
    order = np.array(random.Random(0).choices(range(61), k=100))
    rows, characters = documents.rows(order)
    assert [rows.part(i, 0, int(n)).tolist() for i, n in enumerate(rows.lengths)] == [ids[i] for i in order]
    assert characters == sum(len(TEXTS[i]) for i in order)
    assert verify(tmp_path / "out") == made == open_tokens(tmp_path / "out").manifest
    # the files are as simple as the page says
    raw = b"".join((tmp_path / "out" / f"{shard.name}.bin").read_bytes() for shard in made.shards)
    assert np.frombuffer(raw, "<u2").tolist() == [i for row in ids for i in row]
    assert load_tokenizer(tmp_path / "out" / "tokenizer").encode(TEXTS[3]) == ids[3]


@pytest.mark.parametrize(("size", "dtype"), [(9, "uint16"), (65_536, "uint16"), (65_537, "uint32")])
def test_ids_are_as_wide_as_they_must_be(
    size: int, dtype: str, corpus: Text, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tokenizer.__dict__, "vocab_size", size)
    assert prepare(corpus, tokenizer, tmp_path / "out").manifest.dtype == dtype
    rows, _ = open_tokens(tmp_path / "out").rows(np.array([60]))
    assert rows.flat.tolist() == tokenizer.encode(TEXTS[60])


@pytest.mark.parametrize("kind", ["char", "byte-bpe", "wordpiece"])
def test_a_tokenizer_is_known_again_after_it_was_saved(kind: str, tmp_path: Path) -> None:
    one, other = (train_tokenizer(kind, [*TEXTS, more], 300) for more in ("", "xyzxyzxyz 玄玄玄黄黄"))
    one.save(tmp_path / "one")
    assert fingerprint(load_tokenizer(tmp_path / "one")) == fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_stopped_after_any_shard_it_goes_on_to_the_same_files(
    stop: int, corpus: Text, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    prepare(corpus, tokenizer, tmp_path / "whole", shard_tokens=50)

    class StoppedError(Exception):
        pass

    made: list[object] = []

    def on_shard(shard: object) -> None:
        made.append(shard)
        if len(made) > stop:
            raise StoppedError

    with pytest.raises(StoppedError):
        prepare(corpus, tokenizer, tmp_path / "out", shard_tokens=50, on_shard=on_shard)
    with pytest.raises(DataError, match=r"complete when their manifest is there.*goes on where it was stopped"):
        Tokens(str(tmp_path / "out")).documents()
    (tmp_path / "out" / ".00009.bin.new").write_bytes(b"what a killed writer leaves")
    assert prepare(corpus, tokenizer, tmp_path / "out", shard_tokens=50).resumed == stop + 1
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert prepare(corpus, tokenizer, tmp_path / "out", shard_tokens=50).manifest.documents == 61


@pytest.mark.parametrize("change", ["text", "fewer", "tokenizer", "shards", "source"])
def test_it_does_not_go_on_with_something_else(
    change: str, corpus: Text, letters: MakeTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, out, close = letters(), tmp_path / "out", writing.Writing.close

    def dies(self: writing.Writing) -> object:
        if (out / "00001.bin").exists():
            raise KeyboardInterrupt
        return close(self)

    with monkeypatch.context() as patch:
        patch.setattr(writing.Writing, "close", dies)
        with pytest.raises(KeyboardInterrupt):
            prepare(corpus, tokenizer, out, shard_tokens=50)
    assert not list(out.glob(".*"))
    other = {
        "text": lambda: Path(corpus.path).write_text("\n".join(["ab", *TEXTS[1:]]), encoding="utf-8"),
        "fewer": lambda: Path(corpus.path).write_text("\n".join(TEXTS[:5]), encoding="utf-8"),
    }
    other.get(change, lambda: None)()
    with pytest.raises((ConfigError, DataError), match="begun"):
        prepare(
            Text(corpus.path, "file") if change == "source" else corpus,
            letters(bos=None) if change == "tokenizer" else tokenizer,
            out,
            shard_tokens=51 if change == "shards" else 50,
        )


def test_what_can_not_be_prepared(tokenizer: Tokenizer, corpus: Text, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\tb\n", encoding="utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(DataError, match=r"x\.tsv:1: token files hold single texts"):
        prepare(Tsv(str(tmp_path / "x.tsv")), tokenizer, tmp_path / "out")
    with pytest.raises(ConfigError, match="must have an end"):
        prepare(Stories(), tokenizer, tmp_path / "endless")
    with pytest.raises(ConfigError, match=r"absent, empty.*mine"):
        prepare(corpus, tokenizer, tmp_path / "full")
    for wrong in ({"workers": 0}, {"shard_tokens": 0}):
        with pytest.raises(ConfigError, match="at least 1"):
            prepare(corpus, tokenizer, tmp_path / "new", **wrong)


def test_bad_lines_are_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n{\n{"text": "b"}\n', encoding="utf-8")
    made = prepare(Jsonl(str(tmp_path / "x.jsonl"), on_bad_line="skip"), tokenizer, tmp_path / "out")
    assert (made.skipped.count, made.manifest.bad_lines, made.manifest.documents) == (1, 1, 2)
    assert open_tokens(tmp_path / "out").skipped.count == 1


@pytest.mark.slow  # two interpreters
def test_several_workers_make_the_same_files(corpus: Text, tokenizer: Tokenizer, tmp_path: Path) -> None:
    lines = [{"text": TEXTS[i % 61] * (1 + i % 5)} for i in range(5000)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    for workers in (1, 2, 3):
        prepare(
            Jsonl(str(tmp_path / "x.jsonl")), tokenizer, tmp_path / f"{workers}", shard_tokens=9999, workers=workers
        )
    assert files(tmp_path / "1") == files(tmp_path / "2") == files(tmp_path / "3")


# damage


@pytest.mark.parametrize("file", ["00000.bin", "00000.idx", MANIFEST, "00001.bin"])
@pytest.mark.parametrize("how", ["gone", "short", "long", "zeroed"])
def test_damage_is_named(file: str, how: str, corpus: Text, tokenizer: Tokenizer, tmp_path: Path) -> None:
    prepare(corpus, tokenizer, tmp_path / "out", shard_tokens=150)
    path = tmp_path / "out" / file
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes({"short": data[:-2], "long": data + b"\0\0", "zeroed": bytes(len(data))}[how])
    if how == "long" and file == MANIFEST:
        path.write_bytes(data + b"}")
    with pytest.raises(DataError) as caught:
        (verify if how == "zeroed" else open_tokens)(tmp_path / "out")
    assert caught.value.file == path


# as a source


OBJECTIVES: dict[str, Objective] = {
    "packed": Causal(),
    "joined": Causal(separate=False),
    "padded": Causal(pack=False),
    "masked": Masked(whole_word=False),
    "masked, packed": Masked(whole_word=False, pack=True),
    "recurrent": Recurrent(8),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_token_files_give_the_rows_that_the_text_gives(
    name: str, corpus: Text, tokenizer: Tokenizer, tmp_path: Path
) -> None:

    prepare(corpus, tokenizer, tmp_path / "out", shard_tokens=50)
    text, tokens = (
        Batches(source.documents(), OBJECTIVES[name], tokenizer, batch_size=2, seq_len=24)
        for source in (corpus, Tokens(str(tmp_path / "out")))
    )
    assert all(equal(a, b) for a, b in zip(text.once(), tokens.once(), strict=True))
    assert (text.n_rows, text.n_tokens, text.n_characters) == (tokens.n_rows, tokens.n_tokens, tokens.n_characters)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_epoch_in_parts_predicts_every_token_once_and_resumes_anywhere(
    name: str, corpus: Text, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(passes, "MOST", 7)
    monkeypatch.setattr(passes, "FEWEST", 1)
    prepare(corpus, tokenizer, tmp_path / "out", shard_tokens=50)

    def make() -> Batches:
        documents = Tokens(str(tmp_path / "out")).documents()
        return Batches(documents, OBJECTIVES[name], tokenizer, batch_size=1, seq_len=16, seed=3)

    batches, seen, states, straight = make(), [0, 0], [], []
    while batches.epoch < 2:
        epoch = batches.epoch
        states.append(batches.state())
        batch = next(batches)
        straight.append(batch)
        seen[epoch] += int((batch.tags.position >= 0).sum())
    frame = 0 if not name.startswith("masked") else None
    assert seen[0] == seen[1] if frame is None else seen == [sum(len(text) + 1 for text in TEXTS)] * 2
    for at in range(0, len(states) - 1, 1 + len(states) // 4):
        again = make()
        again.load_state(json.loads(json.dumps(states[at])))
        assert equal(next(again), straight[at])
        assert again.state() == states[at + 1]
    assert [b.ids.tolist() for b in straight[:20]] != sorted(b.ids.tolist() for b in straight[:20])


def test_another_directory_is_another_run(corpus: Text, tokenizer: Tokenizer, tmp_path: Path) -> None:
    states = []
    for name, lines in (("a", TEXTS), ("b", TEXTS[::-1])):
        Path(corpus.path).write_text("\n".join(lines), encoding="utf-8")
        prepare(corpus, tokenizer, tmp_path / name)
        documents = Tokens(str(tmp_path / name)).documents()
        batches = Batches(documents, Causal(), tokenizer, batch_size=2, seq_len=16)
        states.append(batches.state())
    with pytest.raises(DataError, match="must go on with"):
        batches.load_state(states[0])


def test_what_needs_text_refuses_tokens_by_name(corpus: Text, letters: MakeTokenizer, tmp_path: Path) -> None:
    prepare(corpus, letters(mask="<mask>"), tmp_path / "out")
    documents = Tokens(str(tmp_path / "out")).documents()
    assert source_from_path(str(tmp_path / "out")) == Tokens(str(tmp_path / "out"))
    for objective, message in (
        (Seq2Seq(), "seq2seq"),
        (Masked(), "whole_word: false"),
        (Causal(), "read with the tokenizer that they were made with"),
    ):
        own = letters() if isinstance(objective, Causal) else letters(mask="<mask>")
        with pytest.raises(ConfigError, match=message):
            Batches(documents, objective, own, batch_size=1, seq_len=16)
    with pytest.raises(ConfigError, match="are tokens, and text is asked for"):
        list(documents)


@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.5])
def test_a_share_is_held_out_without_reading_a_token(
    fraction: float, corpus: Text, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    Path(corpus.path).write_text("\n".join([*TEXTS, *TEXTS[:9]]), encoding="utf-8")
    prepare(corpus, tokenizer, tmp_path / "out", shard_tokens=50)
    sides = split(Tokens(str(tmp_path / "out")).documents(), fraction, seed=1)
    texts = [
        [tokenizer.decode(rows.part(i, 0, int(n)).tolist()) for i, n in enumerate(rows.lengths)]
        for rows, _ in (side.rows(np.arange(side.size)) for side in sides)
    ]  # type: ignore[attr-defined, arg-type]
    assert sorted(texts[0] + texts[1]) == sorted([*TEXTS, *TEXTS[:9]])
    assert not set(texts[0]) & set(texts[1])
    assert len(set(texts[1])) == max(1, round(fraction * len(set(TEXTS))))
    assert split(Tokens(str(tmp_path / "out")).documents(), fraction, 2)[1].digest != sides[1].digest  # type: ignore[attr-defined]


# what it stands on


@settings(max_examples=30)
@given(st.integers(1, 3000), st.integers(0, 9))
def test_a_permutation_is_one(n: int, key: int) -> None:
    order = Permutation(n, key)
    assert sorted(order(np.arange(n)).tolist()) == list(range(n))
    assert order(np.arange(n)[::-1]).tolist() == order(np.arange(n)).tolist()[::-1]


@pytest.mark.parametrize("n", [3, 6])
def test_permutations_are_fair(n: int) -> None:
    """Every number is as often in every place as in any other."""
    times = 250
    counts = np.zeros((n, n))
    for key in range(times):
        counts[np.arange(n), Permutation(n, key)(np.arange(n))] += 1
    chi2 = float(((counts - times / n) ** 2 / (times / n)).sum())
    freedom = (n - 1) ** 2
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=8), st.data())
def test_rows_are_taken_and_framed(rows: list[list[int]], data: st.DataObject) -> None:
    ragged = Ragged.of(rows)
    numbers = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9))
    taken = ragged.taken(np.array(numbers, np.int64))
    assert [taken.part(i, 0, int(n)).tolist() for i, n in enumerate(taken.lengths)] == [rows[i] for i in numbers]
    before, after = (
        data.draw(st.lists(st.integers(0, 9), max_size=2)),
        data.draw(st.lists(st.integers(0, 9), max_size=2)),
    )
    framed = ragged.framed(before, after)
    expected = [[*before, *row, *after] for row in rows]
    assert [framed.part(i, 0, int(n)).tolist() for i, n in enumerate(framed.lengths)] == expected
