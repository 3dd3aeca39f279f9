"""A judge that is a function, and the judge that is meant where a rubric is given a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from reward_funcs._judge_base import Judge, Reply, Request
from reward_funcs._judge_prompt import Message
from reward_funcs._parts import check_part, part_name
from reward_funcs._settings import check_flag


class CallableJudge(Judge):
    """A judge around a function that answers a conversation.

    The function may raise `TimeoutError` or `ConnectionError` and return `None`: no score then, with the cause
    `timeout`, `connection` or `refused`. Whatever else it raises is a bug and stops the training.

    Args:
        function (`Callable`): from a list of messages `{"role", "content"}` to a text; with `batched`, from a list of
            such lists to a list of texts. A module-level function, so that the judge can be pickled.
        batched (`bool`, *optional*, defaults to `False`): whether the function takes all conversations at once.
        **settings: those of [`Judge`].

    Raises:
        ValueError: For a class, a coroutine, or what cannot be called.

    Example:

    ```python
    >>> from reward_funcs import Criterion, JudgeTask
    >>> def lenient(messages):
    ...     return '{"1": {"reason": "why not", "score": 5}}'
    >>> task = JudgeTask("It is 4.", (Criterion("correctness", "The answer is correct."),), prompt="2 + 2?")
    >>> CallableJudge(lenient).score([task])
    [Verdict(scores={'correctness': 5.0}, reasons={'correctness': 'why not'}, cause='')]

    ```
    """

    def __init__(self, function: Callable[..., Any], *, batched: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        check_part(function, type(self).__name__)
        self.function = function
        self.batched = check_flag("batched", batched)

    def replies(self, requests: Sequence[Request], deadline: float) -> list[Reply]:
        """What the function says to each request."""
        conversations = [request.messages for request in requests]
        if not self.batched:
            return [self._replies_to([messages], self._each)[0] for messages in conversations]
        return self._replies_to(conversations, self.function)

    def _each(self, conversations: Sequence[list[Message]]) -> list[Any]:
        return [self.function(messages) for messages in conversations]

    def _replies_to(self, conversations: list[list[Message]], function: Callable[..., Any]) -> list[Reply]:
        try:
            texts = function(conversations)
        except TimeoutError as error:
            return [Reply(None, "timeout", str(error))] * len(conversations)
        except ConnectionError as error:
            return [Reply(None, "connection", str(error))] * len(conversations)
        name = part_name(self.function)
        if isinstance(texts, (str, Mapping)) or not isinstance(texts, Iterable):
            raise ValueError(f"the judge's function {name} returned {texts!r:.60}; with batched=True it must be a list")
        texts = list(texts)
        if len(texts) != len(conversations):
            raise ValueError(
                f"the judge's function {name} returned {len(texts)} texts for {len(conversations)} conversations; it "
                "must return one for each"
            )
        wrong = next((text for text in texts if text is not None and not isinstance(text, str)), None)
        if wrong is not None:
            raise ValueError(f"the judge's function {name} returned {wrong!r:.60}; it must return a text or None")
        return [Reply(None, "refused", "the function returned None") if text is None else Reply(text) for text in texts]


def as_judge(judge: Any) -> Judge | None:
    """The judge, or one around a function.

    Args:
        judge (`Judge | Callable`, *optional*): a judge, a function from messages to a text, or `None`.

    Returns:
        `Judge`, *optional*: the judge as it is, a [`CallableJudge`] around a function, `None` for `None`.

    Raises:
        ValueError: For what is neither.
    """
    if judge is None or isinstance(judge, Judge):
        return judge
    if not callable(judge):
        raise ValueError(
            f"judge={judge!r:.60}: it must be a judge such as HTTPJudge(base_url, model), or a function from messages "
            "to a text"
        )
    return CallableJudge(judge)
