"""What EvaluationCallback refuses before any training, and how it reads lines that it has not written."""

import json
from types import SimpleNamespace

import pytest
from datasets import Dataset
from transformers import DataCollatorForLanguageModeling, Trainer, TrainerControl, TrainerState, TrainingArguments

from trl_ext.callbacks import read_metrics
from trl_ext.errors import UserError
from trl_ext.evaluation import EvaluationCallback
from trl_ext.evaluation._generate_transformers import TransformersGenerator
from trl_ext.evaluation._prompt_ids import prompt_ids
from trl_ext.evaluation.callback import end_last_line, tidy
from trl_ext.evaluation.requests import Completion
from trl_ext.testing import tiny_model, tiny_tokenizer

ROW = {"prompt": "2+2=", "solution": "4"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"language": "klingon"}, "language must be an ISO 639-1 code .* not 'klingon'"),
        (
            {"eval_dataset": [ROW, {"prompt": "a"}]},
            "row 1 has no gold in the column 'solution'; its columns are prompt",
        ),
        ({"eval_dataset": [{"prompt": "a", "solution": None}]}, "row 0 has no gold"),
        ({"eval_dataset": [{"prompt": "a", "answer": "4", "task": "choice"}]}, "its columns are prompt, answer, task"),
        (
            {"eval_dataset": [ROW, {**ROW, "prompt": [{"role": "user", "content": None}]}]},
            "^row 1: message 0 .*no content",
        ),
        (
            {"eval_dataset": [ROW, {**ROW, "prompt": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}]},
            "^row 1: message 0 has the content",
        ),
        ({"metric_prefix": ""}, "metric_prefix='' must be a name"),
        ({"metric_prefix": "/"}, "metric_prefix='/' must be a name"),
        ({"metric_prefix": None}, "metric_prefix=None must be a name"),
        ({"temperature": 1e-30}, "temperature=1e-30 is too small"),
    ],
)
def test_what_would_end_the_training_is_refused_before_it(settings, words):
    with pytest.raises(UserError, match=words):
        EvaluationCallback(**{"eval_dataset": [ROW], **settings})


def test_golds_may_be_numbers_and_languages_names():
    rows = Dataset.from_list([{"prompt": "2+2=", "solution": 4}])
    assert EvaluationCallback(rows, language="German").rows == [{"prompt": "2+2=", "solution": 4}]


@pytest.mark.parametrize(("gold", "accuracy"), [(["4", "5"], 1.0), (5.0, 1.0), (0.5, 0.0)])
def test_gold_that_is_no_text_is_graded(gold, accuracy):
    class Five:
        def generate(self, requests, params):
            return [Completion(r"\boxed{5}", 3, False) for _ in requests]

    assert EvaluationCallback([{"prompt": "a", "solution": gold}]).evaluate(Five())["pass@1"] == accuracy


def test_trainer_without_a_tokenizer_is_refused_at_its_start_and_the_callback_may_bring_it():
    arguments = SimpleNamespace(fsdp=None, deepspeed=None), TrainerState(), TrainerControl()
    callback = EvaluationCallback([ROW])
    with pytest.raises(
        UserError, match="processing_class=None: neither the trainer nor EvaluationCallback has a token"
    ):
        callback.on_train_begin(*arguments, processing_class=None)
    callback.on_train_begin(*arguments, processing_class="that of the trainer")
    own = EvaluationCallback([ROW], processing_class="its own")
    own.on_train_begin(*arguments, processing_class=None)
    assert own._tokenizer({"processing_class": "that of the trainer"}) == "its own"


def test_plain_trainer_without_processing_class_is_evaluated_with_that_of_the_callback(tmp_path, quiet):
    tokenizer = tiny_tokenizer()
    rows = [{"input_ids": tokenizer(f"{n}+1=")["input_ids"]} for n in range(4)]
    args = TrainingArguments(str(tmp_path), max_steps=1, use_cpu=True, report_to=[], disable_tqdm=True)
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    trainer = Trainer(tiny_model(), args, data_collator=collator, train_dataset=Dataset.from_list(rows))
    trainer.add_callback(EvaluationCallback([ROW], trainer=trainer, max_new_tokens=4, processing_class=tokenizer))
    trainer.train()
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [0, 1]


def a_line(number):
    return json.dumps({"step": number, "time": float(number), "eval/pass@1": number / 8}) + "\n"


@pytest.mark.parametrize(
    ("last", "kept"), [(a_line(4)[:25], [0, 2]), (a_line(4)[:-1], [0, 2, 4]), (a_line(4), [0, 2, 4])]
)
def test_line_that_a_kill_has_torn_takes_no_other_with_it(tmp_path, last, kept):
    path = tmp_path / "metrics.jsonl"
    path.write_text(a_line(0) + a_line(2) + last)
    callback = EvaluationCallback([ROW])
    state = TrainerState(global_step=4)
    callback.on_train_begin(SimpleNamespace(fsdp=None), state, TrainerControl(), processing_class="any")
    state.global_step = 6
    callback._report(SimpleNamespace(output_dir=str(tmp_path)), state, TrainerControl(), {"eval/pass@1": 0.5})
    callback._report(SimpleNamespace(output_dir=str(tmp_path)), state, TrainerControl(), {"eval/pass@1": 0.6})
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [*kept, 6, 6]


def test_file_of_metrics_that_is_missing_or_empty_is_left_alone(tmp_path):
    end_last_line(tmp_path / "metrics.jsonl")
    assert not list(tmp_path.iterdir())
    (tmp_path / "metrics.jsonl").touch()
    end_last_line(tmp_path / "metrics.jsonl")
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_prompts_hold_the_tools_of_the_trainer_and_the_arguments_of_their_row():
    def search(query):
        """Search."""

    trainer = SimpleNamespace(tools=[search], chat_template=None)
    callback = EvaluationCallback([ROW], trainer=trainer)
    args = SimpleNamespace(chat_template_kwargs={"thinking": True})
    assert callback._template_arguments(args) == {"tools": [search], "thinking": True}
    trainer.environment_factories = {"room": object}
    assert callback._template_arguments(args) == {"thinking": True}
    trainer.tools, trainer.chat_template = [], "its own"
    assert callback._template_arguments(SimpleNamespace()) == {"chat_template": "its own"}
    assert EvaluationCallback([ROW])._template_arguments(SimpleNamespace(chat_template_kwargs=None)) == {}


def test_arguments_of_a_row_win_in_the_prompt_that_is_rendered():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ messages[0].content }}{{ thinking }}"
    turns = [{"role": "user", "content": "a"}]
    rows = [
        {"prompt": turns, "solution": "4", "chat_template_kwargs": {"thinking": 0}},
        {"prompt": turns, "solution": "4"},
    ]
    generator = TransformersGenerator(tiny_model(), tokenizer, chat_template_kwargs={"thinking": 1})
    callback = EvaluationCallback(rows)
    assert callback._rendered(generator) == ["a0", "a1"]
    given = [tokenizer.decode(prompt_ids(tokenizer, one, {"thinking": 1})) for one in callback.requests]
    assert given == ["a0", "a1"]


def test_rows_without_solution_are_taken_with_a_reward():
    assert EvaluationCallback([{"prompt": "a"}], reward=len).reward is len


def a_file(folder, *rows):
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "row", [{"step": 1, "time": "2024-01-01"}, {"step": None, "loss": 1}, {"step": "1", "time": None}]
)
def test_lines_of_something_else_are_put_aside(tmp_path, row):
    path = a_file(tmp_path, row)
    tidy(path, 0, 8.0)
    assert not path.exists()
    assert read_metrics(tmp_path / "metrics.jsonl.old") == [row]


def test_lines_without_a_time_are_kept_up_to_the_step_that_a_run_goes_on_from(tmp_path):
    rows = [{"step": 1, "time": "text"}, {"step": 3, "time": "text"}, {"step": 4, "time": 9.0}]
    path = a_file(tmp_path, *rows)
    tidy(path, 2, 8.0)
    assert read_metrics(path) == [rows[0], rows[2]]
