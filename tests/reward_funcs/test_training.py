"""Every reward in two steps of stock TRL's GRPO and of this project's PPO, on what a small model really writes.

All rewards of a trainer share one run. A reward that only keeps what it was called with lets each of them be called
again on the same completions: what TRL logged must be what that call gives.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import re
import sys
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import psutil
import pytest
import torch
import transformers
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

import reward_funcs
from reward_funcs import (
    AccuracyReward,
    AsyncReward,
    CallableJudge,
    Clip,
    CodeReward,
    Criterion,
    ExactMatchReward,
    Gate,
    HTTPJudge,
    InstructionReward,
    LocalJudge,
    Min,
    Product,
    Rubric,
    SoftOverlongReward,
    Sum,
    accuracy_reward,
    code_compiles_reward,
    length_penalty_reward,
    preset_names,
    sandbox_report,
    think_format_reward,
)
from reward_funcs._code_tests import KINDS
from reward_funcs._judge_prompt import score_messages
from reward_funcs._rubric_rows import preset_path
from reward_funcs.judge import JudgeTask
from reward_funcs.pool import close_pools
from reward_funcs.sandbox import close_sandboxes
from trl_ext.ppo import PPOConfig, PPOTrainer
from trl_ext.testing import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.slow
ISOLATED = sandbox_report().is_isolated
NUM_GENERATIONS = 8
FOLLOW = json.dumps({
    "instruction_id": ["punctuation:no_comma", "keywords:existence"], "kwargs": [None, {"keywords": ["tea"]}],
})  # fmt: skip
ASSERTS = '{"asserts": ["assert double(2) == 4", "assert double(5) == 10"]}'
THOUGHT = "<think>\n2+2 is 4.\n</think>\n<answer>\n4\n</answer>"
CALLED = "```python\ndef double(x):\n    return 2 * x\n```"
PRINTED = "```python\nprint(2 * int(input()))\n```"
LISTED = "Well,\n1. Heat.\n2. Pour.\n3. Drink tea."
# the question, its gold, the language asked for, and what the model has learned to answer
ROWS = [
    ("2+2?", "4", "en", [THOUGHT, "So, it is \\boxed{5}."]),
    ("A or B?", "B", "zh", ["B it is: <answer>B</answer>", "I say neither of the two, neither of them."]),
    ("24?", '{"target": 24, "nums": [3, 8]}', "en", ["<answer>3 * 8</answer>", "<answer>3 + 8</answer>"]),
    ("Tea.", FOLLOW, "en", [LISTED, "Hot tea.", "Well, no."]),
    ("Code.", ASSERTS, "en", [CALLED, PRINTED, "```python\ndef f(x) return x\n```"]),
]
TAUGHT = [text for *_, texts in ROWS for text in texts]
# which of these texts earn the full reward, by hand; the others earn less, or are not judged
EARNS = {
    "accuracy_reward": {THOUGHT, "B it is: <answer>B</answer>"},
    "choice_reward": {"B it is: <answer>B</answer>"},
    "countdown_reward": {"<answer>3 * 8</answer>"},
    "think_format_reward": {THOUGHT},
    "think_answer_format_reward": {THOUGHT},
    "reasoning_steps_reward": {LISTED},
    "language_consistency_reward": {LISTED, "So, it is \\boxed{5}."},
    "instruction_reward": {"Hot tea."},
    "follow_strict_all": {"Hot tea."},
    "follow_loose_all": {"Hot tea.", LISTED},
    "code_compiles_reward": {CALLED, PRINTED},
    "code_block_format_reward": {CALLED, PRINTED, "```python\ndef f(x) return x\n```"},
    "product": {THOUGHT},
    "least": {THOUGHT},
}
if ISOLATED:
    EARNS |= {name: {CALLED} for name in ("code_reward", "code_asserts", "code_functional", "code_pytest", "gated")}
    EARNS["code_stdio"] = {PRINTED}
# what every row has, for the rewards that read a column of their own
COLUMNS = {
    "choices": ["four", "five"],
    "number": "4",
    "follow": FOLLOW,
    "asserts": ASSERTS,
    "stdio": '{"inputs": ["2\\n", "5\\n"], "outputs": ["4\\n", "10\\n"]}',
    "functional": '{"fn_name": "double", "inputs": [[2], [5]], "outputs": [4, 10]}',
    "pytest": json.dumps({"pytest": "from solution import double\n\ndef test_it():\n    assert double(2) == 4\n"}),
    "rubric": json.dumps([
        {"title": "digit", "description": "It has a digit.", "category": "Essential"},
        {"title": "letters", "description": "It has letters alone.", "category": "Pitfall"},
    ]),
    "rubrics": json.dumps([
        {"criterion": "It has a digit.", "points": 5}, {"criterion": "It has letters alone.", "points": -3},
    ]),
}  # fmt: skip
# no completion is long enough for its limit; the judged text does not move that model
CONSTANT = {"soft_overlong_reward", "of_the_base"}
# criteria of the rubrics, those that the judge scores
RUBRICS: dict[str, tuple[list[str], list[str]]] = {
    "rules": (["digits", "right"], []),
    "of_a_function": (["digits", "polite"], ["polite"]),
    "of_the_base": (["polite"], ["polite"]),
    "over_http": (["polite"], ["polite"]),
    "preset_correctness_reasoning_clarity": (["clarity", "correctness", "reasoning"],) * 2,
}


# --- judges and rewards -------------------------------------------------------------------------------------------


def judge(messages: list[dict[str, str]]) -> str:
    """Every criterion gets all its points where the fenced response has a digit, else its lowest score."""
    fence = re.search(r"line <<(\w+) \.\.\.>>", messages[0]["content"])
    assert fence
    _, _, rest = messages[1]["content"].partition(f"<<{fence[1]} RESPONSE>>\n")
    text, _, rubric = rest.partition(f"<<{fence[1]} END>>")
    has_digit = any(character.isdigit() for character in text)
    scales = re.findall(r"^\d+\. .*?\(score (?:from )?(\S+) (?:to|or) ([-\d.]+)", rubric, re.MULTILINE) or [(0, 10)]
    scores = [float(high if has_digit else low) for low, high in scales]
    return json.dumps({str(number): {"reason": "seen", "score": score} for number, score in enumerate(scores, 1)})


def digits(completions: list[Any], **columns: Any) -> list[float]:
    """Share of the digits in the completion, a plain function as a scorer."""
    texts = [completion[0]["content"] for completion in completions]
    return [sum(map(str.isdigit, text)) / max(1, len(text)) for text in texts]


def rubrics(url: str) -> list[Any]:
    polite = Criterion("polite", "It is polite.")
    by_digits = Criterion("digits", "It has digits.", max_score=1, scorer=digits)
    exact = ExactMatchReward("number", extraction="answer_tag")
    by_rules = [by_digits, Criterion("right", "It is right.", max_score=1, scorer=exact)]
    local = LocalJudge(disable_adapter=True, max_new_tokens=12, fence_seed=0)  # what it says depends on the fence
    presets = [Rubric.from_file(preset_path(name), judge=judge, name=f"preset_{name}") for name in preset_names()]
    return [
        Rubric(by_rules, name="rules"),
        Rubric([by_digits, polite], judge=CallableJudge(judge), name="of_a_function"),
        Rubric([polite], judge=judge, aggregation="holistic", name="holistic"),
        Rubric([polite], judge=local, name="of_the_base"),
        Rubric([polite], judge=HTTPJudge(url, "stub"), name="over_http"),
        *presets,
    ]


def all_rewards(url: str) -> list[Any]:
    """Every public reward, and the class forms that need an argument; `url` is that of a judge."""
    accuracy = AccuracyReward(solution_column="number", name="right_number")
    return [
        *(getattr(reward_funcs, name) for name in reward_funcs.__all__ if name.endswith("_reward")),
        *(CodeReward(kind, solution_column=kind, partial_credit=True, name=f"code_{kind}") for kind in KINDS),
        *(
            InstructionReward("follow", mode=mode, score=score, name=f"follow_{mode}_{score}")
            for mode in ("strict", "loose")
            for score in ("fraction", "all")
        ),
        *rubrics(url),
        AsyncReward(AccuracyReward(name="in_thread")),
        SoftOverlongReward(40, 20, name="short_limit"),
        Sum([accuracy, think_format_reward], weights=[1.0, 0.5], name="both"),
        Sum([accuracy_reward, code_compiles_reward], none="skip", name="either"),
        Gate(code_compiles_reward, CodeReward("asserts", solution_column="asserts"), otherwise=-1.0, name="gated"),
        Product([accuracy, think_format_reward], name="product"),
        Min([accuracy, think_format_reward], name="least"),
        Clip(length_penalty_reward, -0.25, 0.25, name="clipped"),
    ]


NAMES = [reward.__name__ for reward in all_rewards("http://localhost/v1")]


# --- the model and the runs ---------------------------------------------------------------------------------------


def chat(messages: list[dict[str, str]]) -> str:
    text: str = tiny_tokenizer().apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text


def examples(pairs: list[tuple[str, str]]) -> dict[str, torch.Tensor]:
    """Prompts and answers as a batch; only the answers count in the loss."""
    tokenizer = tiny_tokenizer()
    rows = [
        (tokenizer(prompt).input_ids, [*tokenizer(answer).input_ids, tokenizer.eos_token_id])
        for prompt, answer in pairs
    ]
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    padded = [prompt + answer + [0] * (width - len(prompt) - len(answer)) for prompt, answer in rows]
    ids = torch.tensor(padded)
    labels = [[-100] * len(p) + a + [-100] * (width - len(p) - len(a)) for p, a in rows]
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor(labels)}


@pytest.fixture(scope="module")
def taught_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny model that answers each question in its ways, and as a judge gives a 4, now and then garbled."""
    model = tiny_model(max_position_embeddings=2048).train()
    polite = (Criterion("polite", "It is polite."),)
    asked = [chat(score_messages(JudgeTask(said[0], polite, prompt=ask), "0f" * 8)) for ask, _, _, said in ROWS]
    pairs = [(chat([{"role": "user", "content": ask}]), text) for ask, _, _, said in ROWS for text in said]
    short = examples([*pairs, *((prompt[-120:], '{"1": 4}') for prompt in asked[:2])])
    whole = [examples([(prompt, '{"1": 4}')]) for prompt in asked]  # so much text in front changes nothing
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=350)
    for step in range(350):
        loss = model(**short).loss
        if step % 14 == 0:
            loss = loss + 0.1 * model(**whole[step // 14 % len(whole)]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    folder = tmp_path_factory.mktemp("taught")
    model.eval().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


class Recorder:
    """A reward that keeps what it was called with."""

    __name__ = "recorder"

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, completions: list[Any], log_extra: Any, log_metric: Any, **columns: Any) -> list[float]:
        self.calls.append({"completions": completions, **columns})
        return [0.0] * len(completions)


class Run(NamedTuple):
    """A trained trainer, what its steps logged and wrote, and what its rewards were called with."""

    trainer: Any
    rewards: dict[str, Any]
    calls: list[dict[str, Any]]
    logged: list[dict[str, Any]]
    tables: list[pd.DataFrame]
    before: dict[str, torch.Tensor]


def settings(folder: Path) -> dict[str, Any]:
    """Two steps, each of all questions."""
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": len(ROWS) * NUM_GENERATIONS,
        "num_generations": NUM_GENERATIONS,
        "max_completion_length": 80,
        "max_steps": 2,
        "beta": 0.0,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "log_completions": True,
        "num_completions_to_print": 0,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
    }


def rows_of_data() -> list[dict[str, Any]]:
    return [
        {"prompt": [{"role": "user", "content": ask}], "solution": gold, "language": language, **COLUMNS}
        for ask, gold, language, _ in ROWS
    ]


def written(folder: Path) -> list[pd.DataFrame]:
    return [pd.read_parquet(path) for path in sorted((folder / "completions").glob("*.parquet"))]


def trained(trainer_class: Any, args: Any, model: Path, url: str) -> Run:
    recorder, rewards = Recorder(), all_rewards(url)
    trainer = trainer_class(
        args=args,
        model=transformers.AutoModelForCausalLM.from_pretrained(model),
        processing_class=tiny_tokenizer(),
        reward_funcs=[*rewards, recorder],
        train_dataset=Dataset.from_list(rows_of_data()),
        peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    named = dict(zip(NAMES, rewards, strict=True))
    named["of_the_base"].judge.attach(trainer.model, trainer.processing_class)
    before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    trainer.train()
    logged = [row for row in trainer.state.log_history if "reward" in row]
    return Run(trainer, named, recorder.calls, logged, written(Path(args.output_dir)), before)


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            patch.delenv(name, raising=False)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def http() -> Any:
    """The module with the server that the tests of [`HTTPJudge`] talk to."""
    path = Path(__file__).with_name("test_judge_http.py")
    spec = importlib.util.spec_from_file_location("judge_http_server", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["grpo", "ppo"])
def run(request: Any, taught_model: Path, http: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Two steps with all rewards; the judge's server is there until the last test of the run."""
    folder = tmp_path_factory.mktemp(request.param)
    trainer_class, config_class = {"grpo": (GRPOTrainer, GRPOConfig), "ppo": (PPOTrainer, PPOConfig)}[request.param]
    with http.serving(lambda asked, number: http.Answer(judge(asked["messages"]))) as server:
        yield trained(trainer_class, config_class(**settings(folder)), taught_model, server.url)
    close_pools()
    close_sandboxes()


# --- what must hold -----------------------------------------------------------------------------------------------


class Again(NamedTuple):
    """What a reward returns and logs when it is called again."""

    rewards: list[float | None]
    columns: dict[str, list[Any]]
    metrics: dict[str, float]


def again(reward: Any, call: dict[str, Any]) -> Again:
    columns: dict[str, list[Any]] = {}
    metrics: dict[str, float] = {}
    found = reward(**call, log_extra=columns.__setitem__, log_metric=metrics.__setitem__)
    return Again(asyncio.run(found) if asyncio.iscoroutine(found) else found, columns, metrics)


def plain(values: Any) -> list[Any]:
    """Cells of a table or rewards, rounded where they are numbers, `None` where they are missing."""
    cells = [None if value is None or value != value else value for value in values]
    return [round(float(cell), 5) + 0.0 if isinstance(cell, Real) else cell for cell in cells]


def test_two_steps_saw_every_question_and_moved_the_weights(run: Run) -> None:
    assert len(run.calls) == len(run.logged) == len(run.tables) == 2
    for call, table in zip(run.calls, run.tables, strict=True):
        assert [list(cell) for cell in table["completion"]] == call["completions"]
        assert sorted({prompt[0]["content"] for prompt in call["prompts"]}) == sorted(ask for ask, *_ in ROWS)
    after = dict(run.trainer.model.named_parameters())
    moved = {name for name, weight in run.before.items() if not torch.equal(weight, after[name])}
    assert any("lora_B.default" in name for name in moved)
    assert not [name for name in moved if "lora_" not in name and "critic" not in name]


@pytest.mark.parametrize("name", NAMES)
def test_logged_reward_is_that_of_the_completions(run: Run, name: str) -> None:
    seen: set[float] = set()
    for call, logged, table in zip(run.calls, run.logged, run.tables, strict=True):
        expected = again(run.rewards[name], call)
        known = [reward for reward in expected.rewards if reward is not None]
        assert len(expected.rewards) == len(table) and all(map(math.isfinite, known))
        assert plain(table[name]) == plain(expected.rewards)
        mean = logged[f"rewards/{name}/mean"]
        assert mean == pytest.approx(sum(known) / len(known), abs=1e-6) if known else mean is None
        own = {key: value for key, value in logged.items() if key.startswith(f"{name}/")}
        assert own == pytest.approx(expected.metrics, abs=1e-6)
        for column, values in expected.columns.items():
            assert plain(table[column]) == plain(values), column
        seen.update(known)
    if name in EARNS or not name.startswith(("code_", "gated")):
        assert len(seen) > 1 or (name in CONSTANT and len(seen) == 1)


@pytest.mark.parametrize("name", NAMES)
def test_missing_rewards_are_counted_by_cause(run: Run, name: str) -> None:
    for logged, table in zip(run.logged, run.tables, strict=True):
        counted = {key: value for key, value in logged.items() if key.startswith(f"{name}/none/")}
        assert sum(counted.values()) == table[name].isna().sum()


def fully_rewarded(table: pd.DataFrame, name: str) -> tuple[set[str], set[str]]:
    """The completions that the model was taught and wrote, and those of them with a reward of 1."""
    texts = [completion[0]["content"] for completion in table["completion"]]
    known = [(text, reward) for text, reward in zip(texts, table[name], strict=True) if text in TAUGHT]
    return {text for text, _ in known}, {text for text, reward in known if reward == 1.0}


@pytest.mark.parametrize("name", sorted(EARNS))
def test_full_reward_goes_to_the_completions_that_deserve_it(run: Run, name: str) -> None:
    known, full = fully_rewarded(pd.concat(run.tables), name)
    assert len(known) > len(TAUGHT) / 2 and full == EARNS[name] & known


@pytest.mark.parametrize("name", sorted(RUBRICS))
def test_scores_and_reasons_of_each_criterion_arrive_in_the_table(run: Run, name: str) -> None:
    criteria, judged = RUBRICS[name]
    for table in run.tables:
        scores = [json.loads(row) for row in table[f"{name}/scores"]]
        for criterion in criteria:
            assert table[f"{name}/{criterion}/reason"].notna().all()
            assert plain(table[f"{name}/{criterion}"]) == plain(row[criterion] for row in scores)
        has_scores = table[name].notna()
        assert has_scores.any()
        for reasons in table[f"{name}/reasons"][has_scores]:
            assert sorted(json.loads(reasons)) == judged


def test_server_and_function_judge_alike(run: Run) -> None:
    for table, logged in zip(run.tables, run.logged, strict=True):
        assert table["over_http"].notna().all()
        assert list(table["over_http/polite"]) == list(table["of_a_function/polite"])
        assert 1 < logged["over_http/judge/requests"] <= len(table)


def workers() -> list[psutil.Process]:
    """Processes that this one started from a file of the rewards."""
    package = str(Path(reward_funcs.__file__).parent)
    alive = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    return [one for one in alive if any(part.startswith(package) for part in one.cmdline())]


def test_no_worker_is_left_when_the_rewards_are_closed(run: Run) -> None:
    again(code_compiles_reward, run.calls[0])
    started = workers()
    below = [child for worker in started for child in worker.children(recursive=True)]
    assert started
    for reward in run.rewards.values():
        getattr(reward, "close", lambda: None)()
    close_sandboxes()
    assert workers() == [] and not [one for one in started if one.is_running()]
    left = psutil.wait_procs(below, timeout=10)[1]
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []  # orphans are for init to collect


# --- by their names on TRL's command line -------------------------------------------------------------------------

PUBLIC = [name for name in reward_funcs.__all__ if name.endswith("_reward")]


@pytest.fixture(scope="module")
def table_of_trl_grpo(taught_model: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """TRL's script with the arguments of `trl grpo --reward_funcs reward_funcs.<name> ...`, two steps."""
    from trl.scripts import grpo

    folder = tmp_path_factory.mktemp("script")
    (folder / "data").mkdir()
    (folder / "data" / "train.jsonl").write_text("\n".join(map(json.dumps, rows_of_data())), encoding="utf-8")
    flags = [f"--{key}={value}" for key, value in {**settings(folder / "out"), "report_to": "none"}.items()]
    names = ["--reward_funcs", *(f"reward_funcs.{name}" for name in PUBLIC)]
    model = ["--model_name_or_path", str(taught_model), "--dataset_name", str(folder / "data")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", [*sys.path])  # the script adds the working directory
        grpo.main(*grpo.make_parser().parse_args_and_config([*names, *model, *flags]))
    first, second = written(folder / "out")
    return pd.concat([first, second])


@pytest.mark.parametrize("name", PUBLIC)
def test_public_reward_named_on_the_command_line_of_trl_grades_without_arguments(
    table_of_trl_grpo: pd.DataFrame, name: str
) -> None:
    table = table_of_trl_grpo
    assert len(table) == 2 * len(ROWS) * NUM_GENERATIONS
    assert table[f"{name}/reason"].notna().all()
    if name in EARNS:
        known, full = fully_rewarded(table, name)
        assert full == EARNS[name] & known != set()
