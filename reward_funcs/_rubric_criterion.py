"""One criterion of a rubric: what is judged, on which scale, and how much it counts."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from reward_funcs._parts import Part, check_part
from reward_funcs._settings import check_flag, check_name, check_setting

# Weights and scores up to here can be multiplied and added up without an overflow.
LARGEST = 1e100
# Names of columns and metrics that a rubric logs under its own name.
RESERVED = frozenset({"reason", "answer", "none", "scores", "reasons", "judge", "overall"})


@dataclass(frozen=True)
class Criterion:
    """One criterion: it adds `weight * score` to what a completion earns, `weight * max_score` to what it could earn.

    A criterion is scored by its `scorer`, a rule, else by the rubric's judge. A fault, which costs points and earns
    none, has `max_score=0` and a negative `min_score`.

    Args:
        name (`str`): short name, in the logs and for the judge; different for each criterion of a rubric.
        description (`str`): what is judged, in words that a judge understands.
        max_score (`float`, *optional*, defaults to 5): highest score, 0 for a fault.
        min_score (`float`, *optional*, defaults to 0): lowest score.
        weight (`float`, *optional*, defaults to 1.0): how much a point counts; 0 is scored and logged only.
        scorer (`Callable`, *optional*): a reward or a function with TRL's signature that returns one score in
            `[min_score, max_score]`, or `None`, for each completion.
        required (`bool`, *optional*, defaults to `False`): a score of `min_score` makes the whole reward 0.
        category (`str`, *optional*): a label that the rubric's `category_weights` give a weight.
        scale (`bool`, *optional*, defaults to `False`): the scorer returns rewards in `[0, 1]`; the score is
            `min_score + reward * (max_score - min_score)`.
        binary (`bool`, *optional*, defaults to `False`): the score is `min_score` or `max_score`, nothing between: a
            judge is asked again, a scorer that returns anything else is an error.

    Raises:
        ValueError: For values that make no sense; the message says which, and what is allowed.

    Example:

    ```python
    >>> Criterion("clarity", "The answer is clear and concise.", max_score=2).max_score
    2
    >>> Criterion("clarity", "The answer is clear.", max_score=-2)
    Traceback (most recent call last):
    ValueError: criterion 'clarity': max_score=-2: ... of at least 0...

    ```
    """

    name: str
    description: str
    max_score: float = 5
    min_score: float = 0
    weight: float = 1.0
    scorer: Part | None = None
    required: bool = False
    category: str | None = None
    scale: bool = False
    binary: bool = False

    def __post_init__(self) -> None:
        check_name("name", self.name)
        place = f"criterion {self.name!r:.80}: "
        if not isinstance(self.description, str):
            raise ValueError(f"{place}description={self.description!r:.60}: it must be a text; say what is judged")
        check_setting(f"{place}max_score", self.max_score, 0, most=LARGEST)
        check_setting(f"{place}min_score", self.min_score, -LARGEST, most=LARGEST)
        check_setting(f"{place}weight", self.weight, 0, most=LARGEST)
        for flag in ("required", "scale", "binary"):
            check_flag(place + flag, getattr(self, flag))
        if self.min_score >= self.max_score:
            raise ValueError(
                f"{place}min_score={self.min_score!r} must be below max_score={self.max_score!r}; for a fault that "
                "costs points give max_score=0 and a negative min_score"
            )
        if self.category is not None:
            check_name(f"{place}category", self.category)
        if self.scorer is not None:
            check_part(self.scorer, f"criterion {self.name!r:.80}")
        elif self.scale:
            raise ValueError(f"{place}scale=True is for the rewards of a scorer; give it scorer=, or leave scale out")

    def score_of(self, reward: float) -> float:
        """The score for what the scorer returned.

        Raises:
            ValueError: When that is outside the scale, which is a mistake in the scorer or in the criterion.
        """
        low, high = (0.0, 1.0) if self.scale else (self.min_score, self.max_score)
        if not low <= reward <= high:
            remedy = "scale=True is for rewards in [0, 1]" if self.scale else "scale=True takes a reward in [0, 1]"
            raise ValueError(
                f"criterion {self.name!r}: its scorer returned {reward!r}, outside [{low:g}, {high:g}]; set min_score "
                f"and max_score to its range ({remedy})"
            )
        if self.binary and reward not in (low, high):
            raise ValueError(
                f"criterion {self.name!r}: its scorer returned {reward!r}, but binary=True takes {low:g} or {high:g}; "
                "leave binary out, or give a threshold to the scorer"
            )
        return float(self.min_score + reward * (self.max_score - self.min_score)) if self.scale else float(reward)

    def allows(self, score: float) -> bool:
        """Whether a judge may give that score."""
        if self.binary:
            return score in (self.min_score, self.max_score)
        return math.isfinite(score) and self.min_score <= score <= self.max_score

    def allowed(self) -> str:
        """The scores that [`~Criterion.allows`] takes, in words."""
        low, high = f"{self.min_score:g}", f"{self.max_score:g}"
        return f"{low} or {high}" if self.binary else f"from {low} to {high}"

    def share(self, score: float) -> float:
        """Where the score stands on the scale, from 0 to 1."""
        return (score - self.min_score) / (self.max_score - self.min_score)


FIELDS = tuple(field.name for field in fields(Criterion))


def criterion_from(values: Any, *, scorer: Part | None = None) -> Criterion:
    """A criterion from the mapping of its fields, as a file or a data set holds it.

    Args:
        values (`Mapping`): values by name of the field; those that are null are left at their default.
        scorer (`Callable`, *optional*): the scorer that the mapping names, resolved by the caller.

    Raises:
        ValueError: For what is no mapping, for an unknown field, and for values that [`Criterion`] refuses.

    Example:

    ```python
    >>> criterion_from({"name": "clarity", "description": "It is clear.", "max_score": 2, "weight": None}).weight
    1.0
    >>> criterion_from({"name": "clarity", "descripton": "It is clear."})
    Traceback (most recent call last):
    ValueError: a criterion has no field 'descripton'; did you mean 'description'?

    ```
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"a criterion must be a mapping of its fields, not {values!r:.60}; it needs name, description")
    for key in values:
        if key not in FIELDS:
            close = difflib.get_close_matches(str(key), FIELDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the fields are {', '.join(FIELDS)}"
            raise ValueError(f"a criterion has no field {key!r}; {hint}")
    for key in ("name", "description"):
        if values.get(key) is None:
            raise ValueError(f"the criterion {dict(values)!r:.80} has no {key}; every criterion needs one")
    given = {key: value for key, value in values.items() if value is not None and key != "scorer"}
    return Criterion(**given, scorer=scorer)


def in_order(criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
    """The criteria in an order that does not depend on how they were given, in which a judge sees them."""
    return tuple(sorted(criteria, key=order_of))


def order_of(one: Criterion) -> tuple[Any, ...]:
    """What criteria are sorted by: their names, and all that may tell those of one name apart."""
    return (
        one.name, one.description, one.max_score, one.min_score, one.weight, one.category or "", one.binary,
        one.required,
    )  # fmt: skip
