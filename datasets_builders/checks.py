"""Checks of built rows: each takes rows and returns those that pass, in their order, and a report of plain counts.

They work on a `Dataset` and on a list of rows, and where rows can be judged one by one on an `IterableDataset` as it is
read. None depends on a seed or on the number of processes.
"""

from __future__ import annotations

import json
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datasets_builders._rows import Columns, Verdict, check_rows, filtered, is_stream
from datasets_builders.contamination import decontaminate
from datasets_builders.duplicates import deduplicate
from datasets_builders.gold_checks import verify_golds
from datasets_builders.prompts import user_texts
from datasets_builders.source import Source
from reward_funcs._scripts import language_code
from reward_funcs.language import word_count

__all__ = [
    "check_licence",
    "decontaminate",
    "deduplicate",
    "difficulty",
    "filter_language",
    "filter_length",
    "verify_golds",
]

# looked for in the words of a licence alone: cc by nc sa, non commercial, research only
_NONCOMMERCIAL = re.compile(
    r"\bnc\b|\bby ?nc(?:sa|nd)?\b|\bnon ?commercial|\bno commercial|\bnot for (?:any )?commercial"
    r"|\bresearch (?:use |purposes? )?only\b|\bonly for (?:\w+ ){0,2}research\b"
    r"|\bfor (?:\w+ ){0,2}research (?:\w+ )?only\b|\bacademic (?:use |research )?only\b"
)
_UNKNOWN = ("", "unknown", "none", "other", "not stated")


def difficulty(
    dataset: Any, low: float = 0.0, high: float = 1.0, *, keep_unknown: bool = True
) -> tuple[Any, dict[str, int]]:
    """The rows whose pass rate lies in `low <= extra["difficulty"] <= high`.

    A difficulty is the share of a model's attempts that were right, so 1.0 is the easiest; the page of each source says
    of which model.

    Args:
        dataset (`Dataset | IterableDataset | list[dict]`): rows with the column `extra`.
        low (`float`, defaults to 0.0): lowest pass rate that is kept.
        high (`float`, defaults to 1.0): highest pass rate that is kept.
        keep_unknown (`bool`, defaults to `True`): keep rows without a difficulty.

    Returns:
        `tuple`: the rows that are kept, and a report: rows dropped as `too_hard`, `too_easy` and, with
        `keep_unknown=False`, `no_difficulty`; and `unknown`, the rows kept without a difficulty.

    Raises:
        ValueError: For bounds that are no shares or in the wrong order, a difficulty that is no share, `extra` that is
            no JSON object, and a data set in which no row has a difficulty.

    Example:

    ```python
    >>> rows = [{"extra": '{"difficulty": 0.0}'}, {"extra": '{"difficulty": 0.5}'}, {"extra": "{}"}]
    >>> kept, report = difficulty(rows, low=0.1, high=0.6)
    >>> len(kept), report
    (2, {'too_hard': 1, 'too_easy': 0, 'no_difficulty': 0, 'unknown': 1})

    ```
    """
    check_rows(dataset, "difficulty", ["extra"])
    for name, value in (("low", low), ("high", high)):
        if not _is_share(value):
            raise ValueError(f"{name}={value!r} must be a pass rate from 0 to 1; leave it out for no bound")
    if low > high:
        raise ValueError(f"low={low!r} is above high={high!r}, so that no row could pass; exchange them")
    report = {"too_hard": 0, "too_easy": 0, "no_difficulty": 0, "unknown": 0}
    kept = filtered(dataset, ["extra"], _PassRate(low, high, keep_unknown), report)
    if not is_stream(dataset) and len(dataset) == report["unknown"] + report["no_difficulty"] > 0:
        raise ValueError(
            "no row has a difficulty in its column 'extra'; leave this check out, or measure pass rates first"
        )
    return kept, report


class _PassRate:
    """Judges rows by their pass rate."""

    def __init__(self, low: float, high: float, keep_unknown: bool) -> None:
        self.low, self.high = low, high
        self.unknown = "unknown" if keep_unknown else "no_difficulty"

    def __call__(self, batch: Columns) -> Verdict:
        found = list(map(self._verdict, batch["extra"]))
        return [code in ("", "unknown") for code in found], {code: found.count(code) for code in set(found) - {""}}

    def _verdict(self, extra: Any) -> str:
        try:
            values = json.loads(extra) if isinstance(extra, str) else extra
        except ValueError:
            values = extra
        if not isinstance(values, Mapping):
            raise ValueError(f"extra={extra!r:.60} of a row must be a JSON object; build the row again")
        rate = values.get("difficulty")
        if rate is None:
            return self.unknown
        if not _is_share(rate):
            raise ValueError(f"difficulty={rate!r:.60} in `extra` of a row must be a pass rate from 0 to 1")
        return "too_hard" if rate < self.low else "too_easy" if rate > self.high else ""


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def filter_length(dataset: Any, tokenizer: Any, max_prompt_tokens: int) -> tuple[Any, dict[str, int]]:
    """The rows whose prompt has at most `max_prompt_tokens` tokens, with the chat template and its generation prompt.

    Args:
        dataset (`Dataset | IterableDataset | list[dict]`): rows with the column `prompt`.
        tokenizer (`PreTrainedTokenizerBase`): tokenizer of the model to be trained, with its chat template.
        max_prompt_tokens (`int`): longest prompt that is kept.

    Returns:
        `tuple`: the rows that are kept, and a report: `too_long` rows dropped.

    Raises:
        ValueError: For a limit that is no whole number of at least 1, and a tokenizer without a chat template.
    """
    check_rows(dataset, "filter_length", ["prompt"])
    if isinstance(max_prompt_tokens, bool) or not isinstance(max_prompt_tokens, int) or max_prompt_tokens < 1:
        raise ValueError(
            f"max_prompt_tokens={max_prompt_tokens!r} must be a whole number of at least 1; "
            "leave the check out for no limit"
        )
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            f"tokenizer={getattr(tokenizer, 'name_or_path', tokenizer)!r:.80} has no chat template; take that of an "
            "instruct model, or set tokenizer.chat_template"
        )
    report = {"too_long": 0}
    return filtered(dataset, ["prompt"], _Length(tokenizer, max_prompt_tokens), report), report


class _Length:
    """Judges prompts by their number of tokens."""

    def __init__(self, tokenizer: Any, most: int) -> None:
        self.tokenizer = tokenizer
        self.most = most

    def __call__(self, batch: Columns) -> Verdict:
        encoded = self.tokenizer.apply_chat_template(
            batch["prompt"], tokenize=True, add_generation_prompt=True, return_dict=True
        )
        fits = [len(ids) <= self.most for ids in encoded["input_ids"]]
        return fits, {"too_long": fits.count(False)}


def filter_language(
    dataset: Any,
    languages: Iterable[str],
    *,
    min_share: float = 0.5,
    min_words: int = 3,
    candidates: Sequence[str] | None = None,
) -> tuple[Any, dict[str, int]]:
    """The rows of whose words in the user's turns at least `min_share` belong to one of the languages.

    Words are counted as in `language_consistency_reward`: by Unicode script, without formulas, code and links, and
    where languages share a script by sentence with py3langid (`pip install "trl-ext[lang]"`), without which they count
    as one. A prompt of fewer words, such as a mere formula, says nothing of its language and is kept.

    Args:
        dataset (`Dataset | IterableDataset | list[dict]`): rows with the column `prompt`.
        languages (`Iterable[str]`): ISO 639-1 codes (`"en"`, `"zh-CN"`) or English names.
        min_share (`float`, defaults to 0.5): share of the words from which a prompt is in a language.
        min_words (`int`, defaults to 3): fewest words by which a prompt is judged.
        candidates (`Sequence[str]`, *optional*): languages that sentences are identified among, by default the usual
            ones of the script; `()` counts scripts alone, which is several times faster.

    Returns:
        `tuple`: the rows that are kept, and a report: `other_language` rows dropped, and `unknown` rows kept because
        they hold too few words.

    Raises:
        ValueError: For no language, an unknown one, settings out of range, and a prompt that is neither a text nor
            turns with texts.

    Example:

    ```python
    >>> texts = "求最大的整数。", "Find an integer.", "$x$"
    >>> rows = [{"prompt": [{"role": "user", "content": text}]} for text in texts]
    >>> kept, report = filter_language(rows, ["zh"])
    >>> len(kept), report
    (2, {'other_language': 1, 'unknown': 1})

    ```
    """
    check_rows(dataset, "filter_language", ["prompt"])
    listed = [languages] if isinstance(languages, str) else languages
    codes = list(dict.fromkeys(language_code(language, "languages") for language in listed))
    if not codes:
        raise ValueError("languages names none; give at least one, such as ['en'], or leave the check out")
    if not _is_share(min_share) or min_share == 0:
        raise ValueError(f"min_share={min_share!r} must be a share above 0 and of at most 1; leave it out for 0.5")
    if isinstance(min_words, bool) or not isinstance(min_words, int) or min_words < 1:
        raise ValueError(f"min_words={min_words!r} must be a whole number of at least 1; leave it out for 3")
    report = {"other_language": 0, "unknown": 0}
    return filtered(dataset, ["prompt"], _Language(codes, min_share, min_words, candidates), report), report


class _Language:
    """Judges prompts by the language of the user's turns."""

    def __init__(self, codes: list[str], min_share: float, min_words: int, candidates: Sequence[str] | None) -> None:
        self.codes = codes
        self.min_share = min_share
        self.min_words = min_words
        self.candidates = candidates

    def __call__(self, batch: Columns) -> Verdict:
        found = list(map(self._verdict, user_texts(batch["prompt"], "filter_language")))
        return [code != "other_language" for code in found], {code: found.count(code) for code in set(found) - {""}}

    def _verdict(self, text: str) -> str:
        verdict = "unknown"
        for code in self.codes:
            count = word_count(text, code, candidates=self.candidates)
            total = count.own + count.foreign
            if total >= self.min_words:
                if count.own >= self.min_share * total:
                    return ""
                verdict = "other_language"
        return verdict


def is_unknown_licence(licence: object) -> bool:
    """Whether the text of a licence, or `None`, names none.

    Example:

    ```python
    >>> is_unknown_licence(" "), is_unknown_licence("Not stated"), is_unknown_licence("mit")
    (True, True, False)

    ```
    """
    return licence is None or str(licence).strip().lower() in _UNKNOWN


def forbids_commercial_use(licence: object) -> bool:
    """Whether the text of a licence says that it forbids commercial use, or allows nothing but research.

    Capitals, digits and what stands between the words are no matter.

    Example:

    ```python
    >>> [forbids_commercial_use(licence) for licence in ("CC BY-NC 4.0", "cc-by-4.0", "research-only")]
    [True, False, True]

    ```
    """
    text = unicodedata.normalize("NFKC", str(licence)).casefold()
    return _NONCOMMERCIAL.search(" ".join(re.findall(r"[^\W\d_]+", text))) is not None


def check_licence(source: Source | str, allow_noncommercial: bool = False) -> None:
    """Refuse a licence that forbids commercial use, unless that is allowed, and warn of one that is not known.

    Args:
        source (`Source` or `str`): a source, or the text of a licence: `"cc-by-nc-4.0"`.
        allow_noncommercial (`bool`, defaults to `False`): accept it.

    Raises:
        ValueError: For a licence that forbids commercial use.

    Warns:
        UserWarning: For an unknown licence.

    Example:

    ```python
    >>> check_licence("cc-by-4.0")
    >>> check_licence("CC BY-NC 4.0")
    Traceback (most recent call last):
    ValueError: the licence 'CC BY-NC 4.0' forbids commercial use; pass allow_noncommercial=True ...

    ```
    """
    licence = source.licence if isinstance(source, Source) else source
    if not isinstance(licence, str):
        raise ValueError(f"source={source!r:.60} must be a Source or the text of a licence")
    whose = f"{source.name}: " if isinstance(source, Source) else ""
    if forbids_commercial_use(licence) and not allow_noncommercial:
        raise ValueError(
            f"{whose}the licence {licence!r} forbids commercial use; pass allow_noncommercial=True "
            "(--allow_noncommercial) where that is no matter"
        )
    if is_unknown_licence(licence):
        warnings.warn(
            f"{whose}no licence is stated ({licence!r}); find out whether you may use and publish the rows",
            stacklevel=2,
        )
