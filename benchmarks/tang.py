"""How well a model of Tang poems has learnt their form: bits per character, and the share of regular poems.

    python benchmarks/tang.py runs/tang

A poem is regular if it has an even number of lines, at least two, all of five or all of seven characters. Poems are
sampled from the model alone, one a seed, without a prompt.
"""

from __future__ import annotations

import argparse
import re

import transpect

LINE_END = re.compile("[，。？！；]")


def regular(poem: str) -> bool:
    """Whether every line has five characters, or every line seven."""
    *lines, rest = LINE_END.split(poem)
    lengths = {len(line) for line in lines}
    return not rest and len(lines) >= 2 and len(lines) % 2 == 0 and lengths in ({5}, {7})


def main() -> None:
    """Sample, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a run or a checkpoint directory")
    parser.add_argument("--poems", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.8)
    asked = parser.parse_args()
    lm = transpect.load(asked.model)
    poems = lm.generate(
        [""] * asked.poems, seed=list(range(asked.poems)), temperature=asked.temperature, max_new_tokens=100
    )
    share = sum(map(regular, poems)) / len(poems)
    print(*poems[:5], sep="\n")
    print(f"regular: {share:.1%} of {len(poems)} poems at temperature {asked.temperature}")


if __name__ == "__main__":
    main()
