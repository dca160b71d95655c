"""Valid loss of `recipes/tang-gpt.yaml` beside a script like nanoGPT's, of as many weights, tokens and seeds.

    python benchmarks/tang_beside.py                              # 300 steps, 3 seeds each: half an hour on two cores
    python benchmarks/tang_beside.py --steps 40 --seeds 0
    python benchmarks/tang_beside.py --their-rate 2e-3 --their-dropout 0.1

Both read the recipe's poems by its characters, as many rows of as many tokens an update; told is nats a character
of the valid poems, each read by itself and with its end. Theirs is nanoGPT's recipe for characters: learned positions,
LayerNorm, GELU, a tied head, dropout, N(0, 0.02) with residual projections scaled down, AdamW with decay on matrices,
warm-up and cosine to a tenth, random stretches of one stream of poems. The exit code is 1 where ours is the worse mean.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.nn import functional

from transpect.base.allocator import keep_freed_memory
from transpect.interop import load_model
from transpect.train import Recipe, load_recipe, train
from transpect.train.job import documents, make_tokenizer

DECAY, BETAS, WARM, FLOOR = 0.1, (0.9, 0.99), 0.1, 0.1


class Block(nn.Module):
    """A layer."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, 2)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        rate = self.rate if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        x = x + self.dropout(self.c_proj(mixed.transpose(1, 2).reshape(batch, length, width)))
        out: Tensor = x + self.dropout(self.down(functional.gelu(self.up(self.ln_2(x)))))
        return out


class Gpt(nn.Module):
    """Ids [B, T] to logits [B, T, V]."""

    def __init__(self, words: int, length: int, layers: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(words, width), nn.Embedding(length, width), nn.Dropout(dropout)
        self.h = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                residual = name.endswith(("c_proj.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])))
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def ours(recipe: Recipe) -> tuple[int, float]:
    """(weights, nats a character) of a run, at its last step."""
    with TemporaryDirectory() as folder:
        done = train(recipe, folder)
        weights = sum(weight.numel() for weight in load_model(Path(folder) / "last").parameters())
    assert done.evaluation is not None
    return weights, done.evaluation.loss


def theirs(recipe: Recipe, seed: int, rate: float, dropout: float) -> tuple[int, float]:
    """The same of the script."""
    spec = recipe.train
    poems, held = documents(recipe)
    tokenizer = make_tokenizer(recipe.tokenizer, poems)
    full = recipe.resolve(tokenizer)
    config, length, end = full.model.config, full.seq_len, tokenizer.eos_id
    assert held is not None and end is not None and config.decoder is not None
    train_ids, valid_ids = (
        tokenizer.encode_batch([poem.text for poem in own], parse_special=False) for own in (poems, held)
    )
    stream = torch.tensor([end, *(number for ids in train_ids for number in (*ids, end))])
    torch.manual_seed(seed)
    heads = config.decoder.attention.n_heads
    model = Gpt(config.vocab_size, length, config.decoder.n_layers, config.d_model, heads, dropout)
    groups = [
        {"params": [w for w in model.parameters() if (w.ndim > 1) == matrix], "weight_decay": DECAY * matrix}
        for matrix in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=BETAS, fused=True)
    for step in range(1, spec.max_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * _share(step, spec.max_steps)
        starts = torch.randint(len(stream) - length, (spec.batch_size * spec.accumulate,))
        rows = torch.stack([stream[start : start + length + 1] for start in starts])
        logits = model(rows[:, :-1])
        functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return sum(weight.numel() for weight in model.parameters()), _held_out(model.eval(), valid_ids, end, length)


def _share(step: int, steps: int) -> float:
    warm = WARM * steps
    if step < warm:
        return step / warm
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


@torch.no_grad()
def _held_out(model: Gpt, poems: list[list[int]], end: int, length: int) -> float:
    """Nats a character: each poem from its beginning, its end included."""
    total, count = 0.0, 0
    for group in _grouped(poems, 64):
        pieces = [[end, *poem, end][: length + 1] for poem in group]
        rows = torch.tensor([[*piece, *[end] * (max(map(len, pieces)) - len(piece))] for piece in pieces])
        real = torch.arange(rows.shape[1] - 1) < torch.tensor([len(piece) - 1 for piece in pieces])[:, None]
        losses = functional.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:], reduction="none")
        total, count = total + float(losses[real].sum()), count + int(real.sum())
    return total / count


def _grouped(poems: list[list[int]], size: int) -> Iterator[list[list[int]]]:
    ordered = sorted(poems, key=len)
    return (ordered[start : start + size] for start in range(0, len(ordered), size))


def main() -> int:
    """Train both with every seed, print a line each, and the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--their-rate", type=float, default=1e-3)
    parser.add_argument("--their-dropout", type=float, default=0.2)
    parser.add_argument("--recipe", type=Path, default=Path("recipes/tang-gpt.yaml"))
    asked = parser.parse_args()
    keep_freed_memory()
    changes = [(f"train.{name}", str(asked.steps)) for name in ("max_steps", "eval_every", "save_every")]
    changes.append(("train.schedule.warmup", str(WARM)))  # what the recipe's own is of its steps
    losses: dict[str, list[float]] = {"ours": [], "theirs": []}
    for seed in asked.seeds:
        recipe = load_recipe(asked.recipe, [*changes, ("train.seed", str(seed)), ("logging.progress", "none")])
        found = {"ours": ours(recipe), "theirs": theirs(recipe, seed, asked.their_rate, asked.their_dropout)}
        for who, (weights, loss) in found.items():
            losses[who].append(loss)
            print(f"seed {seed}: {who}, {weights:,} weights: {loss:.4f} nats a character", flush=True)
    means = {who: statistics.mean(values) for who, values in losses.items()}
    holds = means["ours"] <= means["theirs"]
    spreads = ", ".join(f"{who} {means[who]:.4f} ({min(own):.4f}–{max(own):.4f})" for who, own in losses.items())
    print(f"{asked.steps} steps, {len(asked.seeds)} seeds: {spreads}: {'holds' if holds else 'SHORT'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
