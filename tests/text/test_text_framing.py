"""The frame of a text is what the tokenizer puts around any text, whatever is in its vocabulary."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from transpect.text import Tokenizer
from transpect.text.framing import Frame

WORDS = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "cat", "fish", "x"])}


def template(rule: str) -> processors.TemplateProcessing:
    used = [(word, WORDS[word]) for word in rule.split() if word in WORDS]
    return processors.TemplateProcessing(single=rule, pair="$A $B", special_tokens=used)


PROCESSORS: dict[str, processors.PostProcessor | None] = {
    "none": None,
    "byte level": processors.ByteLevel(trim_offsets=True),
    "bert": processors.BertProcessing(("</s>", 2), ("<s>", 1)),
    "roberta": processors.RobertaProcessing(("</s>", 2), ("<s>", 1)),
    "id 0": template("<pad> $A <pad> <pad>"),
    "nothing": template("$A"),
    "before": template("<s> $A"),
    "after": template("$A </s>"),
    "template first": processors.Sequence([template("<s> $A </s>"), processors.ByteLevel(trim_offsets=True)]),
    "template last": processors.Sequence([processors.ByteLevel(trim_offsets=True), template("<s> $A </s>")]),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_the_own_frame_is_what_add_special_tokens_adds(name: str) -> None:
    backend = tokenizers.Tokenizer(models.WordLevel(WORDS, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if (processor := PROCESSORS[name]) is not None:
        backend.post_processor = processor
    tokenizer = Tokenizer(backend, {"bos": "<s>", "eos": "</s>", "pad": "<pad>"})
    frame = Frame.own(tokenizer)
    for text in ("cat", "fish cat", "x x x", "unknown", ""):
        ids = tokenizer.encode(text)
        assert [*frame.before, *ids, *frame.after] == tokenizer.encode(text, add_special_tokens=True)
    assert len(frame) == len(tokenizer.encode("", add_special_tokens=True))


def test_an_end_is_put_once() -> None:
    frame = Frame(before=(1,), after=(2, 9))
    assert frame.around([]) == [1, 2, 9]
    assert frame.around([5, 2, 9]) == [1, 5, 2, 9]
    assert frame.around([5, 2]) == [1, 5, 2, 2, 9]
    assert Frame().around([5, 2]) == [5, 2]
