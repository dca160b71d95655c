"""A recipe: everything that a training run is made from, as frozen dataclasses.

`transpect.train.reading` makes one from YAML and dotted overrides; `Recipe.resolve` fills in what was left open, and
`dump_recipe` writes the YAML that gives the same recipe again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from transpect.adapters import Adapter
from transpect.base.checks import at_least, not_negative, share, within
from transpect.base.codec import Data, dump_yaml, to_data
from transpect.base.errors import ConfigError
from transpect.core.config import ModelConfig, override
from transpect.core.presets import preset
from transpect.data.objectives import Objective
from transpect.data.sources import Source
from transpect.text.kinds import KINDS
from transpect.text.tokenizer import Tokenizer
from transpect.text.train import SPELLINGS
from transpect.train.activations import Activations, Keep
from transpect.train.average import Ema
from transpect.train.best import Best
from transpect.train.criteria import Loss, usual_loss
from transpect.train.evaluate import OBJECTIVES, rows_at_once
from transpect.train.generation import GenerationSpec
from transpect.train.optimizers import AdamW, Grouping, GroupRule, Optimizer
from transpect.train.optimizers.widths import check_width
from transpect.train.parallel.spec import ParallelSpec
from transpect.train.precision import Precision
from transpect.train.schedules import Cosine, Plateau, Schedule
from transpect.train.watching.measures import Measure
from transpect.train.watching.samples import Samples
from transpect.train.watching.trackers import Tracker

MOST_WORKERS = 256
"""How many threads may make batches."""
MOST_THREADS = 1024
"""How many may compute."""
STAND_IN = 1
"""A vocabulary size that stands where the tokenizer's will be."""


@dataclass(frozen=True)
class ModelSpec:
    """A model, of which the size of the vocabulary may be left to the tokenizer.

    Attributes:
        config: the model; its ``vocab_size`` is `STAND_IN` where ``sized`` is False.
        sized: whether the recipe itself says ``vocab_size``.
        path: the checkpoint whose weights the run begins with, by any name that `transpect.interop.locate` knows; None
            draws them.
    """

    config: ModelConfig
    sized: bool = False
    path: str | None = None

    def __post_init__(self) -> None:
        if not self.sized:
            object.__setattr__(self, "config", replace(self.config, vocab_size=STAND_IN))

    @classmethod
    def of(cls, name: str, **changes: Any) -> ModelSpec:
        """A preset with changes by short name: ``ModelSpec.of("llama", d_model=64, n_layers=2, n_heads=2)``.

        Raises:
            ConfigError: no such preset or key, or a model that can't be built.
        """
        return cls(override(preset(name), changes.items()), "vocab_size" in changes)

    def build(self, vocab_size: int) -> ModelConfig:
        """The config for a tokenizer of ``vocab_size`` ids."""
        return self.config if self.sized else replace(self.config, vocab_size=vocab_size)

    def widened(self, vocab_size: int) -> ModelSpec:
        """With rows for ``vocab_size`` ids at least."""
        return replace(self, config=replace(self.config, vocab_size=max(vocab_size, self.config.vocab_size)))


@dataclass(frozen=True)
class TokenizerSpec:
    """A tokenizer to train on the run's training texts, or one to open.

    Attributes:
        kind: of the vocabulary to train: char, bpe, byte-bpe, wordpiece or unigram.
        path: one to open instead, a directory, a ``tokenizer.json``, or the name of a model that has one; no other
            option but the tokens to add then.
        vocab_size: at most this many tokens; None is as many as the kind finds (char alone can).
        special_tokens: role to token, over the kind's own or those of the one that is opened; null takes a role away.
            A role that the objective needs is added to one that is trained.
        extra_special_tokens: more special tokens, without a role; those that the objective asks for are added.
        add_tokens: further tokens for one that is opened, that texts are cut at.
        texts: train it on the first so many texts; None is all of them, or 5,000 of an endless source.
        options: the kind's own options, which stand beside these in a file, e.g. ``lowercase: true``.
    """

    kind: str | None = None
    path: str | None = None
    vocab_size: int | None = None
    special_tokens: dict[str, str | None] = field(default_factory=dict)
    extra_special_tokens: tuple[str, ...] = ()
    add_tokens: tuple[str, ...] = ()
    texts: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.kind is None) == (self.path is None):
            raise ConfigError(
                "a tokenizer has either a kind, to be trained, or a path, to be opened",
                value=f"kind: {self.kind}, path: {self.path}",
                remedy="Set one of them, and the other to null.",
            )
        training: Data = {"vocab_size": self.vocab_size, "texts": self.texts, **self.options}
        void = [name for name, value in training.items() if value is not None]
        if self.path is not None and void:
            raise ConfigError(
                "a tokenizer that is opened is not trained, so these keys would mean nothing",
                value=", ".join(void),
                remedy="Leave them out, or leave `path` out.",
            )
        if self.texts is not None and self.texts < 1:
            raise ConfigError("texts must be at least 1", value=self.texts)
        if self.kind is not None and self.add_tokens:
            raise ConfigError(
                "add_tokens is for a tokenizer that is opened",
                value=self.add_tokens,
                remedy="Name them in extra_special_tokens, which the trained one will have.",
            )

    def serving(self, roles: Sequence[Sequence[str]], tokens: Sequence[str]) -> TokenizerSpec:
        """Of one to be trained, with what an objective can't do without: of each of ``roles`` one special token, and
        ``tokens``. A role that was taken away by null stays away."""
        trained = KINDS.get(SPELLINGS.get(self.kind or "", self.kind or ""))
        known = {**(trained.default_roles if trained else {}), **self.special_tokens}
        first = [several[0] for several in roles if trained and not any(role in known for role in several)]
        lacking = tuple(token for token in tokens if token not in self.extra_special_tokens)
        return replace(
            self,
            special_tokens={**self.special_tokens, **{role: f"<{role}>" for role in first}},
            extra_special_tokens=self.extra_special_tokens + lacking,
        )

    @property
    def adds(self) -> bool:
        """Whether a tokenizer that is opened gets further tokens."""
        return self.path is not None and bool(self.special_tokens or self.extra_special_tokens or self.add_tokens)


@dataclass(frozen=True)
class DataSpec:
    """What is read, and how.

    Attributes:
        train: the source of training documents.
        valid: the source to evaluate on; a number is that share of the training documents, held out; null is none.
        valid_seed: by which a share is held out; None is the seed of the training.
        objective: what is predicted; None is what the kind of model is usually trained for.
        seq_len: the longest row, in tokens; None is the model's context.
        bucket: of an objective that pads: in training, rows of about one length follow each other in runs of so many,
            which come in random order; a few times the batch size. 1 is rows in any order.
        workers: threads that make batches ahead of their turn; the batches are the same bit for bit. 0 makes each when
            it is needed; None is 1 on an accelerator and 0 on a CPU.
    """

    train: Source
    valid: Source | float | None = 0.05
    valid_seed: int | None = None
    objective: Objective | None = None
    seq_len: int | None = None
    bucket: int = 1
    workers: int | None = None

    def __post_init__(self) -> None:
        at_least("data.bucket", self.bucket, 1)
        within("data.workers", self.workers, 0, MOST_WORKERS)
        if self.valid_seed is not None and not isinstance(self.valid, float):
            raise ConfigError(
                "valid_seed chooses which share of the training documents is held out, so valid must be a share",
                value=None if self.valid is None else self.valid.kind,
                remedy="Set data.valid to e.g. 0.05, or leave valid_seed out.",
            )


@dataclass(frozen=True)
class TrainSpec:
    """How it is trained.

    Attributes:
        max_steps: optimizer updates of the whole run.
        batch_size: rows of a micro-batch.
        accumulate: micro-batches of an update.
        eval_batch_size: rows at a time in evaluation; None is ``batch_size``, or 1 for an objective that remembers.
        loss: what is made small; None is what the objective is usually trained with.
        optimizer: with its options.
        layer_decay: the rate of each layer is so much of that of the layer above it; see `Grouping`.
        groups: rates and decays of weights by name; see `GroupRule`.
        schedule: the learning rate as a function of updates.
        clip: the global gradient norm to clip to; null clips nothing.
        label_smoothing: ε; of the training loss only.
        ema: an average of the weights, kept beside them, saved in ``ema/`` and evaluated; null is none.
        precision: of the arithmetic: fp32, bf16, or fp16 with a scaled loss. Weights are float32 in each.
        adapter: train LoRA or DoRA beside the weights of a checkpoint; null trains the weights themselves.
        freeze: patterns of the weights that stay as they are (see `transpect.train.model.freezing`).
        activations: what becomes of them until the backward pass; see `transpect.train.activations`.
        compile: let torch compile the layers; see `transpect.train.compiled`.
        seed: of initial weights, order, masks and dropout.
        eval_every: updates between evaluations; the last update is always followed by one.
        save_every: updates between savings of everything that a resume needs.
        log_every: updates between lines of metrics.
        best: by which measure of an evaluation ``best/`` and ``patience`` go, and how many checkpoints are kept.
        patience: stop after so many evaluations without a better one; null never does.
        min_delta: by how much that measure must be better to count as better for ``patience``.
        device: auto, cpu, cuda, cuda:N or mps.
        threads: CPU threads; null is ``OMP_NUM_THREADS``, or the cores that the process may use.
    """

    max_steps: int = 1000
    batch_size: int = 32
    accumulate: int = 1
    eval_batch_size: int | None = None
    loss: Loss | None = None
    optimizer: Optimizer = field(default_factory=AdamW)
    layer_decay: float = 1.0
    groups: tuple[GroupRule, ...] = ()
    schedule: Schedule = field(default_factory=Cosine)
    clip: float | None = 1.0
    label_smoothing: float = 0.0
    ema: Ema | None = None
    precision: Precision = "fp32"
    activations: Activations = field(default_factory=Keep)
    compile: bool = False
    adapter: Adapter | None = None
    freeze: tuple[str, ...] = ()
    seed: int = 0
    eval_every: int = 200
    save_every: int = 200
    log_every: int = 10
    best: Best = field(default_factory=Best)
    patience: int | None = None
    min_delta: float = 0.0
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "accumulate", "eval_batch_size"):
            within(name, getattr(self, name))
        for name in ("eval_every", "save_every", "log_every", "patience"):
            within(name, getattr(self, name))
        within("threads", self.threads, high=MOST_THREADS)
        if self.clip is not None and self.clip <= 0.0:
            raise ConfigError("clip must be above 0, or null", value=self.clip, remedy="null clips nothing.")
        share("label_smoothing", self.label_smoothing)
        not_negative("min_delta", self.min_delta)
        if not 0 <= self.seed < 2**63:
            raise ConfigError("seed must be at least 0 and below 2^63", value=self.seed)
        if self.adapter is not None and self.freeze:
            raise ConfigError(
                "an adapter already freezes all but itself",
                value=f"freeze={list(self.freeze)}",
                remedy="Leave freeze out, or say by adapter.targets and adapter.modules_to_save what is trained.",
            )
        if self.compile and self.activations != Keep():
            raise ConfigError(
                "a compiled layer decides by itself what it keeps, so train.activations must be keep",
                value=self.activations.kind,
                remedy="Set train.compile to false, or leave train.activations out.",
            )
        Grouping(self.layer_decay, self.groups)  # which checks them


@dataclass(frozen=True)
class LoggingSpec:
    """What is written down, besides ``metrics.jsonl``.

    Attributes:
        tensorboard: write event files for TensorBoard.
        progress: ``bar``, ``lines``, ``none``, or ``auto``: a bar on a terminal, lines elsewhere.
        trackers: experiment trackers of others that are told too: ``wandb``, ``swanlab``.
        measures: what else is measured: ``norms``, ``utilisation``, ``attention``.
        samples: what the model writes at evaluations; null is nothing.
    """

    tensorboard: bool = True
    progress: Literal["auto", "bar", "lines", "none"] = "auto"
    trackers: tuple[Tracker, ...] = ()
    measures: tuple[Measure, ...] = ()
    samples: Samples | None = None


@dataclass(frozen=True)
class Recipe:
    """A training run, before anything is built."""

    model: ModelSpec
    tokenizer: TokenizerSpec
    data: DataSpec
    train: TrainSpec = field(default_factory=TrainSpec)
    logging: LoggingSpec = field(default_factory=LoggingSpec)
    parallel: ParallelSpec = field(default_factory=ParallelSpec)
    generation: GenerationSpec = field(default_factory=GenerationSpec)

    def __post_init__(self) -> None:
        if self.data.valid is None and self.train.best != Best():
            raise ConfigError("train.best is judged by evaluations, which need data.valid", remedy="Set data.valid.")
        if self.tokenizer.path is None:
            spec = self.tokenizer.serving(self.objective.needs.roles, self.objective.special_tokens(self.seq_len))
            object.__setattr__(self, "tokenizer", spec)
        if isinstance(self.train.schedule, Plateau) and self.data.valid is None:
            raise ConfigError(
                "the schedule `plateau` waits for the valid loss, so there must be something to evaluate on",
                value="data.valid: null",
                remedy="Set data.valid, e.g. to 0.05, or choose another schedule.",
            )
        check_width(self.model.config, self.train.optimizer)

    @property
    def grouping(self) -> Grouping:
        """Rates and decays by weight."""
        config = self.model.config
        return Grouping(self.train.layer_decay, self.train.groups, config.init.share(config.d_model))

    @property
    def objective(self) -> Objective:
        """The objective with its default resolved."""
        return self.data.objective or OBJECTIVES[self.model.config.kind]()

    @property
    def seq_len(self) -> int:
        """The row length with its default resolved."""
        return self.model.config.context_length if self.data.seq_len is None else self.data.seq_len

    @property
    def valid_seed(self) -> int:
        """The seed of what is held out, with its default resolved."""
        return self.train.seed if self.data.valid_seed is None else self.data.valid_seed

    def resolve(self, tokenizer: Tokenizer) -> Recipe:
        """The same recipe with nothing left open. Resolving twice is resolving once."""
        train = self.train
        optimizer, schedule = train.optimizer, train.schedule.resolved(train.max_steps)
        if optimizer.lr is None:
            optimizer = optimizer.at(schedule.default_rate or optimizer.default_rate)
        model = self.model.widened(tokenizer.vocab_size) if self.tokenizer.adds else self.model
        return replace(
            self,
            model=replace(model, config=model.build(tokenizer.vocab_size), sized=True),
            data=replace(self.data, objective=self.objective, seq_len=self.seq_len),
            train=replace(
                train,
                loss=train.loss or usual_loss(self.objective),
                optimizer=optimizer,
                schedule=schedule,
                eval_batch_size=train.eval_batch_size or rows_at_once(self.objective, train.batch_size),
            ),
        )


def recipe_data(recipe: Recipe) -> Data:
    """A recipe as plain data, in the form of a recipe file."""
    model: Data = to_data(recipe.model.config)
    if not recipe.model.sized:
        del model["vocab_size"]
    if recipe.model.path is not None:
        model = {"path": recipe.model.path, **model}
    spec: Data = to_data(recipe.tokenizer)
    options = spec.pop("options")
    tokenizer = {key: value for key, value in spec.items() if value not in (None, {}, [])}
    rest = {name: to_data(getattr(recipe, name)) for name in ("data", "train", "logging", "parallel")}
    return {
        "model": model,
        "tokenizer": {**tokenizer, **options},
        **rest,
        "generation": to_data(recipe.generation.entries),
    }


def dump_recipe(recipe: Recipe) -> str:
    """The YAML text of a recipe; reading it gives an equal recipe."""
    return dump_yaml(recipe_data(recipe))
