"""`transpect generate`: the same text however it is shown, and every option reaches the decoder."""

import json

import pytest

import transpect

PROMPT = "小猫爱吃"


@pytest.fixture(scope="module")
def lm(tiny):
    return transpect.load(tiny, device="cpu")


def test_prompt_and_continuation_are_printed_as_one_text(cli, tiny, lm) -> None:
    answer = cli("generate", tiny, PROMPT, "--temperature", 0, "--max-new-tokens", 6)
    assert answer.code == 0, answer.err
    assert answer.out == PROMPT + lm.generate(PROMPT, temperature=0, max_new_tokens=6) + "\n"
    assert answer.err == ""


@pytest.mark.parametrize("stream", [["--stream"], ["--no-stream"], []])
@pytest.mark.parametrize("options", [[], ["--seed", 5], ["--seed", 5, "--top-k", 3], ["--seed", 1, "--n", 3]])
def test_streamed_and_whole_are_the_same(cli, tiny, stream, options) -> None:
    answer = cli("generate", tiny, PROMPT, "--max-new-tokens", 8, *options, *stream)
    whole = cli("generate", tiny, PROMPT, "--max-new-tokens", 8, *options, "--no-stream")
    assert answer.code == 0, answer.err
    assert answer.out == whole.out


@pytest.mark.parametrize("words", [("-",), ()])
def test_text_is_read_from_standard_input(cli, tiny, words) -> None:
    options = ("--max-new-tokens", 4)
    piped = cli("generate", tiny, *words, *options, stdin=f"{PROMPT}\n")
    assert piped.out == cli("generate", tiny, PROMPT, *options).out


def test_only_new_leaves_the_prompt_out(cli, tiny) -> None:
    whole = cli("generate", tiny, PROMPT, "--max-new-tokens", 4).out
    assert cli("generate", tiny, PROMPT, "--max-new-tokens", 4, "--only-new").out == whole.removeprefix(PROMPT)


def test_options_reach_the_decoder(cli, tiny, lm) -> None:
    options = ("--temperature", 1.5, "--top-k", 5, "--top-p", 0.9, "--seed", 7, "--max-new-tokens", 9)
    (result,) = lm.complete([PROMPT], temperature=1.5, top_k=5, top_p=0.9, seed=7, max_new_tokens=9)
    row = json.loads(cli("generate", tiny, PROMPT, *options, "--json").out)
    assert row == {
        "prompt": PROMPT,
        "choice": 0,
        "score": None,
        "text": result.text,
        "ids": list(result.ids),
        "logprobs": pytest.approx(list(result.logprobs)),
        "finish_reason": result.finish_reason,
        "seed": 7,
    }


def test_n_takes_the_seeds_that_follow(cli, tiny) -> None:
    rows = [
        json.loads(line) for line in cli("generate", tiny, PROMPT, "--seed", 4, "--n", 3, "--json").out.splitlines()
    ]
    alone = [json.loads(cli("generate", tiny, PROMPT, "--seed", seed, "--json").out) for seed in (4, 5, 6)]
    assert [row["seed"] for row in rows] == [4, 5, 6]
    assert [row["text"] for row in rows] == [row["text"] for row in alone]


def test_stop_can_be_given_more_than_once_and_is_left_out(cli, tiny) -> None:
    whole = cli("generate", tiny, PROMPT, "--max-new-tokens", 8, "--only-new").out
    first, second = whole[2], whole[1]
    answer = cli("generate", tiny, PROMPT, "--max-new-tokens", 8, "--only-new", "--stop", first, "--stop", second)
    assert answer.out == whole[: min(whole.index(first), whole.index(second))] + "\n"


def test_a_run_directory_gives_its_best(cli, tiny, tmp_path) -> None:
    (tmp_path / "best").symlink_to(tiny)
    run = cli("generate", tmp_path, PROMPT, "--max-new-tokens", 4)
    assert run.out == cli("generate", tiny, PROMPT, "--max-new-tokens", 4).out


def test_an_encoder_decoder_prints_its_answer_alone(cli, tmp_path) -> None:
    from transpect.core import Transformer, override, preset
    from transpect.lm import LanguageModel
    from transpect.text import train_tokenizer

    tokenizer = train_tokenizer("char", [PROMPT])
    sizes = {"d_model": 32, "n_heads": 2, "n_layers": 1, "d_ff": 32, "vocab_size": tokenizer.vocab_size}
    model = Transformer(override(preset("transformer-base"), list(sizes.items())))
    generation = {"decoder_start_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    LanguageModel(model, tokenizer, generation).save(tmp_path / "m")
    answer = cli("generate", tmp_path / "m", PROMPT, "--max-new-tokens", 3)
    assert answer.out == transpect.load(tmp_path / "m", device="cpu").generate(PROMPT, max_new_tokens=3) + "\n"


def test_a_cache_is_named_or_spelled_out(cli, tiny, lm) -> None:
    words = ("generate", tiny, PROMPT, "--max-new-tokens", 6)
    plain = cli(*words).out
    for cache in ("dense", "{kind: int8, group: 8}", "{kind: static, length: 20}"):
        answer = cli(*words, "--cache", cache)
        assert answer.code == 0, answer.err
        assert answer.out == plain
    for cache, says in (
        ("dens", "Did you mean 'dense'"),
        ("static", "length"),
        ("{kind: int8, groups: 3}", "groups"),
        ("int8", "whole groups"),
    ):
        answer = cli(*words, "--cache", cache)
        assert answer.code == 2 and not answer.out
        assert says in answer.err


def test_what_does_not_fit_the_context_is_said_or_cut(cli, tiny) -> None:
    words = ("generate", tiny, PROMPT, "--max-new-tokens", 60)
    refused = cli(*words, "--overflow", "error")
    assert refused.code == 2 and "context of 24 tokens" in refused.err
    (row,) = map(json.loads, cli(*words, "--overflow", "stop", "--json").out.splitlines())
    assert row["finish_reason"] == "length" and len(row["ids"]) == 24 - len(PROMPT) - 1
