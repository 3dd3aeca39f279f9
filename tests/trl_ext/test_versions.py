import pytest

from trl_ext import versions
from trl_ext.errors import UserError


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.delenv(versions.ALLOW_UNTESTED_VARIABLE, raising=False)
    return lambda found: monkeypatch.setattr(versions, "installed_trl", lambda: found)


def test_installed_trl_is_tested(monkeypatch):
    monkeypatch.delenv(versions.ALLOW_UNTESTED_VARIABLE, raising=False)
    versions.require_tested_trl()


@pytest.mark.parametrize("found", ["1.16.0", "1.16.7", "1.16.0.dev0", "1.16"])
def test_tested_minor_passes(installed, found):
    installed(found)
    versions.require_tested_trl()


@pytest.mark.parametrize("found", ["1.15.3", "1.17.0", "1.1.6", "2.16.0", "11.6.0"])
def test_untested_minor_raises_with_both_remedies(installed, found):
    installed(found)
    with pytest.raises(RuntimeError) as caught:
        versions.require_tested_trl()
    text = str(caught.value)
    assert found in text and "pip install 'trl==1.16.*'" in text and "TRL_EXT_ALLOW_UNTESTED_TRL=1" in text
    assert text.count("\n") == 0
    assert isinstance(caught.value, UserError)  # the command line prints it as one line


def test_untested_minor_with_the_variable_set_passes(installed, monkeypatch):
    installed("1.17.0")
    monkeypatch.setenv("TRL_EXT_ALLOW_UNTESTED_TRL", "1")
    versions.require_tested_trl()


def test_missing_trl_raises_even_with_the_variable_set(installed, monkeypatch):
    installed(None)
    monkeypatch.setenv("TRL_EXT_ALLOW_UNTESTED_TRL", "1")
    with pytest.raises(RuntimeError, match="not installed"):
        versions.require_tested_trl()
