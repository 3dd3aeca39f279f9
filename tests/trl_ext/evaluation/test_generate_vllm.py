"""VLLMGenerator against a stand-in for vLLM, which is not installed here: what it is given and what is made of it."""

import importlib.machinery
import json
import sys
import types

import pytest

from trl_ext.errors import UserError
from trl_ext.evaluation._generate_vllm import VLLMGenerator
from trl_ext.evaluation.requests import Request, SamplingParams
from trl_ext.testing import tiny_tokenizer


class Params:
    def __init__(self, **settings):
        self.settings = settings


class LLM:
    made: list = []

    def __init__(self, **options):
        self.options = options
        self.calls = []
        self.llm_engine = types.SimpleNamespace(model_config=types.SimpleNamespace(max_model_len=64))
        LLM.made.append(self)

    def get_tokenizer(self):
        return tiny_tokenizer()

    def generate(self, prompts, params, *, lora_request, use_tqdm):
        self.calls.append((prompts, [one.settings for one in params], lora_request))
        ends = [("length", 3) if len(prompt["prompt_token_ids"]) > 4 else ("stop", 2) for prompt in prompts]
        return [
            types.SimpleNamespace(
                outputs=[types.SimpleNamespace(text=f"t{i}", token_ids=[7] * number, finish_reason=reason)]
            )
            for i, (reason, number) in enumerate(ends)
        ]


@pytest.fixture
def vllm(monkeypatch):
    module = types.ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    module.LLM, module.SamplingParams, module.__version__ = LLM, Params, "0.0"
    lora = types.ModuleType("vllm.lora.request")
    lora.LoRARequest = lambda *arguments: arguments
    for name, one in {"vllm": module, "vllm.lora": types.ModuleType("vllm.lora"), "vllm.lora.request": lora}.items():
        monkeypatch.setitem(sys.modules, name, one)
    LLM.made.clear()
    return module


REQUESTS = [Request("a:0", "2+2=", 11), Request("b:0", "What is 2+2?", 12)]


def test_missing_vllm_is_told_with_the_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install "trl\[vllm\]"'):
        VLLMGenerator("m")


def test_prompts_are_token_ids_and_each_has_its_seed_and_limit(vllm):
    generator = VLLMGenerator("m", gpu_memory_utilization=0.5)
    found = generator.generate(REQUESTS, SamplingParams(temperature=0.6, top_p=0.9, top_k=5, max_new_tokens=58))
    assert LLM.made[0].options == {"model": "m", "revision": None, "dtype": "auto", "gpu_memory_utilization": 0.5}
    prompts, settings, adapter = LLM.made[0].calls[0]
    tokenizer = tiny_tokenizer()
    assert [tokenizer.decode(prompt["prompt_token_ids"]) for prompt in prompts] == ["2+2=", "What is 2+2?"]
    assert [one["seed"] for one in settings] == [11, 12]
    assert [one["max_tokens"] for one in settings] == [58, 52]
    assert settings[0]["stop_token_ids"] == [tokenizer.eos_token_id]
    assert (settings[0]["temperature"], settings[0]["top_p"], settings[0]["top_k"], adapter) == (0.6, 0.9, 5, None)
    assert [(one.text, one.num_tokens, one.is_truncated) for one in found] == [("t0", 2, False), ("t1", 3, True)]
    assert generator.generate([], SamplingParams()) == []


def test_greedy_has_no_seed(vllm):
    VLLMGenerator("m").generate(REQUESTS, SamplingParams(max_new_tokens=4))
    assert [one["seed"] for one in LLM.made[0].calls[0][1]] == [None, None]


def test_prompt_longer_than_the_context_is_named(vllm):
    with pytest.raises(UserError, match="request long:0: the prompt has 64 tokens and the model's context 64"):
        VLLMGenerator("m").generate([Request("long:0", "x" * 64, 1)], SamplingParams())


def test_adapter_is_given_with_a_rank_that_vllm_has(vllm, tmp_path):
    settings = {"peft_type": "LORA", "r": 12, "base_model_name_or_path": "base", "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    generator = VLLMGenerator(None, adapter=str(tmp_path), load_in_4bit=True)
    options = LLM.made[0].options
    assert (options["model"], options["enable_lora"], options["max_lora_rank"]) == ("base", True, 16)
    assert options["quantization"] == "bitsandbytes"
    generator.generate(REQUESTS, SamplingParams())
    assert LLM.made[0].calls[0][2] == ("adapter", 1, str(tmp_path))
    assert "tokenizer" not in options
    described = json.loads(json.dumps(generator.describe()))
    assert (described["adapter"], described["model"], described["versions"]) == (str(tmp_path), "base", {"vllm": "0.0"})


def test_tokenizer_that_training_saved_beside_the_adapter_is_taken_unless_another_is_given(vllm, tmp_path):
    settings = {"peft_type": "LORA", "r": 8, "base_model_name_or_path": "base", "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    tiny_tokenizer().save_pretrained(tmp_path)
    VLLMGenerator(None, adapter=str(tmp_path))
    VLLMGenerator(None, adapter=str(tmp_path), tokenizer="other")
    assert [one.options["tokenizer"] for one in LLM.made] == [str(tmp_path), "other"]


def test_adapter_on_the_hub_is_downloaded_by_its_commit(vllm, tmp_path, monkeypatch):
    settings = {"peft_type": "LORA", "r": 8, "base_model_name_or_path": "base", "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    monkeypatch.setattr("trl_ext.evaluation._load_model.model_and_adapter", lambda model, adapter: ("base", adapter))
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, revision: asked.append((name, revision)) or str(tmp_path)
    )
    generator = VLLMGenerator(None, adapter="me/adapter", adapter_revision="abc")
    generator.generate(REQUESTS, SamplingParams())
    assert asked == [("me/adapter", "abc")] and generator.describe()["adapter"] == "me/adapter"
    assert LLM.made[0].calls[0][2] == ("adapter", 1, str(tmp_path))
