"""Reward for following instructions that a program can check."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Literal

from reward_funcs.base import Batch, Grade, Reward, check_flag, check_name
from reward_funcs.extract import THINK_CLOSE, after_think
from reward_funcs.instructions.golds import Constraint, constraints_of, pairs
from reward_funcs.instructions.response import Response

MODES = ("strict", "loose")
SCORES = ("fraction", "all")
UNKNOWN = ("none", "ignore")

# Each constraint's name, and whether it was followed; `None` where it is unknown and ignored.
Verdicts = tuple[tuple[str, bool | None], ...]


class InstructionReward(Reward):
    r"""Share of a row's constraints that the completion follows: `followed / constraints`.

    The constraints are those of IFEval, of IFBench and of its training set IF-RLVR; `reward_funcs.instructions` names
    the modules that define them. Checked is what stands after the last `</think>`, without the line breaks behind it;
    nothing, or white space alone, follows no constraint. Everything is linear in the length of the text.

    The column `<name>/answer` of TRL's table says for each constraint whether it was followed, and the metric
    `<name>/followed/<constraint>` how often in a call.

    Args:
        solution_column (`str`, *optional*, defaults to `"solution"`): column of the golds, each
            `{"instruction_id": [...], "kwargs": [...]}` as a mapping or JSON text, or the text of the Hub's column
            `ground_truth`, see [`reward_funcs.instructions.golds.constraints_of`].
        mode (`str`, *optional*, defaults to `"strict"`): `"strict"` checks the response as it is; with `"loose"` a
            constraint is followed where one of IFEval's eight variants follows it: without its first line, its last, or
            both, and each of these without asterisks.
        score (`str`, *optional*, defaults to `"fraction"`): `"fraction"`, or `"all"` for 1.0 where every constraint is
            followed, else 0.0.
        unknown (`str`, *optional*, defaults to `"none"`): `"none"` gives `None` to a row with a constraint that no
            checker knows; `"ignore"` leaves such constraints out, unless there is no other.
        think_prefilled (`bool`, *optional*, defaults to `False`): whether the chat template opens the think block, so
            that a completion without `</think>` is all reasoning.
        ids_column (`str`, *optional*, defaults to `"instruction_id_list"`): column of the names, for rows in the form
            of IFEval; it is read where there is no column of golds, or the gold of a row is null.
        kwargs_column (`str`, *optional*, defaults to `"kwargs"`): column of the arguments, for the same rows.
        name (`str`, *optional*, defaults to `"instruction_reward"`): name in the logs.

    Raises:
        ValueError: For an unknown mode, score or way with unknown constraints, a column that is no name, or a switch
            that is no `bool`.

    Source: IFEval (arXiv:2311.07911), IFBench and IF-RLVR (arXiv:2507.02833), which reward the share of the constraints
    that are followed. Sentences, words and languages are found without NLTK and langdetect; each module of checkers
    lists where its verdicts differ.

    Example:

    ```python
    >>> gold = {"instruction_id": ["punctuation:no_comma", "keywords:word_once"], "kwargs": [None, {"keyword": "tea"}]}
    >>> instruction_reward(["Green tea.", "Green, please."], solution=[gold, gold])
    [1.0, 0.0]
    >>> InstructionReward(score="all")(["Coffee."], solution=[gold])
    [0.0]

    ```
    """

    default_name = "instruction_reward"

    def __init__(
        self,
        solution_column: str = "solution",
        *,
        mode: Literal["strict", "loose"] = "strict",
        score: Literal["fraction", "all"] = "fraction",
        unknown: Literal["none", "ignore"] = "none",
        think_prefilled: bool = False,
        ids_column: str = "instruction_id_list",
        kwargs_column: str = "kwargs",
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.solution_column = check_name("solution_column", solution_column)
        self.mode = _checked("mode", mode, MODES)
        self.score = _checked("score", score, SCORES)
        self.unknown = _checked("unknown", unknown, UNKNOWN)
        self.think_prefilled = check_flag("think_prefilled", think_prefilled)
        self.ids_column = check_name("ids_column", ids_column)
        self.kwargs_column = check_name("kwargs_column", kwargs_column)

    def grade(self, batch: Batch) -> list[Grade]:
        """One grade for each completion; the reason is `followed`, `partly_followed`, `not_followed`, `empty`,
        `bad_gold`, `bad_constraint` or `unknown_constraint`."""
        return [grade for grade, _ in self._graded(batch)]

    def rewards(self, batch: Batch) -> list[float | None]:
        """Grade a batch, report how often each constraint was followed, and return the rewards."""
        graded = self._graded(batch)
        followed: dict[str, list[bool]] = defaultdict(list)
        for _, verdicts in graded:
            for constraint, is_followed in verdicts:
                if is_followed is not None:
                    followed[constraint].append(is_followed)
        for constraint, found in sorted(followed.items()):
            batch.log_metric(f"{self.__name__}/followed/{constraint}", sum(found) / len(found))
        return self._reported(batch, [grade for grade, _ in graded])

    def _graded(self, batch: Batch) -> list[tuple[Grade, Verdicts]]:
        visible = batch.each_text(("instructions/visible", self.think_prefilled), self._visible)
        return [self._grade(text, found) for text, found in zip(visible, self._constraints(batch), strict=True)]

    def _constraints(self, batch: Batch) -> list[tuple[Constraint, ...] | None]:
        names = batch.optional(self.ids_column)
        if names is None:
            golds = batch.column(self.solution_column, needed_by=self.__name__, argument="solution_column")
            return [constraints_of(gold) for gold in golds]
        none = [None] * len(batch)
        kwargs = batch.optional(self.kwargs_column) or none
        # rows of a mixture may have either form
        return [
            pairs(listed, given) if gold is None else constraints_of(gold)
            for gold, listed, given in zip(batch.optional(self.solution_column) or none, names, kwargs, strict=True)
        ]

    def _visible(self, text: str) -> str:
        if THINK_CLOSE not in text:
            return "" if self.think_prefilled else after_think(text)
        # the line breaks behind the block are part of its format
        return after_think(text).lstrip("\r\n")

    def _grade(self, text: str, found: tuple[Constraint, ...] | None) -> tuple[Grade, Verdicts]:
        fault = self._fault(found)
        if found is None or fault is not None:
            return fault or Grade(None, "bad_gold"), ()
        responses = [Response(text)] if self.mode == "strict" else [Response(one) for one in _variants(text)]
        responses = [response for response in responses if response.is_visible]
        verdicts = tuple((constraint.name, _is_followed(constraint, responses)) for constraint in found)
        judged = [verdict for _, verdict in verdicts if verdict is not None]
        share = sum(judged) / len(judged)
        reason = "followed" if share == 1 else "partly_followed" if share else "not_followed"
        reward = share if self.score == "fraction" else float(share == 1)
        return Grade(reward, reason if responses else "empty", _written(verdicts)), verdicts

    def _fault(self, found: tuple[Constraint, ...] | None) -> Grade | None:
        """The grade of a row that cannot be judged, whatever its completion; `None` for one that can."""
        if found is None:
            return Grade(None, "bad_gold")
        unknown = [constraint.name for constraint in found if constraint.kind is None]
        if unknown and (self.unknown == "none" or len(unknown) == len(found)):
            return Grade(None, "unknown_constraint", ", ".join(unknown))
        bad = [constraint.name for constraint in found if constraint.kind is not None and constraint.arguments is None]
        return Grade(None, "bad_constraint", ", ".join(bad)) if bad else None

    def ideal(self, gold: Any) -> str | None:
        """`None`: constraints say what a text must be like, and not what it is."""
        return None


def _checked(setting: str, value: Any, allowed: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in allowed:
        return value
    close = difflib.get_close_matches(value, allowed, n=1) if isinstance(value, str) else []
    remedy = f"did you mean {close[0]!r}?" if close else "leave it out for the default"
    raise ValueError(f"{setting}={value!r:.80}: it must be one of {', '.join(map(repr, allowed))}; {remedy}")


def _variants(text: str) -> list[str]:
    """IFEval's eight variants of a response, each once."""
    lines = text.split("\n")
    cut = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    found = [text, *cut]
    return list(dict.fromkeys([*found, *(one.replace("*", "") for one in found)]))


def _is_followed(constraint: Constraint, responses: Iterable[Response]) -> bool | None:
    if constraint.kind is None or constraint.arguments is None:
        return None
    return any(constraint.kind.check(response, **constraint.arguments) for response in responses)


def _written(verdicts: Verdicts) -> str:
    marks = {True: "yes", False: "no", None: "unknown"}
    return ", ".join(f"{constraint} {marks[verdict]}" for constraint, verdict in verdicts)


instruction_reward = InstructionReward()
