"""Pickled weights are read when they are asked for by name, as tensors and nothing else."""

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transpect.base.errors import CheckpointError
from transpect.core import ModelConfig, Transformer
from transpect.interop import load_model, save_model

Small = Callable[..., ModelConfig]
Save = Callable[..., Path]


@pytest.fixture
def pickled(small: Small, tmp_path: Path) -> Save:
    """Save a preset as its family does, with its weights pickled; ``edit`` changes what is pickled."""

    def save(name: str, edit: Callable[[dict[str, Any]], Any] = lambda state: state, **options: Any) -> Path:
        folder = tmp_path / name
        model = Transformer(small(name))
        save_model(model, folder)
        state = torch_state(folder)
        (folder / "model.safetensors").unlink()
        torch.save(edit(state), folder / "pytorch_model.bin", **options)
        return folder

    return save


def torch_state(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def assert_read(folder: Path, model: Transformer, **options: Any) -> Transformer:
    again = load_model(folder, allow_pickle=True, **options)
    read = again.state_dict()
    assert all(torch.equal(read[key], value.to(read[key].dtype)) for key, value in model.state_dict().items())
    return again


def said(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(folder, allow_pickle=True)
    return str(caught.value)


@pytest.mark.parametrize("name", ["gpt2", "bert-base", "t5-small", "llama", "gpt1"])
@pytest.mark.parametrize("modern", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_pickled_weights_are_those_of_the_model(
    pickled: Save, small: Small, name: str, modern: bool, dtype: str | None
) -> None:
    folder = pickled(name, _use_new_zipfile_serialization=modern)
    assert_read(folder, Transformer(small(name)), dtype=dtype)


def test_only_where_they_are_asked_for(pickled: Save) -> None:
    with pytest.raises(CheckpointError, match="--allow-pickle"):
        load_model(pickled("llama"))


def test_safetensors_come_first(pickled: Save, small: Small) -> None:
    """Though pickled ones are allowed, and say otherwise."""
    folder = pickled("llama", lambda state: {key: value + 1 for key, value in state.items()})
    other = folder.with_name("other")
    model = Transformer(small("llama"))
    save_model(model, other)
    (other / "model.safetensors").rename(folder / "model.safetensors")
    assert_read(folder, model)


def split(folder: Path) -> dict[str, Any]:
    state = torch.load(folder / "pytorch_model.bin", weights_only=True)
    (folder / "pytorch_model.bin").unlink()
    table = {}
    for part in (0, 1):
        file = f"pytorch_model-0000{part + 1}-of-00002.bin"
        half = dict(list(state.items())[part::2])
        torch.save(half, folder / file)
        table |= dict.fromkeys(half, file)
    index = {"metadata": {}, "weight_map": table}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return index


def test_shards(pickled: Save, small: Small) -> None:
    folder = pickled("bert-base")
    index = split(folder)
    assert_read(folder, Transformer(small("bert-base")))
    name = next(iter(index["weight_map"]))
    index["weight_map"][name] = "../pytorch_model-00001-of-00002.bin"
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert "plain file name" in said(folder)
    index["weight_map"][name] = "pytorch_model-00002-of-00002.bin"
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert "lacks tensors that the index puts there" in said(folder)


def test_names_of_an_older_day(pickled: Save, small: Small) -> None:
    def age(state: dict[str, Any]) -> dict[str, Any]:
        swaps = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        for new, old in swaps.items():
            state = {key.replace(new, old): value for key, value in state.items()}
        return state

    assert_read(pickled("bert-base", age), Transformer(small("bert-base")))


def test_a_prefix_that_no_family_has_is_named(pickled: Save) -> None:
    message = said(pickled("llama", lambda state: {f"module.{key}": value for key, value in state.items()}))
    assert "missing (embed_tokens.weight" in message
    assert "unexpected (module." in message


def test_what_shared_memory_does_not_go_on_sharing(pickled: Save, small: Small) -> None:
    """Two tensors of one storage, and one that is a part of a larger one, as torch.save keeps them."""

    def share(state: dict[str, Any]) -> dict[str, Any]:
        norms = [key for key in state if "norm" in key]
        whole = torch.arange(48.0 * 3).view(48, 3)
        for key in norms[:2]:
            state[key] = whole[:, 1]
        return state

    folder = pickled("llama", share)
    model = load_model(folder, allow_pickle=True)
    norms = [value for value in model.state_dict().values() if torch.equal(value, torch.arange(48.0) * 3 + 1)]
    assert len(norms) == 2
    with torch.no_grad():
        norms[0].zero_()
    assert norms[1].any()


def test_a_tied_head_saved_twice(pickled: Save, small: Small) -> None:
    def tie(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "lm_head.weight": state["transformer.wte.weight"]}

    assert_read(pickled("gpt2", tie), Transformer(small("gpt2")))


def test_parameters_are_tensors(pickled: Save, small: Small) -> None:
    folder = pickled("llama", lambda state: {key: nn.Parameter(value) for key, value in state.items()})
    assert_read(folder, Transformer(small("llama")))


class Evil:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("modern", [True, False], ids=["zip", "legacy"])
def test_nothing_in_them_runs(pickled: Save, tmp_path: Path, modern: bool) -> None:
    mark = tmp_path / "mark"
    folder = pickled("llama", lambda state: {**state, "x": Evil(mark)}, _use_new_zipfile_serialization=modern)
    message = said(folder)
    assert "weights_only" not in message, "no advice to read it unsafely"
    assert not mark.exists()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(mark)))
    said(folder)
    assert not mark.exists()


WRONG: list[Callable[[dict[str, Any]], Any]] = [
    lambda state: {"model": state},
    lambda state: {**state, "step": 3},
    lambda state: list(state.values()),
    lambda state: {**state, 7: torch.zeros(1)},
    lambda state: {**state, "x": torch.eye(3).to_sparse()},
    lambda state: {},
]


@pytest.mark.parametrize("edit", WRONG, ids=["nested", "number", "list", "key", "sparse", "empty"])
def test_what_is_no_dictionary_of_tensors_is_refused(pickled: Save, edit: Callable[[dict[str, Any]], Any]) -> None:
    assert "pytorch_model.bin" in said(pickled("llama", edit)) or "missing" in said(pickled("llama", edit))


def test_damaged_files_are_refused(pickled: Save) -> None:
    file = pickled("llama") / "pytorch_model.bin"
    whole = file.read_bytes()
    for content in (b"", b"x", whole[:10], whole[: len(whole) // 2], whole[:-30], b"PK\x03\x04" + bytes(100)):
        file.write_bytes(content)
        assert "pytorch_model.bin" in said(file.parent)


def test_a_file_that_would_swell_is_refused(pickled: Save) -> None:
    file = pickled("llama") / "pytorch_model.bin"
    with zipfile.ZipFile(file) as packed:
        entries = {name: packed.read(name) for name in packed.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in entries.items():
            packed.writestr(name, content)
    assert "stored, not compressed" in said(file.parent)


# ---- configs that name no family


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "bert-base", "t5-small"])
def test_a_config_without_a_family_has_the_one_whose_tensors_it_has(small: Small, tmp_path: Path, name: str) -> None:
    from transpect.interop.families import FAMILIES

    model = Transformer(small(name))
    save_model(model, tmp_path / "x")
    file = tmp_path / "x" / "config.json"
    data = json.loads(file.read_text())
    family = FAMILIES[data.pop("model_type")]
    allowed = {*family.allowed.values}
    del data["architectures"]
    file.write_text(json.dumps({key: value for key, value in data.items() if key not in allowed}))
    again = load_model(tmp_path / "x")
    assert type(again.config.head) is type(model.config.head)
    assert all(torch.equal(again.state_dict()[key], value) for key, value in model.state_dict().items())


def test_a_config_that_fits_no_family_says_so(small: Small, tmp_path: Path) -> None:
    """Nor is one guessed that has named itself ever since it was published."""
    save_model(Transformer(small("llama")), tmp_path / "x")
    file = tmp_path / "x" / "config.json"
    unnamed = {key: value for key, value in json.loads(file.read_text()).items() if key != "model_type"}
    for data in ({"hidden_size": 7}, unnamed):
        file.write_text(json.dumps(data))
        with pytest.raises(CheckpointError, match=r'names no model_type.*"model_type": '):
            load_model(tmp_path / "x")


# ---- published weights


@pytest.mark.weights
def test_rxnfp_fills_the_masks_of_a_reaction() -> None:
    """A masked language model of 2019, its tokens the atoms and signs of a reaction in SMILES."""
    import re
    from importlib import metadata

    try:
        metadata.distribution("rxnfp")
    except metadata.PackageNotFoundError:
        pytest.skip("the package rxnfp is not installed: pip install --no-deps rxnfp")
    from transpect.interop import locate

    place = locate("pip:rxnfp/bert_pretrained")
    model = load_model(place, allow_pickle=True)
    vocabulary = {token: at for at, token in enumerate((place / "vocab.txt").read_text().split("\n"))}
    atoms = re.compile(r"\[[^\]]+\]|Br|Cl|>>|%\d\d|[A-Za-z]|[()=#.\-+\\/:~@?*$]|\d")
    tokens = atoms.findall("CC(=O)Cl.NCc1ccccc1>>CC(=O)NCc1ccccc1")
    assert len(tokens) == 35
    ids = [vocabulary[token] for token in ("[CLS]", *tokens, "[SEP]")]
    rows = torch.tensor([ids] * len(tokens))
    for row in range(len(tokens)):
        rows[row, row + 1] = vocabulary["[MASK]"]
    with torch.no_grad():
        best = model(rows).argmax(-1)
    assert sum(int(best[row, row + 1]) == ids[row + 1] for row in range(len(tokens))) >= 33
