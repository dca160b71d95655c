"""Mixtures: shares by weight, epochs of parts, and the same wherever they were stopped."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError, DataError
from transpect.data import passes
from transpect.data.loader import Batches
from transpect.data.objectives import Causal, Masked, Seq2Seq
from transpect.data.sources import Deduplicated, Joined, Mixture, Part, Source, Stories, Text, Tokens, Tsv
from transpect.data.split import split
from transpect.data.tokens import prepare
from transpect.text import Tokenizer, train_tokenizer

MakeTokenizer = Callable[..., Tokenizer]


@pytest.fixture(autouse=True)
def _short_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MOST", 40)
    monkeypatch.setattr(passes, "BLOCK", 20)


def text(folder: Path, letter: str, count: int, length: int) -> Text:
    """``count`` documents of one letter and a number."""
    path = folder / f"{letter}.txt"
    path.write_text("\n".join(letter * (length - 1) + chr(ord("a") + i) for i in range(count)), encoding="utf-8")
    return Text(str(path), "line")


def documents_of(batches: Batches, tokenizer: Tokenizer, passes: int) -> Iterator[list[str]]:
    """The documents of each pass; ``batches`` has batches of one row and one document a row."""
    for number in range(passes):
        found = []
        while batches.place[0] == number:
            found.append(tokenizer.decode(next(batches).ids[0].tolist()).removeprefix("<s>"))
        yield found


@pytest.mark.parametrize("by", ["documents", "tokens"])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (0.1, 0.7)])
def test_parts_give_their_shares_and_go_through_epochs(
    by: str, weights: tuple[float, float], letters: MakeTokenizer, tmp_path: Path
) -> None:
    parts = [text(tmp_path, "天", 7, 3), text(tmp_path, "地", 11, 12)]
    mixture = Mixture(tuple(map(Part, parts, weights)), by)  # type: ignore[arg-type]
    batches = Batches(mixture.documents(), Causal(pack=False), letters(), batch_size=1, seq_len=32, seed=1)
    seen: list[Counter[str]] = [Counter(), Counter()]
    given = []
    for found in documents_of(batches, letters(), 14):
        for document in found:
            seen[document[0] == "地"][document] += 1
        given.append([counter.total() for counter in seen])
        for counter, size in zip(seen, (7, 11), strict=True):  # none comes again before all have come
            assert max(counter.values(), default=0) - (min(counter.values()) if len(counter) == size else 0) <= 1
    costs = (1, 1) if by == "documents" else (5, 14)  # tokens with start and end
    rates = [weight / cost for weight, cost in zip(weights, costs, strict=True)]
    for number, counts in enumerate(given, 1):
        for count, rate in zip(counts, rates, strict=True):
            assert abs(count - number * 40 * rate / sum(rates)) <= 1
    assert batches.epoch == min(given[-1][0] // 7, given[-1][1] // 11)
    assert f"天.txt {given[-1][0]:,} documents, {given[-1][0] / 7:.2f} times" in batches.told


def test_shares_are_exact_on_average_over_seeds(letters: MakeTokenizer, tmp_path: Path) -> None:
    mixture = Mixture((Part(text(tmp_path, "天", 9, 3), 1), Part(text(tmp_path, "地", 9, 3), 59)), "documents")
    documents = mixture.documents()
    counts = []
    for seed in range(200):
        batches = Batches(documents, Causal(pack=False), letters(), batch_size=1, seq_len=32, seed=seed)
        counts.append(int(batches.told_at((1, 0)).split("天.txt ")[1].split()[0]))
    assert set(counts) == {0, 1}  # of 40 documents, a sixtieth
    assert abs(sum(counts) / 200 - 2 / 3) < 4 * (2 / 9 / 200) ** 0.5


def test_a_part_is_read_as_often_as_it_may_be(letters: MakeTokenizer, tmp_path: Path) -> None:
    parts = (Part(text(tmp_path, "天", 7, 3), epochs=2), Part(text(tmp_path, "地", 25, 3), epochs=1))
    batches = Batches(Mixture(parts).documents(), Causal(pack=False), letters(), batch_size=1, seq_len=32)
    found = Counter(document for found in documents_of(batches, letters(), 2) for document in found)
    assert len(found) == 7 + 25 and {found[key] for key in found if "天" in key} == {2}
    assert batches.epoch == 1
    with pytest.raises(DataError, match="must have a part that may be read on"):
        next(batches)


@pytest.mark.parametrize("kind", ["causal", "masked", "seq2seq"])
def test_a_mixture_goes_on_the_same_wherever_it_was_stopped(kind: str, letters: MakeTokenizer, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(
        "char", [*Stories().texts(60), "天地abcdefghijklmnopqrstuvwxyz"], special_tokens={"mask": "<m>"}
    )
    lines = text(tmp_path, "天", 7, 3)
    prepare(text(tmp_path, "地", 25, 5), tokenizer, tmp_path / "tokens")
    (tmp_path / "x.tsv").write_text("".join(f"天{c}\t{c}地\n" for c in "abcde"), encoding="utf-8")
    sources: dict[str, list[Source]] = {
        "causal": [lines, Tokens(str(tmp_path / "tokens")), Stories()],
        "masked": [lines, Tokens(str(tmp_path / "tokens"))],
        "seq2seq": [Tsv(str(tmp_path / "x.tsv")), Tsv(str(tmp_path / "x.tsv"), swap=True)],
    }
    objective = {"causal": Causal(fit="best"), "masked": Masked(whole_word=False), "seq2seq": Seq2Seq()}[kind]
    mixture = Mixture(tuple(Part(source, 1 + i) for i, source in enumerate(sources[kind])))

    def make(seed: int = 2) -> Batches:
        return Batches(mixture.documents(), objective, tokenizer, batch_size=4, seq_len=64, seed=seed)

    batches, states, straight = make(), [], []
    for _ in range(24):
        states.append(batches.state())
        straight.append(next(batches))
    for at in (1, 11, 23):
        again = make()
        again.load_state(json.loads(json.dumps(states[at])))
        batch = next(again)
        assert torch.equal(batch.ids, straight[at].ids) and torch.equal(batch.labels, straight[at].labels)
    assert [batch.ids.tolist() for batch in islice(make(3), 3)] != [batch.ids.tolist() for batch in straight[:3]]
    other = Mixture(tuple(Part(part.source, 2 * part.weight + 1) for part in mixture.parts))
    with pytest.raises(DataError, match="must go on with"):
        Batches(other.documents(), objective, tokenizer, batch_size=4, seq_len=64, seed=2).load_state(states[3])


def test_a_share_of_every_part_is_held_out(letters: MakeTokenizer, tmp_path: Path) -> None:
    mixture = Mixture((Part(text(tmp_path, "天", 10, 3)), Part(text(tmp_path, "地", 20, 3), 5)))
    train, valid = split(mixture.documents(), 0.2)
    held = Counter(document.text[0] for document in valid)
    assert held == {"天": 2, "地": 4}
    batches = Batches(train, Causal(pack=False), letters(), batch_size=1, seq_len=8)
    seen = {document for found in documents_of(batches, letters(), 9) for document in found}
    assert len(seen) == 24 and not seen & {document.text for document in valid}
    sample = Counter(document.text[0] for document in islice(train, 600))
    assert abs(sample["地"] - 500) < 4 * (600 * 5 / 36) ** 0.5  # what a tokenizer would be trained on
    with pytest.raises(ConfigError, match="Name a valid source"):
        split(
            Mixture((Part(Stories(stories=9)), Part(Joined((Stories(stories=5),))), Part(Stories()))).documents(), 0.5
        )


def test_mixtures_that_can_not_be(tmp_path: Path) -> None:
    part = {"source": {"kind": "text", "path": "x"}, "weight": 2, "epochs": 4}
    whole = from_data(Source, {"kind": "mixture", "parts": [part], "by": "documents"})
    assert whole == Mixture((Part(Text("x"), 2.0, 4),), "documents") == from_data(Source, to_data(whole))
    for wrong in ([], [{**part, "weight": 0}], [{**part, "epochs": 0}], [{"source": to_data(whole)}]):
        with pytest.raises(ConfigError):
            from_data(Source, {"kind": "mixture", "parts": wrong})


def test_joined_sources_follow_each_other(tmp_path: Path) -> None:
    one, other = text(tmp_path, "天", 2, 3), Stories(stories=2)
    assert list(Joined((one, other)).texts()) == [*one.texts(), *other.texts()]
    for endless in (Joined((one, Stories())), Deduplicated(Stories())):
        with pytest.raises(ConfigError, match="must have an end"):
            endless.documents()
    with pytest.raises(ConfigError):
        Joined(())
