r"""The pre-tokenizers that ``tokenizer.ggml.pre`` names: how text is cut into words before byte pairs are merged.

A name stands for the pre-tokenizer and normaliser of the ``tokenizer.json`` that the vocabulary was published with;
llama.cpp has approximations of some of them (no NFC; ``[^a-z]`` where the original says ``\p{Lu}``). Here the original
is built, since the model was trained on it. A name that is not in the table is an error: with the wrong cuts a model
still writes, only worse.

Source: llama.cpp, ``src/llama-vocab.cpp``, and the tokenizer files of the models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenizers import Regex, normalizers, pre_tokenizers

__all__ = ["PRE", "Pre", "spec"]

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_ASCII = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_CJK = "[一-龥぀-ゟ゠-ヿ]+"


def _words(digits: str, *, contractions: str = _CONTRACTIONS, letters: str = r"\p{L}", after: str = r"[\r\n]*") -> str:
    """The pattern that GPT-4 introduced, of which most later ones are variants."""
    first = f"{contractions}|" if contractions else ""
    return rf"{first}[^\r\n\p{{L}}\p{{N}}]?{_set(letters)}+|{digits}| ?[^\s{letters}\p{{N}}]+{after}|{_SPACES}"


def _set(letters: str) -> str:
    return letters if letters == r"\p{L}" else f"[{letters}]"


def _cased(contractions: str, digits: str) -> str:
    """GPT-4o's: a word is upper case, then lower case."""
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{contractions}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{contractions}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


@dataclass(frozen=True)
class Pre:
    r"""A pre-tokenizer.

    Attributes:
        cuts: patterns, each of which parts what the ones before it left; ``"digits"`` parts single digits,
            ``"numbers"`` runs of them, ``"punctuation"`` runs of punctuation, ``"gpt2"`` GPT-2's words, which it also
            spells in bytes.
        nfc: the text is first brought into Unicode's form C.
        ignore_merges: a word that is a token is one, whatever the merges say.
        adds_bos: what is meant where the file does not say ``add_bos_token``.
        byte_level: False for vocabularies of characters, with spaces spelled ``▁``.
    """

    cuts: tuple[str, ...] = ("gpt2",)
    nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False
    byte_level: bool = True

    def normalizer(self) -> normalizers.Normalizer | None:
        """Of the text, before it is cut."""
        if self.byte_level:
            return normalizers.NFC() if self.nfc else None
        return normalizers.Replace(" ", "▁")

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """The cuts, and the spelling of bytes."""
        steps = [_cut(cut) for cut in self.cuts]
        if self.byte_level and "gpt2" not in self.cuts:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_NAMED: Final[dict[str, Callable[[], pre_tokenizers.PreTokenizer]]] = {
    "gpt2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "digits": lambda: pre_tokenizers.Digits(individual_digits=True),
    "numbers": lambda: pre_tokenizers.Digits(individual_digits=False),
    "punctuation": lambda: pre_tokenizers.Punctuation("contiguous"),
}


def _cut(cut: str) -> pre_tokenizers.PreTokenizer:
    return _NAMED[cut]() if cut in _NAMED else pre_tokenizers.Split(Regex(cut), "isolated")


_BY_DIGIT: Final = Pre(("digits", "gpt2"))
_GPT4: Final = (_words(r"\p{N}{1,3}"),)
_QWEN2: Final = (_words(r"\p{N}"),)
_GPT4O: Final = (_cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"),)
_DEEPSEEK3: Final = (
    r"\p{N}{1,3}",
    _CJK,
    rf"{_ASCII}|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_BLOOM: Final = r" ?[^(\s|.,!?…。，、।۔،)]+"
# cased letters
_DEEPSEEK_LETTERS: Final = (
    r"\s?["
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}"
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}"
    r"\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}"
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}"
    r"\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}"
    r"\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}"
    r"\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}"
    r"\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}"
    r"\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}"
    r"\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}"
    r"\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}"
    r"\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}"
    r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}"
    r"\x{1E900}-\x{1E943}"
    r"]+"
)

_ROWS: Final[tuple[tuple[str, Pre], ...]] = (
    # of names for the same pre-tokenizer the first is the one that is written
    ("gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert exaone4 jais", Pre()),
    ("jina-v1-en jina-v2-code roberta-bpe trillion granite-docling", Pre()),
    ("olmo mpt", Pre(nfc=True)),
    (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        Pre(_GPT4, ignore_merges=True, adds_bos=True),
    ),
    ("glm4 glm5", Pre(_GPT4, ignore_merges=True)),
    ("dbrx smaug-bpe chatglm-bpe", Pre(_GPT4)),
    ("qwen2", Pre(_QWEN2, nfc=True)),
    ("deepseek-r1-qwen megrez kormo f2llmv2 stablelm2 hunyuan solar-open grok-2", Pre(_QWEN2)),
    ("qwen35", Pre((_words(r"\p{N}", letters=r"\p{L}\p{M}"),), nfc=True)),
    ("ufakzeka", Pre((_words(r"\p{N}", contractions=""),))),
    ("starcoder refact smollm codeshell exaone minerva-7b mellum2", _BY_DIGIT),
    ("command-r", Pre(("digits", "gpt2"), nfc=True)),
    ("falcon", Pre(("punctuation", "gpt2", "numbers", "[0-9][0-9][0-9]"))),
    ("default", Pre((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))),
    ("deepseek-coder", Pre(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", "digits"))),
    (
        "deepseek-llm",
        Pre(("[\r\n]", _DEEPSEEK_LETTERS, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+", "digits")),
    ),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", Pre(_DEEPSEEK3)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", Pre(_GPT4O)),
    ("tekken", Pre((_cased("", r"\p{N}"),), ignore_merges=True, adds_bos=True)),
    ("granite-embed-multi-97m", Pre(_GPT4O, ignore_merges=True)),
    ("tiny_aya cohere2moe", Pre((r"\d{1,3}(?=(?:\d{3})*\b)", *_GPT4O))),
    ("bloom poro-chat gpt3-finnish", Pre((_BLOOM,))),
    ("viking", Pre((_BLOOM, "digits"))),
    (
        "jais-2",
        Pre(
            (
                _words(r"\p{N}{1,3}").removesuffix(r"\s+(?!\S)|\s+")
                + "|".join(rf"\s{{{n}}}(?!\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))
                + r"|\s{1}",
            )
        ),
    ),
    (
        "bailingmoe bailingmoe2 llada-moe",
        Pre(
            (
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
                r"|\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
    ),
    (
        "seed-coder",
        Pre((rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)),
    ),
    ("minicpm5", Pre((r"\p{N}{1,3}", _words(r"\p{N}+")), ignore_merges=True)),
    ("laguna", Pre((r"[^\n]+|[\n]+", *_QWEN2))),
    (
        "exaone-moe",
        Pre(
            (
                rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
                r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
    ),
    (
        "spark2_5",
        Pre(
            (
                *_DEEPSEEK3[:2],
                rf"{_ASCII}|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+",
                r"\p{N}",
            )
        ),
    ),
    (
        "youtu",
        Pre(
            (
                "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
                _cased(f"{_CONTRACTIONS}?", r"\p{N}"),
            ),
            ignore_merges=True,
        ),
    ),
    ("superbpe", Pre((r"\p{N}+", r"(?=(\d{3})+(?!\d))"))),
    (
        "chameleon",
        Pre(
            (
                "<sentinel:[0-9]+>",
                "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                "([\\t\\n]|    |  )",
                "digits",
                r"[\p{P}!-/:-@\[-`{-~]",
                "gpt2",
            ),
            adds_bos=True,
        ),
    ),
    ("gemma4 granite-embed-multi-311m", Pre((r"[^\n]+|[\n]+",), adds_bos=True, byte_level=False)),
    ("sarvam-moe", Pre((r"[^\n]+|[\n]+",), byte_level=False)),
)

PRE: Final[dict[str, Pre]] = {name: pre for names, pre in _ROWS for name in names.split()}
"""The pre-tokenizer of each name."""


def spec(part: Any) -> list[Any]:
    """A normaliser or pre-tokenizer as plain data, in a form that equal ones share: steps in a row, without what only
    concerns offsets."""
    if part is None:
        return []
    data: dict[str, Any] = json.loads(part.__getstate__())
    return _flat(data)


def _flat(data: Mapping[str, Any]) -> list[Any]:
    match data:
        case {"type": "Sequence"}:
            steps = data.get("pretokenizers", data.get("normalizers", []))
            return [step for each in steps for step in _flat(each)]
        case {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}:
            return [
                *_flat({"type": "Split", "pattern": {"Regex": GPT2}, "behavior": "Isolated", "invert": False}),
                _BYTES,
            ]
        case {"type": "ByteLevel", "add_prefix_space": False}:
            return [_BYTES]
        case _:
            return [{key: value for key, value in data.items() if key != "trim_offsets"}]


_BYTES: Final = {"type": "ByteLevel"}
