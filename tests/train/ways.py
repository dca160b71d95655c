"""Every way to train, as recipes of a size that trains in a blink, over data of every kind.

A way differs from others in what a resume must bring back, or many processes must come together in: an optimizer's
memory, a place in the data, draws of masks, noise and dropout.
"""

import json
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.train.processes import forked

from transpect.core import Transformer, override, preset
from transpect.data.sources import Text
from transpect.data.tokens import prepare
from transpect.interop import save_model
from transpect.text import train_tokenizer
from transpect.train import Recipe, parse_recipe

Plain = dict[str, Any]

STEPS = 20
LINES = ["the cat eats fish", "a dog runs home", "birds sing at dawn", "the fish swims", "rain falls on hills"]
PAIRS = ["cat\tmao", "dog\tgou", "big fish\tda yu", "bird\tniao", "rain falls\txia yu", "hill\tshan"]
CLASSES = {"animals": LINES[:4], "weather": LINES[4:]}
CHAT = (
    "{% for m in messages %}{{ m.role + ' ' + m.content + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
)
SIZES = {"d_model": 16, "n_layers": 1, "n_heads": 2, "context_length": 64}
MODELS: dict[str, Plain] = {
    "decoder": {"preset": "gpt2", **SIZES},
    "encoder": {"preset": "bert-base", **SIZES},
    "pairs": {"preset": "transformer-base", **SIZES, "d_ff": 32},
    "xl": {"preset": "gpt2", **SIZES, "positions": "transformer_xl"},
    "base": {},
}

OPTIMIZERS: dict[str, Plain] = {
    "adamw": {"kind": "adamw", "lr": 1e-2},
    "adafactor": {"kind": "adafactor", "lr": 1e-2},
    "adafactor with a mean of updates": {"kind": "adafactor", "lr": 1e-2, "beta1": 0.9, "scale_by_weight": False},
    "lion": {"kind": "lion", "lr": 1e-3},
    "muon": {"kind": "muon", "lr": 1e-3},
    "sgd": {"kind": "sgd", "lr": 1e-2},
    "sgd with momentum": {"kind": "sgd", "lr": 1e-2, "momentum": 0.9, "nesterov": True},
}


def ways(folder: Path, dropout: float = 0.1) -> dict[str, Callable[[], Recipe]]:
    """All ways by name, over data that is written to a folder; each is a recipe once it is called."""
    data = Data(folder, dropout)
    found: dict[str, Callable[[], Recipe]] = {}
    for objective, model in (("causal", "decoder"), ("masked", "encoder")):
        for name, optimizer in OPTIMIZERS.items():
            changes = {"data.objective": objective, "train.optimizer": optimizer}
            found[f"{objective}, {name}"] = partial(data.recipe, model, data.text, changes)
    for name, (model, source, changes) in {**_objectives(data), **_sources(data), **_options(data)}.items():
        found[name] = partial(data.recipe, model, source, changes)
    return found


def _objectives(data: "Data") -> dict[str, tuple[str, Plain, Plain]]:
    text, own = data.text, {"data.valid": None}
    return {
        "seq2seq": ("pairs", data.pairs, {}),
        "causal by best fit": ("decoder", text, {"data.objective": {"kind": "causal", "fit": "best"}}),
        "causal in buckets": ("decoder", text, {"data.objective": {"kind": "causal", "pack": False}, "data.bucket": 6}),
        "recurrent": ("xl", text, {"data.objective": {"kind": "recurrent", "memory": 7}, "data.seq_len": 5}),
        "prefix": (
            *("decoder", text),
            {
                "model.preset": "prefix-lm",
                "model.d_ff": 32,
                "model.ffn.dropout": data.dropout,
                "data.objective": "prefix",
            },
        ),
        "masked n-grams": ("encoder", text, {"data.objective": {"kind": "masked", "ngrams": [0.6, 0.4], "pack": True}}),
        "spans": ("pairs", text, {"data.objective": "span", "data.seq_len": 24}),
        "denoising": ("pairs", text, {"data.objective": "denoising", "data.seq_len": 24}),
        "electra": (
            "encoder",
            text,
            {"data.objective": "electra", "train.loss": {"kind": "electra", "generator": 0.5}},
        ),
        "classes": ("encoder", data.classes, {"data.objective": "classification"}),
        "tagged words": ("encoder", data.tagged, {"data.objective": "token_classification"}),
        "pairs of sentences": ("encoder", data.pairs, {"data.objective": "contrastive"}),
        "triples": ("encoder", data.triples, {"data.objective": {"kind": "contrastive", "negatives": 1}}),
        "chat": ("base", data.chat, {"data.objective": {"kind": "chat", "template": CHAT}, **own}),
        "preferences": ("base", data.preferences, {"data.objective": {"kind": "preference", "template": CHAT}, **own}),
        "a teacher": ("base", text, {"train.loss": {"kind": "distillation", "teacher": str(data.base)}}),
    }


def _sources(data: "Data") -> dict[str, tuple[str, Plain, Plain]]:
    text, fable = data.text, {"kind": "fable", "lang": "en"}
    parts = [{"source": text, "weight": 3}, {"source": text, "epochs": 9}]
    mixed = [{"source": data.tokens, "weight": 3}, {"source": fable}]
    own = {**data.own, "data.valid": None}
    return {
        "token files": ("decoder", data.tokens, own),
        "token files, masked": (
            "encoder",
            data.tokens,
            {**own, "data.objective": {"kind": "masked", "whole_word": False}},
        ),
        "a mixture": ("decoder", {"kind": "mixture", "parts": parts}, {"data.valid": text}),
        "a mixture of tokens and a stream": ("decoder", {"kind": "mixture", "parts": mixed}, own),
        "a stream": ("decoder", fable, {"data.valid": None, "data.objective": "causal"}),
        "a masked stream": ("encoder", fable, {"data.valid": None}),
        "without duplicates": ("decoder", {"kind": "deduplicated", "source": text, "near": 0.9}, {}),
        "several sources": ("decoder", {"kind": "joined", "parts": [text, data.jsonl]}, {}),
        "a folder": ("decoder", {"kind": "text", "path": str(data.folder / "many")}, {}),
        "json lines": ("decoder", data.jsonl, {}),
        "columns": ("pairs", data.csv, {}),
        "parquet": ("pairs", data.parquet, {}),
    }


def _options(data: "Data") -> dict[str, tuple[str, Plain, Plain]]:
    text = data.text
    plateau = {"kind": "plateau", "patience": 1, "factor": 0.5}
    return {
        "an average": ("decoder", text, {"train.ema": {"decay": 0.9}}),
        "plateau": ("decoder", text, {"train.schedule": plateau, "train.eval_every": 1}),
        "the best three": ("decoder", text, {"train.best": {"keep": 3}, "train.eval_every": 2}),
        "fp16": ("decoder", text, {"train.precision": "fp16"}),
        "bf16": ("decoder", text, {"train.precision": "bf16"}),
        "checkpointing": ("decoder", text, {"train.activations": "checkpoint"}),
        "frozen layers": ("decoder", text, {"train.freeze": ["embedding"]}),
        "layer decay": ("decoder", text, {"train.layer_decay": 0.7}),
        "smoothed labels": ("pairs", data.pairs, {"train.label_smoothing": 0.1}),
        "lora": ("base", text, {"train.adapter": {"rank": 2, "alpha": 4, "dropout": data.dropout}}),
        "dora": ("base", text, {"train.adapter": {"kind": "dora", "rank": 2, "alpha": 4}}),
    }


class Data:
    """Files of every kind, and recipes over them. A process of its own writes them, whose threads no fork inherits."""

    def __init__(self, folder: Path, dropout: float) -> None:
        self.folder, self.dropout = folder, dropout
        self.made = folder / "made"
        self.tokens = {"kind": "tokens", "path": str(self.made / "tokens")}
        self.own = {"tokenizer": {"path": str(self.made / "tokens" / "tokenizer")}}
        self.parquet = {"kind": "parquet", "path": str(self.made / "pairs.parquet"), "target": "other"}
        self.base = self.made / "base"
        self.text = self._written("lines.txt", "text", LINES * 3)
        self.pairs = self._written("pairs.tsv", "tsv", PAIRS * 3)
        rows = [{"text": text, "label": kind} for kind, texts in CLASSES.items() for text in texts] * 4
        self.classes = self._written("classes.jsonl", "jsonl", map(json.dumps, rows), target="label")
        self.jsonl = self._written("texts.jsonl", "jsonl", map(json.dumps, rows))
        tagged = [{"tokens": text.split(), "tags": [word[:1] for word in text.split()]} for text in LINES * 3]
        self.tagged = self._written("tagged.jsonl", "tagged", map(json.dumps, tagged))
        both = [pair.split("\t") for pair in PAIRS] * 3
        self.triples = self._written("triples.tsv", "triples", (f"{a}\t{b}\t{b[::-1]}" for a, b in both))
        self.csv = self._written("pairs.csv", "csv", ["text,other", *(",".join(pair) for pair in both)], target="other")
        asked = [{"instruction": f"say {word}", "output": word} for word in ("cat", "fish", "hay", "rain") * 4]
        self.chat = self._written("chat.jsonl", "chat", map(json.dumps, asked))
        preferred = [{"prompt": a, "chosen": b, "rejected": b[::-1]} for a, b in both]
        self.preferences = self._written("preferences.jsonl", "preference", map(json.dumps, preferred))
        (folder / "many").mkdir()
        for number, line in enumerate(LINES * 2):
            (folder / "many" / f"{number}.txt").write_text(f"{line}\n", encoding="utf-8")
        self._both, self._whole = both, False

    def recipe(self, model: str, source: Plain, changes: Plain) -> Recipe:
        """Of 20 updates in some five epochs, with dropout, of two micro-batches of three rows."""
        if not self._whole and (model == "base" or str(self.made) in json.dumps([source, changes])):
            assert forked(self._write_the_rest) == 0
            self._whole = True
        plain: Plain = {
            "model": MODELS[model] | dict.fromkeys(("dropout", "attention.dropout", "embedding.dropout"), self.dropout),
            "tokenizer": {"kind": "char", "special_tokens": {"mask": "<mask>"}},
            "data": {"train": source, "valid": 0.2},
            "train": {
                "max_steps": STEPS,
                "batch_size": 3,
                "accumulate": 2,
                "optimizer": {"kind": "adamw", "lr": 1e-2},
                "schedule": {"kind": "cosine", "warmup": 2},
                "eval_every": 6,
                "save_every": 4,
                "log_every": 1,
                "threads": 1,
            },
            "logging": {"tensorboard": False, "progress": "none"},
        }
        if model == "base":
            plain["tokenizer"] = {}
            plain["model"] |= {"path": str(self.base)}
        sections = {key: value for key, value in changes.items() if "." not in key}
        return parse_recipe(plain | sections, {key: value for key, value in changes.items() if "." in key}.items())

    def _written(self, name: str, kind: str, lines: Any, **options: Any) -> Plain:
        (self.folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return {"kind": kind, "path": str(self.folder / name), **options}

    def _write_the_rest(self) -> None:
        self.made.mkdir()
        if find_spec("pyarrow"):
            from pyarrow import table
            from pyarrow.parquet import write_table

            texts, others = zip(*self._both, strict=True)
            write_table(table({"text": list(texts), "other": list(others)}), self.made / "pairs.parquet")
        tokenizer = train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyz "], special_tokens={"mask": "<mask>"})
        prepare(Text(str(self.folder / "lines.txt")), tokenizer, self.made / "tokens")
        sizes = {**SIZES, "vocab_size": len(tokenizer)}
        save_model(Transformer(override(preset("gpt2"), sizes.items()), seed=3), self.base)
        tokenizer.save(self.base)
