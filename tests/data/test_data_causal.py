"""Next-token examples: each token of each document predicted exactly once, from its own past and nothing else."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from transpect.base.errors import ConfigError
from transpect.core import (
    All,
    AttentionConfig,
    Blocks,
    CausalLM,
    EdgeBlocks,
    Full,
    ModelConfig,
    NormalInit,
    OtherLayers,
    PrefixLM,
    SameSegment,
    SequenceClass,
    StackConfig,
    Transformer,
    UpTo,
    Window,
    preset,
)
from transpect.core import Causal as SeesPast
from transpect.core.positions import Alibi, DynamicNTK, Learned, NoPosition, Rope, Sinusoidal, T5Buckets
from transpect.data.batch import IGNORE, Batch
from transpect.data.loader import Batches
from transpect.data.objectives import Causal, Masked
from transpect.data.sources import Document, Listed
from transpect.text import Tokenizer

MakeTokenizer = Callable[..., Tokenizer]
Pair = tuple[tuple[int, ...], tuple[int, ...]]  # what is read, what is predicted

SPECIALS = {  # the ways of a tokenizer to begin, end and fill
    "bos, eos, pad": {},
    "no bos": {"bos": None},
    "no pad": {"pad": None},
    "pad is eos": {"pad": "</s>"},
    "GPT-2's one token": {"pad": "</s>", "bos": "</s>", "unk": "</s>"},
}
TEXTS = st.lists(st.text("abc 天", min_size=1, max_size=25), min_size=1, max_size=12)
quick = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def listed(texts: list[str]) -> Listed:
    return Listed([Document(text) for text in texts])


def whole(text: str, tokenizer: Tokenizer) -> Pair:
    """A document as the objective defines it."""
    start = tokenizer.eos_id if tokenizer.bos_id is None else tokenizer.bos_id
    assert start is not None
    assert tokenizer.eos_id is not None
    ids = tokenizer.encode(text)
    return (start, *ids), (*ids, tokenizer.eos_id)


def chunks(pair: Pair, size: int) -> list[Pair]:
    return [(pair[0][i : i + size], pair[1][i : i + size]) for i in range(0, len(pair[0]), size)]


def segments(batch: Batch) -> list[Pair]:
    """What is read and predicted in each segment of each row, checked to be one run with positions from 0."""
    found: list[Pair] = []
    for ids, labels, position, segment in zip(
        batch.ids, batch.labels, batch.tags.position, batch.tags.segment, strict=True
    ):
        real = position >= 0
        assert torch.equal(real, labels != IGNORE)  # by place, not by the value of an id
        assert real.tolist() == sorted(real.tolist(), reverse=True)  # padding on the right only
        assert (segment[~real] == -1).all()
        numbers = segment[real].tolist()
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(len(set(numbers))))
        for number in sorted(set(numbers)):
            here = segment == number
            assert position[here].tolist() == list(range(int(here.sum())))
            found.append((tuple(ids[here].tolist()), tuple(labels[here].tolist())))
    return found


@pytest.mark.parametrize("specials", SPECIALS)
@pytest.mark.parametrize("pack", [True, False])
@quick
@given(texts=TEXTS, seq_len=st.integers(1, 40), batch_size=st.integers(1, 5))
def test_each_token_is_predicted_once_from_its_own_document(
    specials: str, pack: bool, texts: list[str], seq_len: int, batch_size: int, letters: MakeTokenizer
) -> None:
    tokenizer = letters(**SPECIALS[specials])
    batches = Batches(listed(texts), Causal(pack=pack), tokenizer, batch_size=batch_size, seq_len=seq_len)
    expected = [chunk for text in texts for chunk in chunks(whole(text, tokenizer), seq_len)]
    once = list(batches.once())
    found = [pair for batch in once for pair in segments(batch)]
    assert Counter(found) == Counter(expected)
    if not pack:
        assert found == expected
    assert batches.n_tokens == sum(batch.n_labels for batch in once) == sum(len(read) for read, _ in expected)
    assert batches.n_rows == sum(len(batch.ids) for batch in once)
    assert batches.n_characters == sum(map(len, texts))
    assert all(len(batch.ids) == batch_size for batch in once[:-1])
    widths = [seq_len if pack else int((batch.labels != IGNORE).sum(1).max()) for batch in once]
    assert [batch.ids.shape[1] for batch in once] == widths


@pytest.mark.parametrize("specials", SPECIALS)
@quick
@given(texts=TEXTS, seq_len=st.integers(1, 40), batch_size=st.integers(1, 5))
def test_joined_documents_are_one_stream(
    specials: str, texts: list[str], seq_len: int, batch_size: int, letters: MakeTokenizer
) -> None:
    tokenizer = letters(**SPECIALS[specials])
    batches = Batches(listed(texts), Causal(separate=False), tokenizer, batch_size=batch_size, seq_len=seq_len)
    found = [pair for batch in batches.once() for pair in segments(batch)]
    expected = [whole(text, tokenizer) for text in texts]
    stream = tuple(tuple(token for pair in expected for token in pair[side]) for side in (0, 1))
    assert found == chunks((stream[0], stream[1]), seq_len)


def test_a_row_read_by_eye(letters: MakeTokenizer) -> None:
    tokenizer = letters()
    batches = Batches(listed(["ab", "c", "defgh"]), Causal(), tokenizer, batch_size=2, seq_len=6)
    (batch,) = batches.once()
    assert [tokenizer.tokens(row) for row in batch.ids.tolist()] == [
        ["<s>", "a", "b", "<s>", "c", "<pad>"],
        ["<s>", "d", "e", "f", "g", "h"],
    ]
    assert [tokenizer.tokens(i for i in row if i != IGNORE) for row in batch.labels.tolist()] == [
        ["a", "b", "</s>", "c", "</s>"],
        ["d", "e", "f", "g", "h", "</s>"],
    ]
    assert batch.tags.position.tolist() == [[0, 1, 2, 0, 1, -1], [0, 1, 2, 3, 4, 5]]
    assert batch.tags.segment.tolist() == [[0, 0, 0, 1, 1, -1], [0] * 6]
    assert (batch.n_labels, batch.n_tokens) == (11, 11)


def test_full_rows_of_one_document_say_so_to_the_kernel(letters: MakeTokenizer) -> None:
    """So that a fused causal path can be taken where documents are long."""
    batches = Batches(listed(["a" * 39]), Causal(), letters(), batch_size=2, seq_len=10)
    assert [batch.tags.start for batch in batches.once()] == [0, 0]
    batches = Batches(listed(["a" * 38]), Causal(), letters(), batch_size=2, seq_len=10)
    assert [batch.tags.start for batch in batches.once()] == [0, None]


@pytest.mark.parametrize("specials", ["pad is eos", "GPT-2's one token"])
@pytest.mark.parametrize("pack", [True, False])
def test_where_eos_also_fills_the_real_eos_is_predicted(specials: str, pack: bool, letters: MakeTokenizer) -> None:
    """Case 21: a label is set by place."""
    tokenizer = letters(**SPECIALS[specials])
    assert tokenizer.pad_id == tokenizer.eos_id
    texts = ["a", "abc", "abcabcab"]
    (batch,) = Batches(listed(texts), Causal(pack=pack), tokenizer, batch_size=3, seq_len=12).once()
    assert int((batch.labels == tokenizer.eos_id).sum()) == len(texts)
    assert int((batch.ids[batch.tags.position < 0] == tokenizer.eos_id).sum()) > 0
    assert (batch.labels[batch.tags.position < 0] == IGNORE).all()


def test_special_tokens_spelled_in_a_text_are_text(letters: MakeTokenizer) -> None:
    tokenizer = letters()
    (batch,) = Batches(listed(["a</s>b<pad>c"]), Causal(), tokenizer, batch_size=1, seq_len=20).once()
    assert int((batch.labels == tokenizer.eos_id).sum()) == 1
    assert not bool((batch.labels == tokenizer.pad_id).any())


# with a real model

POSITIONS = [NoPosition(), Learned(), Sinusoidal(), Rope(), Alibi(), T5Buckets()]


def tiny(tokenizer: Tokenizer, **stack: object) -> ModelConfig:
    settings = {"n_layers": 2, "attention": AttentionConfig(n_heads=2), "positions": Rope()} | stack
    return ModelConfig(tokenizer.vocab_size, 16, 64, decoder=StackConfig(**settings), init=NormalInit(std=0.2))  # type: ignore[arg-type]


def losses(model: Transformer, batch: Batch) -> Tensor:
    logits = model(batch.ids, tags=batch.tags)
    return functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE, reduction="none")


def one_row(texts: list[str], tokenizer: Tokenizer, objective: Causal) -> Batch:
    (batch,) = Batches(listed(texts), objective, tokenizer, batch_size=len(texts), seq_len=24).once()
    return batch


@pytest.mark.parametrize("positions", POSITIONS, ids=lambda positions: positions.kind)
@torch.no_grad()
def test_a_packed_document_does_not_feel_its_neighbour(positions: object, letters: MakeTokenizer) -> None:
    """Case 22."""
    tokenizer, objective = letters(), Causal()
    config = tiny(tokenizer, positions=positions)
    before, after = (one_row([first, "catdog", "fish"], tokenizer, objective) for first in ("abcde", "zyxwv"))
    assert before.ids.shape == (1, 24)
    second = before.tags.segment == 1
    assert torch.equal(before.ids[second], after.ids[second])

    adapted = Transformer(objective.adapt(config), seed=1)
    logits, moved = (adapted(batch.ids, tags=batch.tags)[second] for batch in (before, after))
    torch.testing.assert_close(logits, moved, atol=1e-5, rtol=0)

    alone = one_row(["catdog"], tokenizer, Causal(pack=False))
    torch.testing.assert_close(adapted(alone.ids, tags=alone.tags)[0], logits, atol=1e-5, rtol=0)

    # the same weights in a model that was not adapted do feel it, so the test can fail
    plain = Transformer(config, seed=1)
    logits, moved = (plain(batch.ids, tags=batch.tags)[second] for batch in (before, after))
    assert float((logits - moved).abs().max()) > 1e-3


@pytest.mark.parametrize("positions", POSITIONS, ids=lambda positions: positions.kind)
@torch.no_grad()
def test_the_packed_loss_is_that_of_the_documents_weighted_by_tokens(positions: object, letters: MakeTokenizer) -> None:
    """Case 22, and with long documents in it: a piece costs what it costs in a row of its own."""
    tokenizer, objective = letters(), Causal()
    texts = ["abc", "a", "the quick brown fox jumps over the lazy dog", "hello", "天地玄黄宇宙洪荒", "z" * 30]
    model = Transformer(objective.adapt(tiny(tokenizer, positions=positions)), seed=1)

    def total(texts: list[str], objective: Causal, batch_size: int) -> tuple[float, int]:
        batches = list(Batches(listed(texts), objective, tokenizer, batch_size=batch_size, seq_len=24).once())
        return sum(float(losses(model, batch).sum()) for batch in batches), sum(batch.n_labels for batch in batches)

    packed, n = total(texts, objective, 2)
    apart, n_apart = total(texts, Causal(pack=False), 3)
    each = [total([text], Causal(pack=False), 1) for text in texts]
    assert n == n_apart == sum(count for _, count in each) == sum(len(text) + 1 for text in texts)
    assert packed / n == pytest.approx(apart / n, abs=1e-5)
    assert packed / n == pytest.approx(sum(loss for loss, _ in each) / n, abs=1e-5)


def test_no_gradient_crosses_a_border(letters: MakeTokenizer) -> None:
    tokenizer, objective = letters(), Causal()
    batch = one_row(["abcde", "catdog", "fish"], tokenizer, objective)
    model = Transformer(objective.adapt(tiny(tokenizer)), seed=1)
    loss = losses(model, batch).view_as(batch.labels)
    loss[batch.tags.segment == 1].sum().backward()
    grad = model.token.weight.grad
    assert grad is not None
    # a tied head moves every row a little through softmax; the rows that only the others read move through it alone
    untied = Transformer(replace(objective.adapt(tiny(tokenizer)), head=CausalLM(tied=False)), seed=1)
    losses(untied, batch).view_as(batch.labels)[batch.tags.segment == 1].sum().backward()
    assert untied.token.weight.grad is not None
    moved = set(untied.token.weight.grad.abs().sum(1).nonzero().flatten().tolist())
    assert moved == set(batch.ids[batch.tags.segment == 1].tolist())


# adapt and check


@pytest.mark.parametrize("rule", [SeesPast(), Window(8), SeesPast() & Window(8), PrefixLM()], ids=repr)
def test_adapting_adds_the_rule_once(rule: object, letters: MakeTokenizer) -> None:
    config = tiny(letters(), visibility=rule)
    adapted = Causal().adapt(config)
    assert adapted.decoder is not None
    assert isinstance(adapted.decoder.visibility, All)
    assert adapted.decoder.visibility.rules[-1] == SameSegment()
    assert not any(isinstance(inner, All) for inner in adapted.decoder.visibility.rules)
    assert set(adapted.decoder.visibility.rules[:-1]) == set(rule.rules if isinstance(rule, All) else [rule])
    assert Causal().adapt(adapted) == adapted
    assert Causal(separate=False).adapt(config) == Causal(pack=False).adapt(config) == config


def test_adapting_leaves_weights_as_they_are(letters: MakeTokenizer) -> None:
    config = tiny(letters())
    adapted, plain = (Transformer(each, seed=3).state_dict() for each in (Causal().adapt(config), config))
    assert adapted.keys() == plain.keys()
    assert all(torch.equal(adapted[name], plain[name]) for name in plain)


def test_what_goes_together_passes(letters: MakeTokenizer) -> None:
    for rule in (SeesPast(), Window(4), SeesPast() & SameSegment(), PrefixLM()):
        Causal().check(tiny(letters(), visibility=rule), letters(), 64)


def test_dynamic_scaling_goes_with_rows_of_one_document_or_of_one_stream(letters: MakeTokenizer) -> None:
    config = tiny(letters(), positions=Rope(scaling=DynamicNTK(factor=2.0, original_length=6)))
    for objective in (Causal(pack=False), Causal(separate=False)):
        objective.check(config, letters(), 64)


@pytest.mark.parametrize(
    ("config", "objective", "seq_len", "message"),
    [
        (lambda c: preset("bert-base"), Causal(), 8, "needs a model of kind decoder (got 'encoder')"),
        (lambda c: preset("t5-small"), Causal(), 8, "kind decoder (got 'encoder-decoder')"),
        (lambda c: c, Masked(), 8, "the masked objective needs a model of kind encoder (got 'decoder')"),
        (
            lambda c: replace(c, head=SequenceClass(3)),
            Causal(),
            8,
            "the head causal_lm or masked_lm (got 'sequence_class')",
        ),
        (lambda c: c.map_stacks(visibility=Full()), Causal(), 8, "sees only the past, or it reads the answer"),
        (lambda c: c.map_stacks(visibility=Window(3, both_ways=True)), Causal(), 8, "sees only the past"),
        (lambda c: replace(c, vocab_size=5), Causal(), 8, "a row for each of the tokenizer's"),
        (
            lambda c: c.map_stacks(positions=Rope(scaling=DynamicNTK(factor=2.0, original_length=6))),
            Causal(),
            8,
            "documents that share one would feel each other (got 'positions rope, visibility causal'). "
            "Set data.objective.pack: false",
        ),
        (
            lambda c: c.map_stacks(visibility=SeesPast() & (Blocks(2) | EdgeBlocks(2))),
            Causal(),
            8,
            "documents that share one would feel each other (got 'positions rope, visibility all')",
        ),
        (
            lambda c: c.map_stacks(others=(OtherLayers(at=(0,), visibility=SeesPast() & UpTo(4)),)),
            Causal(),
            8,
            "documents that share one would feel each other",
        ),
        (lambda c: c, Causal(), 65, "seq_len must not be longer than the model's context of 64 (got 65)"),
        (lambda c: c, Causal(), 0, "seq_len must be at least 1"),
    ],
)
def test_what_does_not_go_together_is_refused(
    config: Callable[[ModelConfig], ModelConfig],
    objective: Causal | Masked,
    seq_len: int,
    message: str,
    letters: MakeTokenizer,
) -> None:
    with pytest.raises(ConfigError) as caught:
        objective.check(config(tiny(letters())), letters(), seq_len)
    assert message in str(caught.value)


def test_a_tokenizer_without_an_end_is_refused(letters: MakeTokenizer) -> None:
    for use in (
        lambda: Causal().check(tiny(letters()), letters(eos=None), 8),
        lambda: Batches(listed(["a"]), Causal(), letters(eos=None), batch_size=1, seq_len=8),
    ):
        with pytest.raises(ConfigError, match="needs a tokenizer with the special token eos"):
            use()


def test_rows_of_their_own_are_always_separate() -> None:
    with pytest.raises(ConfigError, match="always separate"):
        Causal(pack=False, separate=False)


@pytest.mark.parametrize("specials", SPECIALS)
def test_whoever_writes_with_the_model_starts_and_ends_as_it_was_taught(specials: str, letters: MakeTokenizer) -> None:
    tokenizer = letters(**SPECIALS[specials])
    generation = Causal().generation(tokenizer)
    read, predicted = whole("a", tokenizer)
    assert generation["prompt_start_token_id"] == generation["bos_token_id"] == read[0]
    assert generation["eos_token_id"] == predicted[-1]
    pads = {tokenizer.pad_id, tokenizer.eos_id} - {None}
    assert generation["pad_token_id"] in pads


def test_labels_are_the_next_ids(letters: MakeTokenizer) -> None:
    """Within a piece, what is predicted is what is read next."""
    batches = Batches(listed(["the cat", "a dog", "x" * 40]), Causal(), letters(), batch_size=2, seq_len=16)
    for _ in range(5):
        for read, predicted in segments(next(batches)):
            assert all(now == after for now, after in zip(predicted, read[1:], strict=False))
            assert len(list(pairwise(read))) == len(predicted) - 1
