"""What is read while a model is verified: real text through the tokenizer where there is one, and random ids.

Lengths differ (1 among them), and the longest reaches beyond the model's window where that is short enough to be
reached, for a mistake at its edge shows nowhere else.
"""

from __future__ import annotations

import torch

from transpect.base.errors import TokenizerError
from transpect.core import Causal, Full, ModelConfig, Tags, Visibility
from transpect.decode import Prompts
from transpect.interop.peers import Sample
from transpect.text import Tokenizer

__all__ = ["TEXTS", "samples_for"]

TEXTS = {
    "en": "The old lighthouse keeper counted 27 ships before the fog rolled in, then lit the lamp and waited.",
    "zh": "小猫沿着河边走了三里路，看见一位老人在树下读书，便停下来听他念诗。",
}
TEXT_TOKENS = 24
LENGTHS = (1, 9, 33)
REACH = 160  # how far a window is looked for; longer ones cost more than a short check can


def samples_for(
    config: ModelConfig, tokenizer: Tokenizer | None, generation: dict[str, object], *, seed: int
) -> list[Sample]:
    """Texts in English and Chinese, and random ids of several lengths; the same for the same seed.

    Args:
        config: of the model, for its vocabulary, its context and its rules.
        tokenizer: None leaves the texts out.
        generation: entries of ``generation_config.json``, for the token that an answer begins with.
        seed: of the random ids.
    """
    rows = _texts(config, tokenizer, generation)
    draw = _Draw(config.vocab_size, _special(tokenizer, generation), seed)
    longest = max(LENGTHS[-1], *(_edge(rule) + 8 for rule in _rules(config)))
    two = len(config.towers) == 2
    for length in (*LENGTHS[:-1], longest):
        wanted = min(length, config.context_length)
        rows.append((f"random ids, {wanted}", draw(wanted), draw(max(1, min(longest - length, 12))) if two else []))
    prefixed, marked = config.last.asks_for("prefix"), config.last.asks_for("is_global")
    return [
        Sample(
            tuple(ids[: config.context_length]),
            tuple(source[: config.context_length]),
            prefix=(len(ids) + 1) // 2 if prefixed else 0,
            marked=1 if marked else 0,
            label=label,
        )
        for label, ids, source in rows
    ]


def _texts(
    config: ModelConfig, tokenizer: Tokenizer | None, generation: dict[str, object]
) -> list[tuple[str, list[int], list[int]]]:
    if tokenizer is None:
        return []
    around, rows = Prompts(tokenizer, generation), []
    for language, text in TEXTS.items():
        try:
            source = around.source(text)[:TEXT_TOKENS] if len(config.towers) == 2 else []
            ids = around.prompt(text) if config.decoder is not None else tokenizer.encode(text, add_special_tokens=True)
            ids = [around.decoder_start(), *tokenizer.encode(text)] if source else ids
        except TokenizerError:  # a vocabulary of another script, without a token for what it does not know
            continue
        if ids and max(*ids, *source, 0) < config.vocab_size:
            rows.append((language, ids[:TEXT_TOKENS], source))
    return rows


class _Draw:
    """Random ids that are no special token: other libraries read positions and padding off those."""

    def __init__(self, vocab_size: int, special: set[int], seed: int) -> None:
        allowed = torch.ones(vocab_size)
        allowed[[i for i in special if 0 <= i < vocab_size]] = 0
        self._allowed = allowed if allowed.any() else torch.ones(vocab_size)
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, length: int) -> list[int]:
        places = torch.randint(0, int(self._allowed.sum()), (length,), generator=self._generator)
        ids: list[int] = self._allowed.nonzero()[places, 0].tolist()
        return ids


def _special(tokenizer: Tokenizer | None, generation: dict[str, object]) -> set[int]:
    named = {value for name, value in generation.items() if name.endswith("_token_id") and isinstance(value, int)}
    if tokenizer is not None:
        named |= tokenizer.special_ids
    return named


def _rules(config: ModelConfig) -> list[Visibility]:
    return [kind.visibility for stack in config.towers.values() for kind in stack.kinds]


def _edge(rule: Visibility) -> int:
    """The shortest length at which a rule hides a key that the plain rule shows; 0 where there is none in reach."""
    tags = Tags.dense(1, REACH, device="cpu")
    plain = Full() if rule.looks_ahead(prefix=False) else Causal()
    query, key = (plain.mask(tags, tags) & ~rule.mask(tags, tags))[0].nonzero(as_tuple=True)
    return int(torch.maximum(query, key).min()) + 1 if len(query) else 0
