r"""What completions are worth: scores and answers that vote, from the rewards of `reward_funcs`.

- A completion is correct where its score is 1, up to rounding.
- A truncated completion is graded as it stands: an answer that it has closed counts. With `truncated="wrong"` its score
  is 0 and it has no answer.
- A score of None says that nobody can tell (a gold that cannot be read, a sandbox or judge that is missing). It is
  neither right nor wrong, and the completion is left out of every mean.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from reward_funcs.base import Batch, Reward
from reward_funcs.extract import after_think, last_boxed
from reward_funcs.gold import gold_texts
from trl_ext._text import did_you_mean
from trl_ext.errors import UserError
from trl_ext.evaluation.requests import checked_prompt

RewardFunction = Callable[..., Any]

TASK_REWARDS = {
    "math": "accuracy_reward",
    "choice": "choice_reward",
    "code": "code_reward",
    "instruction": "instruction_reward",
    "countdown": "countdown_reward",
}
# Tasks whose completions end in an answer that can be compared with that of another completion.
VOTING_TASKS = ("math", "choice")
TRUNCATED_RULES = ("grade", "wrong")
CORRECT = 1.0 - 1e-6
# reasons of a reward that blame the row; those of a worker's limit begin with "gold_"
_OF_THE_GOLD = frozenset(("bad_gold", "unparsed_gold", "bad_choices"))


@dataclass(frozen=True)
class Graded:
    """What one completion is worth.

    Args:
        score (`float`, *optional*): the reward; None where nobody can tell.
        answer (`str`, *optional*): what it votes for: the final answer of a maths problem, the letter of a choice; None
            for other tasks and where none is stated.
        is_correct (`bool`, *optional*): whether the score is 1; None without a score.
        is_bad_gold (`bool`): whether there is no score because of the row's gold.
    """

    score: float | None
    answer: str | None
    is_correct: bool | None
    is_bad_gold: bool = field(default=False, repr=False, compare=False)


def task_of(row: Mapping[str, Any]) -> str:
    """The row's task, `"math"` where it names none."""
    return row.get("task") or "math"


def reward_for(task: str) -> RewardFunction:
    """The reward of `reward_funcs` that grades a task.

    Args:
        task (`str`): `"math"`, `"choice"`, `"code"`, `"instruction"` or `"countdown"`.

    Returns:
        `Callable`: such as `accuracy_reward`.

    Raises:
        UserError: For any other task.

    Example:

    ```python
    >>> reward_for("choice").__name__
    'choice_reward'

    ```
    """
    import reward_funcs

    if task not in TASK_REWARDS:
        raise UserError(
            f"task={task!r} has no reward of its own{did_you_mean(task, TASK_REWARDS)}; tasks with one are "
            f"{', '.join(TASK_REWARDS)}, for another pass reward=."
        )
    found: RewardFunction = getattr(reward_funcs, TASK_REWARDS[task])
    return found


def grade(
    rows: Sequence[Mapping[str, Any]],
    completions: Sequence[Sequence[str]],
    *,
    reward: RewardFunction | None = None,
    is_truncated: Sequence[Sequence[bool]] | None = None,
    truncated: str = "grade",
) -> list[list[Graded]]:
    """Scores and answers of the completions of P problems, with one call of the reward for all of a task.

    Args:
        rows (`Sequence[Mapping]`): P rows with `prompt`, `solution` and, unless it is maths, `task`; every column is
            handed to the reward.
        completions (`Sequence[Sequence[str]]`): for each row its completions, as many as there are.
        reward (`Callable`, *optional*): a reward function with TRL's signature for all rows; by default that of each
            row's task.
        is_truncated (`Sequence[Sequence[bool]]`, *optional*): which completions the length limit cut off.
        truncated (`str`): `"grade"` grades these as they stand, `"wrong"` gives them 0 and no vote.

    Returns:
        `list[list[Graded]]`: in the order of `completions`.

    Raises:
        UserError: For an unknown task or rule, lists that do not fit together, or a reward that returns something else
            than one number a completion.

    Example:

    ```python
    >>> rows = [{"prompt": "2 + 2?", "solution": "4"}]
    >>> grade(rows, [["\\\\boxed{4}", "no idea"]])
    [[Graded(score=1.0, answer='4', is_correct=True), Graded(score=0.0, answer=None, is_correct=False)]]

    ```
    """
    if truncated not in TRUNCATED_RULES:
        allowed = " or ".join(map(repr, TRUNCATED_RULES))
        raise UserError(f"truncated={truncated!r} must be {allowed}{did_you_mean(str(truncated), TRUNCATED_RULES)}.")
    _check_shapes(rows, completions, is_truncated)
    graded: list[list[Graded]] = [[] for _ in rows]
    for task in dict.fromkeys(map(task_of, rows)):
        chosen = [index for index, row in enumerate(rows) if task_of(row) == task]
        results = iter(_graded(task, [rows[i] for i in chosen], [completions[i] for i in chosen], reward))
        for index in chosen:
            graded[index] = [next(results) for _ in completions[index]]
    graded = [without_bad_golds(own) for own in graded]
    if truncated == "wrong" and is_truncated is not None:
        return [
            [_as_wrong(one) if cut else one for one, cut in zip(row, cuts, strict=True)]
            for row, cuts in zip(graded, is_truncated, strict=True)
        ]
    return graded


def _check_shapes(rows: Sequence[Any], completions: Sequence[Any], is_truncated: Sequence[Any] | None) -> None:
    if len(rows) != len(completions):
        raise UserError(f"completions has {len(completions)} lists for {len(rows)} rows; give one list for each row.")
    for index, texts in enumerate(completions):
        if isinstance(texts, str):
            raise UserError(f"completions[{index}]={texts!r:.60} must be a list of texts, not one text.")
        if is_truncated is not None and (len(is_truncated) != len(rows) or len(is_truncated[index]) != len(texts)):
            raise UserError(f"is_truncated must have one value for each completion; row {index} has {len(texts)}.")


def _as_wrong(one: Graded) -> Graded:
    # a problem that cannot be judged stays so, or only its truncated completions would count
    return Graded(0.0, None, False) if one.score is not None else Graded(None, None, None, one.is_bad_gold)


def without_bad_golds(own: Sequence[Graded]) -> list[Graded]:
    """The samples of one problem, all without a verdict where one of them shows that its gold cannot be read.

    Else the verdicts that such a gold allows by chance (text that is equal to it) would stand for the problem.
    """
    if not any(one.is_bad_gold for one in own):
        return list(own)
    return [Graded(None, one.answer, None, one.is_bad_gold) for one in own]


def judged_groups(answers: Sequence[str | None], correct: Sequence[float | bool | None], task: str) -> list[int | None]:
    """Classes of equal answers among the samples with a verdict; None for the others and for those without an answer.

    A sample without a verdict does not vote, and must not join two classes either: 50% is as good as 50 and as 0.5.

    Args:
        answers (`Sequence[str | None]`): (n) answer of each sample.
        correct (`Sequence`): (n) verdicts, None for none.
        task (`str`): as of `group_answers`.

    Example:

    ```python
    >>> judged_groups(["50", "50%", "0.5"], [1.0, None, 0.0], "math")
    [0, None, 1]

    ```
    """
    from trl_ext.evaluation.votes import group_answers

    judged = [index for index, verdict in enumerate(correct) if verdict is not None]
    groups: list[int | None] = [None] * len(answers)
    for index, group in zip(judged, group_answers([answers[index] for index in judged], task=task), strict=True):
        groups[index] = group
    return groups


def check_golds(rows: Sequence[Mapping[str, Any]], where: Callable[[int], str]) -> None:
    """Refuse rows that the rewards of their tasks cannot grade: by the callback, by `evaluate_model`, by the command.

    A gold is what the reward of the task takes: for maths a text, a number, or a list of them. A text is taken as it
    is; one that cannot be read leaves its row unjudged.

    Args:
        rows (`Sequence[Mapping]`): rows that are graded by the rewards of their tasks.
        where (`Callable`): from the number of a row to what messages call it.

    Raises:
        UserError: For a task without a reward, and a row whose gold is missing or of a kind that the reward does not
            take.
    """
    for task in dict.fromkeys(map(task_of, rows)):
        reward = reward_for(task)
        indices = [i for i, row in enumerate(rows) if task_of(row) == task and not isinstance(row.get("solution"), str)]
        for index in indices:
            if not _has_gold(task, reward, rows[index]):
                raise UserError(_no_gold(where(index), rows[index], TASK_REWARDS[task]))


def _has_gold(task: str, reward: Any, row: Mapping[str, Any]) -> bool:
    gold = row.get("solution")
    if task == "math":
        return bool(gold_texts(gold))  # the reward itself might ask math-verify about it
    if task == "choice" and (gold is None or isinstance(gold, bool)):
        return False
    try:
        [one] = reward.grade(Batch([""], {name: [value] for name, value in row.items() if name != "prompt"}))
    except ValueError:  # a column is missing
        return False
    return one.reason != "bad_gold"


def _no_gold(where: str, row: Mapping[str, Any], reward: str) -> str:
    gold = row.get("solution")
    if gold is None:
        return (
            f"{where} has no gold in the column 'solution'; its columns are {', '.join(map(str, row))}. Give one, or "
            "grade the rows with reward=."
        )
    return (
        f"{where} has the solution {gold!r:.60}, with which {reward} can compare nothing; give the gold as text in the "
        "column 'solution', or grade the rows with reward=."
    )


def _graded(
    task: str, rows: Sequence[Mapping[str, Any]], completions: Sequence[Sequence[str]], reward: RewardFunction | None
) -> list[Graded]:
    """One result for each completion, row after row."""
    texts = [text for one in completions for text in one]
    if not texts:
        return []
    reward = reward_for(task) if reward is None else reward
    own = [row for row, one in zip(rows, completions, strict=True) for _ in one]
    columns = {name: [row.get(name) for row in own] for name in dict.fromkeys(n for row in rows for n in row)}
    prompts = columns.pop("prompt", None)
    logged: dict[str, list[Any]] = {}
    logging = {"log_extra": logged.__setitem__} if isinstance(reward, Reward) else {}
    scores = _scores(reward, texts, prompts, columns | logging)
    answers = _answers(task, reward, texts, columns)
    reasons = logged.get(f"{getattr(reward, '__name__', '')}/reason") or [""] * len(texts)
    return [
        Graded(score, answer, None if score is None else score >= CORRECT, score is None and _blames_gold(reason))
        for score, answer, reason in zip(scores, answers, reasons, strict=True)
    ]


def _blames_gold(reason: str) -> bool:
    return reason in _OF_THE_GOLD  # "gold_timeout" and the like may be of this one comparison


def _scores(reward: RewardFunction, texts: list[str], prompts: list[Any] | None, columns: dict[str, Any]) -> list[Any]:
    shaped: list[Any] = texts
    if prompts is not None:  # as TRL passes them: messages for messages
        pairs = zip(texts, prompts, strict=True)
        shaped = [t if isinstance(p, str) else [{"role": "assistant", "content": t}] for t, p in pairs]
    result = reward(completions=shaped, prompts=prompts, **columns)
    if inspect.isawaitable(result):
        awaited = result
        with ThreadPoolExecutor(1) as thread:  # of its own, since a notebook has a running event loop in this one
            result = thread.submit(lambda: asyncio.run(_wait(awaited))).result()
    name = getattr(reward, "__name__", type(reward).__name__)
    if not isinstance(result, Sequence) or len(result) != len(texts):
        found = f"{len(result)} values" if isinstance(result, Sequence) else repr(result)[:60]
        raise UserError(f"reward={name} returned {found} for {len(texts)} completions; it must return one for each.")
    return [_number(name, value) for value in result]


async def _wait(result: Any) -> Any:
    return await result


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise UserError(f"reward={name} returned {value!r:.60}; each value must be a number or None.") from error
    return None if math.isnan(number) else number  # what TRL makes of None


def _answers(task: str, reward: RewardFunction, texts: list[str], columns: dict[str, Any]) -> list[str | None]:
    """What each completion votes for; read by the reward itself where it reads answers, so that the two agree."""
    if task == "choice" and "solution" in columns:
        from reward_funcs import ChoiceReward

        reader: Reward = reward if isinstance(reward, ChoiceReward) else ChoiceReward()
        return [one.answer for one in reader.grade(Batch(texts, columns))]
    if task == "math":
        from reward_funcs import AccuracyReward, NumericReward

        known: Any = reward if isinstance(reward, (AccuracyReward, NumericReward)) else AccuracyReward()
        found = known.answers(Batch(texts, columns))
        return [", ".join(answer.texts) or None for answer in found]
    return [None] * len(texts)


def follows_format(
    prompts: Sequence[Any], completions: Sequence[str], *, rendered: Sequence[str] | None = None
) -> list[bool | None]:
    r"""Whether each completion has the form that its prompt asks for.

    Asked for is what the prompt names: `<think>` one think block with an answer after it, `<answer>` the answer in
    these tags, `\boxed` a closed box outside of the think block, a fence with `python` one block of code.

    Args:
        prompts (`Sequence`): N prompts, texts or messages; what the assistant says in them asks for nothing.
        completions (`Sequence[str]`): N completions.
        rendered (`Sequence[str]`, *optional*): the prompts in the chat template. One that ends in `<think>` has opened
            the think block, so that the completion only closes it.

    Returns:
        `list[bool | None]`: None where the prompt asks for no form.

    Example:

    ```python
    >>> follows_format(["Answer in \\boxed{}.", "Hello"], ["It is 4.", "Hi"])
    [False, None]

    ```
    """
    asked = [_prompt_text(prompt) for prompt in prompts]
    starts = [text.rstrip().endswith("<think>") for text in (asked if rendered is None else rendered)]
    return [_follows(*each) for each in zip(asked, starts, completions, strict=True)]


def _prompt_text(prompt: Any) -> str:
    turns = checked_prompt({"prompt": prompt})
    if isinstance(turns, str):
        return turns
    contents = [turn.get("content") for turn in turns if turn.get("role") != "assistant"]
    return "\n".join(content if isinstance(content, str) else str(content) for content in contents)


def _follows(prompt: str, is_prefilled: bool, text: str) -> bool | None:
    from reward_funcs import ThinkFormatReward, answer_tag, code_block_format_reward

    verdicts: list[bool] = []
    if is_prefilled or "<think>" in prompt:
        reward = ThinkFormatReward(think_prefilled=is_prefilled, require_answer="<answer>" in prompt)
        verdicts.append(reward([text]) == [1.0])
    elif "<answer>" in prompt:
        verdicts.append(bool(answer_tag(after_think(text))))
    if "\\boxed" in prompt:
        verdicts.append(last_boxed(after_think(text)) is not None)
    if "```python" in prompt:
        verdicts.append(code_block_format_reward([text]) == [1.0])
    return all(verdicts) if verdicts else None
