"""What a model in training writes: a few prompts, answered at evaluations, so that a person sees it learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transpect.base.checks import not_negative, within
from transpect.base.errors import ConfigError, TranspectError
from transpect.train.randomness import unchanged_randomness
from transpect.train.watching.logger import Logger

if TYPE_CHECKING:
    from transpect.core.model import Transformer
    from transpect.train.job import Job


@dataclass(frozen=True)
class Samples:
    """What is written, and how often.

    Attributes:
        prompts: texts to go on with, or for an encoder–decoder the sources.
        every: evaluations between samples.
        max_new_tokens: of each; fewer where the context ends.
        temperature: 0 is greedy.
        seed: of every sample; the same prompt at two steps differs by the weights alone.
    """

    prompts: tuple[str, ...]
    every: int = 1
    max_new_tokens: int = 64
    temperature: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.prompts:
            raise ConfigError("samples need at least one of prompts", value=[], remedy='Write e.g. prompts: [""].')
        within("every", self.every)
        within("max_new_tokens", self.max_new_tokens)
        not_negative("temperature", self.temperature)


class NoWriter:
    """Nothing is written."""

    def write(self, step: int, logger: Logger) -> None:
        """An evaluation has been made at ``step``."""


class Writer(NoWriter):
    """Writes by the weights of a job, without effect on its model or on any generator.

    Raises:
        ConfigError: a model that writes no text, or a prompt that it can't read; found out here, by a token each, and
            not at the first evaluation.
    """

    def __init__(self, samples: Samples, job: Job) -> None:
        self._samples, self._job, self._evaluations = samples, job, 0
        try:
            self._texts(max_new_tokens=1)
        except TranspectError as error:
            rule = f"logging.samples must be prompts that the model can go on with: {error.rule}"
            raise ConfigError(rule, value=error.value, remedy=error.remedy) from error

    def write(self, step: int, logger: Logger) -> None:
        """Write where it is time; the number of an evaluation follows from its step, so a resume goes on in step."""
        spec = self._job.recipe.train
        number = -(-step // spec.eval_every)
        if number % self._samples.every == 0 or step == spec.max_steps:
            texts = self._texts(self._samples.max_new_tokens)
            for prompt, text in zip(self._samples.prompts, texts, strict=True):
                logger.sample(step, prompt, text)

    def _texts(self, max_new_tokens: int) -> list[str]:
        from transpect.lm import LanguageModel

        samples, job = self._samples, self._job
        lm = LanguageModel(twin(job), job.tokenizer, job.generation, runtime="torch")
        chance: dict[str, Any] = {"temperature": samples.temperature, "seed": samples.seed}
        with unchanged_randomness(job.model.device):
            texts: list[str] = lm.generate(
                list(samples.prompts),
                max_new_tokens=max_new_tokens,
                overflow="stop",
                **(chance if samples.temperature else {}),
            )
        return texts


def writer_of(samples: Samples | None, job: Job) -> NoWriter:
    """Who writes the samples of a recipe."""
    return NoWriter() if samples is None else Writer(samples, job)


def twin(job: Job) -> Transformer:
    """The model as it will be saved, over the same storage, to be used without touching the one in training."""
    from transpect.adapters import full_state
    from transpect.interop.blank import blank

    made = blank(job.config)
    made.load_state_dict(full_state(job.model), assign=True)
    return made.eval()
