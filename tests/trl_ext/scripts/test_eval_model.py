"""What `trl-ext eval` knows of a model before it is loaded: which weights they are, and what cannot be loaded."""

import json
import os
import shutil
from types import SimpleNamespace

import pytest
import yaml

from trl_ext.cli import main
from trl_ext.errors import UserError
from trl_ext.evaluation._runner_world import World
from trl_ext.scripts._eval_arguments import arguments
from trl_ext.scripts._eval_model import check_model, open_model, pin, weights
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


def _trained_on(adapter, base):
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))


@pytest.mark.parametrize(
    ("trained_on", "place"),
    [
        ("Qwen/Qwen3-0.6B", "models/local"),
        ("Qwen/Qwen3-0.6B", "snapshots/c1899de289a04d12100db370d81485cdf75e47ca"),
        ("models/base-of-mine", "models/local"),
        ("base-of-mine", "models/local"),
        ("/gone/base-of-mine", "models/local"),
    ],
)
def test_base_that_nothing_here_tells_is_taken_with_a_warning_that_names_both(base, adapter, trained_on, place, capsys):
    shutil.copytree(base, base.parent / place)
    _trained_on(adapter, trained_on)
    check_model(_args("--model", place, "--adapter", str(adapter)))
    told = capsys.readouterr().err
    assert told.count("warning: ") == 1 and trained_on in told and place in told


@pytest.mark.parametrize(
    ("trained_on", "place"),
    [
        ("Qwen/Qwen3-0.6B", "hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca"),
        ("Qwen/Qwen3-0.6B", "elsewhere/qwen3-0.6b"),
        ("/gone/mine", "elsewhere/mine"),
    ],
)
def test_base_in_its_cache_or_of_the_same_name_is_taken_without_a_word(base, adapter, trained_on, place, capsys):
    shutil.copytree(base, base.parent / place)
    _trained_on(adapter, trained_on)
    check_model(_args("--model", place, "--adapter", str(adapter)))
    assert not capsys.readouterr().err


def test_base_whose_tokenizer_was_saved_again_is_the_same_model(base, adapter, capsys):
    other = shutil.copytree(base, base.parent / "other")
    (other / "tokenizer_config.json").write_text("{}")
    check_model(_args("--model", str(other), "--adapter", str(adapter)))
    assert not capsys.readouterr().err


def test_two_names_on_the_hub_that_differ_are_refused_and_copies_of_one_name_are_not(base, adapter):
    _trained_on(adapter, "Qwen/Qwen3-0.6B")
    cached = "hub/models--Qwen--Qwen3-1.7B/snapshots/c1899de"  # a folder of the cache says what it holds
    shutil.copytree(base, base.parent / cached)
    for other in ("Qwen/Qwen3-1.7B", cached):
        with pytest.raises(UserError, match=rf"was trained on Qwen/Qwen3-0\.6B, and --model is {other}; leave --model"):
            check_model(_args("--model", other, "--adapter", str(adapter)))
    check_model(_args("--model", "me/qwen3-0.6b", "--adapter", str(adapter)))


def test_model_and_adapter_are_loaded_by_the_commits_of_the_request(base, monkeypatch):
    from trl_ext.evaluation import generation
    from trl_ext.scripts import _eval_model

    _write_rows("7")
    monkeypatch.setattr("trl_ext.evaluation._load_model._base_on_hub", lambda adapter: "org/model")
    monkeypatch.setattr(_eval_model, "_commit", lambda name, config, revision: f"commit:{name[-5:]}-of-{revision}")
    opened = []
    made = SimpleNamespace(generate=_answer, revision="model-of-v1")
    made.describe = lambda: {"revision": made.revision}
    monkeypatch.setattr(generation, "open_generator", lambda model, **given: opened.append(given) or made)
    flags = ("--model", "org/model", "--adapter", "me/model", "--revision", "v1", *FLAGS)
    assert main(["eval", *flags, "--output_dir", "out"]) == 0
    assert [(one["revision"], one["adapter_revision"]) for one in opened] == [("model-of-v1", "model-of-None")]
    with open("out/request.json") as file:
        request = json.load(file)
    assert request["weights"] == {"model": "commit:model-of-v1", "adapter": "commit:model-of-None"}
    assert request["generator"] == {"revision": "v1"}  # as it was asked for


def test_adapter_on_the_hub_says_what_it_was_trained_on(monkeypatch):
    monkeypatch.setattr("trl_ext.evaluation._load_model._base_on_hub", lambda adapter: "Qwen/Qwen3-0.6B")
    check_model(_args("--model", "me/qwen3-0.6b", "--adapter", "me/adapter"))
    told = r"--adapter me/adapter was trained on Qwen/Qwen3-0\.6B, and --model is org/other"
    with pytest.raises(UserError, match=told):
        check_model(_args("--model", "org/other", "--adapter", "me/adapter"))


def test_commits_of_the_first_process_are_those_of_all(monkeypatch):
    import torch

    monkeypatch.setattr(
        torch.distributed, "broadcast_object_list", lambda told, src: told.__setitem__(0, "the first's")
    )
    assert World(1, 2).shared("its own") == "the first's"
    assert World().shared("its own") == "its own"


def test_folders_and_servers_are_loaded_as_they_are_named(base):
    args = _args("--model", str(base), "--revision", "v1")
    pin(args, weights(args))
    assert (args.revision, args.adapter_revision) == ("v1", None)


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
    sets, _ = load_rows(_args("--model", str(base), "--max_problems", "1"))
    assert [row["solution"] for row in sets["rows"]] == [text]


@pytest.mark.parametrize(("number", "told"), [(1, 1), (2, None), (3, None), (None, None)])
def test_first_problems_are_called_so_where_there_are_more_of_them(base, number, told):
    _write_rows("7")
    rows = [{"problem": f"What is {n} + 1?", "answer": str(n + 1), "unique_id": f"test/{n}.json"} for n in range(2)]
    with open("math500.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    flags = ["--benchmarks", "math_500", "--local_path", "math_500=math500.jsonl"]
    flags += [] if number is None else ["--max_problems", str(number)]
    sets, facts = load_rows(_args("--model", str(base), *flags))
    assert {name: one["max_problems"] for name, one in facts.items()} == {"rows": told, "math_500": told}
    assert {len(rows) for rows in sets.values()} == {min(number or 2, 2)}


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
