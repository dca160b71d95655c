"""Valid accuracy on intents_zh of a run of ours, and of `transformers` with the same encoder from scratch.

    transpect train recipes/intents-zh.yaml --out runs/intents
    pip install accelerate
    python benchmarks/intents.py runs/intents [--seeds 0 1 2]

Theirs is `Trainer` on a `BertForSequenceClassification` of the run's own config.json, with the run's tokenizer, data,
steps, batch size, rate, warm-up and weight decay; its other settings are its own.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import AutoConfig, AutoTokenizer, BertForSequenceClassification, Trainer, TrainingArguments

import transpect
from transpect.data.sources import Source
from transpect.train import Recipe, load_recipe


class Encoded(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """The texts of a source, padded to the longest of all."""

    def __init__(self, source: Source, tokenizer, numbers: dict[str, int]) -> None:  # type: ignore[no-untyped-def]
        documents = list(source.documents())
        self.fields = tokenizer([document.text for document in documents], padding=True, return_tensors="pt")
        self.labels = torch.tensor([numbers[document.target or ""] for document in documents])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = {name: self.fields[name][index] for name in ("input_ids", "attention_mask")}
        return {**row, "labels": self.labels[index]}


def ours(run: Path, source: Source) -> float:
    """Of the run's best checkpoint."""
    lm = transpect.load(run)
    documents = list(source.documents())
    told = lm.classify([document.text for document in documents])
    right = sum(answer.label == document.target for answer, document in zip(told, documents, strict=True))
    return right / len(documents)


def theirs(run: Path, recipe: Recipe, valid: Source, seed: int) -> float:
    """Of its last step."""
    spec, numbers = recipe.train, json.loads((run / "best" / "config.json").read_text(encoding="utf-8"))["label2id"]
    tokenizer = AutoTokenizer.from_pretrained(run / "best")
    torch.manual_seed(seed)
    model = BertForSequenceClassification(AutoConfig.from_pretrained(run / "best"))
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=spec.max_steps,
            per_device_train_batch_size=spec.batch_size,
            learning_rate=spec.optimizer.lr or 1e-3,
            weight_decay=0.01,
            lr_scheduler_type="cosine",
            warmup_steps=spec.max_steps // 10,
            seed=seed,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        train = Encoded(recipe.data.train, tokenizer, numbers)
        trainer = Trainer(model, arguments, train_dataset=train)
        trainer.train()
        held = Encoded(valid, tokenizer, numbers)
        predicted = torch.from_numpy(trainer.predict(held).predictions).argmax(-1)
    return float((predicted == held.labels).float().mean())


def main() -> None:
    """Measure both and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    asked = parser.parse_args()
    recipe = load_recipe(asked.run / "recipe.yaml")
    valid = recipe.data.valid
    assert isinstance(valid, Source)
    print(f"transpect: valid accuracy {ours(asked.run, valid):.4f}")
    for seed in asked.seeds:
        print(f"transformers Trainer, seed {seed}: valid accuracy {theirs(asked.run, recipe, valid, seed):.4f}")


if __name__ == "__main__":
    main()
