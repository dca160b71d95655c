"""Open a language model, use it, save it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transpect import interop
from transpect.base.devices import resolve_device
from transpect.core import Kernel
from transpect.interop.labels import read_labels
from transpect.interop.peft.opening import described_in
from transpect.lm.chatting import Chatting
from transpect.lm.reading import Reading
from transpect.lm.scoring import Scoring
from transpect.quant import Format, Plan
from transpect.text import load_tokenizer


def load(
    path: str | Path,
    device: str = "auto",
    dtype: str | None = None,
    kernel: Kernel | str | Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    runtime: str = "auto",
    quant: str | Format | Plan | None = None,
    adapter: str | Path | None = None,
) -> LanguageModel:
    """Open a model by its name: a Hugging Face directory, a run directory (its best checkpoint), a GGUF file,
    ``pip:NAME``, ``hf:OWNER/NAME``, ``ms:OWNER/NAME``.

    Args:
        path: see `transpect.interop.locate`.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.
        dtype: what the weights become, e.g. ``float32`` or ``bfloat16``; None is as they are stored.
        kernel: how softmax attention is computed: a kernel, its name, or its name as ``kind`` and its options; None is
            the default.
        allow_pickle: read pickled weights where there are no others; nothing in them runs.
        runtime: what computes the steps after a prompt: ``torch``, ``program`` (a decode program, on a CPU, see
            `transpect.runtime`), or ``auto``, which takes a program where there is one for a model that is not small.
        quant: a weight format for the linear layers, e.g. ``int8``, or ``keep`` for the blocks of a GGUF file (see
            `transpect.interop.load_model`); None leaves the weights in full.
        adapter: the directory of an adapter of PEFT, or a run that trained one: it is merged into the weights, or stays
            beside those that are in a format. A directory that is an adapter itself is opened with the model that it
            names.

    Raises:
        CheckpointError: no checkpoint there, or a damaged one.
        TokenizerError: no tokenizer there, or a damaged one.
        ConfigError: an unknown device, dtype, kernel or runtime, or a kernel that can't compute this model's attention.
    """
    place = interop.locate(path, allow_pickle=allow_pickle)
    model = interop.load_model(
        place,
        device=resolve_device(device),
        dtype=dtype,
        kernel=kernel,
        allow_pickle=allow_pickle,
        quant=quant,
        adapter=adapter,
    )
    place = described_in(place)
    return LanguageModel(
        model,
        load_tokenizer(interop.body_of(place)),
        interop.load_generation(place),
        max_length=interop.read_max_length(place),
        labels=read_labels(place, model.config.head),
        runtime=runtime,
    )


class LanguageModel(Chatting, Scoring, Reading):
    """A model, its tokenizer, and how it wants to be decoded.

    Parameters of generation are those of `GenerationParams`, by name; what is not given is as ``generation`` says, or
    greedy. Asking for ``top_k``, ``top_p`` or a ``seed`` without a temperature means sampling.

    Args:
        model: a decoder or an encoder–decoder for what writes and scores text, an encoder for `embed` or `fill_mask`.
        tokenizer: of the model.
        generation: entries of ``generation_config.json``.
        labels: what the classes of a classifier are called; None is LABEL_0, LABEL_1, …
        max_length: how many tokens of a text `embed` reads, where that is less than the model's context.
        runtime: see `load`.

    Example:
        >>> lm = load("runs/demo")
        >>> lm.generate("小猫爱吃", max_new_tokens=1)
        '鱼'
    """

    def save(self, path: str | Path) -> None:
        """Write a Hugging Face directory, all or nothing: model, tokenizer and ``generation_config.json``.

        A checkpoint that stands there is replaced once the new one is complete; its other files are kept.

        Raises:
            CheckpointError: it can't be written, or there is a directory of directories and no checkpoint.
        """
        with interop.checkpoint_directory(path) as staging:
            interop.write_model(self.model, staging, generation=self.generation, extra_config=self.labels.entries())
            interop.write_max_length(self.max_length, staging)
            self.tokenizer.save(staging)
