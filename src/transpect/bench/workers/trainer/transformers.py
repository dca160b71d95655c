"""transformers: `Trainer` on `GPT2LMHeadModel`, logging, evaluating and saving as often as the others."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``directory``, ``dtype``, ``threads``, ``keep``, ``rows`` (a file of ``train`` and ``valid``, [N, 2, T]: what is
    read and what is answered), ``batch``, ``every``, ``lr``, ``clip``."""
    if options["keep"]:
        libc = ctypes.CDLL(None)
        assert libc.mallopt(-3, 1 << 30) and libc.mallopt(-1, 1 << 30)
    import torch
    import transformers
    from safetensors.torch import load_file

    torch.set_num_threads(options["threads"])
    kind: Any = transformers.GPT2LMHeadModel
    rows = load_file(options["rows"])

    def dataset(name: str) -> list[dict[str, Any]]:
        return [{"input_ids": own[0], "labels": own[1], "shift_labels": own[1]} for own in rows[name]]

    train, valid = dataset("train"), dataset("valid")

    class InOrder(transformers.Trainer):
        """Rows as they come, which the others read as well."""

        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(train)

    class Clock(transformers.TrainerCallback):
        """When the first update is about to be made."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.begun = perf_counter()

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        model = kind.from_pretrained(options["directory"], dtype=torch.float32, attn_implementation="sdpa")
        model.config.use_cache = False
        with TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                folder,
                max_steps=asked["steps"],
                per_device_train_batch_size=options["batch"],
                per_device_eval_batch_size=options["batch"],
                learning_rate=options["lr"],
                lr_scheduler_type="constant",
                adam_beta2=0.95,
                weight_decay=0.0,
                max_grad_norm=options["clip"],
                optim="adamw_torch_fused",
                bf16=options["dtype"] != "float32",
                use_cpu=True,
                logging_steps=options["log_every"],
                eval_strategy="steps",
                eval_steps=options["every"],
                save_strategy="steps",
                save_steps=options["every"],
                prediction_loss_only=True,
                remove_unused_columns=False,
                report_to=[],
                disable_tqdm=True,
            )
            clock = Clock()
            trainer = InOrder(model, arguments, train_dataset=train, eval_dataset=valid, callbacks=[clock])
            trainer.train()
            seconds = perf_counter() - clock.begun
        losses = [line["eval_loss"] for line in trainer.state.log_history if "eval_loss" in line]
        return {
            "count": {"run": asked["steps"] * options["tokens"]},
            "seconds": {"run": seconds},
            "sizes": {"peak memory": peak()},
            "loss": losses[-1],
        }

    return {"versions": {"transformers": transformers.__version__, "torch": str(torch.__version__)}}, run


def peak() -> float:
    """The most memory that this process has held, MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
