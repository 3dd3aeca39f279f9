"""Which TRL versions the trainers were tested with.

The trainers wrap methods of TRL's trainers, which change between minor versions; the rewards and the builders do not
and never look here.
"""

import os
from importlib.metadata import PackageNotFoundError, version

from trl_ext.errors import UserError

TESTED_TRL_MINORS = ("1.16",)
ALLOW_UNTESTED_VARIABLE = "TRL_EXT_ALLOW_UNTESTED_TRL"


class UntestedTRLError(UserError, RuntimeError):
    """The installed TRL is not one that the trainers were tested with."""


def installed_trl() -> str | None:
    """Version of the installed TRL, without importing it; `None` when there is none."""
    try:
        return version("trl")
    except PackageNotFoundError:
        return None


def is_tested_trl(trl_version: str) -> bool:
    """Whether the trainers were tested with the minor version of `trl_version`.

    Args:
        trl_version (`str`): a version such as `"1.16.2"`.

    Returns:
        `True` when `TESTED_TRL_MINORS` holds its first two numbers.

    Example:

    ```python
    >>> is_tested_trl("1.16.2"), is_tested_trl("1.1.6")
    (True, False)

    ```
    """
    return ".".join(trl_version.split(".")[:2]) in TESTED_TRL_MINORS


def require_tested_trl() -> None:
    """Refuse a TRL that the trainers were not tested with.

    `TRL_EXT_ALLOW_UNTESTED_TRL=1` in the environment lets any version pass.

    Raises:
        UntestedTRLError: TRL is missing or of an untested minor version; a `RuntimeError`.
    """
    found = installed_trl()
    tested = " or ".join(f"{minor}.x" for minor in TESTED_TRL_MINORS)
    remedy = f"install a tested one with `pip install 'trl=={TESTED_TRL_MINORS[-1]}.*'`"
    if found is None:
        raise UntestedTRLError(f"trl-ext's trainers need TRL {tested}, which is not installed; {remedy}.")
    if not is_tested_trl(found) and os.environ.get(ALLOW_UNTESTED_VARIABLE) != "1":
        raise UntestedTRLError(
            f"trl-ext's trainers were tested with TRL {tested} but {found} is installed; {remedy}, or set "
            f"{ALLOW_UNTESTED_VARIABLE}=1 to try this one."
        )
