"""The rewards in other processes of stock TRL: its command line, and the worker of its asynchronous trainer."""

import asyncio
import itertools
import json
import os
import queue
import runpy
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from accelerate import PartialState
from datasets import Dataset

from reward_funcs import (
    AccuracyReward,
    AsyncReward,
    Sum,
    accuracy_reward,
    length_penalty_reward,
    repetition_penalty_reward,
    think_format_reward,
)
from trl_ext.testing import tiny_model, tiny_tokenizer

ROOT = Path(__file__).resolve().parents[2]
NAN = float("nan")
ANSWER = "<think>\nI add the two numbers.\n</think>\nSo it is \\boxed{5}."


def tables(folder):
    """TRL's tables of completions of two steps, one below the other."""
    files = sorted((Path(folder) / "completions").glob("*.parquet"))
    assert len(files) == 2
    return pd.concat(map(pd.read_parquet, files), ignore_index=True)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """A second one would only wait for the other processes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- the command line ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught_model(tmp_path_factory):
    """Folder of a tiny model that answers `2+3=`, as a message and as a text, in the format and rightly."""
    answer = ANSWER + "<|im_end|>"
    model, tokenizer = tiny_model().train(), tiny_tokenizer()
    chat = [{"role": "user", "content": "2+3="}]
    prompts = [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True), "2+3="]
    batch = tokenizer([prompt + answer for prompt in prompts], return_tensors="pt", padding=True)
    labels = torch.full_like(batch.input_ids, -100)
    answer_ids = tokenizer(answer, return_tensors="pt").input_ids[0]
    labels[:, -len(answer_ids) :] = answer_ids
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(600):
        loss = model(**batch, labels=labels).loss
        if loss < 0.002:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.01
    folder = tmp_path_factory.mktemp("taught")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def started(folder, program, model, funcs, rows):
    """TRL's script for GRPO on the rows of a file in a folder of its own."""
    data = folder / "data"
    data.mkdir(parents=True)
    if isinstance(rows[0]["prompt"], str):
        pd.DataFrame(rows).to_parquet(data / "train.parquet")
    else:
        (data / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command = f"""{program} --model_name_or_path {model} --dataset_name data --output_dir out --reward_funcs {funcs}
        --per_device_train_batch_size 4 --num_generations 2 --max_completion_length 80 --max_steps 2 --logging_steps 1
        --temperature 0.01 --shuffle_dataset False --log_completions True --num_completions_to_print 1
        --use_cpu True --bf16 False --gradient_checkpointing False --disable_tqdm True --save_strategy no
        --report_to none"""
    offline = dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")
    return subprocess.Popen(
        [sys.executable, "-m", *command.split()],
        cwd=folder,
        env={**os.environ, **offline, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.slow
def test_command_line_of_trl_trains_with_rewards_named_by_their_path(taught_model, tmp_path):
    rows = [{"prompt": "2+3=", "solution": gold} for gold in ("5", "6", "", r"\frac{10}{2}")]
    chats = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in rows]
    both = "reward_funcs.accuracy_reward reward_funcs.think_format_reward"
    by_module = "reward_funcs.format.think_format_reward reward_funcs.grading.accuracy_reward"
    # side by side, as most of the time goes into starting them; the second without `accelerate launch` around it
    runs = {
        "chats": started(tmp_path / "chats", "trl.cli.main grpo", taught_model, both, chats),
        "texts": started(tmp_path / "texts", "trl.scripts.grpo", taught_model, by_module, rows),
    }
    outputs = {name: run.communicate(timeout=300)[0].decode(errors="replace") for name, run in runs.items()}
    for name, run in runs.items():
        assert run.returncode == 0, outputs[name][-3000:]
        frame = tables(tmp_path / name / "out")
        assert [text if name == "texts" else text[0]["content"] for text in frame["completion"]] == [ANSWER] * 8
        np.testing.assert_array_equal(frame["think_format_reward"], [1.0] * 8)
        np.testing.assert_array_equal(frame["accuracy_reward"], [1, 1, 0, 0, NAN, NAN, 1, 1])
        reasons = ["correct"] * 2 + ["wrong"] * 2 + ["bad_gold"] * 2 + ["correct"] * 2
        assert list(frame["accuracy_reward/reason"]) == reasons
        assert "'accuracy_reward/none/bad_gold': '2'" in outputs[name]


# --- the asynchronous worker --------------------------------------------------------------------------------------

# what the server answers, in turn; the second answer needs the worker processes where the gold is the second
TEXTS = [ANSWER, r"It is \boxed{(-\infty,0)\cup(0,\infty)}.", "It is 5, 5, 5, 5.", ""]
RIGHT = {"5": [1.0, 0.0, 0.0, 0.0], r"\mathbb{R}\setminus\{0\}": [0.0, 1.0, 0.0, 0.0], "": [NAN] * 4}
# as TRL sets it for Qwen3
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}


def rewards():
    return [
        accuracy_reward,
        Sum([accuracy_reward, think_format_reward], weights=[1.0, 0.5], name="both"),
        AsyncReward(AccuracyReward(name="in_thread")),
        repetition_penalty_reward,
        length_penalty_reward,
    ]


def in_this_process(reward, **columns):
    """Rewards of one group, NaN for `None`."""
    found = reward(**columns)
    found = asyncio.run(found) if asyncio.iscoroutine(found) else found
    return [NAN if value is None else value for value in found]


class Completions(BaseHTTPRequestHandler):
    """The endpoint that the worker asks for completions."""

    tokenizer, counter, lock = tiny_tokenizer(), itertools.count(), threading.Lock()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            text = TEXTS[next(self.counter) % len(TEXTS)]
        ids = [*self.tokenizer(text).input_ids, self.tokenizer.eos_token_id]
        choice = {"token_ids": ids, "logprobs": {"token_logprobs": [-0.5] * len(ids)}}
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def completions_url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Completions)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def groups_of(worker, number):
    """So many whole groups of four samples from the worker's queue."""
    groups, deadline = {}, time.monotonic() + 120
    while sum(len(group) == 4 for group in groups.values()) < number:
        try:
            sample = worker.rollout_buffer.get(timeout=1)
        except queue.Empty:
            worker.check_health(120)
            assert time.monotonic() < deadline
        else:
            groups.setdefault(sample.group_id, []).append(sample)
    return [group for group in groups.values() if len(group) == 4]


@pytest.mark.slow
def test_spawned_worker_scores_as_this_process_does_and_leaves_no_process(completions_url, monkeypatch):
    rollout_worker = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
    monkeypatch.setattr(rollout_worker, "is_vllm_available", lambda: True)  # only its server is asked for
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    PartialState()  # as a trainer does: the worker's log asks for it
    tokenizer = tiny_tokenizer()
    tokenizer.response_template = RESPONSE_TEMPLATE
    prompt = [{"role": "user", "content": "2+3="}]
    worker = rollout_worker.AsyncRolloutWorker(
        model_name="tiny",
        dataset=Dataset.from_list([{"prompt": prompt, "solution": gold} for gold in RIGHT]),
        reward_funcs=rewards(),
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        num_generations=4,
        max_inflight_tasks=4,
        queue_maxsize=16,
        vllm_server_url=completions_url,
    )
    try:
        worker.start()
        groups = groups_of(worker, len(RIGHT))
        child = psutil.Process(worker._process.pid)
        processes = [child, *child.children(recursive=True)]
    finally:
        worker.stop()
    assert len(processes) > 1  # the accuracy reward has started its workers
    assert psutil.wait_procs(processes, timeout=20)[1] == []
    for samples in groups:
        gold = list(RIGHT)[samples[0].group_id % len(RIGHT)]
        ids = [sample.input_ids[sample.completion_mask == 1].tolist() for sample in samples]
        texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
        assert sorted(texts) == sorted(TEXTS)
        np.testing.assert_array_equal(
            [sample.metrics["rewards/accuracy_reward"] for sample in samples],
            [RIGHT[gold][TEXTS.index(text)] for text in texts],
        )
        assert samples[texts.index(ANSWER)].completion[0]["reasoning_content"]
        for reward in rewards():
            expected = in_this_process(
                reward,
                prompts=[sample.prompt for sample in samples],
                completions=[sample.completion for sample in samples],
                completion_ids=ids,
                solution=[gold] * 4,
            )
            found = [sample.metrics[f"rewards/{reward.__name__}"] for sample in samples]
            np.testing.assert_array_equal(found, expected, err_msg=reward.__name__)


# --- the example --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_example_runs_on_the_tiny_model(tmp_path):
    sizes = ["--steps", "2", "--completions", "4", "--num_generations", "2", "--max_completion_length", "8"]
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "grpo_with_rewards.py"), "--model", "tiny", *sizes],
        **{"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 300},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "100.0% of the golds score 1.0 against themselves" in run.stdout
    frame = tables(tmp_path / "grpo-with-rewards")
    assert list(frame["gated_accuracy_reward"]) == list(frame["think_format_reward"]) == [0.0] * 8
    assert set(frame["gated_accuracy_reward/reason"]) == {"gate_closed"}
    assert (tmp_path / "grpo-with-rewards" / "model.safetensors").is_file()
    assert (tmp_path / "grpo-with-rewards" / "completions" / "completions_00001.parquet").is_file()
    assert "grpo-with-rewards/completions/*.parquet" in run.stdout and "┃" not in run.stdout


@pytest.mark.parametrize(("completions", "generations"), [(4, 8), (10, 4), (0, 2), (4, 1)])
def test_example_refuses_sizes_that_do_not_fit(tmp_path, monkeypatch, capsys, completions, generations):
    script = str(ROOT / "examples" / "grpo_with_rewards.py")
    sizes = ["--completions", str(completions), "--num_generations", str(generations)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, "--model", "tiny", *sizes])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    assert ended.value.code == 2
    sentence = f"--completions {completions} must be a multiple of --num_generations {generations}"
    assert sentence in " ".join(capsys.readouterr().err.splitlines())
