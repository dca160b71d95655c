"""One session of a run: from where it stands to its end, or to where somebody stops it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import torch

from transpect import __version__
from transpect.base.codec import Data
from transpect.train.average import Average
from transpect.train.best import folder_of, remove_others
from transpect.train.checkpoint import write_checkpoint
from transpect.train.dynamics import Dynamics
from transpect.train.errors import TrainingError
from transpect.train.evaluate import Evaluation, evaluate_pass
from transpect.train.frozen import Frozen
from transpect.train.job import Job
from transpect.train.parallel.state import WRITTEN, Pending
from transpect.train.parallel.world import World
from transpect.train.progress import Progress
from transpect.train.readers import readers_of
from transpect.train.recipe import recipe_data
from transpect.train.resume import BEST, EMA, LAST
from transpect.train.state import write_state
from transpect.train.updates import Update, draw, update
from transpect.train.watch import Watch
from transpect.train.watching.logger import Logger, MetricsFile, NoMetrics, Record
from transpect.train.watching.measures import Meters
from transpect.train.watching.samples import writer_of
from transpect.train.watching.stopwatch import Stopwatch

Reason = Literal["finished", "patience", "interrupted"]


class Session:
    """Each step ends with all that it owes (evaluation, best checkpoint, a line of metrics, state), so that a run can
    stop after any step and go on as if it had not.

    Args:
        run: the run directory.
        job: what to train.
        optimizer: of the job's model.
        dynamics: what else changes along the run.
        progress: where the run stands; counted on.
        frozen: the weights of the model that are not trained.
        metrics: the metrics file, which is on the disk before a state is.
        logger: everyone who is told, the metrics file among them.
    """

    def __init__(
        self,
        run: Path,
        job: Job,
        optimizer: torch.optim.Optimizer,
        dynamics: Dynamics,
        progress: Progress,
        frozen: Frozen,
        metrics: MetricsFile | NoMetrics,
        logger: Logger,
    ) -> None:
        self.progress = progress
        self.evaluation: Evaluation | None = None
        self.update: Update | None = None
        self._run, self._job, self._optimizer = run, job, optimizer
        self._dynamics, self._frozen, self._metrics, self._logger = dynamics, frozen, metrics, logger
        self._spec = job.recipe.train
        self._rate = 0.0
        self._readers = readers_of(job.model, compiled=self._spec.compile)
        self._watch = Watch(job.model.device)
        self._clock = Stopwatch()
        self._meters = Meters(job.recipe.logging.measures, job, optimizer)
        self._writer = writer_of(job.recipe.logging.samples, job)
        self._tokens = 0  # since the last record
        self._saved_step = progress.step
        self._saving: Pending = WRITTEN
        self._kept_then = self._kept

    def go(self, should_stop: Callable[[int], bool]) -> Reason:
        """Make updates until there is a reason to end; the state is saved then.

        Raises:
            TrainingError: a loss or gradient that is not finite; nothing is saved of that step.
        """
        progress, spec = self.progress, self._spec
        self._job.model.train()
        reason: Reason = "finished"
        while progress.step < spec.max_steps:
            if progress.is_stale(spec.patience):
                reason = "patience"
                break
            if self._job.world.any(should_stop(progress.step)):
                reason = "interrupted"
                break
            step = progress.step + 1
            ends = step == spec.max_steps
            evaluates = self._job.valid is not None and (ends or step % spec.eval_every == 0)
            records = evaluates or ends or step % spec.log_every == 0
            self._meters.begin(due=records)
            self._step()
            if records:
                self._record(self._evaluate() if evaluates else {})
            if ends or step % spec.save_every == 0:
                self.save()
        progress.seconds += self._clock.lap()
        if self._saved_step != progress.step:
            self.save()
        self._settle()
        return reason

    def save(self) -> None:
        """Write ``last/`` and the state; without a valid source ``best/`` is the last one."""
        with self._clock.paused():
            self._watch.look()
            self._metrics.sync()
            average = self._dynamics.average
            if self._job.valid is None:
                with average.where_evaluated():
                    write_checkpoint(self._run / BEST, self._job)
            if isinstance(average, Average):
                with average.in_place():
                    write_checkpoint(self._run / EMA, self._job)
            write_checkpoint(self._run / LAST, self._job)
            self.save_state()
            if self._saving is WRITTEN:
                self._settle()

    def save_state(self) -> None:
        """Write the state alone."""
        job = self._job
        data: Data = {
            "step": self.progress.step,
            "progress": asdict(self.progress),
            "batches": job.batches.state(),
            "valid": None if job.valid is None else job.valid.state(),
            "dynamics": self._dynamics.data(),
            "recipe": recipe_data(job.recipe),
            "generation": job.generation,
            "made_with": made_with(job.model.device, job.world),
        }
        self._settle()
        self._saving = write_state(
            self._run,
            data,
            job.model,
            self._optimizer,
            job.tokenizer,
            job.memories,
            self._dynamics.tensors(),
            self._frozen,
            job.world,
        )
        self._saved_step, self._kept_then = self.progress.step, self._kept

    def _settle(self) -> None:
        """Wait until the last state is on the disk; then nothing needs what neither it nor the next one names."""
        self._saving.wait()
        if self._job.world.leads:
            remove_others(self._run, {*self._kept_then, *self._kept})

    def _step(self) -> None:
        """One update; what a batch whose gradient overflows was to move is moved by the next."""
        self._job.model.redraw(self.progress.step)
        self._rate = self._dynamics.rate(self.progress.step + 1)
        while not (done := self._try()).made:
            pass
        self.progress.step += 1
        self._dynamics.average.take(self.progress.step)
        self._watch.note(self.progress.step, done)
        self._logger.advance(self.progress.step)

    def _try(self) -> Update:
        spec = self._spec
        self.update = update(
            self._job.model,
            self._optimizer,
            draw(self._job.batches, spec.accumulate),
            rate=self._rate,
            clip=spec.clip,
            criterion=self._job.criterion,
            precision=spec.precision,
            memories=self._job.memories,
            scale=self._dynamics.scale,
            world=self._job.world,
            readers=self._readers,
        )
        self.progress.tokens += self.update.n_tokens
        self._tokens += self.update.n_tokens
        return self.update

    @property
    def metric(self) -> str:
        """What the best checkpoint is the best by."""
        return self._spec.best.metric

    @property
    def _kept(self) -> list[int]:
        """The steps whose checkpoints are kept beside ``best/``."""
        return [step for step, _ in self.progress.best] if self._spec.best.keep > 1 else []

    def _evaluate(self) -> dict[str, float | int]:
        job, progress = self._job, self.progress
        assert job.valid is not None
        with self._clock.paused(), self._dynamics.average.where_evaluated():
            self._watch.look()
            self.evaluation = evaluate_pass(
                job.model,
                job.valid,
                job.objective,
                criterion=job.criterion,
                precision=self._spec.precision,
                world=job.world,
            )
            loss = self.evaluation.loss
            if not loss < float("inf"):
                raise TrainingError(f"the valid loss must be finite, and at step {progress.step} it is not", value=loss)
            self._dynamics.hear(loss)
            self._writer.write(progress.step, self._logger)
            measures = {f"valid_{name}": value for name, value in self.evaluation.means().items()}
            return {**measures, **self._meters.evaluated()}

    def _judge(self, record: Record) -> None:
        """Keep the checkpoint where it is among the best: before the state that knows of it, for a resume from an older
        state only writes it again."""
        best = self._spec.best
        with self._clock.paused(), self._dynamics.average.where_evaluated():
            place = self.progress.judge(best.value_in(record), best, self._spec.min_delta)
            if place == 0:
                write_checkpoint(self._run / BEST, self._job)
            if place is not None and best.keep > 1:
                write_checkpoint(folder_of(self._run, self.progress.step), self._job)

    def _record(self, evaluation: Record) -> None:
        self._watch.look()
        assert self.update is not None
        loss, norm = float(self.update.loss), float(self.update.grad_norm)  # waits for the device, so before the clock
        lap = self._clock.lap()
        self.progress.seconds += lap
        record: dict[str, float | int] = {
            "step": self.progress.step,
            "epoch": self._job.batches.epoch,
            "loss": loss,
            "lr": self._rate,
            "grad_norm": norm,
            "tokens": self.progress.tokens,
            "tokens_per_s": self._tokens / lap,
            "seconds": self.progress.seconds,
            **{name: float(value) for name, value in self.update.measures.items()},
        }
        self._tokens = 0
        if self._job.skipped.count:
            record["bad_lines"] = self._job.skipped.count
        record |= self._dynamics.measures()
        with self._clock.paused():
            record |= {**self._meters.recorded(record), **evaluation}
        if evaluation:
            self._judge(record)
        self._logger.record(record)


def made_with(device: torch.device, world: World) -> Data:
    """What the next bit depends on besides the state: versions, device, processes, threads, instructions of the CPU."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "transpect": __version__,
        "torch": str(torch.__version__),
        "processes": world.size,
        "threads": torch.get_num_threads(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
