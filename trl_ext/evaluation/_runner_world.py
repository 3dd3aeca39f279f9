"""The processes of an evaluation: which one this is, and how they wait for each other."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from trl_ext.errors import UserError


class ElsewhereError(UserError):
    """Another process has met an error, and tells it."""


@dataclass(frozen=True)
class World:
    """The process group that is there, or this process alone.

    Args:
        rank (`int`): number of this process.
        size (`int`): number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process grades and writes the report."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until every process has come here."""
        if self.size > 1:
            import torch

            torch.distributed.barrier()

    def shared(self, value: Any) -> Any:
        """The first process's value, in every process.

        Args:
            value (`Any`): what can be pickled; that of the other processes is not looked at.
        """
        if self.size == 1:
            return value
        import torch

        told: list[Any] = [value]
        torch.distributed.broadcast_object_list(told, src=0)
        return told[0]

    def agree(self, error: Exception | None) -> None:
        """Raise the first process's error in every process, so that none waits for one that has left.

        Args:
            error (`Exception`, *optional*): of the first process; what the others pass is not looked at.

        Raises:
            Exception: That error in the first process, an `ElsewhereError` with its text in the others.
        """
        if self.size > 1:
            import torch

            told: list[Any] = [str(error) if error is not None else None]
            torch.distributed.broadcast_object_list(told, src=0)
            if not self.is_first and told[0] is not None:
                raise ElsewhereError(told[0])
        if error is not None and self.is_first:
            raise error


def current_world() -> World:
    """The world of the process group, where one was made."""
    torch = sys.modules.get("torch")  # who has made a process group has imported it
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return World()
    return World(torch.distributed.get_rank(), torch.distributed.get_world_size())
