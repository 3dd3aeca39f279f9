"""What `trl-ext eval` knows of a model before it is loaded: which weights they are, and what cannot be loaded."""

import json
import os
import shutil
from types import SimpleNamespace

import pytest
import yaml

from trl_ext.cli import main
from trl_ext.errors import UserError
from trl_ext.scripts._eval_arguments import arguments
from trl_ext.scripts._eval_model import check_model, open_model, weights
from trl_ext.scripts._eval_rows import load_rows

FLAGS = ("--dataset", "rows.jsonl")


@pytest.fixture
def base(tmp_path, tiny_model_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(tiny_model_path, tmp_path / "base")


@pytest.fixture
def adapter(base):
    """A folder that is read as an adapter's, without being loaded."""
    folder = base.parent / "lora"
    folder.mkdir()
    shutil.copy(base / "model.safetensors", folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base), "lora_alpha": 8}))
    return folder


def _args(*flags):
    return arguments([*flags, *FLAGS])


def _change(file, at):
    """Other bytes in the middle of a file, whose size and place stay."""
    with open(file, "r+b") as stream:
        stream.seek(at)
        old = stream.read(4)
        stream.seek(at)
        stream.write(bytes(byte ^ 255 for byte in old))
    os.utime(file, ns=(1, os.stat(file).st_mtime_ns + 1))  # a clock may be coarser than a test is fast


@pytest.mark.parametrize("flag", ["--adapter", "--model"])
def test_base_of_an_adapter_alone_has_a_hash_that_follows_its_weights(base, adapter, flag):
    args = _args(flag, str(adapter))
    before = weights(args)
    assert set(before) == {"model", "adapter"} and weights(args) == before
    _change(base / "model.safetensors", 5000)
    after = weights(args)
    assert after["model"] != before["model"] and after["adapter"] == before["adapter"]


def test_settings_of_an_adapter_count_and_the_place_of_its_base_does_not(base, adapter):
    args = _args("--model", str(base), "--adapter", str(adapter))
    before = weights(args)
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps({"base_model_name_or_path": "/moved/a/long/way", "lora_alpha": 8}))
    assert weights(args) == before
    file.write_text(json.dumps({"base_model_name_or_path": "/moved/a/long/way", "lora_alpha": 64}))
    assert weights(args)["adapter"] != before["adapter"]


def test_any_byte_of_a_large_file_counts(base):
    file = base / "model.safetensors"
    with file.open("ab") as stream:
        stream.write(bytes(20_000_000))
    args = _args("--model", str(base))
    before = weights(args)
    _change(file, 10_000_001)
    assert weights(args) != before


def test_model_on_the_hub_is_pinned_to_its_commit(tmp_path, monkeypatch):
    from transformers.utils import hub

    commit = "0123456789abcdef0123456789abcdef01234567"
    file = tmp_path / "snapshots" / commit / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    monkeypatch.setattr(hub, "cached_file", lambda name, config, revision: str(file))
    assert weights(_args("--model", "org/model")) == {"model": f"commit:{commit}"}


def test_server_has_no_weights_to_tell(base):
    assert weights(_args("--model", str(base), "--server_url", "http://localhost:1/v1")) == {}


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (lambda base, lora: os.truncate(base / "model.safetensors", 3000), "base/model.safetensors is no whole file"),
        (lambda base, lora: os.truncate(lora / "adapter_model.safetensors", 99), "adapter_model.safetensors is no who"),
        (lambda base, lora: (lora / "adapter_config.json").write_text("[]"), "holds no JSON object; save the adapter"),
    ],
)
def test_broken_folder_is_refused_before_loading(base, adapter, break_it, sentence):
    break_it(base, adapter)
    with pytest.raises(UserError, match=sentence):
        check_model(_args("--model", str(base), "--adapter", str(adapter)))


def test_base_of_the_same_name_must_hold_the_same_model(base, adapter):
    other = base.parent / "other" / "base"
    shutil.copytree(base, other)
    args = _args("--model", str(other), "--adapter", str(adapter))
    check_model(args)  # a copy is the same model
    _change(other / "model.safetensors", 5000)
    with pytest.raises(UserError, match=r"was trained on .*, and --model is .*other/base; leave --model out"):
        check_model(args)


def test_arguments_of_the_chat_template_reach_the_generator(base):
    generator = open_model(_args("--model", str(base), "--chat_template_kwargs", '{"enable_thinking": false}'))
    assert generator.describe()["chat_template_kwargs"] == {"enable_thinking": False}
    server = ("--model", "m", "--server_url", "http://localhost:1/v1")
    served = open_model(_args(*server, "--chat_template_kwargs", '{"enable_thinking": false}'))
    assert served.extra_body == {"chat_template_kwargs": {"enable_thinking": False}}


def test_lists_and_objects_of_a_config_file_are_taken(base):
    with open("eval.yaml", "w") as file:
        yaml.safe_dump({"k": [1, 2], "num_samples": 2, "chat_template_kwargs": {"a": True}}, file)
    args = _args("--model", str(base), "--config", "eval.yaml")
    assert (args.k, args.chat_template_kwargs) == ([1, 2], {"a": True})


def _write_rows(solution):
    with open("rows.jsonl", "w") as file:
        file.write(f'{{"prompt": "a", "solution": {solution}}}\n' * 2)


@pytest.mark.parametrize(
    ("written", "text"), [("1e22", "1" + "0" * 22), ("0.1", "0.1"), ("7", "7"), ("1e-7", "0.0000001")]
)
def test_number_as_gold_is_written_out(base, written, text):
    _write_rows(written)
    sets, facts = load_rows(_args("--model", str(base), "--max_problems", "1"))
    assert sets["rows"][0]["solution"] == text
    assert facts["rows"]["max_problems"] == 1
    assert load_rows(_args("--model", str(base), "--max_problems", "3"))[1]["rows"]["max_problems"] is None


def test_gold_that_is_no_number_is_refused(base):
    args = SimpleNamespace(dataset="own")
    from trl_ext.scripts._eval_rows import _own_row

    with pytest.raises(UserError, match="row 3 has the solution nan, which is no answer"):
        _own_row({"prompt": "a", "solution": float("nan")}, 3, args)


def test_card_that_cannot_take_figures_is_refused_before_anything_is_generated(base, capsys):
    _write_rows("7")
    with open("README.md", "wb") as file:
        file.write(b"# caf\xe9\n")
    assert main(["eval", "--model", str(base), *FLAGS, "--model_card", "README.md", "--output_dir", "out"]) == 1
    assert "README.md is no text in UTF-8" in capsys.readouterr().err and not os.path.exists("out")


def test_secrets_of_addresses_are_not_in_the_command_that_is_written(base, monkeypatch):
    from trl_ext.scripts import _eval_model

    _write_rows("7")
    monkeypatch.setattr(_eval_model, "open_model", lambda args: SimpleNamespace(generate=_answer, describe=dict))
    url = "http://bob:hunter2@localhost:1/v1?token=hunter3"
    assert main(["eval", "--model", "m", f"--server_url={url}", *FLAGS, "--output_dir", "out"]) == 0
    texts = {name: open(f"out/{name}").read() for name in os.listdir("out")}
    assert not [name for name, text in texts.items() if "hunter" in text]
    assert "--server_url=http://localhost:1/v1 " in texts["results.md"]


def _answer(requests, params):
    from trl_ext.evaluation.requests import Completion

    return [Completion("\\boxed{7}", 3, False) for _ in requests]
