"""Models, adapters and tokenizers by name, and the sentence where one of them is not there."""

import json

import huggingface_hub
import pytest
import torch
import transformers
from peft import LoraConfig, PromptTuningConfig, get_peft_model

from trl_ext.errors import UserError
from trl_ext.evaluation._generate_transformers import TransformersGenerator
from trl_ext.evaluation._load_model import tokenizer_of
from trl_ext.evaluation.requests import Request, SamplingParams, sample_seed
from trl_ext.testing import tiny_model, tiny_tokenizer

SAMPLED = SamplingParams(temperature=1.0, max_new_tokens=24)


def some_requests(number=12):
    return [Request(f"p{i}:0", "2+2=" + "!" * i, sample_seed(0, f"p{i}", 0)) for i in range(number)]


def lora_model():
    return get_peft_model(tiny_model(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))


def test_adapter_changes_completions_and_loads_as_it_was_trained(tmp_path, tiny_model_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_model_path)
    trained = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    for name, parameter in trained.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0.0, 0.5, generator=torch.Generator().manual_seed(3))
    trained.save_pretrained(tmp_path / "adapter")
    expected = TransformersGenerator(trained, tiny_tokenizer()).generate(some_requests(), SAMPLED)
    named = TransformersGenerator.from_pretrained(str(tiny_model_path), adapter=str(tmp_path / "adapter"))
    assert isinstance(named.model, PeftModel)
    assert named.generate(some_requests(), SAMPLED) == expected
    # its base is found by the adapter, whether it is given as one or as the model
    for arguments in ({"model": None, "adapter": str(tmp_path / "adapter")}, {"model": str(tmp_path / "adapter")}):
        found = TransformersGenerator.from_pretrained(**arguments)
        assert found.describe()["adapter"] == str(tmp_path / "adapter")
        assert found.generate(some_requests(), SAMPLED) == expected
    plain = TransformersGenerator.from_pretrained(str(tiny_model_path))
    assert plain.generate(some_requests(), SAMPLED) != expected


def test_chat_template_beside_the_adapter_is_taken(tmp_path, tiny_model_path):
    lora_model().save_pretrained(tmp_path / "adapter")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "own"
    tokenizer.save_pretrained(tmp_path / "adapter")
    found = TransformersGenerator.from_pretrained(str(tiny_model_path), adapter=str(tmp_path / "adapter"))
    assert found.tokenizer.chat_template == "own"


def an_adapter(folder, **settings):
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return str(folder)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: {"model": None, "adapter": an_adapter(path / "a")}, "does not say which model it belongs to"),
        (
            lambda path: {"model": None, "adapter": an_adapter(path / "a", base_model_name_or_path="/gone/base")},
            "was trained on the model '/gone/base', which is no folder here",
        ),
        (lambda path: {"model": "m", "adapter": str(path)}, "holds no adapter_config.json"),
        (lambda path: {"model": str(path)}, "cannot be loaded"),
        (lambda path: {"model": "nobody/nothing"}, "model='nobody/nothing' cannot be loaded"),
    ],
)
def test_model_that_cannot_be_loaded_is_named(tmp_path, make, words):
    with pytest.raises(UserError, match=words):
        TransformersGenerator.from_pretrained(**make(tmp_path))


def test_checkpoint_inside_a_run_folder_is_pointed_at(tmp_path):
    an_adapter(tmp_path / "checkpoint-20")
    with pytest.raises(UserError, match="there is one in its folder 'checkpoint-20'"):
        TransformersGenerator.from_pretrained("m", adapter=str(tmp_path))


def test_adapter_of_another_model_is_refused(tmp_path, tiny_model_path):
    other = get_peft_model(
        tiny_model(hidden_size=16, num_attention_heads=2), LoraConfig(r=4, target_modules=["q_proj"])
    )
    other.save_pretrained(tmp_path / "adapter")
    with pytest.raises(UserError, match="does not fit the model"):
        TransformersGenerator.from_pretrained(str(tiny_model_path), adapter=str(tmp_path / "adapter"))


def deeper(number):
    return tiny_model(num_hidden_layers=number)


@pytest.mark.parametrize(
    ("own", "others", "words"),
    [
        (
            4,
            2,
            r"the model has no place for 8 of its weights \(.*layers\.2\.self_attn\.q_proj\.lora_A\.weight, .*\.\.\.",
        ),
        (2, 4, r"the adapter lacks 8 of its weights \(.*layers\.2\.self_attn"),
    ],
)
def test_adapter_of_a_model_with_other_layers_is_refused(tmp_path, own, others, words):
    get_peft_model(deeper(own), LoraConfig(r=4, target_modules=["q_proj", "v_proj"])).save_pretrained(tmp_path / "a")
    deeper(others).save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match=words):
        TransformersGenerator.from_pretrained(str(tmp_path / "model"), adapter=str(tmp_path / "a"))


@pytest.mark.parametrize(
    "config",
    [
        LoraConfig(r=4, target_modules=["q_proj", "embed_tokens"], use_dora=True),
        LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head", "embed_tokens"]),
        LoraConfig(r=4, target_modules=["q_proj"], trainable_token_indices=[1, 2], bias="lora_only"),
        PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    ],
    ids=["embeddings", "saved", "tokens", "prompt"],
)
def test_adapters_of_other_kinds_fit_their_model(tmp_path, tiny_model_path, config):
    get_peft_model(tiny_model(), config).save_pretrained(tmp_path)
    found = TransformersGenerator.from_pretrained(str(tiny_model_path), adapter=str(tmp_path))
    assert found.model.active_peft_config.peft_type == config.peft_type


def test_checkpoint_that_lacks_weights_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    tiny_model().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"lacks 1 weights of the model \(model\.norm\.weight\)"):
        TransformersGenerator.from_pretrained(str(tmp_path))


def test_checkpoint_cut_short_is_named(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(UserError, match=r"cannot be loaded .*incomplete"):
        TransformersGenerator.from_pretrained(str(tmp_path))


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_tokenizer_of_an_adapter_on_the_hub_is_taken_where_it_has_one(
    tmp_path, tiny_model_path, monkeypatch, has_tokenizer
):
    repository = tmp_path / "models--me--adapter"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    lora_model().save_pretrained(snapshot)
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "own"
    if has_tokenizer:
        tokenizer.save_pretrained(snapshot)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(transformers.utils.hub.constants, "HF_HUB_CACHE", str(tmp_path))
    found = TransformersGenerator.from_pretrained(str(tiny_model_path), adapter="me/adapter")
    assert (found.tokenizer.chat_template == "own") == has_tokenizer
    assert tokenizer_of("base", "me/adapter") == ("me/adapter" if has_tokenizer else "base")
    assert tokenizer_of("base", None) == "base"


def test_adapter_on_the_hub_is_loaded_by_its_commit_and_not_by_where_the_branch_is_now(
    tmp_path, tiny_model_path, monkeypatch
):
    repository = tmp_path / "models--me--adapter"
    (repository / "refs").mkdir(parents=True)
    commits = {"1" * 40: "then", "2" * 40: "now"}
    for value, (commit, template) in enumerate(commits.items(), start=1):
        model, tokenizer = lora_model(), tiny_tokenizer()
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data.fill_(float(value))
        tokenizer.chat_template = template
        for one in (model, tokenizer):
            one.save_pretrained(repository / "snapshots" / commit)
    (repository / "refs" / "main").write_text("2" * 40)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(transformers.utils.hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for revision, value, template in ((None, 2.0, "now"), ("1" * 40, 1.0, "then")):
        found = TransformersGenerator.from_pretrained(
            str(tiny_model_path), adapter="me/adapter", adapter_revision=revision
        )
        weights = [one for name, one in found.model.named_parameters() if "lora_B" in name]
        assert weights and all(bool((one == value).all()) for one in weights)
        assert found.tokenizer.chat_template == template


def test_broken_adapter_config_is_named(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(UserError, match="is not valid JSON"):
        TransformersGenerator.from_pretrained("m", adapter=str(tmp_path))


def test_description_is_json_and_says_dtype_and_versions(tiny_model_path):
    found = TransformersGenerator.from_pretrained(str(tiny_model_path), dtype="bfloat16")
    described = json.loads(json.dumps(found.describe()))
    assert described["model"] == str(tiny_model_path)
    assert (described["dtype"], described["quantization"], described["device"]) == ("bfloat16", None, "cpu")
    assert described["versions"]["torch"] == torch.__version__
    assert "peft" not in described["versions"]
    assert "peft" in TransformersGenerator(lora_model(), tiny_tokenizer()).describe()["versions"]


def test_four_bits_are_loaded_described_and_left_as_they_were(tmp_path):
    tiny_model(hidden_size=64, intermediate_size=128).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    found = TransformersGenerator.from_pretrained(str(tmp_path), load_in_4bit=True, device="cpu")
    assert found.describe()["quantization"] == "bitsandbytes 4-bit nf4"
    before = {name: value.clone() for name, value in found.model.state_dict().items()}
    expected = found.generate(some_requests(2), SAMPLED)
    assert found.generate(some_requests(2), SAMPLED) == expected
    after = found.model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert not any(module.training for module in found.model.modules())
