"""EvaluationCallback in stock trainers and ours: its figures, its lines, and a training that does not notice it."""

import importlib.util
import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from trl_ext.callbacks import MetricsWriter, read_metrics
from trl_ext.errors import UserError
from trl_ext.evaluation import EvaluationCallback
from trl_ext.evaluation import callback as callback_module
from trl_ext.evaluation._figures import figures
from trl_ext.evaluation._generate_transformers import TransformersGenerator
from trl_ext.evaluation.callback import tidy
from trl_ext.evaluation.grading import Graded
from trl_ext.evaluation.requests import Completion
from trl_ext.ppo import PPOConfig, PPOTrainer
from trl_ext.testing import tiny_tokenizer

HELPERS = Path(__file__).parents[1] / "trainer_helpers.py"
_spec = importlib.util.spec_from_file_location("trainer_helpers", HELPERS)
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)

ROWS = [
    {
        "prompt": [{"role": "user", "content": f"{a}+{a + 2}= in \\boxed{{}}"}],
        "solution": str(2 * a + 2),
        "task": "math",
    }
    for a in range(5)
] + [{"prompt": "7+7=", "solution": "14"}]
# so low that the random weights decide, whose logits differ by less than 1
SAMPLED = {"num_samples": 4, "temperature": 0.2, "k": 2, "max_new_tokens": 8, "batch_size": 5}
TRAINERS = ("grpo", "sft", "ppo")


@pytest.fixture(autouse=True)
def _surroundings(frozen_garbage, one_thread, quiet):
    """The same in every test of a trainer."""


def early_letter(completions, **columns):
    """1 where a completion holds an early letter or digit: a random model does that now and then."""
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    return [float(any(letter in text for letter in "abcdefgABCDEFG0123")) for text in texts]


def a_callback(**settings):
    return EvaluationCallback(ROWS, **{**SAMPLED, "reward": early_letter, "every_n_steps": 1, **settings})


def a_trainer(kind, output_dir, **settings):
    arguments, rest = shared.split_arguments(settings, shared.TRAINER_ARGUMENTS, shared.PROMPTS)
    rest = {**shared.SETTINGS, "output_dir": str(output_dir), "seed": 1, **rest}
    if kind == "grpo":
        trainer = GRPOTrainer(args=GRPOConfig(num_generations=4, bf16=False, use_cpu=True, **rest), **arguments)
    elif kind == "ppo":
        trainer = PPOTrainer(args=PPOConfig(**rest), **arguments)
    else:
        rest.pop("max_completion_length")
        arguments.pop("reward_funcs")
        arguments["train_dataset"] = Dataset.from_dict({"text": [f"{p} and so on" for p in shared.PROMPTS]})
        trainer = SFTTrainer(args=SFTConfig(bf16=False, use_cpu=True, **rest), **arguments)
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def lines_of(folder, name="eval/pass@1"):
    return [row for row in read_metrics(Path(folder) / "metrics.jsonl") if name in row]


def without_seconds(metrics):
    return {name: value for name, value in metrics.items() if not name.endswith("seconds")}


# --- figures


def graded(*verdicts, answers="ABCDEFGH"):
    return [Graded(None if v is None else float(v), a, v) for v, a in zip(verdicts, answers, strict=False)]


def completions_of(*texts, cut=False):
    return [Completion(text, len(text), cut) for text in texts]


def test_figures_of_hand_made_results():
    rows = [{"prompt": "Use \\boxed{}", "task": "choice"}, {"prompt": "?", "task": "choice"}]
    found = figures(
        rows,
        None,
        [
            completions_of("\\boxed{B}", "B", "C", "A"),
            completions_of("A", "A", "the answer is A", "one two three", cut=True),
        ],
        [graded(True, True, False, False, answers="BBCA"), graded(True, None, None, None, answers="AAAA")],
        k=4,
    )
    assert found["pass@1"] == (0.5 + 1.0) / 2  # the unjudged are left out
    assert found["pass@4"] == found["cons@4"] == 1.0  # of the first problem alone: the other has one judged sample
    assert found["response_length"] == (9 + 1 + 1 + 1 + 1 + 1 + 15 + 13) / 8
    assert found["truncated"] == 0.5
    assert found["format_rate"] == 0.25  # only the first prompt asks for a box
    assert found["language_consistency"] == 1.0
    assert found["unjudged"] == 3.0


def test_vote_counts_equal_answers_once_and_splits_ties():
    rows, texts = [{"prompt": "?"}], [completions_of("x", "x", "x", "x")]
    halves = graded(True, True, False, False, answers=["1/2", "0.5", "3", None])
    assert figures(rows, None, texts, [halves], k=4)["cons@4"] == 1.0
    tie = graded(True, False, False, False, answers=["1/2", "3", None, None])
    assert figures(rows, None, texts, [tie], k=4)["cons@4"] == 0.5
    assert figures(rows, None, texts, [tie], k=2)["pass@2"] == 0.5


def test_figures_with_nothing_behind_them_are_left_out():
    found = figures([{"prompt": "?", "task": "code"}], None, [completions_of("1", "2")], [graded(None, None)], k=2)
    assert set(found) == {"response_length", "truncated", "unjudged"}
    found = figures([{"prompt": "?", "task": "code"}], None, [completions_of("1", "2")], [graded(True, False)], k=2)
    assert found["pass@2"] == 1.0 and "cons@2" not in found


def test_one_sample_has_one_accuracy():
    found = figures([{"prompt": "?"}], None, [completions_of("1")], [graded(True)], k=1)
    assert [name for name in found if "@" in name] == ["pass@1"]


def test_language_is_that_of_the_row_or_the_one_given():
    rows, texts = [{"prompt": "?", "language": "zh"}], [completions_of("三个苹果加两个，一共五个。")]
    assert figures(rows, None, texts, [graded(True)], k=1)["language_consistency"] == 1.0
    assert figures(rows, None, texts, [graded(True)], k=1, language="en")["language_consistency"] == 0.0


# --- settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_samples": 0}, "num_samples=0"),
        ({"num_samples": 4, "temperature": 0.0}, "the same completion 4 times"),
        ({"num_samples": 4, "temperature": 1.0, "k": 5}, "k=5 must be .* num_samples=4"),
        ({"num_samples": 4, "temperature": 1.0, "k": 0}, "k=0"),
        ({"every_n_steps": 0}, "every_n_steps=0"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"temperature": -1}, "temperature=-1"),
        ({"truncated": "drop"}, "truncated='drop'"),
        ({"eval_dataset": []}, "eval_dataset is empty"),
        ({"eval_dataset": {"a": ROWS}}, "eval_dataset is a dict"),
        ({"eval_dataset": "math_500"}, "eval_dataset is a str"),
        ({"eval_dataset": ["math"]}, "must hold rows"),
        ({"eval_dataset": [{"question": "1+1"}]}, "row 0: prompt=None"),
        ({"eval_dataset": [{"prompt": "1+1", "task": "judge"}]}, "task='judge' has no reward"),
    ],
)
def test_wrong_settings_are_refused_before_training(settings, words):
    with pytest.raises(UserError, match=words):
        EvaluationCallback(**{"eval_dataset": ROWS, **settings})


def test_rows_come_from_a_data_set_and_need_no_task_with_a_reward():
    rows = Dataset.from_list([{"prompt": "a", "task": "judge"}])
    assert EvaluationCallback(rows, reward=early_letter).rows == [{"prompt": "a", "task": "judge"}]


# --- in trainers


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Each trainer after two steps, with the callback (under the key True) and without (False)."""
    found = {}

    def run(kind, is_evaluated):
        if (kind, is_evaluated) not in found:
            folder = tmp_path_factory.mktemp(kind)
            trainer = a_trainer(kind, folder)
            trainer.add_callback(MetricsWriter(folder))
            if is_evaluated:
                trainer.add_callback(a_callback(trainer=trainer))
            trainer.train()
            found[kind, is_evaluated] = trainer
        return found[kind, is_evaluated]

    return run


@pytest.mark.parametrize("kind", TRAINERS)
def test_training_ends_with_the_same_weights_as_without(finished, kind):
    plain, evaluated = (dict(finished(kind, flag).model.named_parameters()) for flag in (False, True))
    assert plain.keys() == evaluated.keys()
    assert all(torch.equal(plain[name], evaluated[name]) for name in plain)
    assert any(parameter.abs().sum() > 0 for name, parameter in plain.items() if "lora_B" in name)


@pytest.mark.parametrize("kind", TRAINERS)
def test_every_step_has_one_line_and_the_training_log_is_as_without(finished, kind):
    trainer, plain = finished(kind, True), finished(kind, False)
    lines = lines_of(trainer.args.output_dir)
    assert [line["step"] for line in lines] == [0, 1, 2]
    names = {"pass@1", "pass@2", "cons@2", "response_length", "truncated", "format_rate", "unjudged", "seconds"}
    assert names <= {name.removeprefix("eval/") for name in lines[0]}
    assert [row["step"] for row in trainer.state.log_history if "eval/pass@1" in row] == [0, 1, 2]
    rest = [row for row in read_metrics(Path(trainer.args.output_dir) / "metrics.jsonl") if "eval/pass@1" not in row]
    expected = read_metrics(Path(plain.args.output_dir) / "metrics.jsonl")
    ignored = ("time", "second")
    for row, other in zip(rest, expected, strict=True):
        assert row.keys() == other.keys()
        for name in row:
            assert any(word in name for word in ignored) or row[name] == other[name], name


@pytest.mark.parametrize("kind", TRAINERS)
def test_last_line_is_what_the_model_gives_by_itself(finished, kind):
    trainer = finished(kind, True)
    found = a_callback().evaluate(TransformersGenerator(trainer.model, tiny_tokenizer()))
    line = lines_of(trainer.args.output_dir)[-1]
    assert without_seconds(found) == {n: line[f"eval/{n}"] for n in without_seconds(found)}
    assert 0.0 < found["pass@1"] < 1.0
    assert found["pass@1"] < found["pass@2"]


def test_training_moves_the_figures(tmp_path):
    trainer = a_trainer("sft", tmp_path, max_steps=4, learning_rate=0.1)
    trainer.add_callback(a_callback(trainer=trainer, every_n_steps=4))
    trainer.train()
    first, last = lines_of(tmp_path)
    assert first["eval/pass@1"] != last["eval/pass@1"]


@pytest.mark.parametrize("has_trainer", [True, False])
@pytest.mark.parametrize("writer", ["none", "before", "after"])
def test_metrics_file_has_each_line_once_whoever_writes_it(tmp_path, has_trainer, writer):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "eval/pass@1": 0.5, "time": 1.0}\n{"step": 7, "loss": 1.0}\n')
    callback = a_callback()
    own = [MetricsWriter(tmp_path)] if writer != "none" else []
    callbacks = [*own, callback] if writer == "before" else [callback, *own]
    trainer = a_trainer("sft", tmp_path, callbacks=callbacks)
    callback.trainer = trainer if has_trainer else None
    trainer.train()
    assert [line["step"] for line in lines_of(tmp_path)] == [0, 1, 2]
    assert [line["step"] for line in lines_of(tmp_path, "loss")] == ([] if writer == "none" else [1, 2])
    assert len(read_metrics(tmp_path / "metrics.jsonl.old")) == 2
    assert [row["step"] for row in trainer.state.log_history if "eval/pass@1" in row] == [0, 1, 2]


def test_writer_of_another_folder_does_not_stand_for_ours(tmp_path):
    trainer = a_trainer("sft", tmp_path / "run", callbacks=[MetricsWriter(tmp_path / "elsewhere")])
    trainer.add_callback(a_callback(trainer=trainer))
    trainer.train()
    assert [len(lines_of(tmp_path / name)) for name in ("run", "elsewhere")] == [3, 3]


def test_without_trainer_says_once_what_to_do(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "trl_ext.evaluation.callback"):
        a_trainer("sft", tmp_path, callbacks=[a_callback()]).train()
    assert sum("has no trainer" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("has_writer", [True, False])
def test_resumed_training_has_no_line_twice(tmp_path, has_writer):
    settings = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}

    def run(**arguments):
        trainer = a_trainer("sft", tmp_path, callbacks=[MetricsWriter(tmp_path)] if has_writer else [], **settings)
        trainer.add_callback(a_callback(trainer=trainer))
        trainer.train(**arguments)
        return trainer

    whole = lines_of(run().args.output_dir)
    assert [line["step"] for line in whole] == [0, 1, 2, 3, 4]
    resumed = run(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    lines = lines_of(tmp_path)
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[:3] == whole[:3] and lines[3]["time"] > whole[4]["time"]
    # the same model, the same seeds: the same figures
    for line, other in zip(lines, whole, strict=True):
        assert {n: line[n] for n in line if "@" in n} == {n: other[n] for n in other if "@" in n}
    assert [row["step"] for row in resumed.state.log_history if "eval/pass@1" in row] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"every_n_steps": 2}, [0, 2, 3]),
        ({"every_n_steps": 2, "at_start": False}, [2, 3]),
        ({"every_n_steps": 2, "at_end": False}, [0, 2]),
        ({"every_n_steps": None}, [0, 3]),  # 50 by default
    ],
)
def test_steps_are_those_asked_for(tmp_path, settings, steps):
    trainer = a_trainer("sft", tmp_path, max_steps=3)
    trainer.add_callback(a_callback(trainer=trainer, num_samples=1, k=1, **settings))
    trainer.train()
    assert [line["step"] for line in lines_of(tmp_path)] == steps


@pytest.mark.parametrize(("eval_steps", "steps"), [(2, [0, 2, 4]), (0.25, [0, 1, 2, 3, 4])])
def test_steps_by_default_are_those_of_the_trainer(tmp_path, eval_steps, steps):
    trainer = a_trainer("sft", tmp_path, max_steps=4, eval_steps=eval_steps)
    trainer.add_callback(a_callback(trainer=trainer, num_samples=1, k=1, every_n_steps=None))
    trainer.train()
    assert [line["step"] for line in lines_of(tmp_path)] == steps


def test_training_that_is_stopped_is_evaluated_at_its_end(tmp_path):
    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == 2

    for order in ("before", "after"):
        trainer = a_trainer("sft", tmp_path / order, max_steps=4, callbacks=[Stop()] if order == "before" else [])
        trainer.add_callback(a_callback(trainer=trainer, every_n_steps=10))
        if order == "after":
            trainer.add_callback(Stop())
        trainer.train()
        assert [line["step"] for line in lines_of(tmp_path / order)] == [0, 2]


@pytest.mark.parametrize("has_trainer", [True, False])
def test_training_stopped_before_its_first_evaluation_is_evaluated_at_its_end(tmp_path, has_trainer):
    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == 2

    trainer = a_trainer("sft", tmp_path, max_steps=4)
    trainer.add_callback(a_callback(trainer=trainer if has_trainer else None, every_n_steps=10, at_start=False))
    trainer.add_callback(Stop())
    trainer.train()
    assert [line["step"] for line in lines_of(tmp_path)] == [2]


def test_length_by_default_is_that_of_the_trainer(tmp_path):
    trainer = a_trainer("grpo", tmp_path, max_steps=1, max_completion_length=5)
    trainer.add_callback(a_callback(trainer=trainer, max_new_tokens=None, metric_prefix="held_out/"))
    trainer.train()
    assert all(line["held_out/response_length"] <= 5 for line in lines_of(tmp_path, "held_out/pass@1"))
    assert lines_of(tmp_path, "held_out/pass@1")[0]["held_out/truncated"] > 0


def test_chat_template_arguments_of_the_trainer_are_used(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        TransformersGenerator, "generate", lambda self, *rest: seen.append(self.chat_template_kwargs) or 1 / 0
    )
    trainer = a_trainer("grpo", tmp_path, chat_template_kwargs={"thinking": False})
    trainer.add_callback(a_callback(trainer=trainer))
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    assert seen == [{"thinking": False}]


def test_sharded_model_without_trainer_is_refused():
    args = type("Arguments", (), {"fsdp": "full_shard", "deepspeed": None})
    with pytest.raises(UserError, match=r"sharded model without its trainer.*trainer=trainer"):
        a_callback().on_train_begin(args, transformers.TrainerState(), transformers.TrainerControl())


@pytest.mark.parametrize(("sharding", "calls"), [(None, 1), ("FSDP", 2)])
def test_process_without_a_batch_generates_along_where_the_layers_are_shared(monkeypatch, sharding, calls):
    callback = a_callback(batch_size=8)  # three batches for two processes
    assert len(callback.batches) == 3
    world = SimpleNamespace(num_processes=2, process_index=1, is_main_process=False)
    monkeypatch.setattr(callback_module, "PartialState", lambda: world)
    others = [(r.key, Completion("of the first", 1, False)) for batch in callback.batches[::2] for r in batch]
    monkeypatch.setattr(callback_module, "gather_object", lambda own: [*others, *own])
    monkeypatch.setattr(EvaluationCallback, "_sharding", sharding)
    asked = []

    class Mine:
        def generate(self, requests, params):
            asked.append(requests)
            return [Completion("mine", 1, False) for _ in requests]

    found = callback._completions(Mine(), callback.params)
    assert asked == [callback.batches[1], callback.batches[2]][:calls]
    assert sum(one.text == "mine" for row in found for one in row) == 8
    assert [len(row) for row in found] == [4] * len(ROWS)


# --- the file


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 9, "ti')  # cut short by a kill


def test_tidy_keeps_what_a_resumed_run_goes_on_from_and_its_own_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, {"step": 1, "time": 5.0}, {"step": 3, "time": 6.0}, {"step": 3, "time": 9.0})
    tidy(path, 2, 8.0)
    assert read_metrics(path) == [{"step": 1, "time": 5.0}, {"step": 3, "time": 9.0}]


def test_tidy_puts_the_file_of_an_older_run_aside(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, {"step": 0, "time": 5.0}, {"step": 1})
    tidy(path, 0, 8.0)
    assert not path.exists()
    assert len(read_metrics(tmp_path / "metrics.jsonl.old")) == 2
    tidy(path, 0, 8.0)  # and there need be none


# --- two processes

SCRIPT = """
import importlib.util, json, os, sys
import torch

torch.set_num_threads(1)
folder, tests = sys.argv[1:]
spec = importlib.util.spec_from_file_location("callback_tests", tests)
tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tests)
for name, has_trainer in (("with", True), ("without", False)):
    trainer = tests.a_trainer(
        "sft", f"{folder}/{name}", ddp_backend="gloo", per_device_train_batch_size=2, max_steps=1, learning_rate=0.0
    )
    callback = tests.a_callback(trainer=trainer if has_trainer else None)
    trainer.add_callback(callback)
    trainer.train()
    found = {
        "processes": trainer.accelerator.num_processes,
        "wrapped": type(trainer.model_wrapped).__name__,
        "history": [row for row in trainer.state.log_history if "eval/pass@1" in row],
    }
    json.dump(found, open(f"{folder}/{name}-{trainer.accelerator.process_index}.json", "w"))
torch.distributed.barrier()  # both have written
os._exit(0)  # taking gloo's threads down ends in an abort once in a while
"""


@pytest.mark.slow
def test_two_processes_have_the_figures_of_one(tmp_path, run_two_processes):
    (tmp_path / "script.py").write_text(SCRIPT)
    run_two_processes(tmp_path / "script.py", tmp_path, Path(__file__))
    trainer = a_trainer("sft", tmp_path / "one", max_steps=1, learning_rate=0.0)
    trainer.add_callback(a_callback(trainer=trainer))
    trainer.train()
    alone = [{k: v for k, v in line.items() if "@" in k or "length" in k} for line in lines_of(tmp_path / "one")]
    for name in ("with", "without"):
        ranks = [json.loads((tmp_path / f"{name}-{rank}.json").read_text()) for rank in (0, 1)]
        assert ranks[0]["processes"] == 2 and ranks[0]["wrapped"] == "DistributedDataParallel"
        lines = lines_of(tmp_path / name)
        assert [line["step"] for line in lines] == [0, 1]
        assert [{k: v for k, v in line.items() if "@" in k or "length" in k} for line in lines] == alone
        for mine, other in zip(ranks[0]["history"], ranks[1]["history"], strict=True):
            assert without_seconds(mine) == without_seconds(other)
