"""Every family against `transformers`, on tiny random models whose odd sizes and weights hide nothing.

A family gains its tests by rows in CASES: a model of theirs goes through a checkpoint directory into ours.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
)

from transpect.cache import DenseCache
from transpect.core import CausalLM, Pooled, SequenceClass, Tags, Transformer
from transpect.interop import load_model, save_model
from transpect.interop.families import FAMILIES
from transpect.interop.family import canonical
from transpect.interop.tensors import pack_state

TOLERANCE = 1e-5
UNREAD = {"cls.predictions.bias"}  # of an untied BERT: a second bias that nothing uses
LENGTHS = (40, 37, 31)  # of the rows of a padded batch
PAD = 96

GPT2: dict[str, Any] = {"vocab_size": 97, "n_positions": 64, "n_embd": 48, "n_layer": 3, "n_head": 3, "n_inner": None}
BERT: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 60,
    "max_position_embeddings": 64,
    "type_vocab_size": 3,
}
T5: dict[str, Any] = {
    "vocab_size": 97,
    "d_model": 48,
    "d_kv": 10,
    "d_ff": 60,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 10,
    "relative_attention_max_distance": 23,
}
GATED: dict[str, Any] = {
    **T5,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
    "layer_norm_epsilon": 1e-2,
}
LLAMA: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 60,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": PAD}


def scaled(rope_type: str, **options: Any) -> dict[str, Any]:
    return {**LLAMA, "rope_parameters": {"rope_type": rope_type, "rope_theta": 1000.0, **options}}


YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def own_head(model: nn.Module) -> None:
    """Untie it, as checkpoints of T5 v1.1 are; `transformers` ties a new model in any case."""
    model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))


@dataclass(frozen=True)
class Case:
    name: str
    config: Callable[..., Any]
    model: Callable[[Any], nn.Module]
    options: dict[str, Any]
    prepare: Callable[[nn.Module], None] = lambda model: None
    generates: bool = True
    extra: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("gpt2", GPT2Config, GPT2LMHeadModel, GPT2),
    Case(
        "gpt2-untied",
        GPT2Config,
        GPT2LMHeadModel,
        {
            **GPT2,
            "n_inner": 60,
            "activation_function": "relu",
            "scale_attn_weights": False,
            "layer_norm_epsilon": 1e-2,
            "tie_word_embeddings": False,
        },
    ),
    Case("gpt2-classes", GPT2Config, GPT2ForSequenceClassification, {**GPT2, "num_labels": 5}),
    Case("bert", BertConfig, BertForMaskedLM, BERT),
    Case(
        "bert-untied",
        BertConfig,
        BertForMaskedLM,
        {**BERT, "hidden_act": "relu", "tie_word_embeddings": False, "layer_norm_eps": 1e-2},
    ),
    Case("bert-pooler", BertConfig, BertModel, BERT),
    Case("bert-classes", BertConfig, BertForSequenceClassification, {**BERT, "num_labels": 5}),
    Case("bert-token-classes", BertConfig, BertForTokenClassification, {**BERT, "num_labels": 5}),
    Case("t5", T5Config, T5ForConditionalGeneration, T5),
    Case("t5-gated", T5Config, T5ForConditionalGeneration, GATED, prepare=own_head),
    Case("t5-gated-tied", T5Config, T5ForConditionalGeneration, GATED),
    Case("llama", LlamaConfig, LlamaForCausalLM, LLAMA),
    Case(
        "llama-biased-tied",
        LlamaConfig,
        LlamaForCausalLM,
        {**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu_new"},
    ),
    Case(
        "llama-wide-heads",
        LlamaConfig,
        LlamaForCausalLM,
        {**LLAMA, "head_dim": 10, "num_key_value_heads": 3, "rms_norm_eps": 1e-2},
    ),
    Case("llama-linear", LlamaConfig, LlamaForCausalLM, scaled("linear", factor=4.0)),
    Case(
        "llama-dynamic",
        LlamaConfig,
        LlamaForCausalLM,
        {**scaled("dynamic", factor=4.0), "max_position_embeddings": 16},
        generates=False,  # there the base grows under the cached keys; here the final length is stated first
    ),
    Case("llama-yarn", LlamaConfig, LlamaForCausalLM, scaled("yarn", **YARN)),
    Case(
        "llama-yarn-mscale",
        LlamaConfig,
        LlamaForCausalLM,
        scaled("yarn", **YARN, mscale=0.7, mscale_all_dim=0.4, beta_fast=8.0, beta_slow=0.1, truncate=False),
    ),
    Case("llama-llama3", LlamaConfig, LlamaForCausalLM, scaled("llama3", **LLAMA3)),
    Case("llama-classes", LlamaConfig, LlamaForSequenceClassification, {**LLAMA, "num_labels": 5}),
]


@dataclass(frozen=True)
class Pair:
    """The same model there and here."""

    case: Case
    folder: Path
    theirs: nn.Module
    ours: Transformer

    @property
    def kind(self) -> str:
        return self.ours.config.kind


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case = request.param
    folder = tmp_path_factory.mktemp(case.name)
    theirs = case.model(case.config(**case.options, **IDS, attn_implementation="eager")).eval()
    case.prepare(theirs)
    randomize(theirs)
    theirs.save_pretrained(folder)
    return Pair(case, folder, theirs, load_model(folder, kernel="naive"))


@torch.no_grad()
def randomize(model: nn.Module) -> None:
    """Give every parameter numbers that matter: no bias is zero, no norm weight is one."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        norm = parameter.ndim == 1 and name.endswith("weight")
        parameter.normal_(1.0 if norm else 0.0, 0.1, generator=generator)


class Record:
    """A tap that keeps what each layer was given."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []

    def see(self, name: str, value: Tensor) -> None:
        if re.fullmatch(r"(\w+\.)?\d+\.input", name):
            self.inputs.append(value)


@dataclass(frozen=True)
class Inputs:
    """A batch for both. An encoder–decoder reads it as source and writes `target`."""

    ids: Tensor
    real: Tensor
    types: Tensor
    target: Tensor

    @property
    def tags(self) -> Tags:
        # for dynamic NTK, which there depends on the longest row
        return Tags.padded(self.real, horizon=torch.full((len(self.ids),), int(self.real.sum(-1).max())))

    @property
    def positions(self) -> Tensor:
        return self.tags.position.clamp(min=0)


def inputs(side: str) -> Inputs:
    """Rows of LENGTHS padded on a side, or all of the same length for ``none``."""
    generator = torch.Generator().manual_seed(1)
    shape = (len(LENGTHS), max(LENGTHS))
    ids, types = (torch.randint(0, high, shape, generator=generator) for high in (PAD, 3))
    columns, lengths = torch.arange(max(LENGTHS)), torch.tensor(LENGTHS)[:, None]
    real = torch.ones(shape, dtype=torch.bool)
    if side != "none":
        real = columns >= max(LENGTHS) - lengths if side == "left" else columns < lengths
    target = torch.randint(0, PAD, (len(LENGTHS), 9), generator=generator)
    return Inputs(torch.where(real, ids, PAD), real, types, target)


def run_theirs(pair: Pair, batch: Inputs) -> Any:
    more: dict[str, Any] = {"attention_mask": batch.real.long(), "output_hidden_states": True}
    if pair.kind == "encoder-decoder":
        more["decoder_input_ids"] = batch.target
    else:
        more["position_ids"] = batch.positions
    if pair.ours.config.embedding.token_types:
        more["token_type_ids"] = batch.types
    return pair.theirs(batch.ids, **more)


def run_ours(pair: Pair, batch: Inputs, record: Record) -> Tensor:
    """The head's output; `record` sees the layers in the order of the towers."""
    if pair.kind == "encoder-decoder":
        source = pair.ours.encode(batch.ids, tags=batch.tags, tap=record)
        return pair.ours(batch.target, source=source, tap=record)
    types = batch.types if pair.ours.config.embedding.token_types else None
    return pair.ours(batch.ids, tags=batch.tags, token_types=types, tap=record)


def their_output(pair: Pair, out: Any) -> Tensor:
    return out.pooler_output if isinstance(pair.ours.config.head, Pooled) else out.logits


def pools_first(pair: Pair) -> bool:
    return getattr(pair.ours.config.head, "pool", None) == "first"


def at_tokens(value: Tensor, batch: Inputs) -> Tensor:
    """Only real tokens count: what stands at padding is nobody's business."""
    return value[batch.real] if value.shape[:2] == batch.real.shape else value


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float = TOLERANCE) -> None:
    assert ours.shape == theirs.shape
    worst = float((ours - theirs).abs().max())
    assert worst <= tolerance, f"differs by {worst:.2e}"


@pytest.mark.parametrize("side", ["none", "left", "right"])
@torch.no_grad()
def test_logits_and_hidden_states(pair: Pair, side: str) -> None:
    if side == "left" and pools_first(pair):
        pytest.skip("there, a head on the first token reads the padding")
    batch, record = inputs(side), Record()
    theirs = run_theirs(pair, batch)
    ours = run_ours(pair, batch, record)
    expected = their_output(pair, theirs)
    assert expected.abs().max() > 0.1, "this comparison would not see anything"
    assert_close(at_tokens(ours, batch), at_tokens(expected, batch))
    if pair.kind == "encoder-decoder":
        hidden = [*theirs.encoder_hidden_states[:-1], *theirs.decoder_hidden_states[:-1]]
        assert_close(
            at_tokens(pair.ours.encode(batch.ids, tags=batch.tags).hidden, batch),
            at_tokens(theirs.encoder_last_hidden_state, batch),
        )
    else:
        *hidden, last = theirs.hidden_states
        types = batch.types if pair.ours.config.embedding.token_types else None
        assert_close(
            at_tokens(pair.ours.hidden(batch.ids, tags=batch.tags, token_types=types), batch), at_tokens(last, batch)
        )
    assert len(record.inputs) == len(hidden)
    for mine, other in zip(record.inputs, hidden, strict=True):
        assert_close(at_tokens(mine, batch), at_tokens(other, batch))


def test_gradients(pair: Pair) -> None:
    """The gradient of every tensor, under the names and in the layout of the other side."""
    batch = inputs("right" if pools_first(pair) else "left")
    for model in (pair.theirs, pair.ours):
        model.zero_grad()
    expected = at_tokens(their_output(pair, run_theirs(pair, batch)), batch)
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2)) / expected.numel() ** 0.5
    (expected * direction).sum().backward()
    (at_tokens(run_ours(pair, batch, Record()), batch) * direction).sum().backward()
    gradients = {name: parameter.grad for name, parameter in pair.ours.named_parameters()}
    silent = [name for name, gradient in gradients.items() if gradient is None]
    assert not silent
    family = FAMILIES[pair.theirs.config.model_type]
    bare = type(pair.theirs).__name__ in family.bare
    links = family.links(pair.ours.config, {name: g.shape for name, g in gradients.items()}, bare=bare)
    there = dict(pair.theirs.named_parameters())
    for name, gradient in pack_state(gradients, links).items():
        theirs = there[name].grad
        assert_close(gradient, theirs, TOLERANCE * max(1.0, float(theirs.abs().max())))
    for model in (pair.theirs, pair.ours):
        model.zero_grad()


@pytest.mark.parametrize("side", ["none", "left"])
@torch.no_grad()
def test_greedy_generation(pair: Pair, side: str) -> None:
    if not isinstance(pair.ours.config.head, CausalLM) or not pair.case.generates:
        pytest.skip("it does not generate, or not by the same rule")
    batch, n = inputs(side), 20
    start: dict[str, Any] = {"decoder_start_token_id": 3} if pair.kind == "encoder-decoder" else {}
    theirs = pair.theirs.generate(
        batch.ids, attention_mask=batch.real.long(), max_new_tokens=n, min_new_tokens=n, do_sample=False, **start
    )
    cache, more, ids, tags = DenseCache(), {}, batch.ids, batch.tags
    if start:
        more = {"source": pair.ours.encode(batch.ids, tags=batch.tags)}
        ids, tags = torch.full((len(batch.ids), 1), 3), None
    written = []
    for _ in range(n):
        ids = pair.ours(ids, tags=tags, cache=cache, **more)[:, -1:].argmax(-1)
        tags = None
        written.append(ids)
    assert torch.equal(torch.cat(written, 1), theirs[:, -n:])


@torch.no_grad()
def test_there_and_back(pair: Pair, tmp_path: Path) -> None:
    """ours -> theirs -> ours: the same family, the same bits, the same logits."""
    save_model(pair.ours, tmp_path / "ours", generation={"pad_token_id": PAD})
    theirs, report = type(pair.theirs).from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.get(key) for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"))
    batch = inputs("left")
    assert_close(
        at_tokens(their_output(pair, run_theirs(Pair(pair.case, tmp_path, theirs.eval(), pair.ours), batch)), batch),
        at_tokens(their_output(pair, run_theirs(pair, batch)), batch),
    )
    read = dict(theirs.named_parameters())
    assert all(torch.equal(read[name], value) for name, value in pair.theirs.named_parameters() if name not in UNREAD)
    theirs.save_pretrained(tmp_path / "theirs")
    for folder in ("ours", "theirs"):
        again = load_model(tmp_path / folder, kernel="naive")
        assert canonical(again.config) == canonical(pair.ours.config)
        state = again.state_dict()
        assert all(torch.equal(state[name], tensor) for name, tensor in pair.ours.state_dict().items())
    if isinstance(pair.ours.config.head, SequenceClass):
        assert theirs.config.num_labels == pair.ours.config.head.n_classes
