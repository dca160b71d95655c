"""llama.cpp opens what we write as GGUF, gives the same ids, nearly the same logits and the same greedy tokens."""

import ctypes
import io
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transpect.core import ModelConfig, Pooled, Transformer, override
from transpect.interop.checkpoint import load_model
from transpect.interop.families import FAMILIES
from transpect.interop.gguf import write_gguf
from transpect.interop.gguf.architectures import ARCHITECTURES
from transpect.quant import GgufBlocks, Int4, Plan, quantise_model
from transpect.text import Tokenizer, load_tokenizer, train_tokenizer

llama_cpp = pytest.importorskip("llama_cpp", reason="pip install llama-cpp-python")

F32 = 0
LINES = [
    "The cat likes fish, doesn't it?",
    "小猫爱吃鱼。大狗爱吃肉。",
    "In 2024 12345 x² ÀÉ é 안녕 🙂 👩‍👩‍👧",
    "a  b\t\tc\n\n d",
] * 5
CHUNKS = (
    *(
        "a",
        "Hello",
        "WORLD",
        "camelCase",
        " ",
        "  ",
        "   ",
        "\t",
        "\n",
        "\n\n",
        "\r\n",
        "the ",
        "fish",
        "é",
        "e\u0301",
        "小猫",
    ),
    *(
        "１２",
        "1",
        "12",
        "12345",
        "!",
        "...",
        "…",
        "$5",
        "🙂",
        "👩‍👩‍👧",
        "</s>",
        "<s>",
        "<unk>",
        "'s",
        "'LL",
        "don't",
        "안녕",
        "깰",
    ),
    *("ﬁ", "x²", "Ж", "ÀÉ", "कि", "_", "(", "\u3000", "ß", "٣", "\u200d", "<0x41>", "[CLS]", "[MASK]", "##s"),
)


def strings(count: int = 1000, without: tuple[str, ...] = ()) -> list[str]:
    """Random texts in Unicode's form C, which some tokenizer.json bring a text into and llama.cpp does not."""
    rng, chunks = random.Random(7), [chunk for chunk in CHUNKS if chunk not in without]
    return [unicodedata.normalize("NFC", "".join(rng.choices(chunks, k=rng.randint(1, 12)))) for _ in range(count)]


MARKED = ("안녕", "깰", "कि")
"""Where llama.cpp drops accents otherwise than BERT: it parts no Hangul, and drops marks with a width too."""


@llama_cpp.llama_log_callback
def quiet(level: int, text: bytes, data: object) -> None:
    """llama.cpp writes pages to stderr."""


@pytest.fixture(autouse=True)
def silence() -> None:
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))


class Vocabulary:
    """llama.cpp's tokenizer of a file."""

    def __init__(self, file: Path) -> None:
        options = llama_cpp.llama_model_default_params()
        options.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(str(file).encode(), options)
        assert self._model, file
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        raw = text.encode()
        room = (llama_cpp.llama_token * (len(raw) + 16))()
        count = llama_cpp.llama_tokenize(self._vocab, raw, len(raw), room, len(room), add_special, parse_special)
        assert count >= 0
        return list(room[:count])

    def __del__(self) -> None:
        llama_cpp.llama_model_free(self._model)


def opened(file: Path, **options: Any) -> Any:
    """llama.cpp with a cache of float32 and one thread."""
    usual = {"n_ctx": 64, "n_threads": 1, "n_threads_batch": 1, "type_k": F32, "type_v": F32, "flash_attn": False}
    return llama_cpp.Llama(str(file), verbose=False, **{**usual, **options})


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer("byte-bpe", LINES, 320)


ROPE = {"head_dim": 16, "max_position_embeddings": 64, "num_hidden_layers": 2, "num_attention_heads": 6}
SIZES = {**ROPE, "hidden_size": 96, "intermediate_size": 160, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}
GEMMA = {
    **SIZES,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 16,
    "sliding_window": 8,
    "num_hidden_layers": 6,
}
QWEN = {**SIZES, "rope_theta": 1e6, "tie_word_embeddings": True}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {**SIZES, "tie_word_embeddings": False}),
    "llama-tied-biases": ("llama", {**SIZES, "tie_word_embeddings": True, "attention_bias": True}),
    "llama-3": (
        "llama",
        {**SIZES, "rope_theta": 5e5, "rope_scaling": {**LLAMA3, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    ),
    "llama-linear": ("llama", {**SIZES, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama-yarn": ("llama", {**SIZES, "rope_scaling": {**LLAMA3, "rope_type": "yarn", "factor": 2.0}}),
    "gpt2": ("gpt2", {"n_embd": 96, "n_layer": 2, "n_head": 6, "n_positions": 64}),
    "qwen2": ("qwen2", {key: value for key, value in QWEN.items() if key != "head_dim"}),
    "qwen3": ("qwen3", QWEN),
    "gemma2": ("gemma2", {**GEMMA, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
    "gemma3": ("gemma3", {**GEMMA, "rope_theta": 1e6, "rope_local_base_freq": 10000.0}),
}
KNOWN = [case for case, (name, _) in CONFIGS.items() if ARCHITECTURES[name].model_type in FAMILIES]


def model_of(case: str, rows: int) -> Transformer:
    """A model with random numbers, also where a new one has ones and zeros."""
    name, options = CONFIGS[case]
    architecture = ARCHITECTURES[name]
    data = {"model_type": architecture.model_type, "architectures": [architecture.head], "vocab_size": rows, **options}
    model = Transformer(FAMILIES[architecture.model_type].read(data), seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.add_(torch.randn(tensor.shape, generator=generator) * 0.1)
    return model


def logits_of(model: Transformer, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = model(torch.tensor([ids]))[0].numpy()
    return found


# float32 differs in the order of sums and in llama.cpp's tables for gelu and exp; f16 and q8_0 round the weights, and
# with q8_0 llama.cpp rounds the activations too
TOLERANCES = {"f32": 2e-3, "f16": 2e-2, "q8_0": 0.25}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("case", KNOWN)
def test_the_same_logits_and_greedy_tokens(case: str, dtype: Any, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = model_of(case, tokenizer.vocab_size)
    write_gguf(model, tokenizer, tmp_path / "m.gguf", dtype)
    prompt = tokenizer.encode("The cat likes fish, doesn't it?", add_special_tokens=True)[:24]
    theirs = opened(tmp_path / "m.gguf", logits_all=True)
    ids = list(prompt)
    for _ in range(8):
        theirs.reset()
        theirs.eval(ids)
        found, wanted = np.array(theirs.scores[: len(ids)]), logits_of(model, ids)
        spread = float(wanted.std())
        assert np.abs(found - wanted).max() < TOLERANCES[dtype] * spread, case
        first, second = np.sort(wanted[-1])[-1:-3:-1]
        if first - second > 2 * TOLERANCES[dtype] * spread:  # otherwise rounding may choose
            assert found[-1].argmax() == wanted[-1].argmax()
        ids.append(int(wanted[-1].argmax()))
    theirs.close()


BLOCKS = [GgufBlocks("Q8_0"), GgufBlocks("Q4_0"), GgufBlocks("Q4_1"), Int4(32)]


@pytest.mark.parametrize("format", BLOCKS, ids=str)
@pytest.mark.parametrize("case", ["llama", "llama-tied-biases", "gpt2", "qwen2"])
def test_weights_in_formats(case: str, format: Any, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """llama.cpp multiplies with our very blocks: what is left is how it rounds activations."""
    model = model_of(case, tokenizer.vocab_size)
    quantise_model(model, Plan(format, {"head": format, "down": GgufBlocks("Q8_0")}))
    write_gguf(model, tokenizer, tmp_path / "m.gguf")
    ids = tokenizer.encode("The cat likes fish, doesn't it?", add_special_tokens=True)[:24]
    theirs = opened(tmp_path / "m.gguf", logits_all=True)
    theirs.eval(ids)
    found, wanted = np.array(theirs.scores[: len(ids)]), logits_of(model, ids)
    theirs.close()
    assert np.abs(found - wanted).max() < TOLERANCES["q8_0"] * float(wanted.std())
    again = load_model(tmp_path / "m.gguf", quant="keep")
    np.testing.assert_allclose(logits_of(again, ids), wanted, atol=1e-5 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("pool", ["mean", "first"])
def test_embeddings(pool: Any, tmp_path: Path) -> None:
    tokenizer = train_tokenizer("wordpiece", LINES, 320)
    data = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "intermediate_size": 160,
    }
    config: ModelConfig = override(FAMILIES["bert"].read(data), [("head", Pooled(pool=pool))])
    model = Transformer(config, seed=0).eval()
    write_gguf(model, tokenizer, tmp_path / "m.gguf")
    theirs = opened(tmp_path / "m.gguf", embedding=True)
    for text in ("The cat likes fish", "小猫, a fish!"):
        ids = tokenizer.encode(text, add_special_tokens=True)
        found = np.array(theirs.embed(text, normalize=False))
        with torch.no_grad():
            wanted = model(torch.tensor([ids]))[0].numpy()
        np.testing.assert_allclose(found, wanted, atol=2e-3 * float(np.abs(wanted).max()))
    theirs.close()


def small_llama(tokenizer: Tokenizer, path: Path) -> Path:
    write_gguf(model_of("llama", tokenizer.vocab_size), tokenizer, path)
    return path


def spm(prefix: bool) -> Tokenizer:
    """What SentencePiece learnt."""
    sentencepiece = pytest.importorskip("sentencepiece")
    from transpect.text.spm import Kind, Pieces, bpe, framed

    model = io.BytesIO()
    lines = [line for text in LINES + strings(200) for line in text.splitlines()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=600,
        hard_vocab_limit=False,
        minloglevel=2,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
    )
    held = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(held.vocab_size())
    kinds = [Kind(2 if held.is_unknown(i) else 3 if held.is_control(i) else 6 if held.is_byte(i) else 1) for i in ids]
    pieces = Pieces([held.id_to_piece(i) for i in ids], [held.get_score(i) for i in ids], kinds, prefix=prefix)
    backend = bpe(pieces)
    framed(backend, ["<s>"], [])
    return Tokenizer(backend, {"bos": "<s>", "eos": "</s>", "unk": "<unk>"})


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "byte-bpe": lambda: train_tokenizer("byte-bpe", LINES, 320),
    "wordpiece": lambda: train_tokenizer("wordpiece", LINES, 320),
    "wordpiece-cased": lambda: train_tokenizer("wordpiece", LINES, 320, lowercase=False),  # type: ignore[arg-type]
    "sentencepiece": lambda: spm(prefix=True),
    "sentencepiece-no-prefix": lambda: spm(prefix=False),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_same_ids(kind: str, tmp_path: Path) -> None:
    ours = TOKENIZERS[kind]()
    theirs = Vocabulary(small_llama(ours, tmp_path / "m.gguf"))
    for text in strings(without=MARKED if kind == "wordpiece" else ()):
        for parse in (False, True):
            found = theirs.encode(text, add_special=True, parse_special=parse)
            assert ours.encode(text, add_special_tokens=True, parse_special=parse) == found, (text, parse)


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "bert-bge", "qwen2"])
def test_the_same_ids_of_known_vocabularies(name: str) -> None:
    file = Path(__file__).parents[2].parent / "shared" / "vocab" / f"ggml-vocab-{name}.gguf"
    if not file.is_file():
        pytest.skip("no shared vocabularies")
    ours, theirs = load_tokenizer(file), Vocabulary(file)
    # Qwen's vocabulary has an ordinary token </s>, which llama.cpp takes for a special one because of its looks
    for text in strings(400, without={"bert-bge": MARKED, "qwen2": ("</s>",)}.get(name, ())):
        for parse in (False, True):
            assert ours.encode(text, parse_special=parse) == theirs.encode(text, parse_special=parse), (text, parse)
