"""Evaluations that are killed and go on, on one process and on two, and the figures they end with."""

import importlib.util
import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from datasets_builders import build
from trl_ext.errors import UserError
from trl_ext.evaluation.requests import Completion, SamplingParams
from trl_ext.evaluation.runner import evaluate_model, fingerprint, planned

HELPERS = Path(__file__).with_name("evaluation_helpers.py")
PARAMS = SamplingParams(temperature=0.7, max_new_tokens=64)
FILES = ("results.json", "results.md", "problems.jsonl", "model-index.yaml")
SCRIPT = """
import importlib.util, json, os, sys
from datetime import timedelta

folder, output, helpers, stop_at, stop_in = sys.argv[1:]
spec = importlib.util.spec_from_file_location("helpers", helpers)
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)
from trl_ext.evaluation import records
from trl_ext.evaluation.requests import SamplingParams
from trl_ext.evaluation.runner import evaluate_model

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    import torch
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=120))
number = int(stop_at) if rank == world - 1 and stop_at != "never" else None
if number is not None and stop_in == "write":  # half of a batch is in the file
    def append(self, batch, plain=records.RecordWriter.append, last=number, calls=[]):
        is_last = len(calls) == last
        plain(self, batch[: len(batch) // 2] if is_last else batch)
        calls.append(1)
        if is_last:
            self._file.write(b'{"benchmark": "ari')
            self._file.flush()
            helpers.kill()
    records.RecordWriter.append = append
    number = None
rows = [json.loads(line) for line in open(f"{folder}/rows.jsonl")]
evaluate_model(
    helpers.FakeGenerator(number, helpers.kill), {"arithmetic": rows}, output, num_samples=4, ks=(1, 2, 4),
    params=SamplingParams(temperature=0.7, max_new_tokens=64), batch_size=32, show_progress=False,
)
"""


def _load_helpers():
    spec = importlib.util.spec_from_file_location("evaluation_helpers", HELPERS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


helpers = _load_helpers()


@pytest.fixture(scope="module")
def rows():
    return [dict(row) for row in build("arithmetic", max_samples=300, instruction="boxed")]


@pytest.fixture(scope="module")
def plain(rows, tmp_path_factory):
    """An evaluation of 300 problems with 4 samples each that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("plain")
    report = _evaluate(rows, folder)
    return report, {name: (folder / name).read_bytes() for name in FILES}


def _evaluate(rows, folder, generator=None, **settings):
    settings = {"num_samples": 4, "ks": (1, 2, 4), "params": PARAMS, "batch_size": 32, **settings}
    generator = helpers.FakeGenerator() if generator is None else generator
    return evaluate_model(generator, {"arithmetic": rows}, folder, show_progress=False, **settings)


def _files(folder):
    return {name: (folder / name).read_bytes() for name in FILES}


def test_figures_are_those_of_a_slow_count(rows, plain):
    report, _ = plain
    problems = [json.loads(line) for line in plain[1]["problems.jsonl"].splitlines()]
    assert len(problems) == len(rows) == 300
    right = {problem["key"]: [score == 1.0 for score in problem["scores"]] for problem in problems}
    one = sum(sum(r) / 4 for r in right.values()) / 300
    pairs = [(i, j) for i in range(4) for j in range(i)]
    two = sum(sum(r[i] or r[j] for i, j in pairs) / 6 for r in right.values()) / 300
    assert 0.3 < one < 0.6
    assert report.value("arithmetic") == pytest.approx(one, abs=1e-12)
    assert report.value("arithmetic", "pass@2") == pytest.approx(two, abs=1e-12)
    assert report.value("arithmetic", "pass@4") == pytest.approx(sum(any(r) for r in right.values()) / 300, abs=1e-12)
    assert one < report.value("arithmetic", "cons@4") < report.value("arithmetic", "pass@4")
    figure = report.results["benchmarks"]["arithmetic"]["metrics"]["pass@1"]
    assert figure["low"] < one < figure["high"] and figure["num_problems"] == 300


def test_equal_answers_of_another_form_vote_together(plain):
    problems = [json.loads(line) for line in plain[1]["problems.jsonl"].splitlines()]
    for problem in problems:
        stated = [
            score for answer, score in zip(problem["answers"], problem["scores"], strict=True) if answer is not None
        ]
        if sum(stated) > len(stated) / 2:  # 2x/2 and x are one answer: the right ones win
            assert problem["vote_score"] == 1.0
    assert any("/2" in (answer or "") for problem in problems for answer in problem["answers"])


def test_every_batch_can_be_the_last_one_before_an_interruption(rows, tmp_path):
    few = rows[:20]
    expected = _evaluate(few, tmp_path / "plain", batch_size=16)
    counts = []
    for stop_at in range(5):
        folder = tmp_path / str(stop_at)
        with pytest.raises(KeyboardInterrupt):
            _evaluate(few, folder, helpers.FakeGenerator(stop_at, helpers.interrupt), batch_size=16)
        again = helpers.FakeGenerator()
        report = _evaluate(few, folder, again, batch_size=16)
        counts.append(again.num_calls)
        assert report.results == expected.results
        assert _files(folder) == _files(tmp_path / "plain")
        assert len((folder / "generations.jsonl").read_text().splitlines()) == 80  # no completion twice
    assert counts == [5, 4, 3, 2, 1]


def _write_script(folder, rows):
    """The script and the problems for `_run`."""
    (folder / "run.py").write_text(SCRIPT)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _run(folder, output, stop_at="never", stop_in="generate", processes=1):
    """The script in one process, or in two under torchrun; its exit status."""
    words = [str(folder / "run.py"), str(folder), str(output), str(HELPERS), str(stop_at), stop_in]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else []), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stop_in", ["generate", "write"])
@pytest.mark.parametrize("stop_at", [0, 1, 20, 37])
def test_killed_process_goes_on_to_the_same_bytes(rows, plain, tmp_path, stop_at, stop_in):
    _write_script(tmp_path, rows)
    status, _ = _run(tmp_path, tmp_path / "out", stop_at, stop_in)
    assert status == -9
    assert not (tmp_path / "out" / "results.json").exists()
    assert _run(tmp_path, tmp_path / "out")[0] == 0
    assert _files(tmp_path / "out") == plain[1]


@pytest.mark.slow
def test_two_processes_give_the_bytes_of_one_also_when_killed_and_with_another_number_of_them(rows, plain, tmp_path):
    _write_script(tmp_path, rows)

    def uninterrupted():
        status, error = _run(tmp_path, tmp_path / "two", processes=2)
        assert status == 0, error[-3000:]
        assert _files(tmp_path / "two") == plain[1]
        assert len((tmp_path / "two" / "generations.1.jsonl").read_text().splitlines()) > 500  # it had its share

    def killed(stop_in, first, then):
        folder = tmp_path / f"{stop_in}{first}{then}"
        assert _run(tmp_path, folder, 5, stop_in, processes=first)[0] != 0
        assert not (folder / "results.json").exists()
        status, error = _run(tmp_path, folder, processes=then)
        assert status == 0, error[-3000:]
        assert _files(folder) == plain[1]

    # two at a time, as much of the time goes into starting them
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(killed, *how) for how in (("generate", 2, 1), ("write", 2, 2), ("write", 1, 2))]
        for run in (*runs, pool.submit(uninterrupted)):
            run.result()


def test_other_ks_are_graded_anew_without_generating(rows, tmp_path):
    _evaluate(rows[:10], tmp_path, ks=(1,))
    again = helpers.FakeGenerator(0, helpers.interrupt)
    report = _evaluate(rows[:10], tmp_path, again, ks=(2, 3))
    assert set(report.results["benchmarks"]["arithmetic"]["metrics"]) == {
        "pass@1",
        "pass@2",
        "cons@2",
        "pass@3",
        "cons@3",
    }
    assert again.num_calls == 0


def test_truncated_rule_changes_verdict_and_vote(rows, tmp_path):
    graded = _evaluate(rows[:40], tmp_path)
    wrong = _evaluate(rows[:40], tmp_path, truncated="wrong")
    pairs = [
        (cut, before, after, answer)
        for one, other in zip(graded.problems, wrong.problems, strict=True)
        for cut, before, after, answer in zip(one.truncated, one.scores, other.scores, other.answers, strict=True)
    ]
    assert all((after, answer) == (0.0, None) for cut, _, after, answer in pairs if cut)
    assert all(before == after for cut, before, after, _ in pairs if not cut)
    assert wrong.value("arithmetic") < graded.value("arithmetic")
    assert (
        wrong.results["benchmarks"]["arithmetic"]["truncated"]
        == graded.results["benchmarks"]["arithmetic"]["truncated"]
    )


def odd_reward(completions, solution, **columns):
    """Judges only problems with an odd gold; one sample of each of them not either."""
    golds = [int(gold.strip("$")) for gold in solution]
    verdicts = [1.0 if str(gold) in text[-1]["content"] else 0.0 for gold, text in zip(golds, completions, strict=True)]
    return [None if gold % 2 == 0 or i % 4 == 0 else v for i, (gold, v) in enumerate(zip(golds, verdicts, strict=True))]


def test_unjudged_samples_are_left_out_and_counted(rows, tmp_path):
    report = _evaluate(rows[:40], tmp_path, reward=odd_reward)
    one = report.results["benchmarks"]["arithmetic"]
    odd = [row for row in rows[:40] if int(row["solution"].strip("$")) % 2]
    assert 5 < len(odd) < 35
    assert one["num_unjudged_samples"] == 4 * (40 - len(odd)) + len(odd)
    assert one["num_unjudged_problems"] == 40 - len(odd)
    assert one["metrics"]["pass@1"]["num_problems"] == one["metrics"]["pass@2"]["num_problems"] == len(odd)
    assert one["metrics"]["pass@4"] == {"value": None, "low": None, "high": None, "num_problems": 0, "num_left_out": 40}
    assert "could not be judged" in report.markdown()


def shortest_reward(completions, **columns):
    return [-len(text[-1]["content"]) for text in completions]


def test_best_of_reward_chooses_by_its_scores(rows, tmp_path):
    report = _evaluate(rows[:40], tmp_path, best_of_reward=shortest_reward)
    expected = 0.0
    for problem in report.problems:
        best = max(problem.best_of_scores)
        chosen = [right for right, score in zip(problem.correct, problem.best_of_scores, strict=True) if score == best]
        expected += sum(chosen) / len(chosen) / 40
    assert report.value("arithmetic", "best_of@4") == pytest.approx(expected, abs=1e-12)
    assert report.results["best_of_reward"] == "shortest_reward"


def test_reward_sees_all_samples_of_a_problem_side_by_side(rows, tmp_path):
    calls = []

    def group_reward(completions, solution, **columns):
        calls.append(list(solution))
        return [0.0] * len(completions)

    _evaluate(rows[:5], tmp_path, reward=group_reward)
    assert calls == [[row["solution"] for row in rows[:5] for _ in range(4)]]


def test_rows_with_prompt_and_solution_alone_are_maths(tmp_path):
    rows = [{"prompt": f"What is {n} plus 1? (a)", "solution": str(n + 1)} for n in range(12)]
    report = evaluate_model(helpers.FakeGenerator(), {"own": rows}, tmp_path, params=PARAMS, show_progress=False)
    assert {problem.task for problem in report.problems} == {"math"}
    assert 0 < report.value("own") < 1


def test_two_benchmarks_are_reported_apart(rows, tmp_path):
    sets = {"first": rows[:8], "second": rows[:8]}
    report = evaluate_model(helpers.FakeGenerator(), sets, tmp_path, params=PARAMS, batch_size=3, show_progress=False)
    assert [problem.benchmark for problem in report.problems] == ["first"] * 8 + ["second"] * 8
    assert report.value("first") == report.value("second")  # the same problems have the same seeds in any set


def test_plan_depends_on_rows_and_settings_alone(rows):
    one = planned({"a": rows}, num_samples=2, params=PARAMS, batch_size=7)
    assert one == planned({"a": [dict(row) for row in rows]}, num_samples=2, params=PARAMS, batch_size=7)
    samples = [sample for batch in one for sample in batch.samples]
    assert len(set(samples)) == len(samples) == 600
    assert {len(batch.requests) for batch in one[:-1]} == {7}


def test_fingerprint_changes_with_prompt_gold_task_and_order(rows):
    base = fingerprint(rows)
    assert base == fingerprint([dict(row) for row in rows])
    for name, value in (("prompt", "x"), ("solution", "x"), ("task", "choice"), ("extra", "{}")):
        assert fingerprint([{**rows[0], name: value}, *rows[1:]]) != base
    assert fingerprint(rows[::-1]) != base


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ks": (1, 8)}, "k=8 needs at least 8 samples a problem, and num_samples is 4"),
        ({"ks": (0,)}, "k=0 must be a whole number of at least 1"),
        ({"num_samples": 0}, "num_samples=0 must be a whole number"),
        ({"params": SamplingParams()}, "num_samples=4 with temperature=0 gives 4 times the same completion"),
        ({"truncated": "wrng"}, "truncated='wrng' is none of grade, wrong; did you mean 'wrong'"),
        ({"batch_size": 0}, "batch_size=0 must be a whole number"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_the_model_is_made(rows, tmp_path, settings, sentence):
    def make():
        raise AssertionError("the model was made")

    with pytest.raises(UserError, match=sentence.replace(".", r"\.")):
        _evaluate(rows[:4], tmp_path / "out", make, **settings)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        ({}, "benchmarks is empty"),
        ({"a": []}, "'a' holds no rows"),
        ({"a": [{"prompt": "x", "solution": True}]}, "row 0 of 'a' has the solution True, with which accuracy_reward"),
        ({"a": [{"prompt": "x", "solution": float("nan")}]}, "has the solution nan, .* give the gold as text"),
        ({"a": [{"prompt": "x"}]}, "row 0 of 'a' has no gold in the column 'solution'; its columns are prompt"),
        ({"a": [{"prompt": "x", "solution": "4", "task": "chioce"}]}, "did you mean 'choice'"),
        ({"a": [{"prompt": "x", "solution": "4", "task": 3}]}, "row 0 of 'a' has the task 3, which is no text"),
        ({"a": [{"prompt": "x", "solution": "4", "task": ["math"]}]}, "has the task .'math'., which is no text"),
        ({"a": [{"prompt": [{"role": "user"}], "solution": "4"}]}, "row 0 of 'a': turn 0 .* has the content None"),
        (
            {"a": [{"prompt": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "solution": "4"}]},
            "turn 0 of its prompt has the content .* give every turn a text",
        ),
        ({"a": [{"solution": "4"}]}, "prompt=None must be a text or a list of messages"),
    ],
)
def test_rows_that_cannot_be_graded_are_refused(tmp_path, sets, sentence):
    with pytest.raises(UserError, match=sentence):
        evaluate_model(helpers.FakeGenerator(), sets, tmp_path)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"params": SamplingParams(temperature=0.8, max_new_tokens=64)}, "sampling.temperature is 0.7 there and 0.8"),
        ({"batch_size": 16}, "batch_size is 32 there and 16 here"),
        ({"num_samples": 8}, "num_samples is 4 there and 8 here"),
        ({"weights": {"model": "b"}}, 'weights.model is "a" there and "b" here'),
    ],
)
def test_folder_of_another_request_is_refused_and_can_be_overwritten(rows, tmp_path, settings, field):
    _evaluate(rows[:4], tmp_path, weights={"model": "a"})
    settings = {"weights": {"model": "a"}, **settings}
    with pytest.raises(UserError, match=field):
        _evaluate(rows[:4], tmp_path, **settings)
    assert _evaluate(rows[:4], tmp_path, overwrite=True, **settings).value("arithmetic") is not None


def test_folder_of_other_rows_is_refused(rows, tmp_path):
    _evaluate(rows[:4], tmp_path)
    with pytest.raises(UserError, match=r"benchmarks.arithmetic.fingerprint is .* there and .* here"):
        _evaluate(rows[4:8], tmp_path)


def test_progress_prints_lines_where_there_is_no_terminal(rows, tmp_path, capsys):
    generator = helpers.FakeGenerator()
    report = evaluate_model(generator, {"a": rows[:32]}, tmp_path, params=PARAMS, batch_size=8)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"eval: 32/32, {report.value('a'):.1%} right so far, ") and "tokens/s" in line


def test_resumed_progress_counts_what_was_there(rows, tmp_path, capsys):
    settings = {"params": PARAMS, "batch_size": 8}
    with pytest.raises(KeyboardInterrupt):
        evaluate_model(helpers.FakeGenerator(3, helpers.interrupt), {"a": rows[:32]}, tmp_path, **settings)
    capsys.readouterr()
    report = evaluate_model(helpers.FakeGenerator(), {"a": rows[:32]}, tmp_path, **settings)
    assert f"eval: 32/32, {report.value('a'):.1%} right so far" in capsys.readouterr().err


def test_progress_on_a_terminal_is_one_bar_with_its_figures(rows, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    report = evaluate_model(helpers.FakeGenerator(), {"a": rows[:32]}, tmp_path, params=PARAMS, batch_size=8)
    last = sys.stderr.getvalue().strip().split("\r")[-1]
    assert last.startswith("eval: 32/32 |")
    assert f" left, {report.value('a'):.1%} right so far, " in last and last.rstrip().endswith("tokens/s")


def test_overwrite_of_a_folder_where_an_evaluation_runs_is_refused_and_leaves_it_as_it_is(rows, tmp_path):
    def second():
        before = (tmp_path / "generations.jsonl").read_bytes()
        with pytest.raises(UserError, match="another evaluation runs in this folder; wait until it ends"):
            _evaluate(rows[:40], tmp_path, lambda: pytest.fail("the model was made"), overwrite=True)
        assert (tmp_path / "generations.jsonl").read_bytes() == before != b""

    generator = helpers.FakeGenerator(1, second)
    assert _evaluate(rows[:40], tmp_path, generator).value("arithmetic") is not None
    assert _evaluate(rows[:40], tmp_path, overwrite=True).value("arithmetic") is not None


def test_results_of_somebody_else_are_refused_before_the_model_is_made(rows, tmp_path):
    (tmp_path / "results.md").write_text("mine")
    with pytest.raises(UserError, match=r"holds results.md, but no request.json"):
        _evaluate(rows[:4], tmp_path, lambda: pytest.fail("the model was made"), overwrite=True)
    assert (tmp_path / "results.md").read_text() == "mine"


def test_records_that_are_taken_away_are_told(rows, tmp_path):
    generator = helpers.FakeGenerator(1, lambda: os.truncate(tmp_path / "generations.jsonl", 0))
    with pytest.raises(UserError, match=r"32 completions that were written are no longer in"):
        _evaluate(rows[:16], tmp_path, generator)


def test_sample_without_a_verdict_joins_no_classes_of_answers():
    from trl_ext.evaluation._figures import figures
    from trl_ext.evaluation.grading import Graded
    from trl_ext.evaluation.records import Record
    from trl_ext.evaluation.runner import _problem

    row = {"prompt": "a", "solution": "50"}
    graded = [Graded(1.0, "50", True), Graded(None, "50%", None), Graded(0.0, "0.5", False), Graded(0.0, "7", False)]
    records = [Record("b", 0, "k", number, "x", 1, False) for number in range(4)]
    problem = _problem("b", "k", row, records, graded, None)
    assert problem.groups == [0, None, 1, 2]
    made = [[Completion("x", 1, False)] * 4]
    assert problem.vote_at(3) == pytest.approx(1 / 3) == figures([row], None, made, [graded], k=3)["cons@3"]


def test_complaint_about_a_request_names_its_row(rows, tmp_path):
    class Short(helpers.FakeGenerator):
        def generate(self, requests, params):
            raise UserError(f"request {requests[-1].key}: the prompt has 9 tokens and the model's context 8")

    own = [{"prompt": "x" * length, "solution": "1"} for length in (3, 1, 2)]
    with pytest.raises(UserError, match=r"^row 1 of own \(request [0-9a-f]+:0\): the prompt has 9 tokens"):
        evaluate_model(Short(), {"own": own}, tmp_path, show_progress=False)


def test_password_and_query_of_a_server_are_written_nowhere(rows, tmp_path):
    class Served(helpers.FakeGenerator):
        def describe(self):
            return {**super().describe(), "url": "http://bob:hunter2@host:8000/v1?token=hunter3"}

    report = _evaluate(rows[:2], tmp_path, Served())
    assert report.results["server_url"] == "http://host:8000/v1"
    assert not [path for path in tmp_path.iterdir() if "hunter" in path.read_text()]


def test_whole_prompt_has_a_hash_in_the_problem(rows, tmp_path):
    def hashes(folder, system):
        own = [{**row, "prompt": [{"role": "system", "content": system}, *row["prompt"]]} for row in rows[:2]]
        return [problem.row()["prompt_hash"] for problem in _evaluate(own, tmp_path / folder).problems]

    first = hashes("a", "Be brief.")
    assert hashes("b", "Be brief.") == first and not {*first} & {*hashes("c", "Be slow.")}


@pytest.mark.parametrize("form", [int, float, lambda text: [text, "a2"]], ids=["int", "float", "list"])
def test_gold_that_is_no_text_is_graded(rows, tmp_path, form):
    own = [{**row, "solution": form(row["solution"].strip("$"))} for row in rows[:20]]
    found = [_evaluate(of, tmp_path / name).value("arithmetic") for name, of in (("a", own), ("b", rows[:20]))]
    assert found[0] == found[1] > 0


@pytest.mark.parametrize(
    "said", [["\\boxed{7}"] * 2, ["I do not know"] * 2, ["\\boxed{7}", "<answer>a \\mapsto</answer>"]]
)
def test_problem_whose_gold_nobody_can_read_is_left_out_whatever_is_said(tmp_path, said):
    class Said(helpers.FakeGenerator):
        def generate(self, requests, params):
            texts = ["\\boxed{4}" if one.prompt == "good" else said[int(one.key[-1])] for one in requests]
            return [Completion(text, 3, False) for text in texts]

    own = [{"prompt": "good", "solution": "4"}, {"prompt": "bad", "solution": "a \\mapsto"}]
    settings = {"num_samples": 2, "ks": (1, 2), "batch_size": 1, "show_progress": False, "params": PARAMS}
    report = evaluate_model(Said(), {"own": own}, tmp_path, **settings)
    one = report.results["benchmarks"]["own"]
    assert (report.value("own"), one["num_unjudged_problems"], one["num_unjudged_samples"]) == (1.0, 1, 2)
    assert one["metrics"]["pass@2"]["num_problems"] == 1


def test_arguments_of_the_chat_template_in_a_row_reach_its_requests_and_its_fingerprint(rows):
    own = [{**row, "chat_template_kwargs": {"thinking": False, "tools": None}} for row in rows[:2]]
    found = planned({"a": own}, num_samples=1, params=PARAMS, batch_size=2)[0].requests
    assert [one.chat_template_kwargs for one in found] == [{"thinking": False}] * 2
    empty = [{**row, "chat_template_kwargs": None} for row in rows[:2]]
    assert fingerprint(own) != fingerprint(rows[:2]) == fingerprint(empty)
    with pytest.raises(UserError, match="row 0: chat_template_kwargs='x' must be a mapping"):
        planned({"a": [{**rows[0], "chat_template_kwargs": "x"}]}, num_samples=1, params=PARAMS, batch_size=2)
