"""Prefix LM: a prefix seen from both sides, the rest predicted once, and packed documents that know nothing of each
other."""

from collections import Counter
from collections.abc import Callable
from math import sqrt

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError, DataError
from transpect.core import AttentionConfig, ModelConfig, NormalInit, PrefixLM, StackConfig, Transformer, preset
from transpect.core.positions import Rope
from transpect.data.batch import IGNORE, Batch
from transpect.data.loader import Batches
from transpect.data.objectives import Objective, Prefix
from transpect.data.sources import Document, Listed
from transpect.text import Tokenizer

MakeTokenizer = Callable[..., Tokenizer]
quick = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rows(batch: Batch) -> list[tuple[list[int], list[int], list[bool]]]:
    """(read, labels, prefix) of each segment."""
    found = []
    for b in range(len(batch.ids)):
        for number in sorted(set(batch.tags.segment[b].tolist()) - {-1}):
            here = (batch.tags.segment[b] == number) & (batch.tags.position[b] >= 0)
            assert batch.tags.position[b][here].tolist() == list(range(int(here.sum())))
            found.append(tuple(each[b][here].tolist() for each in (batch.ids, batch.labels, batch.tags.prefix)))
    assert not batch.tags.prefix[batch.tags.position < 0].any()
    return found


@pytest.mark.parametrize("pack", [True, False])
@quick
@given(
    texts=st.lists(st.text("abc 天", min_size=1, max_size=25), min_size=1, max_size=6),
    seq_len=st.integers(2, 30),
    seed=st.integers(0, 3),
)
def test_a_prefix_and_what_follows_it(
    pack: bool, texts: list[str], seq_len: int, seed: int, vocabulary: Tokenizer
) -> None:
    batches = Batches(
        Listed([Document(text) for text in texts]),
        Prefix(pack=pack),
        vocabulary,
        batch_size=3,
        seq_len=seq_len,
        seed=seed,
    )
    start = vocabulary.eos_id if vocabulary.bos_id is None else vocabulary.bos_id
    expected: list[tuple[list[int], int]] = []
    for ids in vocabulary.encode_batch(texts, parse_special=False):
        read, last = [start, *ids], [*ids, vocabulary.eos_id]
        pieces = range(0, len(read), seq_len)
        expected += [(read[i : i + seq_len], last[min(i + seq_len, len(read)) - 1]) for i in pieces]
    found: list[tuple[list[int], int]] = []
    for batch in batches.once():
        for read, labels, prefix in rows(batch):
            size = sum(prefix)
            assert 1 <= size <= len(read)
            assert prefix == [i < size for i in range(len(read))]
            answers = [*read[1:], labels[-1]]
            assert labels == [IGNORE] * (size - 1) + answers[size - 1 :]
            found.append((read, labels[-1]))
    assert sorted(found) == sorted(expected)


def test_every_prefix_is_as_likely_as_any_other(letters: MakeTokenizer) -> None:
    batches = Batches(Listed([Document("abcdefghi")] * 500), Prefix(pack=False), letters(), batch_size=2000, seq_len=16)
    sizes = Counter(next(batches).tags.prefix.sum(1).tolist())
    assert set(sizes) == set(range(1, 11))
    assert all(abs(count - 200) < 4.5 * sqrt(180) for count in sizes.values())


def test_of_a_pair_the_source_is_the_prefix(letters: MakeTokenizer) -> None:
    tokenizer = letters()
    documents = Listed([Document("abc", "xyz"), Document("a", "z", "pairs.tsv", 7)])
    batches = Batches(documents, Prefix(between=" "), tokenizer, batch_size=1, seq_len=32)
    (first, second) = [row for batch in batches.once() for row in rows(batch)]
    assert tokenizer.decode(first[0]) == "<s>abc xyz"
    assert sum(first[2]) == len("_abc ")
    assert tokenizer.decode([i for i in first[1] if i != IGNORE]) == "xyz</s>"
    assert tokenizer.decode([i for i in second[1] if i != IGNORE]) == "z</s>"
    with pytest.raises(DataError, match="a pair must have at most seq_len = 7 tokens"):
        Batches(documents, Prefix(between=" "), tokenizer, batch_size=1, seq_len=7)


@torch.no_grad()
def test_packed_documents_are_read_as_if_alone(letters: MakeTokenizer) -> None:
    tokenizer, objective = letters(), Prefix()
    stack = StackConfig(2, AttentionConfig(n_heads=2), positions=Rope(), visibility=PrefixLM())
    config = ModelConfig(tokenizer.vocab_size, 16, 64, decoder=stack, init=NormalInit(std=0.2))
    objective.check(config, tokenizer, 40)
    model = Transformer(objective.adapt(config), seed=1)
    documents = Listed([Document("abcdefgh"), Document("catdog"), Document("xyz")])
    (batch,) = Batches(documents, objective, tokenizer, batch_size=1, seq_len=40, seed=3).once()
    logits = model(batch.ids, tags=batch.tags)[0]
    plain = Transformer(config, seed=1)
    for number in range(3):
        here = batch.tags.segment[0] == number
        tags = batch.tags.columns(here.nonzero().squeeze(-1))
        alone = plain(batch.ids[:, here], tags=tags)[0]
        torch.testing.assert_close(logits[here], alone, atol=1e-5, rtol=0)
        # the prefix is seen from both sides, the rest is not
        size = int(tags.prefix.sum())
        changed = batch.ids[:, here].clone()
        changed[0, size - 1] = tokenizer.token_to_id("z")
        moved = (plain(changed, tags=tags)[0] - alone).abs().amax(-1) > 1e-4
        assert moved[:size].all()
        changed = batch.ids[:, here].clone()
        changed[0, -1] = tokenizer.token_to_id("天")
        moved = (plain(changed, tags=tags)[0] - alone).abs().amax(-1) > 1e-4
        assert not moved[:-1].any() or size == len(moved)


def test_what_it_needs(letters: MakeTokenizer) -> None:
    Prefix().check(preset("prefix-lm"), letters(), 16)
    with pytest.raises(ConfigError, match=r"sees a prefix from both sides.*visibility to prefix_lm"):
        Prefix().check(preset("gpt2"), letters(), 16)
    for objective in (Prefix(), Prefix("", False)):
        assert from_data(Objective, to_data(objective)) == objective
