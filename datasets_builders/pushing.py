"""Built data sets on the Hub: private unless asked otherwise, and never without a licence."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets_builders._text import first_line
from datasets_builders.card import licences
from datasets_builders.evaluation_rows import evaluation_source
from datasets_builders.folders import CONFIG
from datasets_builders.parquet_stream import parquet_batches
from datasets_builders.saving import SavingError, load_report, report_dict, save
from datasets_builders.shards import evaluation_error, is_for_training


def push_to_hub(
    dataset: Any,
    repo_id: str,
    report: Any,
    *,
    private: bool = True,
    token: str | None = None,
    licence: str | None = None,
    allow_unknown_licence: bool = False,
    split: str = "train",
) -> str:
    """Publish a data set with its card and report, in one commit; the address of the repository.

    Args:
        dataset (`Dataset | IterableDataset`): rows of a builder.
        repo_id (`str`): `user/name` on the Hub; without a user your own.
        report (`BuildReport | Mapping`): what the build counted, with the licences of its sources.
        private (`bool`, defaults to `True`): whether only you can see it.
        token (`str`, *optional*): a token that may write; by default the one that `hf auth login` has stored.
        licence (`str`, *optional*): licence of the data set, where you know better than the report.
        allow_unknown_licence (`bool`): publish although a source states no licence.
        split (`str`): name of the split.

    Returns:
        `str`: the address.

    Raises:
        SavingError: For a source whose licence is not known, rows of an evaluation set in a split to train on, a Hub
            that cannot be reached or refuses, and a repository that is public where a private one is asked for.

    Source: `Dataset.push_to_hub` uploads the rows first and the card later. Here the files of [`save`] go up in one
        commit, so that no reader ever finds rows without their licence.
    """
    check_push(repo_id, report, licence=licence, allow_unknown_licence=allow_unknown_licence)
    with tempfile.TemporaryDirectory() as folder:
        saved = save(dataset, report, Path(folder) / "data set", split=split, licence=licence)
        return push_folder(
            saved.path, repo_id, private=private, token=token, allow_unknown_licence=allow_unknown_licence
        )


def push_folder(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool = True,
    token: str | None = None,
    allow_unknown_licence: bool = False,
) -> str:
    """Publish a folder of [`save`], under the licence given there; the rest is as of [`push_to_hub`].

    The repository gets the rows, `README.md` and `report.json`; files of the same split that were there go.
    `config_resolved.yaml`, which may name folders of yours, stays here.
    """
    report = load_report(folder)
    if report is None:
        raise SavingError(f"{folder} is no folder that `trl-ext data build` has finished; build it first")
    check_push(repo_id, report, allow_unknown_licence=allow_unknown_licence)
    _refuse_evaluation_rows(Path(folder), report)
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    try:
        repo = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True)
        if private and api.repo_info(repo.repo_id, repo_type="dataset").private is False:
            raise SavingError(
                f"{repo.repo_id} is a public repository; give another name, or --public (private=False) if all may "
                "see the rows"
            )
        api.upload_folder(
            repo_id=repo.repo_id,
            folder_path=Path(folder),
            repo_type="dataset",
            commit_message=f"Build of {report.get('name', 'a data set')} ({report['rows']} rows)",
            ignore_patterns=[CONFIG],
            delete_patterns=[f"data/{report['data_split']}-*.parquet"],
        )
    except hub_errors() as error:
        raise SavingError(_refusal(repo_id, error)) from error
    return str(repo)


def _refuse_evaluation_rows(folder: Path, report: Mapping[str, Any]) -> None:
    """Refuse a split to train on with rows of an evaluation set, which a folder may hold that was written elsewhere."""
    if not is_for_training(report["data_split"]):
        return
    for file in report["files"]:
        name = evaluation_source(parquet_batches(str(folder / file["path"]), ("source", "source_id", "extra_info")))
        if name is not None:
            raise evaluation_error(repr(name))


def check_push(repo_id: str, report: Any, *, licence: str | None = None, allow_unknown_licence: bool = False) -> None:
    """Refuse a push that cannot or must not be, before anything is built for it.

    Raises:
        SavingError: Without a licence, and where the Hub is turned off.
    """
    from huggingface_hub import constants

    from datasets_builders.checks import is_unknown_licence

    if not isinstance(repo_id, str) or not repo_id.strip():
        raise SavingError(f"repo_id={repo_id!r} names no repository; give user/name")
    facts = report_dict(report)
    given = licence if licence is not None else facts.get("publish_licence")
    if given is not None and is_unknown_licence(given) and not allow_unknown_licence:
        raise SavingError(
            f"licence={given!r} (--licence) names no licence; give one, such as cc-by-4.0, or "
            "--allow_unknown_licence (allow_unknown_licence=True)"
        )
    if given is None and not allow_unknown_licence and "unknown" in licences(facts):
        raise SavingError(
            f"{_unlicensed(facts)} states no licence, so it is not pushed; find it out and give it with --licence "
            "(licence=...), or --allow_unknown_licence (allow_unknown_licence=True)"
        )
    if constants.is_offline_mode():
        raise SavingError(f"repo_id={repo_id}: the Hub is turned off by HF_HUB_OFFLINE; unset it to push")


def hub_errors() -> tuple[type[Exception], ...]:
    """What a call of the Hub may raise: no connection, an answer that is an error, a name that cannot be one."""
    from huggingface_hub import errors

    # the base class of the HTTP library, which the versions of huggingface_hub have from different ones
    return OSError, errors.HFValidationError, getattr(errors, "HTTPError", OSError)


def _unlicensed(report: Mapping[str, Any]) -> str:
    from datasets_builders.checks import is_unknown_licence

    parts = report.get("parts") or [report]
    return ", ".join(repr(part.get("name")) for part in parts if is_unknown_licence(part.get("licence")))


def _refusal(repo_id: str, error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        remedy = "log in with `hf auth login`, or give a token that may write"
    elif status is None and not isinstance(error, ValueError):
        remedy = "check the connection"
    else:
        remedy = "check the name of the repository"
    return f"repo_id={repo_id}: the Hub did not take the data set ({first_line(error)}); {remedy}"
