"""``transpect demo``: train a small Chinese GPT on fable and walk a sentence through it, up to the next token."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transpect.base.errors import ConfigError
from transpect.base.i18n import tr
from transpect.cli.command import OverridableCommand, application, destination

if TYPE_CHECKING:
    from rich.console import Console

    from transpect.data.fable import Fable
    from transpect.lm import LanguageModel
    from transpect.train import Recipe

app = application()

TEXT = "小猫爱吃"
OUT = Path("runs/demo")

EXAMPLES = """\
transpect demo
transpect demo --text 小狗爱吃
transpect demo --out runs/longer --train.max_steps 3000"""


class DemoCommand(OverridableCommand):
    """Takes dotted options for keys of the recipe."""

    bare_keys = False
    explained = "cli.train.keys"


@app.command("demo", cls=DemoCommand, help=tr("cli.demo"), epilog=EXAMPLES)
def demo(
    ctx: typer.Context,
    text: Annotated[str, typer.Option("--text", metavar="TEXT", help=tr("cli.demo.text"))] = TEXT,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", parser=destination, help=tr("cli.demo.out"))] = OUT,
) -> None:
    """The world, the training, the walk."""
    from rich.console import Console

    from transpect.data.fable import Fable
    from transpect.data.sources.stories import Stories
    from transpect.lm import load
    from transpect.train import load_recipe, train

    recipe = load_recipe(recipe_file("demo.yaml"), ctx.obj)
    if not (isinstance(recipe.data.train, Stories) and isinstance(recipe.data.valid, Stories)):
        raise ConfigError("the demo is told in the world of fable", remedy="Leave data.train and data.valid alone.")
    world = Fable(recipe.data.train.lang)
    exact = world.next_char(text)  # refuses a text that the world can't begin with, before any training
    screen = Console(highlight=False)
    screen.print(tr("demo.world", story=world.story(0, 0).text(world.lang), nats=f"{world.entropy():.1f}"))
    screen.print(f"\n{tr('demo.train')}\n", soft_wrap=True)
    if train(recipe, out, resume="auto", console=screen).reason == "interrupted":
        raise typer.Exit(130)
    lm = load(out)
    _tell_loss(screen, lm, recipe, world)
    _tell_walk(screen, lm, text, exact)
    screen.print(f"\n{tr('demo.result', text=text, out=out)}", soft_wrap=True)


def recipe_file(name: str) -> Path:
    """A recipe that comes with transpect: in the package where it is installed, beside it in a checkout.

    Raises:
        ConfigError: it is in neither.
    """
    package = Path(__file__).resolve().parents[1]
    places = [package / "recipes" / name, package.parents[1] / "recipes" / name]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ConfigError("this recipe should have come with transpect", value=name, remedy="Install transpect again.")
    return found


def _tell_loss(screen: Console, lm: LanguageModel, recipe: Recipe, world: Fable) -> None:
    """The loss on stories that the model has not seen, beside that of the world's own probabilities on them."""
    from transpect.data.sources.stories import Stories
    from transpect.train import evaluate_documents

    valid = recipe.data.valid
    assert isinstance(valid, Stories)
    measured = evaluate_documents(
        lm.model, lm.tokenizer, valid.documents(), objective=recipe.objective, seq_len=recipe.seq_len
    )
    floor = world.optimal_loss(valid.texts(), tokenize=lm.tokenizer.encode)
    loss, gap = measured.loss, measured.loss - floor
    told = tr("demo.loss", loss=f"{loss:.4f}", floor=f"{floor:.4f}", gap=f"{gap:.4f}")
    screen.print(f"\n{told}", soft_wrap=True)


def _tell_walk(screen: Console, lm: LanguageModel, text: str, exact: Mapping[str, float]) -> None:
    from transpect.cli.walk import walk
    from transpect.cli.walk_page import walk_page

    screen.print(f"\n{tr('demo.walk', text=text)}", soft_wrap=True)
    walked = walk(lm, text)
    known = _by_id(lm, exact)
    head_dim = lm.model.config.last.attention.width(lm.model.config.d_model)
    for part in walk_page(walked, text, head_dim, known):
        if isinstance(part, str):
            screen.print(f"\n{part}\n", soft_wrap=True)
        else:
            screen.print(part)


def _by_id(lm: LanguageModel, exact: Mapping[str, float]) -> dict[int, float]:
    """Exact probabilities by token id, where tokens are characters; nothing otherwise."""
    from transpect.data.fable import END_OF_STORY

    tokenizer = lm.tokenizer
    ids = {char: tokenizer.eos_id if char == END_OF_STORY else tokenizer.token_to_id(char) for char in exact}
    known = {number: exact[char] for char, number in ids.items() if number is not None}
    if len(known) < len(exact):
        return {}
    return dict.fromkeys(range(tokenizer.vocab_size), 0.0) | known  # what the world never says has probability 0
