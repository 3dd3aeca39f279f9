"""`trl-ext eval` from the command line: whole calls on a tiny model, what they leave, and calls that cannot work."""

import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from trl_ext.cli import main

REWARD = """
def vowel_reward(completions, **columns):
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    return [1.0 if sum(map(text.count, "aeiou")) > 1 else 0.0 for text in texts]
"""
ROWS = [{"prompt": f"{n} + {n} =", "solution": str(2 * n)} for n in range(12)]
MATHS = [{"problem": f"What is {n} + 1?", "answer": str(n + 1), "unique_id": f"test/{n}.json"} for n in range(5)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with a reward, own rows and a copy of an evaluation set in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "eval_rewards.py").write_text(REWARD)
    for name, rows in (("own", ROWS), ("math500", MATHS)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield tmp_path
    sys.modules.pop("eval_rewards", None)


@pytest.fixture
def call(here, tiny_model_path):
    """Arguments of an evaluation of the tiny model on own rows; `more` comes last, and so wins."""

    def build(*more):
        flags = ["--model", str(tiny_model_path), "--dataset", "own.jsonl", "--max_new_tokens", "12"]
        return ["eval", *flags, "--batch_size", "5", "--output_dir", "out", *more]

    return build


@pytest.fixture
def refused(capsys):
    """Sees that a call ends in one line on standard error that holds `sentence`."""

    def check(argv, sentence, status=1):
        assert main(argv) == status
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("trl-ext: error: ") and sentence in error, error

    return check


SAMPLED = ("--num_samples", "4", "--temperature", "1.0", "--k", "1,2,4", "--reward", "eval_rewards.vowel_reward")


def _results(folder="out"):
    with open(f"{folder}/results.json", encoding="utf-8") as file:
        return json.load(file)


def _figures(folder="out"):
    return {name: figure["value"] for name, figure in _results(folder)["benchmarks"]["own"]["metrics"].items()}


@pytest.fixture
def adapter(here, tiny_model_path):
    """Folder of a LoRA of the tiny model, which changes what it says."""
    import torch
    from peft import LoraConfig, get_peft_model

    from trl_ext.testing import tiny_model

    model = get_peft_model(tiny_model(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    model.peft_config["default"].base_model_name_or_path = str(tiny_model_path)
    model.save_pretrained("lora")
    return here / "lora"


def test_own_rows_from_call_to_files(call, capsys):
    assert main(call(*SAMPLED)) == 0
    figures = _figures()
    assert set(figures) == {"pass@1", "pass@2", "cons@2", "pass@4", "cons@4"}
    assert 0 < figures["pass@1"] < figures["pass@2"] < figures["pass@4"]
    text = capsys.readouterr().out
    shown = [line.split() for line in text.splitlines()]
    assert ["own", "pass@1", f"{100 * figures['pass@1']:.1f}", "%"] in [line[:4] for line in shown]
    assert "Saved: results.json, results.md, problems.jsonl and model-index.yaml in out" in text
    results = _results()
    assert results["command"].startswith("trl-ext eval --model ") and results["reward"] == "vowel_reward"
    assert results["sampling"]["seed"] == 0 and results["weights"]["model"].startswith("sha256:")
    assert len(open("out/generations.jsonl").readlines()) == 48


def test_same_call_again_reports_the_same_without_generating(call, monkeypatch):
    from trl_ext.evaluation._generate_transformers import TransformersGenerator

    assert main(call(*SAMPLED)) == 0
    before = open("out/results.json").read()

    def generate(*_):
        raise AssertionError("something was generated")

    monkeypatch.setattr(TransformersGenerator, "generate", generate)
    assert main(call(*SAMPLED)) == 0
    assert open("out/results.json").read() == before


def test_accuracy_is_that_of_the_callback(call, tiny_model_path, here):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trl_ext.evaluation._generate_transformers import TransformersGenerator
    from trl_ext.evaluation.callback import EvaluationCallback

    assert main(call(*SAMPLED, "--seed", "3")) == 0
    from eval_rewards import vowel_reward

    model, tokenizer = (kind.from_pretrained(tiny_model_path) for kind in (AutoModelForCausalLM, AutoTokenizer))
    callback = EvaluationCallback(
        ROWS, num_samples=4, temperature=1.0, max_new_tokens=12, batch_size=5, seed=3, reward=vowel_reward
    )
    found = callback.evaluate(TransformersGenerator(model, tokenizer))
    one = _results()["benchmarks"]["own"]
    assert found["pass@1"] == _figures()["pass@1"]
    assert found["pass@4"] == pytest.approx(_figures()["pass@4"], abs=1e-12)
    assert found["cons@4"] == pytest.approx(_figures()["cons@4"], abs=1e-12)
    assert found["response_length"] == one["response_length"]["mean"]
    assert found["truncated"] == one["truncated"]


def test_benchmark_from_a_local_file(call, here):
    local = ("--benchmarks", "math_500", "--local_path", "math_500=math500.jsonl", "--max_problems", "3")
    argv = [word for word in call() if word not in ("--dataset", "own.jsonl")]
    assert main([*argv, *local]) == 0
    one = _results()["benchmarks"]["math_500"]
    assert one["num_problems"] == 3
    assert one["data"]["path"] == "HuggingFaceH4/MATH-500" and one["data"]["files_hash"].startswith("sha256:")
    first = json.loads(open("out/problems.jsonl").readline())
    assert first["key"] == "math_500/test/0.json"
    assert first["prompt"].endswith("\\boxed{}.") and first["solution"] == "$1$"


def test_adapter_is_applied_on_its_own_base_and_named(call, adapter):
    assert main(call()) == 0
    argv = call("--adapter", "lora", "--output_dir", "tuned")
    assert main(argv[:1] + argv[3:]) == 0  # without --model
    assert _results("tuned")["generator"]["adapter"] == "lora"
    texts = [[json.loads(line)["text"] for line in open(f"{folder}/generations.jsonl")] for folder in ("out", "tuned")]
    assert texts[0] != texts[1]


def test_weights_that_were_trained_further_are_another_request(call, adapter, refused):
    import torch
    from safetensors.torch import load_file, save_file

    assert main(call("--adapter", "lora")) == 0
    tensors = load_file("lora/adapter_model.safetensors")
    save_file({name: torch.zeros_like(tensor) for name, tensor in tensors.items()}, "lora/adapter_model.safetensors")
    refused(call("--adapter", "lora"), "weights.adapter is ")
    assert main(call("--adapter", "lora", "--overwrite")) == 0


def test_default_folder_is_named_after_model_and_adapter(call, adapter):
    shutil.move("lora", "checkpoint-8")
    argv = [word for word in call("--adapter", "checkpoint-8") if word not in ("--output_dir", "out")]
    assert main(argv) == 0
    (folder,) = [path for path in os.listdir() if path.startswith("eval-")]
    assert folder.startswith("eval-tiny-llama-") and folder.endswith("-checkpoint-8")


def test_config_file_is_read_and_flags_win(call, here):
    (here / "eval.yaml").write_text("num_samples: 3\ntemperature: 1.0\nk: 1,3\ntop_k: 7\nseed: 5\n")
    assert main(call("--config", "eval.yaml", "--seed", "9")) == 0
    results = _results()
    assert (results["num_samples"], results["ks"]) == (3, [1, 3])
    assert results["sampling"] == {"temperature": 1.0, "top_p": 1.0, "top_k": 7, "max_new_tokens": 12, "seed": 9}


def test_model_card_gets_the_figures(call, here):
    (here / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    assert main(call(*SAMPLED, "--model_card", "README.md")) == 0
    head, body = (here / "README.md").read_text().removeprefix("---\n").split("---\n")
    assert body == "# Mine\n"
    (model,) = yaml.safe_load(head)["model-index"]
    metrics = {metric["type"]: metric["value"] for metric in model["results"][0]["metrics"]}
    metrics = {name.removeprefix("vowel_reward/"): value for name, value in metrics.items()}
    assert metrics == {name: round(value, 4) for name, value in _figures().items()}


def test_dry_run_shows_the_plan_and_leaves_nothing(call, here, capsys):
    assert main(call("--num_samples", "4", "--temperature", "1", "--dry_run")) == 0
    text = capsys.readouterr().out
    assert "own              12           48       10  sha256:" in text and "0 + 0 =" in text
    assert not (here / "out").exists()


def test_compare_prints_sentences(call, adapter, capsys):
    assert main(call(*SAMPLED)) == 0
    assert main(call(*SAMPLED, "--adapter", "lora", "--output_dir", "tuned")) == 0
    capsys.readouterr()
    assert main(["eval", "--compare", "out", "tuned"]) == 0
    text = capsys.readouterr().out
    assert "own, 12 problems: pass@1 " in text and "p = " in text
    assert "second run: tuned: " in text and "with the adapter lora" in text


def test_help_is_printed_without_torch():
    code = (
        "import sys\nfrom trl_ext.scripts import eval as command\n"
        "try: command.main(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'torch', 'datasets', 'numpy', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--num_samples" in done.stdout and "--compare" in done.stdout


@pytest.mark.parametrize(
    ("flags", "sentence", "status"),
    [
        (["--num_sample", "4"], "unknown argument --num_sample; did you mean '--num_samples'?", 2),
        (["--k", "1,x"], "--k 1,x: 'x' is no whole number", 2),
        (["--k", "8", "--num_samples", "4", "--temperature", "1"], "k=8 needs at least 8 samples a problem", 1),
        (["--num_samples", "4"], "num_samples=4 with temperature=0", 1),
        (["--benchmarks", "math500"], "unknown evaluation set 'math500'; did you mean 'math_500'?", 1),
        (["--benchmarks", "deepscaler"], "'deepscaler' is a training source, not an evaluation set", 1),
        (["--instruction", "boxd"], "did you mean 'boxed'", 1),
        (["--local_path", "math500.jsonl"], "give NAME=PATH", 2),
        (["--benchmarks", "math_500", "--local_path", "math50=math500.jsonl"], "did you mean 'math_500'", 2),
        (["--benchmarks", "math_500", "--local_path", "math_500=nowhere.jsonl"], "does not exist", 1),
        (["--dataset", "nowhere.jsonl"], "there is no file nowhere.jsonl", 1),
        (["--dataset", "math500.jsonl"], "row 0 has no 'prompt'; rows need the columns prompt and solution", 1),
        (["--adapter", "./nowhere"], "'./nowhere' is no folder here", 1),
        (["--adapter", "."], "holds no adapter_config.json", 1),
        (["--model", "./nowhere"], "'./nowhere' is no folder here", 1),
        (["--backend", "vlm"], "--backend vlm is none of auto, transformers, vllm, server; did you mean 'vllm'?", 1),
        (["--truncated", "drop"], "truncated='drop' is none of grade, wrong", 1),
        (["--reward", "numericreward"], "did you mean 'numeric_reward'", 1),
        (["--model_card", "nowhere/README.md"], "there is no folder", 1),
        (["--system_prompt", "Be brief."], "is plain text, which has no place for --system_prompt", 1),
        (["--system_prompt", " "], "--system_prompt is empty", 2),
        (["--top_p", "0"], "--top_p 0 keeps no token", 2),
        (["--concurrency", "4"], "--concurrency is of a server; give --server_url", 2),
        (["--dtype", "float8"], "--dtype float8 is none of auto, float32", 1),
        (["--backend", "server", "--server_url", "u:secret@host"], "must start with http://", 1),
        (["--backend", "server"], "--backend server needs --server_url", 1),
        (["--output_dir", "own.jsonl"], "--output_dir own.jsonl is a file; name a folder", 1),
        (["--chat_template_kwargs", "[1]"], "--chat_template_kwargs [1] is no JSON object", 2),
        (["--config", "nowhere.yaml"], "no configuration file 'nowhere.yaml'", 1),
    ],
)
def test_call_that_cannot_work_is_refused_before_the_model_is_loaded(
    call, refused, monkeypatch, flags, sentence, status
):
    from trl_ext.scripts import _eval_model

    def open_model(args):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(_eval_model, "open_model", open_model)
    refused(call(*flags), sentence, status)
    assert not os.path.exists("out")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["eval"], "name the model"),
        (["eval", "--model", "smol"], "name the problems"),
        (["eval", "--model", "smol", "--compare", "a", "b"], "--compare reads two finished evaluations"),
    ],
)
def test_call_without_model_or_problems_is_a_usage_error(refused, argv, sentence):
    refused(argv, sentence, 2)


def test_unknown_key_of_a_config_file_gets_did_you_mean(call, here, refused):
    (here / "eval.yaml").write_text("temprature: 1.0\n")
    refused(call("--config", "eval.yaml"), "did you mean 'temperature'", 2)


def test_empty_data_is_refused(call, here, refused):
    (here / "own.jsonl").write_text("")
    refused(call(), "own.jsonl holds no rows")


def test_adapter_of_another_base_is_refused(call, adapter, refused):
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "org/other-model"}))
    argv = call("--adapter", "lora", "--model", "org/this-model")
    refused(argv, "--adapter lora was trained on org/other-model, and --model is org/this-model; leave --model out")


def test_adapter_whose_base_is_gone_is_refused_without_a_model(call, adapter, refused):
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "/gone/base-model"}))
    argv = call("--adapter", "lora")
    refused(argv[:1] + argv[3:], "'/gone/base-model', which is no folder here")


def test_folder_of_another_request_and_broken_records_are_refused(call, here, refused):
    assert main(call()) == 0
    refused(call("--seed", "4"), "sampling.seed is 0 there and 4 here; give another output_dir (--output_dir)")
    path = here / "out" / "generations.jsonl"
    path.write_text(path.read_text().replace('{"benchmark"', "broken", 1))
    refused(call(), "line 1 of out/generations.jsonl is no record of an evaluation")
    assert main(call("--seed", "4", "--overwrite")) == 0


def test_numbers_as_golds_of_own_rows_are_read_as_text(call, here):
    (here / "own.csv").write_text("prompt,solution\n1 + 1 =,2\n2 + 2 =,4\n")
    assert main(call("--dataset", "own.csv")) == 0
    assert [json.loads(line)["solution"] for line in open("out/problems.jsonl")] == ["2", "4"]


# What the demo model completes with a boxed number, now and then the right one.
SHOTS = "7 plus 5 is \\boxed{{12}}.\n31 plus 14 is \\boxed{{45}}.\n{} is"


@pytest.fixture
def sums(here):
    """300 generated problems for the demo model."""
    from datasets_builders import build

    rows = [
        {**row, "prompt": SHOTS.format(row["prompt"][-1]["content"].removeprefix("What is ").removesuffix("?"))}
        for level, count in (("add_1", 100), ("add_2", 200))
        for row in build("arithmetic", config=level, max_samples=count, instruction="none")
    ]
    (here / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def _launch(*more, processes=1, kill_after=None):
    """The command in a process of its own, killed once so many completions are there; its exit status."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    command = [sys.executable, "-m", *(launcher if processes > 1 else []), "trl_ext.scripts.eval", *more]
    if kill_after is not None:
        command = [sys.executable, "-c", KILLED, str(kill_after), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    return done.returncode, done.stderr


KILLED = """
import os, signal, sys
from trl_ext.cli import main
from trl_ext.evaluation import records

def append(self, batch, plain=records.RecordWriter.append, left=[int(sys.argv[1])]):
    plain(self, batch)
    left[0] -= len(batch)
    if left[0] <= 0:
        self._file.write(b'{"bench')
        self._file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

records.RecordWriter.append = append
main(["eval", *sys.argv[2:]])
"""


class Memory:
    """A generator that makes each batch once: two that ask for the same batches get the same completions."""

    def __init__(self, generator):
        self.generator, self.made = generator, {}
        self.describe = generator.describe

    def generate(self, requests, params):
        asked = (repr(requests), params)
        if asked not in self.made:
            self.made[asked] = self.generator.generate(requests, params)
        return self.made[asked]


@pytest.mark.slow
@pytest.mark.model
def test_demo_model_on_300_problems_killed_and_resumed_on_two_processes_and_in_the_callback(smol_path, sums, here):
    from trl_ext.evaluation.callback import EvaluationCallback
    from trl_ext.evaluation.generation import open_generator
    from trl_ext.evaluation.requests import SamplingParams
    from trl_ext.evaluation.runner import evaluate_model

    settings = ["--model", str(smol_path), "--dataset", "sums.jsonl", "--max_new_tokens", "8", "--temperature", "0.5"]
    settings += ["--batch_size", "50", "--output_dir", "killed"]

    def killed_and_resumed():
        assert _launch(*settings, kill_after=140)[0] == -9
        return _launch(*settings, processes=2)

    with ThreadPoolExecutor(1) as pool:  # at the same time as the one that nobody kills
        other = pool.submit(killed_and_resumed)
        generator, params = Memory(open_generator(str(smol_path), device="cpu")), SamplingParams(0.5, max_new_tokens=8)
        report = evaluate_model(generator, {"sums": sums}, "plain", params=params, batch_size=50, show_progress=False)
        status, error = other.result()
    assert status == 0, error[-3000:]
    assert open("plain/problems.jsonl").read() == open("killed/problems.jsonl").read()
    metrics = _results("killed")["benchmarks"]["sums"]["metrics"]
    assert metrics == report.results["benchmarks"]["sums"]["metrics"]
    assert 0.05 < metrics["pass@1"]["value"] < 0.95 and metrics["pass@1"]["num_problems"] == 300

    batches = len(generator.made)
    callback = EvaluationCallback(sums, temperature=0.5, max_new_tokens=8, batch_size=50)
    found = callback.evaluate(generator)
    assert len(generator.made) == batches == 6  # it asks for the same batches
    assert found["pass@1"] == metrics["pass@1"]["value"]
    assert found["response_length"] == report.results["benchmarks"]["sums"]["response_length"]["mean"]


class Answers(BaseHTTPRequestHandler):
    """An endpoint of the chat completions API that doubles the first number of the prompt."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.keys.append(self.headers.get("Authorization"))
        number = int(body["messages"][-1]["content"].split()[0])
        text = f"\\boxed{{{2 * number + (number == 3)}}}"
        answer = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}]}
        answer |= {"id": "1", "created": 1, "model": body["model"], "system_fingerprint": ""}
        answer["usage"] = {"completion_tokens": 5, "prompt_tokens": 5, "total_tokens": 10}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        running.keys = []
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_server_is_asked_and_its_key_is_written_nowhere(here, server, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    url = f"http://127.0.0.1:{server.server_port}/v1"
    argv = ["eval", "--model", "served", "--server_url", url, "--concurrency", "2", "--dataset", "own.jsonl"]
    assert main([*argv, "--output_dir", "out"]) == 0
    assert _figures() == {"pass@1": 11 / 12}
    assert server.keys == ["Bearer sk-very-secret"] * 12
    assert _results()["server_url"] == url and _results()["generator"]["backend"] == "server"
    written = "".join(path.read_text() for path in (here / "out").iterdir())
    assert "secret" not in written + "".join(capsys.readouterr())
    # on another port the completions that are there still count
    assert main([*argv[:4], url.replace("/v1", "/v2"), *argv[5:], "--output_dir", "out"]) == 0
    assert "server_url is " in capsys.readouterr().out and len(server.keys) == 12
