"""One training of a comparison, and the evaluation of every variant that shares it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from rich.console import Console

from transpect.base.devices import resolve_device, set_threads
from transpect.base.errors import ConfigError
from transpect.compare.measure import measure
from transpect.compare.plan import Entry, Plan, Training, digest, essence, with_weights
from transpect.compare.results import Result
from transpect.compare.rows import Rows, cut_rows
from transpect.data.loader import Batches
from transpect.text import Tokenizer, load_tokenizer
from transpect.train import Quiet, Recipe, TrainingError, load_recipe, train
from transpect.train.material import documents
from transpect.train.resume import RECIPE
from transpect.train.state import TrainingState, has_state, read_state
from transpect.train.updates import draw

RUNS = "runs"


@dataclass(frozen=True)
class Task:
    """What one process does at a time.

    Attributes:
        training: what to train.
        seed: with which seed.
        folder: the run directory.
        entries: the variants to evaluate.
        lengths: multiples of the training length to evaluate at.
        tokens: as in `Spec`.
        threads: CPU threads; None is as the recipe says.
    """

    training: Training
    seed: int
    folder: Path
    entries: tuple[Entry, ...]
    lengths: tuple[int, ...]
    tokens: int | None
    threads: int | None = None

    @property
    def name(self) -> str:
        """What progress calls it."""
        return f"{self.training.name}, seed {self.seed}"

    @property
    def recipe(self) -> Recipe:
        """The recipe to train by: with this seed, silent, and evaluated no sooner than at its end."""
        recipe = self.seeded
        # a share must stay held out; another text need not be read, for `measure` will
        valid = recipe.data.valid if isinstance(recipe.data.valid, float) else None
        return replace(recipe, data=replace(recipe.data, valid=valid))

    @property
    def seeded(self) -> Recipe:
        """The recipe with this seed."""
        recipe = self.training.recipe
        threads = recipe.train.threads if self.threads is None else self.threads
        spec = replace(recipe.train, seed=self.seed, threads=threads, eval_every=recipe.train.max_steps)
        return replace(recipe, train=spec, logging=replace(recipe.logging, progress="none"))


def tasks_of(plan: Plan, out: Path, threads: int | None = None) -> list[Task]:
    """Seed by seed, so that a table can be made of whole seeds early."""
    made = []
    for seed in plan.seeds:
        for training in plan.trainings:
            shared = tuple(e for e in plan.entries if e.training is not None and e.training.key == training.key)
            folder = out / RUNS / training.folder / f"seed-{seed}"
            made.append(Task(training, seed, folder, shared, plan.spec.lengths, plan.spec.tokens, threads))
    return made


def result_key(task: Task, entry: Entry) -> tuple[str, int, str, str]:
    """The key of the line that a task gives for a variant. Which lengths there are decides which text is read."""
    return entry.variant.name, task.seed, task.training.key, digest([entry.evaluation, task.tokens, task.lengths])


def run_task(
    task: Task,
    *,
    advance: Callable[[int], None] = lambda step: None,
    should_stop: Callable[[], bool] = lambda: False,
    handle_signals: bool = True,
) -> list[Result] | None:
    """Train, or go on with what was interrupted, then evaluate.

    Args:
        advance: told after each update how many have been made.
        should_stop: asked before each; True saves and ends.
        handle_signals: let SIGINT and SIGTERM end the training, saved.

    Returns:
        a line for each variant; None where training was interrupted.

    Raises:
        ConfigError: the run directory holds a run of another recipe.
    """
    recipe = task.recipe
    _check_same(task.folder, recipe)
    try:
        done = train(
            recipe,
            task.folder,
            resume="auto",
            loggers=[_Told(advance)],
            console=Console(quiet=True),
            should_stop=lambda step: should_stop(),
            handle_signals=handle_signals,
        )
    except TrainingError as error:
        return [_line(task, entry, error=error.rule) for entry in task.entries]
    if done.reason == "interrupted":
        return None
    state = read_state(task.folder)
    tokenizer = load_tokenizer(state.tokenizer)
    batches = batches_digest(recipe, tokenizer, state)
    set_threads(recipe.train.threads)
    rows = cut_rows(task.seeded, tokenizer, task.lengths, task.tokens)
    return [_evaluated(task, entry, rows, state, batches) for entry in task.entries]


class _Told(Quiet):
    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance = advance

    def advance(self, step: int) -> None:
        self._advance(step)


def batches_digest(recipe: Recipe, tokenizer: Tokenizer, state: TrainingState) -> str:
    """A digest of all that a finished run read: ids, labels and positions of each batch, in order.

    The batches are drawn once more, from the beginning; that they are those of the run is told by where in the data
    its state stands.
    """
    spec = recipe.train
    batches = Batches(
        documents(recipe)[0],
        recipe.objective,
        tokenizer,
        batch_size=spec.batch_size,
        seq_len=recipe.seq_len,
        seed=spec.seed,
        slots=spec.accumulate,
        bucket=recipe.data.bucket,
    )
    found = blake2b(digest_size=8)
    for _ in range(state.step):
        for batch in draw(batches, spec.accumulate):
            for tensor in (batch.ids, batch.labels, batch.tags.position):
                found.update(tensor.numpy().tobytes())
    assert batches.state() == state.data["batches"]
    return found.hexdigest()


def _check_same(folder: Path, recipe: Recipe) -> None:
    """A run goes on only under the recipe that it was begun with; its name holds no more than a digest of it."""
    if not has_state(folder):
        return
    begun = load_recipe(folder / RECIPE)
    if essence(begun) != essence(recipe) or begun.train.seed != recipe.train.seed:
        raise ConfigError(
            "a run must go on under the recipe that it was begun with",
            value=folder,
            remedy="Compare into another directory, or remove this run.",
        )


def _evaluated(task: Task, entry: Entry, rows: dict[int, Rows], state: TrainingState, batches: str) -> Result:
    spec, measured = task.recipe.train, {}
    assert spec.eval_batch_size is not None
    if entry.config is not None:
        model = with_weights(entry.config, state.part("model")).to(resolve_device(spec.device))
        for n in task.lengths:
            if n not in entry.refused:
                measured[str(n)] = measure(model, rows[n], batch_size=spec.eval_batch_size, precision=spec.precision)
    return replace(
        _line(task, entry),
        steps=state.step,
        tokens=int(state.data["progress"]["tokens"]),
        batches=batches,
        lengths=measured,
    )


def _line(task: Task, entry: Entry, error: str | None = None) -> Result:
    variant, seed, training, evaluation = result_key(task, entry)
    return Result(variant, seed, training, evaluation, entry.n_parameters, 0, 0, "", {}, error)
