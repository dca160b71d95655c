"""House rules that a reader relies on, read off the syntax trees of the sources."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "transpect"
FILES = sorted(SRC.rglob("*.py"))
MAX_LINES = 400


def name_of(file: Path) -> str:
    return str(file.relative_to(SRC))


def tree_of(text: str) -> ast.Module:
    return ast.parse(text)


def dotted(node: ast.AST) -> str:
    """``torch.load`` for the expression ``torch.load``; empty for what is not a chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


# Each rule takes a file's name inside the package and its tree, and yields (line, what is wrong).
Faults = Iterator[tuple[int, str]]

DANGEROUS_IMPORTS = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
DANGEROUS_NAMES = {"eval", "exec", "__import__", "torch.load", "torch.save", "yaml.unsafe_load", "yaml.full_load"} | {
    f"yaml.{loader}" for loader in ("Loader", "FullLoader", "UnsafeLoader")
}


# The one place that reads pickled tensors, for which a person has to ask by name, and all that it may do.
UNPICKLER, UNPICKLER_MAY = "interop/pickled.py", {"pickle.UnpicklingError"}


def no_code_from_data(name: str, tree: ast.Module) -> Faults:
    """Data never runs as code: no pickle, no torch.load or torch.save, no eval, no YAML tags that build objects.

    Pickled weights are read in one file, by ``torch.load(..., weights_only=True)``; and only where a person allows it:
    ``allow_pickle`` is False by default, and elsewhere handed on under its own name.
    """
    sound = {id(node.func) for node in ast.walk(tree) if name == UNPICKLER and loads_tensors_alone(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name.split(".")[0] for alias in node.names]
            if name == UNPICKLER and [(alias.name, alias.asname) for alias in node.names] == [("pickle", None)]:
                modules = []
        elif isinstance(node, ast.ImportFrom):
            modules = [(node.module or "").split(".")[0]]
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from ((node.lineno, f"imports {name}") for name in sorted(names & DANGEROUS_NAMES))
        else:
            modules = []
        yield from ((node.lineno, f"imports {module}") for module in modules if module in DANGEROUS_IMPORTS)
        if isinstance(node, ast.Name | ast.Attribute) and dotted(node) in DANGEROUS_NAMES and id(node) not in sound:
            yield node.lineno, f"uses {dotted(node)}"
        if isinstance(node, ast.Attribute) and dotted(node.value) == "pickle" and dotted(node) not in UNPICKLER_MAY:
            yield node.lineno, f"uses {dotted(node)}"
        yield from allowed_pickle(node)


def loads_tensors_alone(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether this is a call of torch.load by which nothing in the file can run."""
    if not isinstance(node, ast.Call) or dotted(node.func) != "torch.load":
        return False
    said = {keyword.arg: getattr(keyword.value, "value", None) for keyword in node.keywords}
    return said.get("weights_only") is True and not {"pickle_module", None} & said.keys() and len(node.args) == 1


def allowed_pickle(node: ast.AST) -> Faults:
    """Where a call or a default allows pickle, rather than the person who asked."""
    match node:
        case ast.Call(func=called, keywords=keywords):
            ours = dotted(called).split(".")[0] not in ("np", "numpy", "torch")
            for keyword in keywords:
                handed_on = ours and dotted(keyword.value) == "allow_pickle"
                if keyword.arg == "allow_pickle" and not handed_on and not is_false(keyword.value):
                    yield keyword.value.lineno, "allows pickle"
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args) | ast.Lambda(args=args):
            plain = [*args.posonlyargs, *args.args]
            defaults = [*zip(plain[len(plain) - len(args.defaults) :], args.defaults, strict=True)]
            for parameter, default in [*defaults, *zip(args.kwonlyargs, args.kw_defaults, strict=True)]:
                if parameter.arg == "allow_pickle" and default is not None and not is_false(default):
                    yield default.lineno, "allows pickle unless it is told not to"
        case ast.Assign(targets=targets):
            if any(dotted(target).split(".")[-1] == "allow_pickle" for target in targets):
                yield node.lineno, "sets allow_pickle"
        case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
            if dotted(target).split(".")[-1] == "allow_pickle":
                yield node.lineno, "sets allow_pickle"


def is_false(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def no_print_outside_cli(name: str, tree: ast.Module) -> Faults:
    """Only cli talks to the terminal: elsewhere a `print` would end up in a served answer or a notebook."""
    if name.startswith("cli/"):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) == "print":
            yield node.lineno, "prints"


def no_swallowed_errors(_name: str, tree: ast.Module) -> Faults:
    """An error is handled by its name, never by `except:` or by `except Exception` and silence."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield node.lineno, "catches everything without a name"
            elif dotted(node.type) in {"Exception", "BaseException"} and not any(
                isinstance(inner, ast.Raise | ast.Call) for statement in node.body for inner in ast.walk(statement)
            ):
                yield node.lineno, f"swallows {dotted(node.type)}"


def no_stubs(_name: str, tree: ast.Module) -> Faults:
    """What is in the repository works."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "NotImplementedError":
            yield node.lineno, "is a stub"


def no_hidden_randomness(_name: str, tree: ast.Module) -> Faults:
    """Randomness comes from a generator or a seed that is passed in, never from the state of `random` or NumPy."""
    allowed = {"random.Random", "np.random.default_rng", "np.random.Generator", "numpy.random.Generator"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = dotted(node.func)
            if re.match(r"(random|np\.random|numpy\.random)\.\w+$", called) and called not in allowed:
                yield node.lineno, f"calls {called}"


def exported(tree: ast.Module) -> set[str]:
    """The names in ``__all__``."""
    return {
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and any(dotted(target) == "__all__" for target in node.targets)
        for name in ast.literal_eval(node.value)
    }


EXPORTED = {name for file in FILES for name in exported(tree_of(file.read_text(encoding="utf-8")))}


def a_docstring(_name: str, tree: ast.Module) -> Faults:
    """Every module says what it is for, and every function and class that some ``__all__`` exports what it does."""
    if ast.get_docstring(tree) is None:
        yield 1, "the module has no docstring"
    public = EXPORTED | exported(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in public and not ast.get_docstring(node):
            yield node.lineno, f"{node.name} has no docstring"


FAMILIES = {"gpt", "bert", "roberta", "bart", "llama", "mistral", "mixtral", "qwen", "gemma", "phi", "falcon", "neox"}
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def families_in(text: str) -> set[str]:
    words = [word.lower() for word in WORD.findall(text)]
    # "llama3" is also what everyone calls a scaling of rotary positions, after the model that brought it.
    pairs = zip(words, [*words, ""][1:], strict=True)
    return {word for word, after in pairs if word in FAMILIES and (word, after) != ("llama", "3")}


def no_family_in_core(name: str, tree: ast.Module) -> Faults:
    """core builds from options; a model's name stands in presets.py, and elsewhere only in prose."""
    if not name.startswith("core/") or name == "core/presets.py":
        return
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text) | ast.alias(name=text):
                pass
            case ast.FunctionDef(name=text) | ast.ClassDef(name=text):
                pass
            case ast.Constant(value=str(text)) if id(node) not in prose:
                pass
            case _:
                continue
        for family in sorted(families_in(text)):
            yield node.lineno, f"names the family {family}"


RULES = [
    no_code_from_data,
    no_print_outside_cli,
    no_swallowed_errors,
    no_stubs,
    no_hidden_randomness,
    a_docstring,
    no_family_in_core,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_sources_keep(rule: Callable[[str, ast.Module], Faults]) -> None:
    wrong = [
        f"{name_of(file)}:{line} {what}"
        for file in FILES
        for line, what in rule(name_of(file), tree_of(file.read_text(encoding="utf-8")))
    ]
    assert not wrong, f"{rule.__doc__}\n" + "\n".join(wrong)


BROKEN = [  # a rule, and sources that it must refuse
    (no_code_from_data, "x.py", "import pickle"),
    (no_code_from_data, "x.py", "from torch import load"),
    (no_code_from_data, "x.py", "import torch\ntorch.load('x')"),
    (no_code_from_data, "x.py", "import torch\nsave = torch.save"),
    (no_code_from_data, "x.py", "eval('1')"),
    (no_code_from_data, "x.py", "import yaml\nyaml.load('1', Loader=yaml.Loader)"),
    (no_code_from_data, "x.py", "import numpy as np\nnp.load('x', allow_pickle=True)"),
    (no_code_from_data, "x.py", "def f(allow_pickle=False):\n    np.load('x', allow_pickle=allow_pickle)"),
    (no_code_from_data, "x.py", "read('x', allow_pickle=True)"),
    (no_code_from_data, "x.py", "read('x', allow_pickle=always)"),
    (no_code_from_data, "x.py", "read('x', allow_pickle=1)"),
    (no_code_from_data, "x.py", "def f(allow_pickle=True): pass"),
    (no_code_from_data, "x.py", "def f(a, *, allow_pickle: bool = not False): pass"),
    (no_code_from_data, "x.py", "f = lambda allow_pickle=True: 1"),
    (no_code_from_data, "x.py", "def f(allow_pickle=False):\n    allow_pickle = True"),
    (no_code_from_data, "x.py", "def f(allow_pickle=False):\n    read(x, (allow_pickle := True))"),
    (no_code_from_data, "x.py", "import torch\ntorch.load('x', weights_only=True)"),
    (no_code_from_data, UNPICKLER, "import torch\ntorch.load('x')"),
    (no_code_from_data, UNPICKLER, "import torch\ntorch.load('x', weights_only=False)"),
    (no_code_from_data, UNPICKLER, "import torch\ntorch.load('x', weights_only=alone)"),
    (no_code_from_data, UNPICKLER, "import torch\ntorch.load('x', weights_only=True, pickle_module=mine)"),
    (no_code_from_data, UNPICKLER, "import torch\ntorch.load('x', weights_only=True, **more)"),
    (no_code_from_data, UNPICKLER, "import torch\nload = torch.load"),
    (no_code_from_data, UNPICKLER, "import pickle\npickle.load(file)"),
    (no_code_from_data, UNPICKLER, "import pickle\nload = pickle.Unpickler"),
    (no_code_from_data, UNPICKLER, "import pickle as p"),
    (no_code_from_data, UNPICKLER, "from pickle import load"),
    (no_code_from_data, UNPICKLER, "import dill"),
    (no_print_outside_cli, "core/x.py", "print(1)"),
    (no_swallowed_errors, "x.py", "try:\n    f()\nexcept:\n    raise"),
    (no_swallowed_errors, "x.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (a_docstring, "x.py", "x = 1"),
    (a_docstring, "x.py", '"""A module."""\n__all__ = ["f"]\ndef f(): pass'),
    (no_stubs, "x.py", "raise NotImplementedError"),
    (no_stubs, "x.py", "raise NotImplementedError('later')"),
    (no_hidden_randomness, "x.py", "import random\nrandom.random()"),
    (no_hidden_randomness, "x.py", "import numpy as np\nnp.random.seed(0)"),
    (no_family_in_core, "core/x.py", "if kind == 'gpt2': pass"),
    (no_family_in_core, "core/x.py", "class BertNorm: pass"),
    (no_family_in_core, "core/x.py", "def f(use_llama): pass"),
    (no_family_in_core, "core/x.py", "x.is_bart"),
]
SOUND = [
    (no_code_from_data, "x.py", "model.eval()\nimport yaml\nyaml.load('1', Loader=yaml.SafeLoader)"),
    (no_code_from_data, "x.py", "import numpy as np\nnp.load('x', allow_pickle=False)"),
    (no_code_from_data, "x.py", "def f(x, *, allow_pickle=False):\n    read(x, allow_pickle=allow_pickle)"),
    (no_code_from_data, "x.py", "def f(x, *, allow_pickle): pass"),
    (no_code_from_data, UNPICKLER, "import pickle\ntry:\n    f()\nexcept pickle.UnpicklingError:\n    raise"),
    (no_code_from_data, UNPICKLER, "import torch\ntorch.load('x', map_location='cpu', weights_only=True, mmap=m)"),
    (no_print_outside_cli, "cli/x.py", "print(1)"),
    (no_print_outside_cli, "core/x.py", "console.print(1)"),
    (no_swallowed_errors, "x.py", "try:\n    f()\nexcept Exception:\n    log()\n    raise"),
    (no_hidden_randomness, "x.py", "import random\nrandom.Random(0).random()\nrng.random()"),
    (a_docstring, "x.py", '"""A module."""\n__all__ = ["g"]\ndef f(): pass\ndef g():\n    """A function."""'),
    (no_family_in_core, "core/presets.py", "'gpt2'"),
    (no_family_in_core, "core/x.py", '"""As in GPT-2."""\nscalings = {"llama3": 1}\nalphabet = t5'),
]


@pytest.mark.parametrize(("rule", "name", "text"), BROKEN)
def test_a_rule_refuses(rule: Callable[[str, ast.Module], Faults], name: str, text: str) -> None:
    assert list(rule(name, tree_of(text)))


@pytest.mark.parametrize(("rule", "name", "text"), SOUND)
def test_a_rule_allows(rule: Callable[[str, ast.Module], Faults], name: str, text: str) -> None:
    assert not list(rule(name, tree_of(text)))


def test_no_source_file_is_longer_than_can_be_read_at_once() -> None:
    lengths = {name_of(file): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}
