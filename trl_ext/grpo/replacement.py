"""Other groups in the place of those without spread: of fresh prompts ("resample") or of earlier batches ("replay")."""

from __future__ import annotations

import copy
import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from accelerate.utils import gather_object

from trl_ext.errors import UserError
from trl_ext.grpo.groups import Group, PromptQueue, ReplayBuffer, Row, joined_rows, row_indices, split_rows
from trl_ext.grpo.rollouts import RolloutStage
from trl_ext.grpo.scoring import Estimator, Scores

logger = logging.getLogger(__name__)


class ReplacementStage(RolloutStage):
    """Keeps a generation batch at its size while its groups without signal make room."""

    prompt_queue: PromptQueue | None
    _logs: dict[str, Any]
    replay_buffer: ReplayBuffer
    _told_identical: bool = False

    def _replace_groups(
        self, output: dict[str, Any], scores: Scores, estimator: Estimator
    ) -> tuple[dict[str, Any], Scores]:
        signals = estimator.signals(scores, self.num_generations).tolist()
        empty = [index for index, found in enumerate(signals) if not found]
        if self.args.zero_std == "resample":
            found = self._resampled(len(empty), estimator)
            self._tell_identical(bool(empty) and not found and len(empty) == len(signals))
        elif self.args.zero_std == "replay":
            found = self._replayed(len(empty))
            wanted = [index for index, found_ in enumerate(signals) if found_]
            # after the taking: a group is replayed in a later batch, not beside itself
            self.replay_buffer.add(self._groups(output, scores, wanted, self._logs))
        else:
            return output, scores
        replaced = dict(zip(empty, found, strict=False))
        metrics = self._metrics["train"]
        metrics["zero_std/replaced"].append(float(len(replaced)))
        metrics["zero_std/left"].append(float(len(empty) - len(replaced)))
        if not replaced:
            return output, scores
        self._place(output, replaced)
        self._place_logs(replaced, len(signals))
        return output, scores.with_groups(replaced, self.num_generations)

    def _tell_identical(self, found_none: bool) -> None:
        if found_none and not self._told_identical:
            self._told_identical = True
            logger.warning(
                f"zero_std='resample': all groups of a batch had equal rewards, and so had all fresh ones in "
                f"{self.args.max_resample_rounds} rounds; such batches are trained on as they are. Check that the "
                "reward can tell completions of one prompt apart. This is said once."
            )

    def _resampled(self, missing: int, estimator: Estimator) -> list[Group]:
        """Groups with signal, of fresh prompts: as many as are missing, or what the rounds gave."""
        found: list[Group] = []
        rounds = sampled = 0
        while len(found) < missing and rounds < self.args.max_resample_rounds:
            groups = self._fresh_groups(missing - len(found), estimator)
            rounds, sampled = rounds + 1, sampled + groups[1]
            found += groups[0]
        if self.prompt_queue is not None:
            # their rollouts grow old; the prompts have their turn again
            self.prompt_queue.give_back([group.prompt_index for group in found[missing:]])
        metrics = self._metrics["train"]
        metrics["resample/rounds"].append(float(rounds))
        metrics["resample/groups_sampled"].append(float(sampled))
        metrics["resample/groups_given_back"].append(float(len(found[missing:])))
        return found[:missing]

    def _fresh_groups(self, missing: int, estimator: Estimator) -> tuple[list[Group], int]:
        """One round: those with signal, and how many were sampled."""
        processes, size = self.accelerator.num_processes, self.num_generations
        step = processes // math.gcd(processes, size)  # every process generates equally many
        indices = self._taken_prompts(-(-missing // step) * step)
        rows = [index for index in indices for _ in range(size)]
        share = len(rows) // processes
        own = rows[self.accelerator.process_index * share :][:share]
        logs, metrics = self._set_logs_aside()
        try:
            output, scores = self._rollouts([dict(self.train_dataset[index]) for index in own])
            signals = estimator.signals(scores, size).tolist()
            wanted = [place for place, signal in enumerate(signals) if signal]
            groups = self._groups(output, scores, wanted, self._logs)
        finally:
            metrics["num_tokens"] = self._metrics["train"].get("num_tokens", [])
            self._logs, self._metrics["train"] = logs, metrics
        for place, group in zip(wanted, groups, strict=True):
            group.prompt_index = indices[place]
        return groups, len(indices)

    def _taken_prompts(self, count: int) -> list[int]:
        if self.prompt_queue is None:
            self.prompt_queue = PromptQueue(
                len(self.train_dataset), shuffle=self.shuffle_dataset, seed=self.args.seed + 1
            )
        return self.prompt_queue.take(count)

    def _set_logs_aside(self) -> tuple[dict[str, Any], Any]:
        """Empty tables and metrics for an extra round, whose figures would otherwise be mixed with the batch's."""
        logs, metrics = self._logs, self._metrics["train"]
        self._logs = {name: copy.copy(entries) for name, entries in logs.items()}
        for entries in self._logs.values():
            entries.clear()
        self._metrics["train"] = defaultdict(list)
        return logs, metrics

    def _replayed(self, missing: int) -> list[Group]:
        groups = self.replay_buffer.take(missing)
        metrics = self._metrics["train"]
        metrics["replay/buffer_size"].append(float(len(self.replay_buffer)))
        if groups:
            ages = [self.state.global_step - group.step for group in groups]
            metrics["replay/age_mean"].append(sum(ages) / len(ages))
            metrics["replay/age_max"].append(float(max(ages)))
        return groups

    def _groups(self, output: dict[str, Any], scores: Scores, wanted: Sequence[int], logs: Any) -> list[Group]:
        """These groups of a batch, whole, on every process. A collective call."""
        size, own = self.num_generations, self._own_rows(output)
        rows = row_indices(wanted, size)
        here = split_rows(output, [row - own.start for row in rows if own.start <= row < own.stop])
        parts = gather_object([{own.start + index: row for index, row in here.items()}])
        all_rows: dict[int, Row] = {index: row for part in parts for index, row in part.items()}
        total = len(scores.rewards)
        groups = []
        for index in wanted:
            places = row_indices([index], size)
            groups.append(
                Group(
                    rows=[all_rows[place] for place in places],
                    rewards=scores.rewards[places].cpu(),
                    steps=[scores.steps[place] for place in places] if scores.steps else [],
                    logs={name: [entries[place - total] for place in places] for name, entries in _tables(logs, total)},
                    step=self.state.global_step,
                )
            )
        return groups

    def _place(self, output: dict[str, Any], replaced: dict[int, Group]) -> None:
        """Put the groups' rows that fall to this process into its batch."""
        own = self._own_rows(output)
        num_rows = own.stop - own.start
        rows = split_rows(output, range(num_rows))
        for index, group in replaced.items():
            for place, row in zip(row_indices([index], self.num_generations), group.rows, strict=True):
                if own.start <= place < own.stop:
                    rows[place - own.start] = row
        device = output["completion_ids"].device
        ordered = [rows[index] for index in range(num_rows)]
        output.update(joined_rows(ordered, self._tokenizer.pad_token_id, device, self.pad_to_multiple_of))
        self._count_items(output)

    def _place_logs(self, replaced: dict[int, Group], num_groups: int) -> None:
        """The table of completions shows what is trained on."""
        size = self.num_generations
        total = num_groups * size
        for name, entries in _tables(self._logs, total):
            for index, group in replaced.items():
                for place, value in zip(row_indices([index], size), group.logs.get(name, [None] * size), strict=True):
                    entries[place - total] = value


def _tables(logs: Any, total: int) -> list[tuple[str, Any]]:
    """Columns of the completions table that have an entry for each completion of the batch."""
    columns = [("prompt", logs["prompt"]), ("completion", logs["completion"])]
    columns += [(f"reward {name}", entries) for name, entries in logs["rewards"].items()]
    columns += [(f"extra {name}", entries) for name, entries in logs["extra"].items()]
    return [(name, entries) for name, entries in columns if len(entries) >= total]


def check_replacement(trainer: Any) -> None:
    """Raise where groups cannot be moved or drawn.

    Args:
        trainer: the trainer, built.

    Raises:
        UserError: images, a data set without rows to pick from, or logged tables that are not the batch's.
    """
    zero_std = trainer.args.zero_std
    if zero_std not in ("resample", "replay"):
        return
    if trainer._is_vlm:
        raise UserError(f"zero_std={zero_std!r} does not support image models; use zero_std='mask'.")
    if zero_std == "resample" and not (
        hasattr(trainer.train_dataset, "__len__") and hasattr(trainer.train_dataset, "__getitem__")
    ):
        raise UserError(
            "zero_std='resample' draws fresh prompts by row, which a streamed data set does not allow; load it whole, "
            "or use zero_std='mask'."
        )
