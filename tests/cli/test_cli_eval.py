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


PAIRS = [("小猫爱吃鱼", "猫吃鱼"), ("小狗爱吃肉", "狗吃肉"), ("老人在河边卖鱼", "卖鱼的老人在河边"), ("小鸟", "鸟")]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    from transpect.core import Transformer, override, preset
    from transpect.lm import LanguageModel
    from transpect.text import train_tokenizer

    tokenizer = train_tokenizer("char", [text for pair in PAIRS for text in pair])
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 16, "context_length": 24}
    config = override(preset("transformer-base"), [*sizes.items(), ("vocab_size", tokenizer.vocab_size)])
    generation = {"decoder_start_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    lm = LanguageModel(Transformer(config, seed=6), tokenizer, generation)
    for weight in lm.model.parameters():
        weight.data *= 3.0 if weight.ndim > 1 else 1.0
    folder = tmp_path_factory.mktemp("translator")
    lm.save(folder / "m")
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "options", [(), ("--num-beams", 2, "--length-penalty", 0.5), ("--temperature", 1, "--seed", 3)]
)
def test_what_is_written_is_compared_as_sacrebleu_does(cli, translator, options) -> None:
    import sacrebleu

    lm = transpect.load(translator / "m", device="cpu")
    words = ("eval", translator / "m", "--data", translator / "pairs.tsv", "--generate", "--max-new-tokens", 8)
    answer = cli(*words, *options, "--json")
    assert answer.code == 0, answer.err
    greedy, other = json.loads(answer.out)["generate"]
    assert greedy["decoding"] == {"max_new_tokens": 8}
    assert other["decoding"].keys() - {"max_new_tokens"} == (
        {word[2:].replace("-", "_") for word in options[::2]} or {"num_beams"}
    )
    sources, targets = zip(*PAIRS, strict=True)
    for row in (greedy, other):
        outputs = lm.translate(list(sources), **{"num_beams": 1, **row["decoding"]})
        assert row["bleu"] == pytest.approx(sacrebleu.corpus_bleu(outputs, [targets], tokenize="zh").score)
        assert row["chrf"] == pytest.approx(sacrebleu.corpus_chrf(outputs, [targets]).score)
        assert row["n_empty"] == outputs.count("")
        assert "tok:zh" in row["bleu_signature"] and "nc:6" in row["chrf_signature"]
    table = cli(*words, *options).out
    assert f"{greedy['bleu']:.2f}" in table and other["bleu_signature"] in table and "greedy" in table


@pytest.mark.parametrize(
    ("targets", "name"),
    [
        (["打开 Zoom", "电网"], "zh"),
        (["Das Netz", "électricité"], "13a"),
        (["電源を入れる", "こんにちは"], "char"),
        (["전력망"], "char"),
        (["Открыть"], "13a"),
        (["123", ""], "13a"),
    ],
)
def test_bleu_s_words_are_those_of_the_script(targets, name) -> None:
    from transpect.cli.translations import tokenizer_for

    assert tokenizer_for(targets) == name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--num-beams", 2), "--num-beams is for what a model writes.*--generate"),
        (("--tokenize", "zh"), "--tokenize is for what a model writes.*--generate"),
        (("--generate", "--tokenize", "chinese"), "sacrebleu must know the tokenizer"),
    ],
)
def test_what_can_t_be_measured_is_one_line(cli, translator, words, says) -> None:
    import re

    answer = cli("eval", translator / "m", "--data", translator / "pairs.tsv", *words)
    assert answer.code == 2 and not answer.out
    assert re.search(f"^error: .*{says}[^\n]*\n$", answer.err), answer.err


def test_texts_without_targets_are_not_translated(cli, tiny, data) -> None:
    answer = cli("eval", tiny, "--data", data, "--generate")
    assert answer.code == 2 and "compared with targets" in answer.err
