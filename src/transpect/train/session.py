"""One session of a run: from where it stands to its end, or to where somebody stops it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import torch

from transpect import __version__
from transpect.base.codec import Data
from transpect.train.checkpoint import write_checkpoint
from transpect.train.errors import TrainingError
from transpect.train.evaluate import Evaluation, evaluate_pass
from transpect.train.job import Job
from transpect.train.logger import Logger, MetricsFile
from transpect.train.progress import Progress
from transpect.train.recipe import recipe_data
from transpect.train.resume import BEST, LAST
from transpect.train.schedules import Scale
from transpect.train.state import write_state
from transpect.train.stopwatch import Stopwatch
from transpect.train.updates import Update, draw, update
from transpect.train.watch import Watch

Reason = Literal["finished", "patience", "interrupted"]


class Session:
    """Each step ends with all that it owes (evaluation, best checkpoint, a line of metrics, state), so that a run can
    stop after any step and go on as if it had not.

    Args:
        run: the run directory.
        job: what to train.
        optimizer: of the job's model.
        progress: where the run stands; counted on.
        metrics: the metrics file, which is on the disk before a state is.
        logger: everyone who is told, the metrics file among them.
    """

    def __init__(
        self,
        run: Path,
        job: Job,
        optimizer: torch.optim.Optimizer,
        progress: Progress,
        metrics: MetricsFile,
        logger: Logger,
    ) -> None:
        self.progress = progress
        self.evaluation: Evaluation | None = None
        self.update: Update | None = None
        self._run, self._job, self._optimizer = run, job, optimizer
        self._metrics, self._logger = metrics, logger
        self._spec = job.recipe.train
        assert self._spec.optimizer.lr is not None
        self._scale = Scale(self._spec.optimizer.lr, self._spec.max_steps, job.config.d_model)
        self._watch = Watch(job.model.device)
        self._clock = Stopwatch()
        self._tokens = 0  # since the last record
        self._saved_step = progress.step

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
            if should_stop(progress.step):
                reason = "interrupted"
                break
            self._step()
            step = progress.step
            ends = step == spec.max_steps
            evaluated = self._job.valid is not None and (ends or step % spec.eval_every == 0)
            if evaluated:
                self._evaluate()
            if evaluated or ends or step % spec.log_every == 0:
                self._record(self.evaluation if evaluated else None)
            if ends or step % spec.save_every == 0:
                self.save()
        progress.seconds += self._clock.lap()
        if self._saved_step != progress.step:
            self.save()
        return reason

    def save(self) -> None:
        """Write ``last/`` and the state; without a valid source ``best/`` is the last one."""
        with self._clock.paused():
            self._watch.look()
            self._metrics.sync()
            if self._job.valid is None:
                write_checkpoint(self._run / BEST, self._job)
            write_checkpoint(self._run / LAST, self._job)
            self.save_state()

    def save_state(self) -> None:
        """Write the state alone."""
        job = self._job
        data: Data = {
            "step": self.progress.step,
            "progress": asdict(self.progress),
            "batches": job.batches.state(),
            "valid": None if job.valid is None else job.valid.state(),
            "recipe": recipe_data(job.recipe),
            "made_with": made_with(job.model.device),
        }
        write_state(self._run, data, job.model, self._optimizer, job.tokenizer, job.memories)
        self._saved_step = self.progress.step

    def _step(self) -> None:
        spec, progress = self._spec, self.progress
        drawn = draw(self._job.batches, spec.accumulate)
        self._job.model.redraw(progress.step)
        self.update = update(
            self._job.model,
            self._optimizer,
            drawn,
            rate=spec.schedule.rate(progress.step + 1, self._scale),
            clip=spec.clip,
            criterion=self._job.criterion,
            precision=spec.precision,
            memories=self._job.memories,
        )
        progress.step += 1
        progress.tokens += self.update.n_tokens
        self._tokens += self.update.n_tokens
        self._watch.note(progress.step, self.update)
        self._logger.advance(progress.step)

    def _evaluate(self) -> None:
        job, progress = self._job, self.progress
        assert job.valid is not None
        with self._clock.paused():
            self._watch.look()
            self.evaluation = evaluate_pass(
                job.model, job.valid, job.objective, criterion=job.criterion, precision=self._spec.precision
            )
            loss = self.evaluation.loss
            if not loss < float("inf"):
                raise TrainingError(f"the valid loss must be finite, and at step {progress.step} it is not", value=loss)
            if progress.judge(loss, self._spec.min_delta):
                # before the state that knows of it: a resume from an older state only writes it again
                write_checkpoint(self._run / BEST, job)

    def _record(self, evaluation: Evaluation | None) -> None:
        self._watch.look()
        assert self.update is not None
        loss, norm = float(self.update.loss), float(self.update.grad_norm)  # waits for the device, so before the clock
        lap = self._clock.lap()
        self.progress.seconds += lap
        record: dict[str, float | int] = {
            "step": self.progress.step,
            "epoch": self._job.batches.epoch,
            "loss": loss,
            "lr": self._spec.schedule.rate(self.progress.step, self._scale),
            "grad_norm": norm,
            "tokens": self.progress.tokens,
            "tokens_per_s": self._tokens / lap,
            "seconds": self.progress.seconds,
            **{name: float(value) for name, value in self.update.measures.items()},
        }
        self._tokens = 0
        if self._job.skipped.count:
            record["bad_lines"] = self._job.skipped.count
        if evaluation is not None:
            record |= {f"valid_{name}": value for name, value in evaluation.means().items()}
        self._logger.record(record)


def made_with(device: torch.device) -> Data:
    """What the next bit depends on besides the state: versions, device, threads, the instructions of the CPU."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "transpect": __version__,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
