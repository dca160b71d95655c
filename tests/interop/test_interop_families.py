"""What every family promises, whichever there are: each sentence is tried on each row of FAMILIES.

The models are the tiny ones of the parity tests, read from their configs and saved by us.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from family_cases import CASES
from family_cases.base import IDS
from safetensors.torch import load_file, save_file

from transpect.base.errors import TranspectError
from transpect.core import CausalLM, ModelConfig, Transformer
from transpect.interop import load_config, load_model, save_model
from transpect.interop.families import FAMILIES
from transpect.interop.family import Family, canonical
from transpect.interop.options import COMMON_ALLOWED, COMMON_VOID
from transpect.interop.tensors import Alias

Tensors = dict[str, torch.Tensor]
FIRST = {case.config.model_type: case for case in reversed(CASES)}


@dataclass(frozen=True)
class Saved:
    """A checkpoint of a family, and what it should hold."""

    family: Family
    folder: Path
    model: Transformer
    data: dict[str, Any]
    tensors: Tensors

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    def with_tensors(self, tensors: Tensors) -> Path:
        self.write(self.data)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, self.folder / "model.safetensors")
        return self.folder

    def write(self, data: dict[str, Any]) -> Path:
        (self.folder / "config.json").write_text(json.dumps(data))
        return self.folder

    def refused(self, tensors: Tensors) -> str:
        with pytest.raises(TranspectError) as caught:
            load_model(self.with_tensors(tensors))
        return str(caught.value)


@pytest.fixture(scope="module", params=FAMILIES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    assert request.param in FIRST, "a family has a row in the parity tests"
    case = FIRST[request.param]
    family = FAMILIES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    theirs = case.config(**case.options, **IDS)
    theirs.architectures = [case.model.__name__]
    theirs.save_pretrained(folder)
    model = Transformer(load_config(folder))
    save_model(model, folder)
    data = json.loads((folder / "config.json").read_text())
    return Saved(family, folder, model, data, load_file(folder / "model.safetensors"))


def aliases(saved: Saved) -> list[Alias]:
    """The second names of tensors that are there."""
    table = saved.family.table(saved.config)
    bare = saved.data["architectures"][0] in saved.family.bare
    cut: Callable[[str], str] = (lambda name: name.removeprefix(table.prefix)) if bare else (lambda name: name)
    return [Alias(cut(alias.theirs), cut(alias.of), alias.binding) for alias in table.aliases]


def kinds(saved: Saved) -> list[str]:
    """One tensor of each kind: those of the first layers, and those outside of layers."""
    seen: dict[str, str] = {}
    for name in sorted(saved.tensors):
        seen.setdefault("".join("#" if part.isdigit() else f".{part}" for part in name.split(".")), name)
    return list(seen.values())


def unread(saved: Saved) -> set[str]:
    """Tensors that are written for others, and made up for by their first names."""
    return {alias.theirs for alias in aliases(saved) if not alias.binding}


def computed(saved: Saved) -> set[str]:
    """Tensors that follow from the config."""
    return {item.theirs for item in saved.family.table(saved.config).computed}


def test_a_missing_tensor_is_named(saved: Saved) -> None:
    spare = {*unread(saved), *computed(saved), *saved.family.table(saved.config).zeros}
    for name in kinds(saved):
        if name not in spare:
            message = saved.refused({other: value for other, value in saved.tensors.items() if other != name})
            assert f"1 tensor is missing ({name})" in message


def test_what_may_be_missing_is_what_the_family_says_it_is(saved: Saved) -> None:
    """Zeros, or what follows from the config; nothing else of the model changes."""
    zeros = saved.family.table(saved.config).zeros
    for name in saved.tensors.keys() & {*unread(saved), *computed(saved), *zeros}:
        left = {other: value for other, value in saved.tensors.items() if other != name}
        again = load_model(saved.with_tensors(left))
        tensors = pack(saved, again)
        wanted = torch.zeros_like(saved.tensors[name]) if name in zeros else saved.tensors[name]
        assert torch.equal(tensors[name], wanted)
        assert all(torch.equal(tensors[other], value) for other, value in left.items())


def pack(saved: Saved, model: Transformer) -> Tensors:
    """What is written of a model."""
    with TemporaryDirectory() as folder:
        save_model(model, Path(folder) / "x")
        return load_file(Path(folder) / "x" / "model.safetensors")


def test_a_misshaped_tensor_is_named(saved: Saved) -> None:
    for name in kinds(saved):
        if name in {*unread(saved), *computed(saved)}:
            continue
        wrong = torch.cat([saved.tensors[name]] * 2)
        assert f"1 tensor is mis-shaped ({name}: {list(wrong.shape)}" in saved.refused({**saved.tensors, name: wrong})


def test_a_tensor_that_follows_from_the_config_may_be_longer_and_not_other(saved: Saved) -> None:
    for item in saved.family.table(saved.config).computed:
        right = item.tensor(torch.float32)
        longer = item.make((2 * right.shape[0], *right.shape[1:]))
        again = load_model(saved.with_tensors({**saved.tensors, item.theirs: longer})).state_dict()
        assert all(torch.equal(again[name], value) for name, value in saved.model.state_dict().items())
        for wrong in (right + 0.1, right[:, :-1], torch.cat([right] * 2), right.flatten()):
            message = saved.refused({**saved.tensors, item.theirs: wrong})
            assert f"{item.theirs} follows from the config" in message


def test_an_unexpected_tensor_is_named(saved: Saved) -> None:
    for name in kinds(saved)[:3]:
        extra = f"{name}.surprise"
        assert f"1 tensor is unexpected ({extra})" in saved.refused({**saved.tensors, extra: torch.zeros(2)})


def test_a_second_name_may_repeat_numbers_and_not_differ(saved: Saved) -> None:
    for alias in aliases(saved):
        if not alias.binding or alias.of not in saved.tensors:
            continue
        original = saved.tensors[alias.of]
        again = load_model(saved.with_tensors({**saved.tensors, alias.theirs: original.clone()})).state_dict()
        assert all(torch.equal(again[name], value) for name, value in saved.model.state_dict().items())
        other, wrong = original + 1e-3, torch.cat([original] * 2)
        if unties(saved, alias.theirs):
            model = load_model(saved.with_tensors({**saved.tensors, alias.theirs: other}))
            assert model.config.head == replace(saved.config.head, tied=False)
            assert torch.equal(pack(saved, model)[alias.theirs], other)
            assert alias.theirs in saved.refused({**saved.tensors, alias.theirs: wrong})
            continue
        for value in (other, wrong):
            message = saved.refused({**saved.tensors, alias.theirs: value})
            assert alias.theirs in message
            assert "differ" in message


def unties(saved: Saved, name: str) -> bool:
    """Whether the presence of a head says that it is not tied, and not the config (T5 v1.1 as `transformers` 5 saves
    it)."""
    head = saved.config.head
    by_presence = saved.family.model_type in ("t5", "mt5", "umt5", "longt5") and name == "lm_head.weight"
    return by_presence and isinstance(head, CausalLM) and not head.rescaled


def test_a_head_is_tied_only_where_the_config_ties_it(saved: Saved) -> None:
    """With the config turned round, the same tensors are no longer the model's.

    In LongT5 the option says whether a head is rescaled, and the tensors whether it is tied.
    """
    ties = getattr(saved.config.head, "tied", None)
    if ties is None or "tie_word_embeddings" not in saved.data:
        pytest.skip("this family's first model has no head that could be tied")
    saved.with_tensors(saved.tensors)
    saved.write({**saved.data, "tie_word_embeddings": not ties})
    if saved.family.model_type == "longt5":
        assert load_model(saved.folder).config.head == replace(saved.config.head, rescaled=not ties)
        return
    with pytest.raises(TranspectError, match=r"missing|unexpected|tie|differ"):
        load_model(saved.folder)


def test_a_config_alone_can_be_read(saved: Saved) -> None:
    """Without weights beside it, it is the model that it is with them."""
    saved.with_tensors(saved.tensors)
    with_weights = load_config(saved.folder)
    (saved.folder / "model.safetensors").unlink()
    alone = load_config(saved.folder)
    assert alone == with_weights
    assert canonical(alone) == canonical(saved.config)
    with pytest.raises(TranspectError, match=r"no model\.safetensors"):
        load_model(saved.folder)


def test_an_unknown_option_is_refused_by_name(saved: Saved) -> None:
    with pytest.raises(TranspectError, match="surprise_option"):
        load_config(saved.write({**saved.data, "surprise_option": 1}))


# values that mean what the written one means: a window is as wide to either side as half of it, rounded down
DEAF: dict[str, dict[str, tuple[Any, ...]]] = {"modernbert": {"local_attention": (11,)}}


def changed(value: Any) -> list[Any]:
    """Other values of an option's kind; of a mapping, one entry changed or one too many."""
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value * 2, value + 1]
        case str():
            return ["surprise"]
        case list() if value:
            return [[], value + value[:1]]
        case dict() if value:
            others = [{**value, key: other} for key, inner in value.items() for other in changed(inner)]
            return [*others, {**value, "surprise": 1}]
        case _:
            return [7]


def test_no_option_is_read_in_vain(saved: Saved) -> None:
    """Each one that we write changes the model when it is changed, or is refused, or is known to be void."""
    void = saved.family.void | COMMON_VOID
    before = load_config(saved.write(saved.data))
    for name, value in saved.data.items():
        if name in void:
            continue
        deaf = DEAF.get(saved.family.model_type, {}).get(name, ())
        for other in [other for other in changed(value) if other != value and other not in deaf]:
            saved.write({**saved.data, name: other})
            with suppress(TranspectError):
                assert load_config(saved.folder) != before, f"{name}={other!r} is dropped in silence"


def test_what_is_allowed_alone_is_all_that_is_allowed(saved: Saved) -> None:
    for name in {**COMMON_ALLOWED.values, **saved.family.allowed.values}:
        with pytest.raises(TranspectError, match=name):
            load_config(saved.write({**saved.data, name: "surprise"}))


SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "surprise", "factor": 2.0},
    {"type": "linear", "factor": 2.0, "surprise": 1},
    {"type": "linear"},
    {"factor": 2.0},
]


def test_the_scaling_of_rope_is_never_dropped(saved: Saved) -> None:
    """A family that has it builds it or refuses it; one that has not refuses the option."""
    before = load_config(saved.write(saved.data))
    plain = {name: value for name, value in saved.data.items() if name not in ("rope_parameters", "rope_scaling")}
    for scaling in SCALINGS:
        with pytest.raises(TranspectError):
            load_config(saved.write({**plain, "rope_scaling": scaling}))
    try:
        after = load_config(saved.write({**plain, "rope_scaling": {"type": "linear", "factor": 2.0}}))
    except TranspectError:
        return
    assert after != before


def test_files_of_pickled_and_safe_weights_mean_the_same(saved: Saved) -> None:
    """Whatever the layouts of a family: read from a pickled file, in another dtype, or by parts."""
    wanted = saved.model.state_dict()
    saved.with_tensors(saved.tensors)
    for dtype in (None, "bfloat16", "float64"):
        read = load_model(saved.folder, dtype=dtype).state_dict()
        assert all(torch.equal(read[name], value.to(read[name].dtype)) for name, value in wanted.items())
        assert all(value.is_contiguous() or stays_transposed(value, dtype) for value in read.values())
    (saved.folder / "model.safetensors").unlink()
    torch.save(saved.tensors, saved.folder / "pytorch_model.bin")
    read = load_model(saved.folder, allow_pickle=True).state_dict()
    assert all(torch.equal(read[name], value) for name, value in wanted.items())
    assert all(value.is_contiguous() or stays_transposed(value, None) for value in read.values())


def stays_transposed(value: torch.Tensor, dtype: str | None) -> bool:
    """A matrix that is stored transposed stays so, but in half precision."""
    return dtype != "bfloat16" and value.ndim == 2 and value.stride(0) == 1
