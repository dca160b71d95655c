"""`transpect eval` reports the model's own probabilities of a text, once each."""

import json
import math

import pytest

import transpect

TEXTS = ["小猫爱吃鱼。", "小狗爱吃肉。", "老人在河边卖鱼。"]


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "data.txt"
    file.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return file


def test_the_numbers_are_the_model_s_own(cli, tiny, data) -> None:
    import torch

    lm = transpect.load(tiny, device="cpu")
    nats = 0.0
    for text in TEXTS:
        ids = [lm.tokenizer.bos_id, *lm.tokenizer.encode(text), lm.tokenizer.eos_id]
        with torch.no_grad():
            logprobs = lm.model(torch.tensor([ids[:-1]])).double().log_softmax(-1)[0]
        nats -= float(logprobs[range(len(ids) - 1), ids[1:]].sum())
    characters = sum(map(len, TEXTS))
    answer = cli("eval", tiny, "--data", data, "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out) == {
        "loss": pytest.approx(nats / (characters + 3), abs=1e-5),
        "perplexity": pytest.approx(math.exp(nats / (characters + 3)), rel=1e-5),
        "bits_per_character": pytest.approx(nats / math.log(2) / characters, abs=1e-5),
        "n_tokens": characters + 3,
        "n_characters": characters,
        "n_documents": 3,
    }


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_the_batch_size_changes_nothing(cli, tiny, data, batch_size: int) -> None:
    one = json.loads(cli("eval", tiny, "--data", data, "--json").out)
    assert json.loads(cli("eval", tiny, "--data", data, "--json", "--batch-size", batch_size).out) == pytest.approx(one)


def test_the_table_says_the_same_as_the_json(cli, tiny, data) -> None:
    values = json.loads(cli("eval", tiny, "--data", data, "--json").out)
    table = cli("eval", tiny, "--data", data).out
    for value in values.values():
        assert (f"{value:,}" if isinstance(value, int) else f"{value:.4f}") in table


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_model_whose_weights_are_no_numbers_has_no_loss(cli, tiny, data, tmp_path, number: float) -> None:
    lm = transpect.load(tiny, device="cpu")
    lm.model.load_state_dict({name: tensor * number for name, tensor in lm.model.state_dict().items()})
    lm.save(tmp_path / "damaged")
    for words in ((), ("--json",)):
        answer = cli("eval", tmp_path / "damaged", "--data", data, *words)
        assert answer.code == 2 and not answer.out
        assert "damaged: the model's loss must be a finite number" in answer.err


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("missing.txt", None, "missing.txt: no such file"),
        ("bad.jsonl", '{"text": 1}\n', "bad.jsonl:1: .*string"),
        ("blank.txt", "\n", "blank.txt: .*blank"),
        ("data.bin", "x", "data.bin: .*must end in"),
    ],
)
def test_data_that_can_t_be_read_is_one_line(cli, tiny, tmp_path, name, text, says) -> None:
    import re

    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    answer = cli("eval", tiny, "--data", tmp_path / name)
    assert answer.code == 2
    assert re.search(f"^error: .*{says}[^\n]*\n$", answer.err), answer.err


@pytest.mark.parametrize("lanes", [None, 2])
def test_a_run_with_memory_is_measured_as_it_was_in_training(cli, data, tmp_path, lanes) -> None:
    from transpect.train import parse_recipe, read_metrics, train

    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "context_length": 16, "positions": {"kind": "transformer_xl"}}
    objective = {"kind": "recurrent", "memory": 3, "eval_memory": 9}
    recipe = {
        "model": {"preset": "gpt2", **sizes},
        "tokenizer": "char",
        "data": {"train": str(data), "valid": str(data), "seq_len": 4, "objective": objective},
        "train": {"max_steps": 2, "batch_size": 3, "eval_batch_size": lanes, "optimizer": {"lr": 0.05}},
        "logging": {"tensorboard": False, "progress": "none"},
    }
    train(parse_recipe(recipe), tmp_path / "run")

    def loss(*words: object) -> float:
        answer = cli("eval", tmp_path / "run", "--json", *words)
        assert answer.code == 0, answer.err
        return json.loads(answer.out)["loss"]

    told = read_metrics(tmp_path / "run")[-1]["valid_loss"]
    assert loss() == loss("--memory", 9) == pytest.approx(told, abs=1e-6)
    assert len({loss("--memory", memory) for memory in (0, 1, 9)}) == 3
    assert loss("--memory", 0, "--batch-size", 1) != loss("--memory", 9, "--batch-size", 1)


def test_memory_is_refused_where_positions_end(cli, tiny, data) -> None:
    answer = cli("eval", tiny, "--data", data, "--memory", 8)
    assert answer.code == 2
    assert "with a memory positions go on from segment to segment" in answer.err
