"""Programs that encode and translate: on tiny models all give the same, and count the same work."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.bench.encode import same
from transpect.bench.workers.translate.transformers import ids_of, sizes_of
from transpect.core import Transformer, override, preset
from transpect.lm import LanguageModel
from transpect.text import train_tokenizer

TINY = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24, "context_length": 40}
SOURCES = [[9, 8, 7, 6, 5], [5, 6], [11, 12, 13, 14, 15, 16, 17, 18]]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = train_tokenizer("byte_bpe", ["the cat sat on the mat"] * 4, 300)
    changes = [*TINY.items(), ("placement", {"kind": "pre"}), ("head.tied", True), ("vocab_size", 300)]
    model = Transformer(override(preset("transformer-base"), changes), seed=4)
    generation = {"decoder_start_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    folder = tmp_path_factory.mktemp("bench") / "translator"
    LanguageModel(model, tokenizer, generation).save(folder)
    return folder


def done(task: str, who: str, options: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    facts, run = importlib.import_module(f"transpect.bench.workers.{task}.{who}").load({"threads": 1, **options})
    assert facts["bits"] == 32
    answer: dict[str, Any] = run(asked)
    return answer


@pytest.mark.parametrize("beams", [1, 3])
def test_translators_write_the_same_tokens(translator: Path, beams: int) -> None:
    asked = {"sources": SOURCES, "new": 6, "beams": beams}
    ours = done("translate", "ours", {"model": str(translator), "open": {"dtype": "float32"}, "bits": 32}, asked)
    theirs = done("translate", "transformers", {"directory": str(translator), "dtype": "float32"}, asked)
    assert ours["ids"] == theirs["ids"] and all(len(row) == 6 for row in ours["ids"])
    assert len({token for row in ours["ids"] for token in row}) > 1, "so that equal tokens say something"
    assert ours["count"] == theirs["count"] == {"call": 18}


@pytest.mark.parametrize(
    "change",
    [
        {"placement": {"kind": "post"}},
        {"positions": {"kind": "learned"}},
        {"norm": {"kind": "rmsnorm", "eps": 1e-5}},
        {"ffn": {"kind": "mlp", "act": "gelu"}},
        {"attention": {"n_heads": 2, "n_kv_heads": 1}},
        {"n_unique": 1},
    ],
)
@pytest.mark.parametrize("tower", ["encoder", "decoder"])
def test_another_function_is_refused(translator: Path, tower: str, change: dict[str, Any]) -> None:
    whole = json.loads((translator / "config.json").read_text(encoding="utf-8"))
    assert sizes_of(whole)["decoder_layers"] == 2
    whole["config"][tower] |= change
    with pytest.raises(ValueError, match="not an encoder-decoder"):
        sizes_of(whole)
    with pytest.raises(ValueError, match="padding"):
        ids_of({**whole, "eos_token_id": 0})


def test_encoders_give_the_same_vectors(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=60, max_position_embeddings=40, **sizes)).save_pretrained(tmp_path / "bert")
    asked = {"texts": SOURCES, "times": 2}
    theirs = done("encode", "transformers", {"directory": str(tmp_path / "bert"), "dtype": "float32"}, asked)
    assert theirs["count"] == {"sentences": 6}
    assert same(theirs, theirs).endswith("1.000000")
    turned = {"vectors": [[-x for x in row] for row in theirs["vectors"]]}
    assert same(theirs, turned).endswith("-1.000000")
