"""Source and target: shifted by one, padded, and never cut in silence."""

from collections.abc import Callable

import pytest
import tokenizers
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError, DataError
from transpect.core import AttentionConfig, Full, ModelConfig, NormalInit, StackConfig, Transformer, preset
from transpect.core.positions import Rope
from transpect.data.batch import IGNORE
from transpect.data.loader import Batches
from transpect.data.objectives import Objective, Seq2Seq
from transpect.data.sources import Document, Jsonl, Listed, Tsv
from transpect.text import Tokenizer

MakeTokenizer = Callable[..., Tokenizer]
SPECIALS = {"bos": {}, "T5's way": {"bos": None}, "pad is eos": {"pad": "</s>"}}
PAIRS = st.lists(
    st.tuples(st.text("abc 天", min_size=1, max_size=9), st.text("xyz 地", min_size=1, max_size=9)), min_size=1
)
quick = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def listed(pairs: list[tuple[str, str]]) -> Listed:
    return Listed([Document(source, target, "pairs.tsv", number) for number, (source, target) in enumerate(pairs, 1)])


@pytest.mark.parametrize("specials", SPECIALS)
@quick
@given(pairs=PAIRS, batch_size=st.integers(1, 4))
def test_a_row_is_a_pair(specials: str, pairs: list[tuple[str, str]], batch_size: int, letters: MakeTokenizer) -> None:
    tokenizer = letters(**SPECIALS[specials])
    start = tokenizer.pad_id if tokenizer.bos_id is None else tokenizer.bos_id
    batches = Batches(listed(pairs), Seq2Seq(), tokenizer, batch_size=batch_size, seq_len=10)
    found = []
    for batch in batches.once():
        assert batch.source_ids is not None
        assert batch.source_tags is not None
        lengths = []
        for side, tags in ((batch.source_ids, batch.source_tags), (batch.ids, batch.tags)):
            real = tags.position >= 0
            lengths.append(real.sum(1))
            for row, count in zip(tags.position.tolist(), real.sum(1).tolist(), strict=True):
                assert row == [*range(count), *[-1] * (side.shape[1] - count)]
            assert side.shape[1] == int(real.sum(1).max())  # padded to the longest, no further
        assert torch.equal(batch.labels != IGNORE, batch.tags.position >= 0)
        for row, (m, n) in enumerate(zip(*(length.tolist() for length in lengths), strict=True)):
            found.append(
                [each[row].tolist() for each in (batch.source_ids[:, :m], batch.ids[:, :n], batch.labels[:, :n])]
            )
    expected = []
    for source, target in pairs:
        ids = tokenizer.encode(target)
        expected.append([[*tokenizer.encode(source), tokenizer.eos_id], [start, *ids], [*ids, tokenizer.eos_id]])
    assert found == expected
    assert batches.n_characters == sum(len(target) for _, target in pairs)


def test_too_long_pairs(letters: MakeTokenizer) -> None:
    tokenizer = letters()
    pairs = [("abc", "xyz"), ("abcd", "x"), ("a", "wxyz"), ("a", "z")]

    def read(too_long: str, seq_len: int = 4) -> list[tuple[str, str, str]]:
        objective = from_data(Objective, {"kind": "seq2seq", "too_long": too_long})
        batches = Batches(listed(pairs), objective, tokenizer, batch_size=1, seq_len=seq_len)
        sides = [(batch.source_ids, batch.ids, batch.labels) for batch in batches.once()]
        rows = [tuple(tokenizer.decode(side[0].tolist()) for side in row if side is not None) for row in sides]
        assert sum(len(row[2].replace("</s>", "")) for row in rows) == batches.n_characters
        return rows  # type: ignore[return-value]

    first, last = ("abc</s>", "<s>xyz", "xyz</s>"), ("a</s>", "<s>z", "z</s>")
    assert read("drop") == [first, last]
    assert read("crop") == [first, ("abc</s>", "<s>x", "x</s>"), ("a</s>", "<s>wxy", "wxyz"), last]
    assert read("error", 5) == read("crop", 5) == read("drop", 5)
    with pytest.raises(DataError) as caught:
        read("error")
    assert str(caught.value).startswith("pairs.tsv:2: source and target, with the tokens around them, must have at")
    assert "at most seq_len = 4 tokens (got '5 and 2 tokens'). Raise data.seq_len" in str(caught.value)
    with pytest.raises(DataError, match="something to predict"):
        read("drop", 2) if len(pairs) == 1 else Batches(
            listed([("abc", "abc")]), Seq2Seq("drop"), tokenizer, batch_size=1, seq_len=2
        )


def test_a_cropped_source_keeps_its_frame(letters: MakeTokenizer) -> None:
    backend = tokenizers.Tokenizer.from_str(letters().backend.to_str())
    special = [("<s>", letters().bos_id), ("</s>", letters().eos_id)]
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="$A $B", special_tokens=special)
    tokenizer = Tokenizer(backend, letters().special_tokens)

    def read(source: str, target: str, too_long: str, seq_len: int = 4) -> list[tuple[str, str]]:
        objective = from_data(Objective, {"kind": "seq2seq", "too_long": too_long})
        batches = Batches(listed([("a", "b"), (source, target)]), objective, tokenizer, batch_size=1, seq_len=seq_len)
        sides = [(batch.source_ids, batch.labels) for batch in batches.once()]
        return [(tokenizer.decode(s[0].tolist()), tokenizer.decode(t[0].tolist())) for s, t in sides if s is not None]

    first = ("<s>a</s>", "b</s>")
    assert read("ab", "xyz", "error") == [first, ("<s>ab</s>", "xyz</s>")]
    assert read("abc", "xyz", "drop") == [first]
    assert read("abc", "xyz", "crop") == [first, ("<s>ab</s>", "xyz</s>")]
    with pytest.raises(DataError, match=r"got '5 and 4 tokens'"):
        read("abc", "xyz", "error")
    with pytest.raises(ConfigError, match="seq_len must be at least 3"):
        read("abc", "xyz", "crop", 2)


def test_single_texts_are_refused_by_line(letters: MakeTokenizer, tmp_path: object) -> None:
    path = f"{tmp_path}/x.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"text": "a", "to": "b"}\n')
    with pytest.raises(DataError, match=r"x.jsonl:1: the seq2seq objective needs pairs.*tsv source"):
        Batches(Jsonl(path).documents(), Seq2Seq(), letters(), batch_size=1, seq_len=8)
    Batches(Jsonl(path, target="to").documents(), Seq2Seq(), letters(), batch_size=1, seq_len=8)


@torch.no_grad()
def test_padding_does_not_reach_the_logits(letters: MakeTokenizer) -> None:
    tokenizer = letters()
    attention = AttentionConfig(n_heads=2)
    encoder = StackConfig(2, attention, positions=Rope(), visibility=Full())
    decoder = StackConfig(2, attention, positions=Rope(), steps=(("self",), ("cross",), ("ffn",)))
    config = ModelConfig(tokenizer.vocab_size, 16, 32, encoder=encoder, decoder=decoder, init=NormalInit(std=0.2))
    Seq2Seq().check(config, tokenizer, 32)
    model = Transformer(Seq2Seq().adapt(config), seed=1)
    pairs = [("abcdefgh", "xy"), ("a", "xyzxyzxyz"), ("abc", "xyz")]

    def logits(pairs: list[tuple[str, str]]) -> list[torch.Tensor]:
        (batch,) = Batches(listed(pairs), Seq2Seq(), tokenizer, batch_size=len(pairs), seq_len=16).once()
        assert batch.source_ids is not None
        out = model(batch.ids, tags=batch.tags, source=model.encode(batch.source_ids, tags=batch.source_tags))
        return [row[real] for row, real in zip(out, batch.tags.position >= 0, strict=True)]

    for together, pair in zip(logits(pairs), pairs, strict=True):
        (alone,) = logits([pair])
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("specials", SPECIALS)
def test_whoever_writes_with_the_model_starts_as_it_was_taught(specials: str, letters: MakeTokenizer) -> None:
    tokenizer = letters(**SPECIALS[specials])
    generation = Seq2Seq().generation(tokenizer)
    (batch,) = Batches(listed([("a", "b")]), Seq2Seq(), tokenizer, batch_size=1, seq_len=8).once()
    assert generation["decoder_start_token_id"] == int(batch.ids[0, 0])
    assert generation["eos_token_id"] == int(batch.labels[0, -1])


def test_what_it_needs(letters: MakeTokenizer) -> None:
    t5 = preset("t5-small")
    Seq2Seq().check(t5, letters(), 8)
    with pytest.raises(ConfigError, match="special token eos"):
        Seq2Seq().check(t5, letters(eos=None), 8)
    with pytest.raises(ConfigError, match="special token bos or pad"):
        Seq2Seq().check(t5, letters(bos=None, pad=None), 8)
    with pytest.raises(ConfigError, match="kind encoder-decoder"):
        Seq2Seq().check(preset("gpt2"), letters(), 8)
    assert from_data(Objective, to_data(Seq2Seq("crop"))) == Seq2Seq("crop")


def test_real_pairs(shared: object, letters: MakeTokenizer) -> None:
    documents = Tsv(f"{shared}/data/ui_en_zh.valid.tsv").documents()
    batches = Batches(documents, Seq2Seq("drop"), letters(), batch_size=64, seq_len=128)
    assert 450 < sum(len(batch.ids) for batch in batches.once()) <= 500


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(PAIRS.map(lambda found: found[0]), min_size=1, max_size=60), bucket=st.integers(2, 9))
def test_buckets_hold_pairs_of_about_one_length_and_all_of_them(
    pairs: list[tuple[str, str]], bucket: int, letters: MakeTokenizer
) -> None:
    tokenizer = letters()
    rows = Batches(listed(pairs), Seq2Seq(bucket=bucket), tokenizer, batch_size=1, seq_len=10)
    once = [next(rows) for _ in pairs]  # an epoch, a pair a row
    lengths = [int(row.source_ids.shape[1] + row.ids.shape[1]) for row in once if row.source_ids is not None]
    ordered = sorted(lengths)
    runs = [ordered[start : start + bucket] for start in range(0, len(ordered), bucket)]
    found = [sorted(lengths[start : start + bucket]) for start in range(0, len(lengths), bucket)]
    assert sorted(found) == sorted(runs)
    assert sorted(tokenizer.decode(row.ids[0].tolist()) for row in once) == sorted(f"<s>{b}" for _, b in pairs)
    assert rows.epoch == 1


def test_buckets_come_in_another_order_each_time_and_evaluation_in_that_of_the_documents(
    letters: MakeTokenizer,
) -> None:
    tokenizer = letters()
    pairs = [("a" * (n % 8 + 1), "x" * (n % 8 + 1)) for n in range(64)]
    rows = Batches(listed(pairs), Seq2Seq(bucket=4), tokenizer, batch_size=4, seq_len=10)
    epochs = [[tuple(next(rows).ids.shape) for _ in range(16)] for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    plain = Batches(listed(pairs), Seq2Seq(), tokenizer, batch_size=4, seq_len=10)
    for bucketed, usual in zip(rows.once(), plain.once(), strict=True):
        assert torch.equal(bucketed.ids, usual.ids)

    def padding(batches: Batches) -> int:
        return sum(int((next(batches).tags.position < 0).sum()) for _ in range(16))

    assert padding(rows) * 2 < padding(plain)


def test_a_bucket_has_at_least_one_pair() -> None:
    with pytest.raises(ConfigError, match="bucket must be at least 1"):
        Seq2Seq(bucket=0)
