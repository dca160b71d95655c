"""A GPT-2 in a page of torch, as nanoGPT writes it: fused QKV, torch's attention, a tied head; eager or compiled."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """A layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, 2)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).contiguous().view(batch, length, width))
        out: Tensor = x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))
        return out


class Gpt(nn.Module):
    """Ids and answers to the mean loss."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width = config["n_embd"]
        self.wte, self.wpe = nn.Embedding(config["vocab_size"], width), nn.Embedding(config["n_positions"], width)
        self.h = nn.ModuleList(Block(width, config["n_head"]) for _ in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids: Tensor, answers: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), answers.reshape(-1))


TABLES = ("wte.weight", "wpe.weight")


def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
    """``directory``, ``dtype``, ``threads``, ``keep``, ``ids`` [N, B, T+1] (a file), ``lr``, ``clip``, ``decay``;
    ``compiled``."""
    if options["keep"]:
        libc = ctypes.CDLL(None)
        assert libc.mallopt(-3, 1 << 30) and libc.mallopt(-1, 1 << 30)
    torch.set_num_threads(options["threads"])
    model = opened(Path(options["directory"]))
    decaying = [name for name, weight in model.named_parameters() if weight.ndim > 1 and name[-10:] not in TABLES]
    groups = [
        {"params": [w for name, w in model.named_parameters() if name in decaying], "weight_decay": options["decay"]},
        {"params": [w for name, w in model.named_parameters() if name not in decaying], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=options["lr"], betas=(0.9, 0.95), fused=True)
    loss_of: Any = torch.compile(model) if options["compiled"] else model
    batches = load_file(options["ids"])["ids"]
    lower = options["dtype"] != "float32"

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        losses = []
        begun = perf_counter()
        for number in range(asked["steps"]):
            ids = batches[number % len(batches)]
            with torch.autocast("cpu", torch.bfloat16, enabled=lower):
                loss = loss_of(ids[:, :-1], ids[:, 1:])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), options["clip"])
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        seconds = perf_counter() - begun
        return {
            "count": {"updates": asked["steps"] * batches[0][:, 1:].numel()},
            "seconds": {"updates": seconds},
            "sizes": {"peak memory": peak()},
            "losses": losses,
        }

    return {"versions": {"torch": str(torch.__version__)}}, run


def opened(directory: Path) -> Gpt:
    """The weights of a GPT-2 directory, whose layers keep [D_in, D_out]."""
    from safetensors.torch import load_file

    model = Gpt(json.loads((directory / "config.json").read_text(encoding="utf-8")))
    stored = {
        name.removeprefix("transformer.").replace(".mlp.c_fc", ".up").replace(".mlp.c_proj", ".down"): weight
        for name, weight in load_file(directory / "model.safetensors").items()
    }
    stored = {name.replace(".attn.", "."): weight for name, weight in stored.items()}
    own = model.state_dict()
    turned = {
        name: stored[name].T.contiguous() if name.startswith("h.") and own[name].ndim == 2 else stored[name]
        for name in own
    }
    model.load_state_dict(turned)
    return model.train()


def peak() -> float:
    """The most memory that this process has held, MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
