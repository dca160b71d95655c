"""The facade: text in, text out, saved and opened again."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import processors
from torch.nn.functional import cross_entropy

import transpect
from transpect.base.errors import CheckpointError, ConfigError, ContextLengthError, GenerationError, TokenizerError
from transpect.core import AttentionConfig, Flash, Full, MaskedLM, ModelConfig, Naive, StackConfig, Transformer
from transpect.core.positions import Rope
from transpect.data.documents import Document, Listed
from transpect.data.loader import Batches
from transpect.data.objectives import Causal, Seq2Seq
from transpect.lm import LanguageModel
from transpect.text import Tokenizer, train_tokenizer

CORPUS = ["小猫爱吃鱼。小狗爱吃肉。", "The quick brown fox jumps over the lazy dog."]


def build(kind: str, tokenizer: Tokenizer) -> Transformer:
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), positions=Rope())
    config = ModelConfig(vocab_size=tokenizer.vocab_size, d_model=16, context_length=48, decoder=stack)
    full = replace(stack, visibility=Full())
    if kind == "encoder-decoder":
        config = replace(config, encoder=full, decoder=replace(stack, steps=(("self",), ("cross",), ("ffn",))))
    if kind == "encoder":
        config = replace(config, encoder=full, decoder=None, head=MaskedLM())
    model = Transformer(config).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.7)
    return model


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer("char", CORPUS)


@pytest.fixture
def lm(tokenizer: Tokenizer) -> LanguageModel:
    return LanguageModel(build("decoder", tokenizer), tokenizer)


@pytest.fixture
def translator(tokenizer: Tokenizer) -> LanguageModel:
    return LanguageModel(build("encoder-decoder", tokenizer), tokenizer, {"decoder_start_token_id": tokenizer.pad_id})


SAMPLED = {"temperature": 1.0, "top_p": 0.95, "seed": 7, "max_new_tokens": 20}
GREEDY = {"max_new_tokens": 20}


@pytest.mark.parametrize("params", [SAMPLED, GREEDY, {**SAMPLED, "stop": ["小", "fo"]}], ids=str)
@pytest.mark.parametrize("which", ["lm", "translator"])
def test_one_many_and_streamed_are_the_same_text(
    which: str, params: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    lm: LanguageModel = request.getfixturevalue(which)
    prompts = ["小猫爱吃", "The", "小", "The quick brown"]
    texts = lm.generate(prompts, **params)
    assert [lm.generate(prompt, **params) for prompt in prompts] == texts
    assert ["".join(lm.stream(prompt, **params)) for prompt in prompts] == texts
    assert [result.text for result in lm.complete(prompts, batch_size=2, **params)] == texts
    joined = [""] * len(prompts)
    for event in lm.events(prompts, **params):
        joined[event.request] += event.text
    assert joined == texts
    assert all(lm.stream("小", **params)), "no piece is empty"


def test_the_text_is_the_new_text_alone(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    (result,) = lm.complete("小猫", **GREEDY)
    assert result.text == tokenizer.decode(result.ids, skip_special_tokens=True)
    start = torch.tensor([[tokenizer.bos_id, *tokenizer.encode("小猫")]])
    assert result.ids[0] == int(lm.model(start)[0, -1].argmax())


def test_ids_are_taken_as_they_are(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("小猫")
    assert [list(r.prompt) for r in lm.requests([ids, "小猫", []])] == [
        ids,
        [tokenizer.bos_id, *ids],
        [tokenizer.bos_id],
    ]
    assert isinstance(lm.generate(ids, max_new_tokens=3), str)
    assert lm.generate([ids], max_new_tokens=3) == [lm.generate(ids, max_new_tokens=3)]
    assert lm.generate([], max_new_tokens=3) == []


@pytest.mark.parametrize("bad", [3.5, None, [1.0], b"abc", {"a": 1}], ids=repr)
def test_a_prompt_is_a_text_or_ids(lm: LanguageModel, bad: Any) -> None:
    with pytest.raises(GenerationError, match="text or a list of ids"):
        lm.generate(["小", bad])
    assert lm.generate(np.array([5, 6]).tolist(), **GREEDY) == lm.generate([*np.array([5, 6])], **GREEDY)
    with pytest.raises(GenerationError, match="text or a list of ids"):
        lm.generate([torch.tensor([5, 6])])  # type: ignore[list-item]


def test_a_source_and_a_start_for_an_encoder_decoder(translator: LanguageModel, tokenizer: Tokenizer) -> None:
    text, ids = translator.requests(["小猫", [5, 6]])
    assert text.prompt == ids.prompt == [tokenizer.pad_id]
    assert text.source == [*tokenizer.encode("小猫"), tokenizer.eos_id]
    assert ids.source == [5, 6]


def test_an_empty_text_is_begun(lm: LanguageModel) -> None:
    assert lm.generate("", max_new_tokens=4) == lm.generate([[lm.tokenizer.bos_id or 0]], max_new_tokens=4)[0]


def test_seeds_one_or_one_each(lm: LanguageModel) -> None:
    same = lm.generate(["小"] * 3, **SAMPLED)
    assert len(set(same)) == 1
    each = lm.generate(["小"] * 3, **{**SAMPLED, "seed": [1, 2, 7]})
    assert len(set(each)) == 3
    assert each[2] == same[0]
    with pytest.raises(GenerationError, match="seed"):
        lm.generate(["小"] * 3, seed=[1, 2])


@pytest.mark.parametrize("bad", [{"heat": 1}, {"top_p": 2}, {"stop": ""}, {"max_new_tokens": -1}], ids=repr)
def test_wrong_parameters_are_refused_at_the_call(lm: LanguageModel, bad: dict[str, Any]) -> None:
    for call in (lm.generate, lm.stream, lm.events, lm.complete):
        with pytest.raises(GenerationError):
            call("小", **bad)


def test_a_long_prompt_is_refused_at_the_call(lm: LanguageModel) -> None:
    with pytest.raises(ContextLengthError):
        lm.stream("小" * 60)


def test_an_encoder_writes_no_text(tokenizer: Tokenizer) -> None:
    lm = LanguageModel(build("encoder", tokenizer), tokenizer)
    for call in (lm.generate, lm.stream, lm.score, lm.next_token):
        with pytest.raises(GenerationError, match="encoder"):
            call("小")


# as it was trained


@pytest.mark.parametrize("kind", ["char", "byte-bpe", "bpe", "unigram"])
def test_prompts_and_scores_read_texts_as_training_does(kind: str) -> None:
    """The ids of a prompt are the document's up to its end, and the score is minus the loss without the EOS."""
    text, objective = "The lazy fox", Causal(pack=False)
    tokenizer = train_tokenizer(kind, CORPUS * 3, 340)
    (batch,) = Batches(Listed([Document(text)]), objective, tokenizer, batch_size=1, seq_len=48).once()
    lm = LanguageModel(build("decoder", tokenizer), tokenizer, objective.generation(tokenizer))
    (request,) = lm.requests(text)
    assert list(request.prompt) == batch.ids[0].tolist()
    assert request.params.eos_ids == (batch.labels[0, -1],)
    with torch.no_grad():
        losses = cross_entropy(lm.model(batch.ids, tags=batch.tags)[0], batch.labels[0], reduction="none")
    assert lm.score(text)[0].logprobs == pytest.approx((-losses[:-1]).tolist(), abs=1e-5)


@pytest.mark.parametrize("roles", [{"bos": None}, {"bos": "<s>", "eos": "</s>"}], ids=str)
def test_a_start_that_the_tokenizer_does_not_add_is_the_checkpoints(roles: dict[str, str | None]) -> None:
    """GPT-2's way (EOS begins too), and a tokenizer whose template is for encoders."""
    kind = "wordpiece" if roles["bos"] else "byte-bpe"
    tokenizer = train_tokenizer(kind, CORPUS * 3, 340, special_tokens=roles)
    assert not tokenizer.adds_bos
    objective = Causal(pack=False)
    (batch,) = Batches(Listed([Document("The fox")]), objective, tokenizer, batch_size=1, seq_len=48).once()
    start = objective.generation(tokenizer)["bos_token_id"]
    lm = LanguageModel(build("decoder", tokenizer), tokenizer, {"prompt_start_token_id": start})
    assert list(lm.requests("The fox")[0].prompt) == batch.ids[0].tolist()
    assert list(lm.requests("")[0].prompt) == [start]


def test_sources_are_read_as_training_does(translator: LanguageModel) -> None:
    tokenizer, objective = translator.tokenizer, Seq2Seq()
    (batch,) = Batches(Listed([Document("小猫", target="fox")]), objective, tokenizer, batch_size=1, seq_len=20).once()
    translator.generation = dict(objective.generation(tokenizer))
    (request,) = translator.requests("小猫")
    assert batch.source_ids is not None and request.source is not None
    assert list(request.source) == batch.source_ids[0].tolist()
    assert list(request.prompt) == batch.ids[0, :1].tolist()
    with torch.no_grad():
        source = translator.model.encode(batch.source_ids, tags=batch.source_tags)
        losses = cross_entropy(
            translator.model(batch.ids, tags=batch.tags, source=source)[0], batch.labels[0], reduction="none"
        )
    assert translator.score([("小猫", "fox")])[0].logprobs == pytest.approx((-losses[:-1]).tolist(), abs=1e-5)


TEMPLATES = {
    "none": None,
    "a decoder's": "<s> $A",
    "T5": "$A </s>",
    "BART": "<s> $A </s>",
    "mBART": "$A </s> <pad>",
    "NLLB": "<pad> $A </s>",
    "twice": "<s> <s> $A </s>",
}


@pytest.mark.parametrize("alone", [False, True], ids=["", "bos is eos"])
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("then", [None, processors.ByteLevel(trim_offsets=False)], ids=["", "byte level"])
def test_whatever_the_template_writing_feeds_the_encoder_what_training_did(
    template: str, alone: bool, then: processors.PostProcessor | None, tokenizer: Tokenizer
) -> None:
    rule = TEMPLATES[template]
    roles = dict(tokenizer.special_tokens) | ({"bos": "</s>"} if alone else {})
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.post_processor = then  # type: ignore[assignment]
    if rule is not None:
        rule = rule.replace("<s>", roles["bos"])
        special = [(word, tokenizer.token_to_id(word)) for word in rule.split() if word != "$A"]
        own = processors.TemplateProcessing(single=rule, pair="$A $B", special_tokens=special)
        backend.post_processor = own if then is None else processors.Sequence([own, then])
    other = Tokenizer(backend, roles)
    texts = ["小猫", "鱼", "The fox", ""]
    objective, documents = Seq2Seq(), Listed([Document(text, target="fox") for text in texts])
    batches = Batches(documents, objective, other, batch_size=1, seq_len=20).once()
    lm = LanguageModel(build("encoder-decoder", other), other, objective.generation(other))
    for text, batch, request in zip(texts, batches, lm.requests(texts), strict=True):
        assert batch.source_ids is not None and request.source is not None
        assert list(request.source) == batch.source_ids[0].tolist()
        assert list(request.prompt) == batch.ids[0, :1].tolist()
        framed = rule is not None and "</s>" in rule.split("$A")[1]
        if framed:
            assert list(request.source) == other.encode(text, add_special_tokens=True)
        else:
            assert list(request.source) == [*other.encode(text), other.eos_id]


# what the checkpoint wants


def test_the_checkpoints_wishes_hold_until_overridden(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    free = lm.complete("小", **GREEDY)[0].ids
    wishing = LanguageModel(lm.model, tokenizer, {"eos_token_id": [free[3], free[5]], "max_new_tokens": 9})
    assert wishing.complete("小")[0].finish_reason == "eos"
    assert len(wishing.complete("小")[0].ids) == 1 + min(free.index(free[3]), free.index(free[5]))
    assert wishing.complete("小", eos_ids=())[0].ids == free[:9]
    assert wishing.complete("小", ignore_eos=True, max_new_tokens=7)[0].ids == free[:7]
    sampling = LanguageModel(lm.model, tokenizer, {"do_sample": True, "temperature": 0.9, "top_k": 0})
    (request,) = sampling.requests("小")
    assert (request.params.temperature, request.params.top_k) == (0.9, None)
    assert sampling.generate("小", temperature=0, **GREEDY) == lm.generate("小", **GREEDY)


# scores


@torch.no_grad()
def test_a_score_is_the_probability_of_the_text(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    texts = ["小猫爱吃鱼。", "fox", "鱼", ""]
    for text, score in zip(texts, lm.score(texts), strict=True):
        ids = torch.tensor([[tokenizer.bos_id, *tokenizer.encode(text)]])
        law = lm.model(ids)[0].double().log_softmax(-1)
        expected = sum(float(law[i, ids[0, i + 1]]) for i in range(ids.shape[1] - 1))
        assert score.logprob == pytest.approx(expected, abs=1e-5)
        assert (score.n_tokens, score.n_chars) == (len(text), len(text))
    assert lm.score("fox") == lm.score(["fox"])


def test_scores_multiply(lm: LanguageModel) -> None:
    whole, begin = lm.score(["小猫爱吃鱼", "小猫爱"])
    (rest,) = lm.score([("小猫爱", "吃鱼")])
    assert whole.logprob == pytest.approx(begin.logprob + rest.logprob, abs=1e-5)
    assert rest.n_chars == 2


def test_greedy_text_scores_as_its_own_logprobs(lm: LanguageModel, translator: LanguageModel) -> None:
    for model in (lm, translator):
        (result,) = model.complete("小猫", temperature=1.0, seed=3, max_new_tokens=12, eos_ids=())
        if set(result.ids) & model.tokenizer.special_ids:
            result = replace(result, ids=(), logprobs=(), text="")
        (score,) = model.score([("小猫", result.text)])
        assert score.logprobs == pytest.approx(result.logprobs, abs=1e-4)


def test_long_texts_need_a_stride(lm: LanguageModel) -> None:
    text = "小猫爱吃鱼。" * 20
    with pytest.raises(ContextLengthError, match="stride"):
        lm.score(text)
    (score,) = lm.score(text, stride=16)
    assert score.n_tokens == len(text)
    assert math.isfinite(score.perplexity)


def test_an_encoder_decoder_scores_pairs(translator: LanguageModel) -> None:
    (score,) = translator.score([("小猫", "fox")])
    assert score.n_tokens == 3
    with pytest.raises(GenerationError, match="source"):
        translator.score("fox")


def test_the_next_token(lm: LanguageModel, tokenizer: Tokenizer) -> None:
    ids = torch.tensor([[tokenizer.bos_id, *tokenizer.encode("小猫爱吃")]])
    law = lm.model(ids)[0, -1].double().softmax(-1)
    found = lm.next_token("小猫爱吃", k=5)
    assert [p for _, p in found] == pytest.approx(law.sort(descending=True).values[:5].tolist(), abs=1e-6)
    assert found[0][0] == tokenizer.tokens([int(law.argmax())])[0]
    everything = lm.next_token("小猫爱吃", k=10_000)
    assert len(everything) == tokenizer.vocab_size
    assert sum(p for _, p in everything) == pytest.approx(1)


# files


@pytest.mark.parametrize("which", ["lm", "translator"])
def test_saved_and_opened_it_says_the_same(which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    lm: LanguageModel = request.getfixturevalue(which)
    lm.generation["eos_token_id"] = [lm.tokenizer.eos_id, 5]
    lm.save(tmp_path / "lm")
    again = transpect.load(tmp_path / "lm", device="cpu")
    assert again.generation == lm.generation
    assert again.generate(["小猫", "fox"], **SAMPLED) == lm.generate(["小猫", "fox"], **SAMPLED)
    assert transpect.load_tokenizer(tmp_path / "lm").encode("小猫") == lm.tokenizer.encode("小猫")
    assert not again.model.training
    assert {entry.name for entry in tmp_path.iterdir()} == {"lm"}


def test_a_run_is_opened_at_its_best(lm: LanguageModel, tmp_path: Path) -> None:
    lm.save(tmp_path / "run" / "last")
    lm.generation["max_new_tokens"] = 3
    lm.save(tmp_path / "run" / "best")
    assert transpect.load(tmp_path / "run").generation["max_new_tokens"] == 3


def test_kernel_and_dtype_are_chosen_at_loading(lm: LanguageModel, tmp_path: Path) -> None:
    lm.save(tmp_path / "lm")
    naive = transpect.load(tmp_path / "lm", kernel="naive", dtype="float64")
    assert naive.model.config.last.attention.kernel == Naive()
    assert naive.model.token.weight.dtype == torch.float64
    assert naive.generate("小猫", **GREEDY) == lm.generate("小猫", **GREEDY)
    with pytest.raises(ConfigError):
        transpect.load(tmp_path / "lm", dtype="int3")


@pytest.mark.parametrize("kernel", [Flash(block=4), {"kind": "flash", "block": 4}], ids=["itself", "as data"])
def test_a_kernel_is_chosen_with_its_options(lm: LanguageModel, tmp_path: Path, kernel: Any) -> None:
    lm.save(tmp_path / "lm")
    flash = transpect.load(tmp_path / "lm", kernel=kernel)
    assert flash.model.config.last.attention.kernel == Flash(block=4)
    assert flash.generate("小猫", **GREEDY) == lm.generate("小猫", **GREEDY)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("flahs", "Did you mean 'flash'"),
        (3, "name of a kind"),
        ({"block": 4}, "needs the key 'kind'"),
        ({"kind": "flash", "blok": 4}, "Did you mean 'block'"),
        ({"kind": "flash", "block": 0}, "at least 1"),
        ("performer", "another one"),
    ],
    ids=str,
)
def test_a_kernel_that_is_none_is_refused_by_name(lm: LanguageModel, tmp_path: Path, kernel: Any, message: str) -> None:
    lm.save(tmp_path / "lm")
    with pytest.raises(ConfigError, match=message):
        transpect.load(tmp_path / "lm", kernel=kernel)


def test_a_checkpoint_is_replaced_and_what_lies_beside_it_kept(lm: LanguageModel, tmp_path: Path) -> None:
    lm.save(tmp_path / "lm")
    (tmp_path / "lm" / "README.md").write_text("mine")
    (tmp_path / "lm" / "pytorch_model.bin").write_text("old weights")
    lm.generation["max_new_tokens"] = 2
    lm.save(tmp_path / "lm")
    names = {entry.name for entry in (tmp_path / "lm").iterdir()}
    assert "README.md" in names
    assert "pytorch_model.bin" not in names
    assert json.loads((tmp_path / "lm" / "generation_config.json").read_text())["max_new_tokens"] == 2


def test_a_folder_of_other_things_is_not_replaced(lm: LanguageModel, tmp_path: Path) -> None:
    lm.save(tmp_path / "run" / "best")
    for folder in (tmp_path, tmp_path / "run"):
        before = sorted(folder.rglob("*"))
        with pytest.raises(CheckpointError, match="no checkpoint"):
            lm.save(folder)
        assert sorted(folder.rglob("*")) == before


def test_a_failed_save_leaves_what_was_there(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm.save(tmp_path / "lm")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}

    def fail(self: Tokenizer, directory: Path) -> None:
        (directory / "tokenizer.json").write_text("{")
        raise TokenizerError("no room")

    monkeypatch.setattr(Tokenizer, "save", fail)
    for place in ("lm", "new"):
        with pytest.raises(TokenizerError):
            lm.save(tmp_path / place)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"lm"}


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        transpect.load(tmp_path / "nothing")


# the package


def test_the_public_names() -> None:
    assert set(transpect.__all__) <= set(dir(transpect))
    for name in transpect.__all__:
        assert getattr(transpect, name) is not None
    assert transpect.LanguageModel is LanguageModel
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        transpect.unknown  # noqa: B018
