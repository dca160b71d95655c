"""The whole way: equal tokens, resuming, several at once, and what is left behind."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from transpect.base.errors import ConfigError, DataError
from transpect.compare import parse_comparison, pending, read_results
from transpect.compare.comparison import Silent, check_equal_tokens, compare
from transpect.compare.runs import batches_digest, run_task, tasks_of
from transpect.train import TrainingError

from .conftest import prose

VARIANTS = {
    "rope": {"model.positions": "rope"},
    "far": {
        "model.positions": "rope",
        "evaluate": {"model.positions.scaling": {"kind": "linear", "factor": 4}},
    },
    "short": {"model.positions": "learned", "model.context_length": 16},
    "odd": {"model.positions": "rope", "model.head_dim": 7},
}


@pytest.fixture(scope="module")
def plan(plain):
    return parse_comparison(plain(variants=VARIANTS))


@pytest.fixture(scope="module")
def whole(plan, tmp_path_factory):
    """(directory, outcome) of an uninterrupted comparison."""
    out = tmp_path_factory.mktemp("whole")
    return out, compare(plan, out)


def lines(out) -> list[str]:
    return sorted((out / "results.jsonl").read_text(encoding="utf-8").splitlines())


def test_every_variant_of_a_seed_reads_the_same_and_seeds_read_otherwise(whole) -> None:
    out, outcome = whole
    results = read_results(out / "results.jsonl")
    assert outcome.complete
    assert {(r.variant, r.seed) for r in results} == {(v, s) for v in ("rope", "far", "short") for s in (0, 1)}
    digests = {seed: {r.batches for r in results if r.seed == seed} for seed in (0, 1)}
    assert [len(found) for found in digests.values()] == [1, 1]
    assert digests[0] != digests[1]
    assert {r.tokens for r in results} == {3 * 4 * 8}
    assert {r.steps for r in results} == {3}
    assert all(set(r.lengths) == ({"1", "2"} if r.variant == "short" else {"1", "2", "4"}) for r in results)
    rope, far = (next(r for r in results if r.variant == name and r.seed == 0) for name in ("rope", "far"))
    assert rope.training == far.training
    assert rope.lengths["4"].loss != far.lengths["4"].loss


def test_what_is_measured_is_the_trained_model(whole, plan) -> None:
    from transpect.compare.measure import measure
    from transpect.compare.rows import cut_rows
    from transpect.lm import load

    out, _ = whole
    task = next(task for task in tasks_of(plan, out) if task.training.name == "rope" and task.seed == 1)
    lm = load(task.folder / "last", "cpu")
    result = next(r for r in read_results(out / "results.jsonl") if (r.variant, r.seed) == ("rope", 1))
    for n, rows in cut_rows(task.seeded, lm.tokenizer, task.lengths).items():
        found = measure(lm.model, rows, batch_size=4)
        assert (found.loss, found.last) == pytest.approx(
            (result.lengths[str(n)].loss, result.lengths[str(n)].last), abs=1e-6
        )


def test_a_finished_comparison_trains_nothing(whole, plan, monkeypatch) -> None:
    out, outcome = whole
    before = lines(out)
    monkeypatch.setattr("transpect.compare.pool.run_task", None)
    again = compare(plan, out)
    assert lines(out) == before
    assert again.results == outcome.results
    assert not pending(plan, out)


def test_more_seeds_and_lengths_need_only_what_is_new(plain, whole) -> None:
    out, _ = whole
    more = parse_comparison(plain(variants=VARIANTS), seeds=3)
    assert {(task.training.name, task.seed) for task in pending(more, out)} == {("rope", 2), ("short", 2)}
    longer = parse_comparison(plain(variants=VARIANTS), lengths=(1, 3))
    assert len(pending(longer, out)) == 4, "rows of other lengths are cut from another part of the text"
    other = parse_comparison(plain(variants=VARIANTS), [("train.max_steps", 4)])
    assert len(pending(other, out)) == 4, "another recipe is another training"


@pytest.mark.parametrize("at", [0, 2])
def test_what_was_interrupted_goes_on_to_the_same_end(plan, whole, tmp_path, at) -> None:
    tasks = tasks_of(plan, tmp_path)
    steps: list[int] = []
    assert run_task(tasks[0], advance=steps.append, should_stop=lambda: len(steps) == at) is None
    assert len(steps) == at
    outcome = compare(plan, tmp_path)
    assert outcome.complete
    assert lines(tmp_path) == lines(whole[0])
    for name in ("table.md", "figure.svg"):
        assert (tmp_path / name).read_text("utf-8") == (whole[0] / name).read_text("utf-8")


def test_after_one_that_was_interrupted_no_other_begins(plan, tmp_path, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr("transpect.compare.pool.run_task", lambda task, **_: asked.append(task) or None)
    outcome = compare(plan, tmp_path)
    assert not outcome.complete
    assert len(asked) == 1


@pytest.mark.slow
def test_several_at_once_give_the_same(plain, whole, tmp_path) -> None:
    plan = parse_comparison(plain(variants=VARIANTS), seeds=1)

    class Counting(Silent):
        def __init__(self) -> None:
            self.said: list[tuple[str, str]] = []

        def begin(self, task) -> None:
            self.said.append(("begin", task.name))

        def end(self, task, results) -> None:
            self.said.append(("end", task.name))

    watcher = Counting()
    compare(plan, tmp_path, jobs=2, watcher=watcher)
    names = sorted(task.name for task in tasks_of(plan, tmp_path))
    assert sorted(name for what, name in watcher.said if what == "end") == names
    results, expected = (
        sorted((r for r in read_results(out / "results.jsonl") if r.seed == 0), key=lambda r: r.key)
        for out in (tmp_path, whole[0])
    )
    assert [(r.key, r.batches) for r in results] == [(r.key, r.batches) for r in expected]
    for one, other in zip(results, expected, strict=True):
        for n, measured in one.lengths.items():
            assert measured.loss == pytest.approx(other.lengths[n].loss, abs=1e-4)


def test_other_batches_have_another_digest(whole, plan, monkeypatch) -> None:
    from transpect.text import load_tokenizer
    from transpect.train.state import read_state

    out, _ = whole
    task = tasks_of(plan, out)[0]
    state = read_state(task.folder)
    tokenizer = load_tokenizer(state.tokenizer)
    right = batches_digest(task.recipe, tokenizer, state)
    assert right == next(r.batches for r in read_results(out / "results.jsonl") if r.seed == task.seed)
    from transpect.compare import runs

    draw = runs.draw
    monkeypatch.setattr(runs, "draw", lambda batches, count: [replace(b, labels=b.ids) for b in draw(batches, count)])
    assert batches_digest(task.recipe, tokenizer, state) != right


def test_unequal_tokens_are_an_error(whole) -> None:
    first, *others = read_results(whole[0] / "results.jsonl")
    check_equal_tokens([first, *others])
    with pytest.raises(DataError, match=r"same batches in the same order.*rope.*another directory"):
        check_equal_tokens([*others, replace(first, batches="0")])
    check_equal_tokens([*others, replace(first, batches="", error="diverged")])


def test_a_training_that_diverges_is_a_cell_with_its_reason(plan, tmp_path, monkeypatch) -> None:
    from transpect.compare import runs

    train = runs.train

    def failing(recipe, out, **options):
        if recipe.model.config.last.positions.kind == "learned":
            raise TrainingError("the loss must be finite, and at step 2 it is not")
        return train(recipe, out, **options)

    monkeypatch.setattr(runs, "train", failing)
    outcome = compare(plan, tmp_path)
    assert outcome.complete
    page = (tmp_path / "table.md").read_text("utf-8")
    assert "at step 2 it is not" in page
    assert not pending(plan, tmp_path)
    assert all(r.error is None for r in outcome.results["rope"])


def test_all_seeds_have_one_vocabulary_and_one_text_to_evaluate_on(plain, tmp_path) -> None:
    # each document has letters of its own and a length of its own, so that it matters which are held out
    documents = [prose(i, 10 + 9 * i).strip() + "".join(chr(0x4E00 + 20 * i + j) for j in range(i)) for i in range(12)]
    file = tmp_path / "documents.txt"
    file.write_text("\n".join(documents), encoding="utf-8")
    content = plain(variants={"rope": {"model.positions": "rope"}, "alibi": {"model.positions": "alibi"}})
    content["data"] |= {"train": {"kind": "text", "path": str(file), "by": "line"}, "valid": 0.3}
    plan = parse_comparison(content, seeds=4)
    outcome = compare(plan, tmp_path / "out")
    results = [result for of_variant in outcome.results.values() for result in of_variant]
    assert len(results) == 8
    assert len({tuple((n, one.n_rows, one.n_tokens) for n, one in r.lengths.items()) for r in results}) == 1
    tokenizers = {file.read_bytes() for file in tmp_path.glob("out/runs/*/*/last/tokenizer.json")}
    assert len(tokenizers) == 1
    assert len({result.batches for result in results}) == 4, "order and weights are still the seed's"
    other = parse_comparison(content, [("train.seed", 1)], seeds=3)
    assert other.trainings[0].key != plan.trainings[0].key, "which holds out something else"


@pytest.mark.slow
def test_where_the_first_process_is_killed_the_others_end(plain, tmp_path) -> None:
    content = plain(variants={"rope": {"model.positions": "rope"}, "alibi": {"model.positions": "alibi"}})
    content["train"]["max_steps"] = 10**6
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, pathlib, signal, sys\n"
        "from transpect.compare.comparison import Silent, compare\n"
        "from transpect.compare import parse_comparison\n"
        "class Killing(Silent):\n"
        "    def advance(self, task, step):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    plan = parse_comparison(json.loads(pathlib.Path(sys.argv[1]).read_text()))\n"
        "    compare(plan, sys.argv[2], jobs=2, watcher=Killing())\n",
        encoding="utf-8",
    )
    (tmp_path / "plan.json").write_text(json.dumps(content), encoding="utf-8")
    words = [sys.executable, str(script), str(tmp_path / "plan.json"), str(tmp_path / "out")]
    # the pipe ends when the last process that holds it does
    done = subprocess.run(words, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def test_a_run_directory_of_another_recipe_is_refused(plan, whole, tmp_path) -> None:
    task = tasks_of(plan, whole[0])[0]
    recipe = task.training.recipe
    other = replace(recipe, train=replace(recipe.train, clip=0.5))
    with pytest.raises(ConfigError, match="under the recipe that it was begun with"):
        run_task(replace(task, training=replace(task.training, recipe=other)))


def test_a_damaged_line_is_named(whole, plan, tmp_path) -> None:
    text = (whole[0] / "results.jsonl").read_text("utf-8")
    for damage in (b"{", b'{"variant": 1}', b"[]", b"\xff\xfe", text.encode()[:-30]):
        (tmp_path / "results.jsonl").write_bytes(text.encode() + damage.splitlines()[-1] + b"\n")
        with pytest.raises(DataError, match=r"results\.jsonl:7: not a result"):
            compare(plan, tmp_path)


def test_no_jobs_is_an_error(plan, tmp_path) -> None:
    with pytest.raises(ConfigError, match="jobs must be at least 1"):
        compare(plan, tmp_path, jobs=0)


def test_lines_of_other_comparisons_are_kept(whole, plain, tmp_path) -> None:
    text = (whole[0] / "results.jsonl").read_text("utf-8")
    (tmp_path / "results.jsonl").write_text(text, encoding="utf-8")
    other = parse_comparison(plain(seeds=1), vary=["model.positions=alibi,t5"], lengths=(1,))
    compare(other, tmp_path)
    new = set(lines(tmp_path)) - set(text.splitlines())
    assert set(text.splitlines()) < set(lines(tmp_path))
    assert {json.loads(line)["variant"] for line in new} == {"alibi", "t5"}


def test_encoders_are_compared_by_masked_tokens(plain, tmp_path) -> None:
    plan = parse_comparison(plain("masked", seeds=1), vary=["model.positions=alibi,learned"])
    outcome = compare(plan, tmp_path)
    (alibi,), (learned,) = outcome.results.values()
    assert alibi.batches == learned.batches
    for n in ("1", "2", "4"):
        assert alibi.lengths[n].n_tokens == learned.lengths[n].n_tokens
        assert 0 < alibi.lengths[n].n_tokens < alibi.lengths[n].n_rows * 8 * int(n)
