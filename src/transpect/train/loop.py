"""`train`: from a recipe to a run directory.

::

    out/best/           the best checkpoint (the lowest valid loss), a Hugging Face directory with its tokenizer
    out/top/step-N/     the best ones, where several are kept
    out/last/           the latest checkpoint, likewise
    out/ema/            the average of the weights at that time, likewise, where ``train.ema`` keeps one
    out/state/          what a resume needs
    out/metrics.jsonl   a line of measures for each logged step
    out/samples.jsonl   what the model wrote at evaluations, where it was asked to
    out/recipe.yaml     the resolved recipe, itself a recipe
    out/tensorboard/    the same measures as event files
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from transpect import __version__
from transpect.base.devices import resolve_device, set_threads
from transpect.base.errors import ConfigError
from transpect.interop.directory import atomic_file
from transpect.train.dynamics import Dynamics
from transpect.train.evaluate import Evaluation
from transpect.train.frozen import Frozen
from transpect.train.interrupt import Interruption
from transpect.train.job import Job, build
from transpect.train.parallel.devices import local_device
from transpect.train.parallel.joining import joined, restarted
from transpect.train.parallel.world import World
from transpect.train.progress import Progress
from transpect.train.randomness import seed_all, unchanged_randomness
from transpect.train.recipe import Recipe, dump_recipe, recipe_data
from transpect.train.resume import METRICS, RECIPE, SAMPLES, TENSORBOARD, adopt, changes, command_to_go_on, origin
from transpect.train.session import Reason, Session, made_with
from transpect.train.state import TrainingState, apply_state, open_state, read_state, reinstate
from transpect.train.watching.display import display
from transpect.train.watching.logger import Logger, Loggers, MetricsFile, NoMetrics, Run, SamplesFile, TensorBoard
from transpect.train.watching.sample import show_sample


@dataclass(frozen=True)
class TrainResult:
    """How a run ended.

    Attributes:
        out: the run directory.
        step: updates made.
        reason: all steps made (``finished``), no improvement for ``patience`` evaluations, or ``interrupted`` by a
            signal or by ``should_stop``.
        best_step: the step of the best evaluation.
        best_value: what it gave: by default the lowest valid loss, nats per token (see `Best`).
        train_loss: of the last update in this session, nats per label.
        evaluation: the last one in this session.
        seconds: spent on updates, over all sessions.
    """

    out: Path
    step: int
    reason: Reason
    best_step: int | None
    best_value: float | None
    train_loss: float | None
    evaluation: Evaluation | None
    seconds: float


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: str | Path = "never",
    loggers: Sequence[Logger] = (),
    console: Console | None = None,
    should_stop: Callable[[int], bool] = lambda step: False,
    handle_signals: bool = True,
    command: str | None = None,
) -> TrainResult:
    """Train a model.

    The process's random generators and number of threads are afterwards what they were before.

    Args:
        recipe: what to train, on what, and how.
        out: the run directory.
        resume: ``never`` starts anew, in a directory without a run (what `torchrun` starts again goes on); ``auto``
            goes on with the run in ``out``, and starts anew where there is none; a run directory is gone on from, into
            ``out``. On the same machine, with the same build and number of threads, a run that goes on is bit for bit
            the run that never stopped.
        loggers: further loggers, told after our own.
        console: where progress is shown.
        should_stop: asked with the number of updates made before each further one; True saves and ends.
        handle_signals: let SIGINT and SIGTERM end the run after its step, saved.
        command: what to print as the way to go on; None is a command line that always works.

    Raises:
        ConfigError: a recipe whose parts do not fit, a directory that holds a run, a change that a run can't take.
        DataError: data that can't be read, or that is not what the run was started with.
        CheckpointError: a state that can't be read, or a directory that can't be written.
        TrainingError: the loss or the gradient is no longer a number.
    """
    run, spec = Path(out), recipe.train
    source = origin(run, "auto" if resume == "never" and restarted() else resume)
    screen = Console() if console is None else console
    device = local_device(resolve_device(spec.device))
    with unchanged_randomness(device), threads(spec.threads), joined(recipe.parallel, device) as world:
        state = None if source is None else found_state(source, run, world)
        job = build(recipe, state, world)
        seed_all(world.seed(spec.seed))
        optimizer = spec.optimizer.build(job.model, recipe.grouping)
        dynamics = Dynamics(job.recipe.train, job.model, job.config.d_model)
        metrics = MetricsFile(run / METRICS) if world.leads else NoMetrics()
        shown = display(recipe.logging.progress, screen)
        files: list[Logger] = [metrics, *([TensorBoard(run / TENSORBOARD)] if recipe.logging.tensorboard else [])]
        files += [SamplesFile(run / SAMPLES)] if recipe.logging.samples is not None else []
        trackers = [tracker.build() for tracker in recipe.logging.trackers]
        logger = Loggers([*files, shown, *trackers, *loggers] if world.leads else [metrics, *loggers])
        progress, remarks = Progress(), list(job.remarks)
        if state is not None:
            remarks = [*filter(None, [state.remark]), *_check(state, job)]
            apply_state(state, job.model, optimizer, world)
            job.memories.load(state.part("memory"), device)
            dynamics.load(state.data.get("dynamics", {}), state.part("ema"))
            progress = Progress(**state.data["progress"])
        frozen = Frozen(job.model, state if source == run else None)
        session = Session(run, job, optimizer, dynamics, progress, frozen, metrics, logger)
        if world.leads:
            if source is not None and source != run:
                adopt(source, run)
            _write_recipe(run, job.recipe)
        if source != run:
            session.save_state()  # from here on a kill at any moment leaves something to go on from
        try:
            logger.start(
                Run(
                    out=run,
                    recipe=dump_recipe(job.recipe),
                    first=progress.step,
                    last=spec.max_steps,
                    n_parameters=job.n_parameters,
                    device=str(device),
                )
            )
            for remark in remarks:
                logger.note(remark)
            if world.leads and job.objective.shown and recipe.logging.progress != "none":
                show_sample(screen, job.batches, job.tokenizer, job.objective.shown)
            with Interruption(listen=handle_signals) as interruption:
                reason = session.go(lambda step: interruption.requested is not None or should_stop(step))
            for remark in (job.batches.told, str(job.skipped) if job.skipped.count else ""):
                if remark:
                    logger.note(remark)
            logger.note(_farewell(session, reason, run, spec.max_steps, interruption.requested, command))
        finally:
            job.close()
            logger.close()
    return TrainResult(
        out=run,
        step=progress.step,
        reason=reason,
        best_step=progress.best_step,
        best_value=progress.best_value,
        train_loss=None if session.update is None else float(session.update.loss),
        evaluation=session.evaluation,
        seconds=progress.seconds,
    )


def found_state(source: Path, run: Path, world: World) -> TrainingState:
    """The state to go on from, which the leading process finds for all; in the run's own directory it has the newest's
    name from then on."""

    def find() -> bytes:
        state = read_state(source)
        if source == run:
            state = reinstate(run, state)
        return json.dumps([str(state.folder), state.remark]).encode()

    folder, remark = json.loads(world.tell(find))
    return open_state(Path(folder), remark)


def _check(state: TrainingState, job: Job) -> list[str]:
    """Refuse to go on with something else, put the data where it was, and say what has changed."""
    remarks = [f"Changed since: {change}" for change in changes(state.data["recipe"], recipe_data(job.recipe))]
    if state.step > job.recipe.train.max_steps:
        raise ConfigError(
            f"train.max_steps must not be below the {state.step} steps that the run has made",
            value=job.recipe.train.max_steps,
        )
    job.batches.load_state(state.data["batches"])
    if job.valid is not None and state.data["valid"] is not None:
        job.valid.load_state(state.data["valid"])
    before, now = state.data["made_with"], made_with(job.model.device, job.world)
    if before != now:
        differ = ", ".join(f"{key} {before.get(key)} → {now[key]}" for key in now if before.get(key) != now[key])
        remarks.append(f"Not bit for bit what it would have been: {differ}")
    return remarks


def _write_recipe(run: Path, recipe: Recipe) -> None:
    head = f"# Resolved by transpect {__version__}. Run it again: transpect train {RECIPE} --out DIR\n"
    with atomic_file(run / RECIPE) as fresh:
        fresh.write_text(head + dump_recipe(recipe), encoding="utf-8")


def _farewell(session: Session, reason: Reason, run: Path, last: int, signal: str | None, command: str | None) -> str:
    progress = session.progress
    metric = session.metric.replace("_", " ")
    value = progress.best_value
    best = "" if value is None else f" Best {metric} {value:.4f} at step {progress.best_step}."
    if reason == "interrupted":
        how = command_to_go_on(run) if command is None else command
        by = f" by {signal}" if signal else ""
        return f"Stopped{by} after step {progress.step} of {last}; all is saved in {run}.{best} To go on:\n  {how}"
    if session.update is None:
        why = "all steps are made" if reason == "finished" else f"the {metric} no longer gets better"
        return f"Nothing to do at step {progress.step} of {last}: {why}.{best}"
    if reason == "patience":
        tried = f"{progress.stale} evaluations brought no better {metric}"
        return f"Stopped early at step {progress.step} of {last}: {tried}.{best}"
    return f"Done: {progress.step} steps in {run}.{best}"


@contextmanager
def threads(wanted: int | None) -> Iterator[None]:
    """So many CPU threads while it is entered, and afterwards as many as before."""
    former = torch.get_num_threads()
    set_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(former)
