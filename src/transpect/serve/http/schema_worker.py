"""A process that reads grammars for others, so that one that takes too long or too much memory can be killed.

It imports nothing of this package. Each line of its input is JSON, ``[kind, text]``: a ``json_schema``, a ``regex`` or
a ``grammar``. Each line of its output is a JSON string: what is wrong with it, or nothing.
"""

import json
import resource
import sys

from llguidance import LLMatcher, LLTokenizer, regex_to_lark
from llguidance.gbnf_to_lark import any_to_lark

LONGEST = 2000  # characters of an answer


def problem_of(kind: str, text: str) -> str:
    """What is wrong with a grammar: with what it says, or with the first token that it would allow."""
    try:
        if kind == "json_schema":
            grammar = f"start: %json {text}"
        else:
            grammar = f"start: /{regex_to_lark(text, '')}/" if kind == "regex" else any_to_lark(text)
    except Exception as error:  # the converter from GBNF has an error of its own, and trips over what is no GBNF
        return str(error) or type(error).__name__
    problem = LLMatcher.validate_grammar(grammar)
    if problem and not problem.startswith("WARNING"):
        return str(problem)
    matcher = LLMatcher(LLTokenizer("byte"), grammar)
    matcher.compute_bitmask()
    return str(matcher.get_error())


def main() -> None:
    """Read grammars until the input ends."""
    most = int(sys.argv[1]) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(problem_of(*json.loads(line))[:LONGEST]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
