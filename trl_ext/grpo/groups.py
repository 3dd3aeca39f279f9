"""Whole groups of completions that change places: between processes, from later prompts and from earlier batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from trl_ext.grpo.process import RowSteps

Row = dict[str, torch.Tensor]

_LEFT_PADDED = ("prompt_ids", "prompt_mask")
# What belongs to the batch, or is computed anew of the rows that are in it.
_NOT_OF_A_ROW = ("advantages", "num_items_in_batch")
_PADDING = {"importance_sampling_ratio": 1.0, "tool_mask": 1}


@dataclass
class Group:
    """The completions of one prompt, with everything that training on them needs.

    Args:
        rows: tensors of each completion, on the CPU and without padding.
        rewards: (num_generations, F) rewards.
        steps: steps of each completion; empty without process rewards.
        logs: entries of the completions table by column: "prompt", "completion", and "extra" columns.
        step: optimizer step at which it was sampled.
        prompt_index: row of the data set, where it was drawn by a `PromptQueue`; else -1.
    """

    rows: list[Row]
    rewards: torch.Tensor
    steps: list[RowSteps]
    logs: dict[str, list[Any]]
    step: int
    prompt_index: int = -1

    def state_dict(self) -> dict[str, Any]:
        """Everything, for a checkpoint."""
        return dict(vars(self))


def split_rows(output: Mapping[str, Any], wanted: Sequence[int]) -> dict[int, Row]:
    """Rows of a generation batch, without their padding.

    Args:
        output: what TRL's `_generate_and_score_completions` returned, (B, ...) tensors.
        wanted: indices of rows in [0, B).

    Returns:
        One dict of 1-D tensors on the CPU for each index.
    """
    num_rows, prompt_width = output["prompt_ids"].shape
    width = output["completion_ids"].size(1)
    keys = [
        key
        for key, value in output.items()
        if isinstance(value, torch.Tensor) and value.ndim == 2 and len(value) == num_rows and key not in _NOT_OF_A_ROW
    ]
    tensors = {key: output[key].detach().cpu() for key in keys}
    rows: dict[int, Row] = {}
    for index in wanted:
        start = prompt_width - int(tensors["prompt_mask"][index].sum())
        used = tensors["completion_mask"][index].nonzero()
        end = int(used.max()) + 1 if len(used) else 1
        rows[index] = {}
        for key, value in tensors.items():
            part = value[index, start:] if key in _LEFT_PADDED else value[index]
            if key not in _LEFT_PADDED and value.size(1) == width:
                part = part[:end]
            rows[index][key] = part.clone()  # a view would be pickled with the whole batch behind it
    return rows


def joined_rows(rows: Sequence[Row], pad_token_id: int, device: torch.device, multiple: int | None = None) -> Row:
    """Rows as one batch: prompts padded on the left, everything else on the right.

    Args:
        rows: results of `split_rows`.
        pad_token_id: fills ids.
        device: where the batch goes.
        multiple: widths are rounded up to a multiple of it.

    Returns:
        (B, width) tensors by name.

    Example:
        >>> rows = [{"completion_ids": torch.tensor([5, 6])}, {"completion_ids": torch.tensor([7])}]
        >>> joined_rows(rows, 0, torch.device("cpu"))
        {'completion_ids': tensor([[5, 6],
                [7, 0]])}
    """
    keys = dict.fromkeys(key for row in rows for key in row)  # in order: TRL counts the rows of the first
    joined = {}
    for key in keys:
        fill = pad_token_id if key in ("prompt_ids", "completion_ids") else _PADDING.get(key, 0)
        width = max(len(row[key]) for row in rows if key in row)
        if multiple and width > 1:
            width = -(-width // multiple) * multiple
        like = next(row[key] for row in rows if key in row)
        parts = []
        for row in rows:
            # an optional mask (of a rollout function) may be missing in a batch; then every token counts
            part = row.get(key, like.new_full((len(row["completion_ids"]),), fill))
            missing = width - len(part)
            parts.append(F.pad(part, (missing, 0) if key in _LEFT_PADDED else (0, missing), value=fill))
        joined[key] = torch.stack(parts).to(device)
    return joined


def row_indices(groups: Sequence[int], num_generations: int) -> list[int]:
    """Rows of these groups."""
    return [group * num_generations + place for group in groups for place in range(num_generations)]


class PromptQueue:
    """Rows of a data set in shuffled order, epoch after epoch, apart from the order of the main run.

    Args:
        size: number of rows.
        shuffle: draw a new order each time; else 0, 1, 2, ...
        seed: of the orders.

    Example:
        >>> queue = PromptQueue(3, shuffle=False, seed=0)
        >>> queue.take(4)
        [0, 1, 2, 0]
        >>> queue.give_back([2])
        >>> queue.take(2)
        [2, 1]
    """

    def __init__(self, size: int, *, shuffle: bool, seed: int) -> None:
        self.size = size
        self.shuffle = shuffle
        self._generator = torch.Generator().manual_seed(seed)
        self._queue: deque[int] = deque()

    def take(self, count: int) -> list[int]:
        """The next `count` rows."""
        while len(self._queue) < count:
            order = torch.randperm(self.size, generator=self._generator) if self.shuffle else torch.arange(self.size)
            self._queue.extend(order.tolist())
        return [self._queue.popleft() for _ in range(count)]

    def give_back(self, indices: Sequence[int]) -> None:
        """Put rows that were taken and not used at the front again."""
        self._queue.extendleft(reversed(indices))

    def state_dict(self) -> dict[str, Any]:
        """Order and random state, for a checkpoint."""
        return {"queue": torch.tensor(list(self._queue), dtype=torch.long), "generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; rows that the data set no longer has are left out."""
        self._queue = deque(index for index in state["queue"].tolist() if index < self.size)
        self._generator.set_state(state["generator"].cpu())


class ReplayBuffer:
    """The newest groups with spread, each to be trained on once more at most.

    Args:
        capacity: groups it holds; the oldest leaves first.

    Example:
        >>> buffer = ReplayBuffer(2)
        >>> buffer.add([Group([], torch.zeros(1, 1), [], {}, step) for step in (1, 2, 3)])
        >>> [group.step for group in buffer.take(5)], len(buffer)
        ([3, 2], 0)
    """

    def __init__(self, capacity: int) -> None:
        self._groups: deque[Group] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, groups: Sequence[Group]) -> None:
        """Take in groups of one batch."""
        self._groups.extend(groups)

    def take(self, count: int) -> list[Group]:
        """Up to `count` groups, the newest first; they leave the buffer."""
        return [self._groups.pop() for _ in range(min(count, len(self._groups)))]

    def state_dict(self) -> dict[str, Any]:
        """The groups, for a checkpoint."""
        return {"groups": [group.state_dict() for group in self._groups]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The groups that `state_dict` held; with a smaller capacity the newest of them."""
        self._groups.clear()
        self._groups.extend(Group(**group) for group in state["groups"])
