"""``transpect eval``: how good a model is on a text."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transpect.base.errors import CheckpointError, ConfigError, DataError
from transpect.base.i18n import tr
from transpect.cli.command import Command, application
from transpect.cli.parameters import writes

if TYPE_CHECKING:
    from transpect.cli.translations import Measured
    from transpect.data.documents import Documents
    from transpect.lm import LanguageModel
    from transpect.train import Recipe
    from transpect.train.criteria import Criterion

app = application()

EXAMPLES = """\
transpect eval runs/demo
transpect eval runs/tang --data poems.txt
transpect eval runs/translate --data pairs.tsv --json
transpect eval runs/translate --generate --num-beams 4 --length-penalty 1
transpect eval runs/xl --memory 0"""


@app.command("eval", cls=Command, help=tr("cli.eval"), epilog=EXAMPLES)
@writes("n", "logprobs")
def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=tr("cli.model_path"))],
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help=tr("cli.eval.data"))] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", metavar="N", min=1, help=tr("cli.eval.batch_size"))
    ] = None,
    memory: Annotated[int | None, typer.Option("--memory", metavar="N", min=0, help=tr("cli.eval.memory"))] = None,
    generate: Annotated[bool, typer.Option("--generate", help=tr("cli.eval.generate"))] = False,
    tokenize: Annotated[str | None, typer.Option("--tokenize", metavar="NAME", help=tr("cli.eval.tokenize"))] = None,
    as_json: Annotated[bool, typer.Option("--json", help=tr("cli.json"))] = False,
    adapter: Annotated[str | None, typer.Option("--adapter", metavar="DIR", help=tr("cli.adapter"))] = None,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help=tr("cli.device"))] = "auto",
    allow_pickle: Annotated[bool, typer.Option("--allow-pickle", help=tr("cli.allow_pickle"))] = False,
    *,
    asked: dict[str, Any],
) -> None:
    """Loss, perplexity, bits per character, and what they were counted on; BLEU and chrF of what it writes."""
    from transpect.lm import load
    from transpect.train import evaluate_documents

    if not generate and (asked or tokenize is not None):
        named = next(iter(asked), "tokenize").replace("_", "-")
        raise ConfigError(f"--{named} is for what a model writes", remedy="Add --generate.")
    lm = load(model, device, allow_pickle=allow_pickle, adapter=adapter)
    recipe = _recipe(Path(model))
    documents = _documents(model, data, recipe)
    if batch_size is None and recipe is not None and recipe.objective.remembers is not None:
        batch_size = recipe.train.eval_batch_size  # the lanes that the run itself was evaluated with
    measured = evaluate_documents(
        lm.model,
        lm.tokenizer,
        documents,
        # as it was trained, where that is known
        objective=None if recipe is None else recipe.objective,
        seq_len=None if recipe is None else recipe.seq_len,
        batch_size=batch_size,
        memory=memory,
        criterion=_criterion(recipe, lm),
        generation=lm.generation,
    )
    if not math.isfinite(measured.loss):
        raise CheckpointError(
            "the model's loss must be a finite number",
            value=measured.loss,
            file=model,
            remedy="Its weights are damaged, or its dtype is too narrow.",
        )
    values = {**measured.as_dict(), "n_documents": documents.size or 0}
    written = _written(lm, documents, asked, tokenize, batch_size) if generate else []
    if as_json:
        # JSON has no word for the perplexity of a loss of hundreds
        told: dict[str, Any] = {name: value if math.isfinite(value) else None for name, value in values.items()}
        told |= {"generate": [row.as_dict() for row in written]} if generate else {}
        print(json.dumps(told, ensure_ascii=False))
        return
    _print_table(values)
    if generate:
        from transpect.cli.translations import print_table

        print()
        print_table(written)


def _written(
    lm: LanguageModel, documents: Documents, asked: dict[str, Any], tokenize: str | None, batch_size: int | None
) -> list[Measured]:
    from transpect.cli.translations import measure

    pairs = [(document.text, document.target) for document in documents]
    return measure(lm, pairs, asked, tokenize=tokenize, batch_size=batch_size or 32)


def _criterion(recipe: Recipe | None, lm: LanguageModel) -> Criterion:
    """What the run made small; the cross-entropy of tokens for a model from elsewhere."""
    from transpect.train.criteria import CROSS_ENTROPY, Setting, usual_loss

    if recipe is None:
        return CROSS_ENTROPY
    loss = recipe.train.loss or usual_loss(recipe.objective)
    criterion = loss.build(Setting(recipe, lm.model, lm.tokenizer))
    if criterion.beside(lm.model.config):
        raise ConfigError(
            f"the loss {loss.kind} is of two models together, which only a run has",
            remedy="Its evaluations stand in metrics.jsonl of the run.",
        )
    return criterion


def _recipe(model: Path) -> Recipe | None:
    """The recipe of the run that a model is, or is the best or last of; None for a model from elsewhere."""
    from transpect.train import load_recipe

    run = model.parent if model.name in ("best", "last") else model
    file = run / "recipe.yaml"
    return load_recipe(file) if file.is_file() else None


def _documents(model: str, data: str | None, recipe: Recipe | None) -> Documents:
    """What ``--data`` names, or what the run itself was evaluated on."""
    from transpect.data.sources import source_from_path
    from transpect.data.split import split

    if data is not None:
        return source_from_path(data).documents()
    valid = None if recipe is None else recipe.data.valid
    if recipe is None or valid is None:
        raise DataError("there must be a text to evaluate on", value=model, remedy="Name it: --data FILE.")
    if isinstance(valid, float):
        return split(recipe.data.train.documents(), valid, recipe.valid_seed)[1]
    return valid.documents()


def _print_table(values: dict[str, float | int]) -> None:
    from transpect.cli.screen import console, table

    rows = table("", "", "", numbers=(1,))
    rows.show_header = False
    for name, value in values.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        rows.add_row(tr(f"cli.eval.{name}"), shown, tr(f"cli.eval.{name}.unit"))
    console().print(rows)
