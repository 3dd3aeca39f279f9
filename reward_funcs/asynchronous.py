"""Any reward as a coroutine, which TRL awaits beside the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from reward_funcs._parts import check_part, is_coroutine, part_name
from reward_funcs._settings import check_name
from reward_funcs.base import Reward


class AsyncReward:
    """A reward as a coroutine: TRL awaits all its asynchronous rewards together, so slow ones overlap.

    The wrapped reward runs in a thread and gives the rewards that it gives when called itself. No thread can be stopped
    from outside: cancelling the coroutine ends the wait at once, and the reward runs to its end behind it, for which
    `asyncio.run` waits.

    Args:
        reward (`Callable`): any reward function, ours or not.
        name (`str`, *optional*): name in TRL's logs, by default that of the reward.

    Raises:
        ValueError: For what is no reward function: a class, a reward model, a coroutine, which TRL awaits as it is.

    Example:

    ```python
    >>> import asyncio
    >>> def length(completions, **columns):
    ...     return [float(len(text)) for text in completions]
    >>> asyncio.run(AsyncReward(length)(["four"]))
    [4.0]

    ```
    """

    def __init__(self, reward: Callable[..., list[float | None]], *, name: str | None = None) -> None:
        if not isinstance(reward, type) and is_coroutine(reward):
            raise ValueError(
                f"AsyncReward got {part_name(reward)}, which is a coroutine already: give it to the trainer as it is"
            )
        check_part(reward, type(self).__name__)
        self.__name__: str = part_name(reward) if name is None else check_name("name", name)
        if isinstance(reward, Reward) and reward.__name__ != self.__name__:
            # what it logs must not mix with what the reward itself logs in the same run
            reward = copy(reward)
            reward.__name__ = self.__name__
        self.reward = reward

    async def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """Reward of each completion; arguments as of the wrapped reward."""
        import asyncio  # a fifth of this package's time budget at import, and only this call needs it

        return await asyncio.to_thread(self.reward, completions, **columns)

    def close(self) -> None:
        """Close the wrapped reward."""
        close = getattr(self.reward, "close", None)
        if close is not None:
            close()
