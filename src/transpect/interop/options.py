"""The entries of config.json as a table: where each stands in our config, what it is when absent, what is refused.

An entry reads a Hugging Face config into dotted overrides of a template, and writes it back from our config as data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError

Override = tuple[str, Any]


@dataclass(frozen=True)
class Like:
    """The default of an option that follows another one where it is absent or null."""

    name: str


@dataclass(frozen=True)
class Options:
    """A config.json as one family understands it.

    Attributes:
        data: what it says.
        defaults: what it means where it says nothing.
        head: the kind of head that the architecture has.
        tensors: the names in the checkpoint, for the few options that they decide.
    """

    data: Mapping[str, Any]
    defaults: Mapping[str, Any]
    head: str
    tensors: Callable[[], Collection[str]]

    def __getitem__(self, name: str) -> Any:
        default = self.defaults.get(name)
        if isinstance(default, Like):
            value = self.data.get(name)
            return self[default.name] if value is None else value
        return self.data.get(name, default)


class Entry:
    """One entry of config.json, or a few that belong together."""

    def defaults(self) -> Mapping[str, Any]:
        """The names that it knows, with what each means when absent."""
        raise AssertionError("abstract")

    def read(self, options: Options) -> Iterable[Override]:
        """Dotted overrides of our config.

        Raises:
            CheckpointError: a value that we can't build.
        """
        raise AssertionError("abstract")

    def write(self, ours: Data) -> Mapping[str, Any]:
        """The entries for our config (as data).

        Raises:
            CheckpointError: our config has something that the family has no word for.
        """
        raise AssertionError("abstract")


@dataclass(frozen=True)
class Key(Entry):
    """One value that stands at one or several places of ours.

    Attributes:
        name: in config.json.
        places: dotted, in our config; several places hold the same value.
        default: when absent.
        values: their words for ours, the usual word first; None is the same words.
        heads: the kinds of head that it concerns; without other ones it is void. Empty is all.
        optional: leave it out where our config has no such place.
    """

    name: str
    places: str | tuple[str, ...]
    default: Any
    values: Mapping[Any, Any] | None = None
    heads: tuple[str, ...] = ()
    optional: bool = False

    def defaults(self) -> Mapping[str, Any]:
        return {self.name: self.default}

    def read(self, options: Options) -> Iterable[Override]:
        if self.heads and options.head not in self.heads:
            return []
        value = options[self.name]
        if self.values is not None:
            if not is_one_of(value, self.values):
                known = ", ".join(map(str, self.values))
                raise CheckpointError(f"{self.name} must be one of {known}", value=value)
            value = self.values[value]
        places = (self.places,) if isinstance(self.places, str) else self.places
        return [(place, value) for place in places]

    def write(self, ours: Data) -> Mapping[str, Any]:
        if self.heads and ours["head"]["kind"] not in self.heads:
            return {}
        place = self.places if isinstance(self.places, str) else self.places[0]
        if self.optional and not has(ours, place):
            return {}
        value = at(ours, place)
        if self.values is None:
            return {self.name: value}
        for theirs, mine in self.values.items():
            if mine == value:
                return {self.name: theirs}
        raise CheckpointError(f"{self.name} has no word for this", value=value)


@dataclass(frozen=True)
class Labels(Entry):
    """How many classes: ``num_labels``, or as many as ``id2label`` names, or two."""

    heads: tuple[str, ...] = ("sequence_class", "token_class")

    def defaults(self) -> Mapping[str, Any]:
        return {"id2label": None, "label2id": None, "num_labels": 2}  # names may be too few, as in 2019

    def read(self, options: Options) -> Iterable[Override]:
        if options.head not in self.heads:
            return []
        names, count = options["id2label"], options.data.get("num_labels")
        if count is None:
            if not isinstance(names, dict | list | None):
                raise CheckpointError("id2label must be a mapping of numbers to names", value=names)
            count = options["num_labels"] if names is None else len(names)
        return [("head.n_classes", count)]

    def write(self, ours: Data) -> Mapping[str, Any]:
        if ours["head"]["kind"] not in self.heads:
            return {}
        names = [f"LABEL_{i}" for i in range(ours["head"]["n_classes"])]
        return {
            "id2label": {str(i): name for i, name in enumerate(names)},
            "label2id": {name: i for i, name in enumerate(names)},
        }


@dataclass(frozen=True)
class Allowed:
    """Options that are understood, but of which only some values can be built; the first one is the default."""

    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def check(self, data: Mapping[str, Any]) -> None:
        """Refuse other values.

        Raises:
            CheckpointError: it names the option.
        """
        for name, allowed in self.values.items():
            if name in data and data[name] not in allowed:
                can = " or ".join(repr(value) for value in allowed)
                raise CheckpointError(f"the option {name} can't be other than {can} here", value=data[name])


def at(ours: Data, place: str) -> Any:
    """The value at a dotted place.

    Raises:
        CheckpointError: our config has no such place.
    """
    node: Any = ours
    for key in place.split("."):
        if not isinstance(node, dict) or key not in node:
            raise CheckpointError(f"the config has no {place}")
        node = node[key]
    return node


def has(ours: Data, place: str) -> bool:
    """Whether our config has such a place."""
    node: Any = ours
    for key in place.split("."):
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True


def is_one_of(value: Any, known: Collection[Any]) -> bool:
    """Whether a value of JSON, which may be anything, is one of these words or numbers."""
    return isinstance(value, Hashable) and value in known


def words(text: str) -> frozenset[str]:
    """The words of a text, to write a long set of names."""
    return frozenset(text.split())


def activations(*usual: str) -> dict[str, str]:
    """What the families call our activations; of several words for one, ``usual`` ones are written."""
    return {word: ACTIVATIONS[word] for word in (*usual, *ACTIVATIONS)}


ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu2": "relu2",
    "relu_squared": "relu2",
    "tanh": "tanh",
}

COMMON_ALLOWED = Allowed(
    {
        "add_cross_attention": (False, None),
        "cross_attention_hidden_size": (None,),
        "is_decoder": (False, None),
        "is_encoder_decoder": (False, None),
        "per_layer_config": (None, {}),
        "pruned_heads": ({}, None),
        "quantization_config": (None,),
        "tie_encoder_decoder": (False, None),
    }
)

# entries that say nothing about what a model computes: who wrote it, how it is decoded, what it returns
COMMON_VOID = words("""
    model_type architectures transpect _name_or_path name_or_path _commit_hash transformers_version
    torch_dtype dtype transformers.js_config tokenizer_class processor_class auto_map finetuning_task
    task_specific_params problem_type prefix bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id
    unk_token_id mask_token_id eos_token_ids decoder_start_token_id forced_bos_token_id forced_eos_token_id use_cache
    return_dict return_dict_in_generate output_attentions output_hidden_states output_scores output_past
    tie_last_hidden_states torchscript use_bfloat16 tf_legacy_loss gradient_checkpointing
    chunk_size_feed_forward attn_implementation _attn_implementation _attn_implementation_autoset max_length
    min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
    bad_words_ids num_return_sequences remove_invalid_values exponential_decay_length_penalty suppress_tokens
    begin_suppress_tokens unsloth_fixed unsloth_version custom_pipelines
""")
