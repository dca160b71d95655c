"""A recipe built: tokenizer, model and batches, checked against each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from transpect.base.codec import Data
from transpect.base.devices import resolve_device
from transpect.core.config import ModelConfig
from transpect.core.model import Transformer
from transpect.data.documents import Documents
from transpect.data.loader import Batches
from transpect.data.objectives import Objective
from transpect.data.prefetch import Prefetched
from transpect.data.skipping import NOTHING_SKIPPED, Skipped
from transpect.interop import load_generation
from transpect.text import Tokenizer, load_tokenizer
from transpect.train.compiled import check_compile, compile_layers
from transpect.train.criteria import Criterion, Setting
from transpect.train.material import gathered
from transpect.train.memories import Memories
from transpect.train.model.initial import initial_model
from transpect.train.model.parts import train_parts
from transpect.train.model.vocabulary import open_tokenizer
from transpect.train.parallel.devices import local_device
from transpect.train.parallel.world import ALONE, World
from transpect.train.recipe import Recipe
from transpect.train.state import TrainingState


@dataclass(frozen=True, eq=False)
class Job:
    """What a run works with.

    Attributes:
        recipe: with nothing left open.
        config: the model that is asked for and saved; the one that is trained may also keep packed documents apart.
        model: with its initial weights, on its device.
        tokenizer: trained or opened.
        batches: to train on.
        valid: to evaluate on, if anything.
        generation: special ids for whoever writes with the model.
        criterion: what is made small.
        memories: what rows that go on from update to update remember.
        skipped: lines of the data that were passed over because they could not be read.
        remarks: what its user should know of how it began.
        world: the processes that share it out.
        n_parameters: trainable numbers of the whole model.
    """

    recipe: Recipe
    config: ModelConfig
    model: Transformer
    tokenizer: Tokenizer
    batches: Batches | Prefetched
    valid: Batches | None
    generation: Data
    criterion: Criterion
    memories: Memories = field(default_factory=Memories)
    skipped: Skipped = NOTHING_SKIPPED
    remarks: tuple[str, ...] = ()
    world: World = ALONE
    n_parameters: int = 0

    @property
    def objective(self) -> Objective:
        """What is predicted."""
        return self.recipe.objective

    def close(self) -> None:
        """Send home whoever makes batches ahead of their turn."""
        if isinstance(self.batches, Prefetched):
            self.batches.close()


def build(recipe: Recipe, state: TrainingState | None = None, world: World = ALONE) -> Job:
    """Build what a recipe describes.

    Args:
        recipe: resolved or not.
        state: of a run that goes on, with its tokenizer, and weights that are about to be put back; None trains or
            opens the recipe's own tokenizer, and begins with initial weights or with those of a checkpoint.
        world: the processes that share the job out.

    Raises:
        CheckpointError: a checkpoint to begin with that can't be read.
        ConfigError: parts that do not fit each other.
        DataError: data that can't be read.
        TokenizerError: a tokenizer that can't be trained or opened.
    """
    device = local_device(resolve_device(recipe.train.device))
    known_tokenizer = None if state is None else load_tokenizer(state.tokenizer)
    read = gathered(recipe, known_tokenizer, world)
    full, train, valid, tokenizer = read.recipe, read.train, read.valid, read.tokenizer
    config, spec, objective = full.model.config, full.train, full.objective
    objective.check(config, tokenizer, full.seq_len)
    spec.activations.check(objective, device)
    if spec.compile:
        check_compile(objective)
    known = open_tokenizer(full.tokenizer.path).vocab_size if full.tokenizer.path and full.tokenizer.adds else None
    begun = initial_model(objective.adapt(config), None if state else full.model.path, spec.seed, known)
    train_parts(begun.model, full)
    prepare = compile_layers if spec.compile else spec.activations.apply
    model = prepare(begun.model.to(device))
    assert full.train.loss is not None
    criterion = full.train.loss.build(Setting(full, model, tokenizer, known, world))
    world.check(full)
    n_parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    criterion = world.spread(model, criterion)
    assert spec.eval_batch_size is not None

    def loader(documents: Documents, batch_size: int, slots: int = 1, bucket: int = 1) -> Batches:
        return Batches(
            documents,
            objective,
            tokenizer,
            batch_size=batch_size,
            seq_len=full.seq_len,
            seed=spec.seed,
            slots=slots,
            bucket=bucket,
        )

    batches = loader(train, spec.batch_size, spec.accumulate, full.data.bucket)
    workers = int(device.type != "cpu") if full.data.workers is None else full.data.workers

    return Job(
        recipe=full,
        config=config,
        model=model,
        tokenizer=tokenizer,
        batches=Prefetched(batches, workers) if workers else batches,
        valid=None if valid is None else loader(valid, spec.eval_batch_size),
        generation=_generation(full, tokenizer)
        if state is None
        else state.data["generation"] | full.generation.entries,
        criterion=criterion,
        skipped=_skipped(train, valid, held_out=isinstance(recipe.data.valid, float)),
        remarks=begun.remarks,
        world=world,
        n_parameters=n_parameters,
    )


def _generation(recipe: Recipe, tokenizer: Tokenizer) -> Data:
    """The special ids of an objective; what a checkpoint says of how it is decoded stands, but that writing ends also
    with what the objective ends with, where that is one of several. The recipe's own entries stand over both."""
    own: Data = {} if recipe.model.path is None else load_generation(recipe.model.path)
    asked = recipe.objective.generation(tokenizer)
    ends = asked.get("eos_token_id")
    if isinstance(ends, list):
        known = [] if own.get("eos_token_id") is None else own["eos_token_id"]
        own["eos_token_id"] = list(dict.fromkeys([*(known if isinstance(known, list) else [known]), *ends]))
    return {**asked, **own, **recipe.generation.entries}


def _skipped(train: Documents, valid: Documents | None, *, held_out: bool) -> Skipped:
    """Where a share is held out, both are of one source."""
    return train.skipped if valid is None or held_out else train.skipped + valid.skipped
