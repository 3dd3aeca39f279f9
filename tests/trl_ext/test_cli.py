import importlib.util
import subprocess
import sys
import types

import pytest

from trl_ext import __version__, cli
from trl_ext.errors import UserError
from trl_ext.scripts import doctor


@pytest.fixture
def command(monkeypatch):
    """Replaces the command `ppo` by a function and returns the list of what it was called with."""

    def install(behaviour=lambda argv: 0):
        calls = []

        def main(argv):
            calls.append(argv)
            return behaviour(argv)

        module = types.ModuleType("trl_ext.scripts.ppo")
        module.main = main
        monkeypatch.setitem(sys.modules, "trl_ext.scripts.ppo", module)
        return calls

    return install


def _raises(error):
    def behaviour(argv):
        raise error

    return behaviour


def test_help_lists_every_command_and_exits_0(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for name, summary in cli.COMMANDS.items():
        assert name in text and summary in text


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"trl-ext {__version__}"


def test_no_command_prints_help_and_exits_2(capsys):
    assert cli.main([]) == 2
    assert "commands:" in capsys.readouterr().err


def test_help_in_a_fresh_process_loads_no_torch():
    code = "import sys; from trl_ext import cli\ntry: cli.main(['--help'])\nfinally: assert 'torch' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_unknown_command_close_to_one_gets_did_you_mean(capsys):
    assert cli.main(["docter"]) == 2
    assert capsys.readouterr().err == "trl-ext: error: unknown command 'docter'; did you mean 'doctor'?\n"


def test_unknown_command_close_to_none_gets_the_list(capsys):
    assert cli.main(["zzz"]) == 2
    assert capsys.readouterr().err.strip().endswith("the commands are ppo, grpo, demo, data, check, eval, plot, doctor")


@pytest.mark.parametrize("rest", [[], ["--help"], ["--learning_rate", "1e-5", "--", "--version"]])
def test_arguments_after_the_command_reach_it_unparsed(command, rest):
    calls = command(lambda argv: 7)
    assert cli.main(["ppo", *rest]) == 7
    assert calls == [rest]


def test_user_error_is_one_line_and_exit_1(command, capsys):
    command(_raises(UserError("no such recipe 'r2'; did you mean 'r1'?")))
    assert cli.main(["ppo"]) == 1
    assert capsys.readouterr().err == "trl-ext: error: no such recipe 'r2'; did you mean 'r1'?\n"


def test_value_error_names_the_way_to_the_traceback(command, capsys):
    command(_raises(ValueError("lam is 2")))
    assert cli.main(["ppo"]) == 1
    assert capsys.readouterr().err == "trl-ext: error: lam is 2 (TRL_EXT_DEBUG=1 shows where)\n"


@pytest.mark.parametrize("error", [UserError("x"), ValueError("x")])
def test_error_with_debug_set_raises(command, monkeypatch, error):
    monkeypatch.setenv("TRL_EXT_DEBUG", "1")
    command(_raises(error))
    with pytest.raises(type(error)):
        cli.main(["ppo"])


def test_bug_raises(command):
    command(_raises(RuntimeError("bug")))
    with pytest.raises(RuntimeError, match="bug"):
        cli.main(["ppo"])


def test_interrupt_exits_130(command):
    command(_raises(KeyboardInterrupt()))
    assert cli.main(["ppo"]) == 130


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_command_has_its_module(name):
    assert importlib.util.find_spec(f"trl_ext.scripts.{name}") is not None


def test_doctor_here_is_ready(capsys):
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "ready"
    for name in ("torch", "trl", "bitsandbytes", "device", "bf16", "4-bit", "demo model", "free disk"):
        assert any(line[6:].startswith(name) for line in lines), name


def test_doctor_without_peft_fails_and_names_the_remedy(monkeypatch, capsys):
    installed = doctor._installed
    monkeypatch.setattr(doctor, "_installed", lambda package: None if package == "peft" else installed(package))
    monkeypatch.setattr(doctor, "_device_checks", list)
    assert doctor.main([]) == 1
    text = capsys.readouterr().out
    assert "FAIL  peft" in text and "pip install peft" in text and text.endswith("not ready: see peft above\n")


def test_doctor_trial_that_raises_only_warns():
    def broken(device):
        raise RuntimeError("no kernel\nlong trace")

    check = doctor._trial("4-bit", types.SimpleNamespace(type="cpu"), broken)
    assert (check.status, check.detail) == ("warn", "does not work on cpu: no kernel")


@pytest.mark.parametrize(("error", "status"), [(0.01, "ok"), (0.9, "warn"), (float("nan"), "warn")])
def test_doctor_trial_judges_the_result(error, status):
    assert doctor._trial("bf16", types.SimpleNamespace(type="cpu"), lambda device: error).status == status
