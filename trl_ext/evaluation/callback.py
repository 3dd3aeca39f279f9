"""Accuracy while a model trains: pass@1, cons@k and what goes with them, in the trainer's logs and `metrics.jsonl`."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from accelerate.state import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from transformers import Trainer, TrainerCallback

from trl_ext.callbacks import METRICS_FILE, MetricsWriter, json_line, read_metrics
from trl_ext.errors import UserError
from trl_ext.evaluation._figures import figures
from trl_ext.evaluation._generate_transformers import TransformersGenerator
from trl_ext.evaluation._prompt_ids import check_texts, rendered
from trl_ext.evaluation.grading import Graded, check_golds, grade
from trl_ext.evaluation.records import cut_torn_line
from trl_ext.evaluation.requests import (
    DEFAULT_BATCH_SIZE,
    Completion,
    Generator,
    Request,
    SamplingParams,
    build_requests,
    plan_batches,
)

logger = logging.getLogger(__name__)

DEFAULT_STEPS = 50
DEFAULT_LENGTH = 256
NO_TRAINER = (
    "EvaluationCallback has no trainer: its figures go to %s and not to the trainer's loggers; for these, make it with "
    "EvaluationCallback(..., trainer=trainer) and hand it to trainer.add_callback()."
)


class EvaluationCallback(TrainerCallback):
    """Generate and grade completions of an evaluation set every so many steps, in any trainer of TRL or transformers.

    The figures of a step are those that `trl-ext eval` gives for a checkpoint of it with the same rows, seed, batch
    size and dtype. Training goes on as without the callback: no random number is drawn from the global state, and the
    model is left as it was. Under several processes each generates and grades its share.

    Metrics, each behind `metric_prefix/`: `pass@1` (mean correctness of the samples), with several samples `pass@k` and
    `cons@k` (k as a number; the vote is of maths and choice problems alone), `response_length` in tokens, `truncated`
    (share cut off by the length limit), `format_rate` (share in the form that the prompt asks for; only where prompts
    ask for one), `language_consistency` (share of words in the language), `unjudged` (samples without a verdict, which
    are left out of the others) and `seconds`.

    They are logged through `trainer`, so that every logger of the run has them, and written as one line of
    `<output_dir>/metrics.jsonl`, whether or not a `MetricsWriter` keeps that file. Without `trainer` only the file and
    the trainer's log history get them.

    Args:
        eval_dataset (`Dataset` or `list[dict]`): rows with `prompt`, `solution` and, unless they are maths, `task`.
        trainer (`Trainer`, *optional*): the trainer that the callback is added to. Sharded models (FSDP, DeepSpeed
            ZeRO-3) need it.
        every_n_steps (`int`, *optional*): optimizer steps between evaluations; by default `args.eval_steps`, else 50.
        num_samples (`int`): completions of each problem.
        temperature (`float`): 0 is greedy; several samples need more, such as 0.6.
        k (`int`, *optional*): of pass@k and cons@k, at most `num_samples`, which it is by default.
        max_new_tokens (`int`, *optional*): longest completion; by default `args.max_completion_length`, else 256.
        batch_size (`int`, *optional*): completions at once on one process, by default 16.
        reward (`Callable`, *optional*): grades every row, 1 being correct; by default that of the row's task.
        language (`str`, *optional*): of the completions; by default that in the rows' column `language`, else English.
        seed (`int`): of the samples; the same in every evaluation, so that steps differ by the model alone.
        at_start (`bool`): evaluate before the first step, which is the model that training starts from.
        at_end (`bool`): evaluate after the last step, too, when it is not a multiple of `every_n_steps`.
        metric_prefix (`str`): of the names; `"eval"` is what `trl-ext plot` draws.
        top_p, top_k (`float`, `int`): as of `SamplingParams`.
        truncated (`str`): `"grade"` or `"wrong"`, as of `grade`.
        processing_class (`PreTrainedTokenizerBase`, *optional*): tokenizer of the model, or a processor that holds one;
            by default that of the trainer, which a plain `Trainer` may lack.

    Raises:
        UserError: For a setting out of range, an unknown language, rows without prompt or solution, a message that is
            no text, or a task without a reward.

    Example:

    ```python
    >>> callback = EvaluationCallback([{"prompt": "2+2=", "solution": "4"}], num_samples=4, temperature=0.7)
    >>> callback.k, callback.params.is_greedy
    (4, False)

    ```
    """

    def __init__(
        self,
        eval_dataset: Any,
        *,
        trainer: Any = None,
        every_n_steps: int | None = None,
        num_samples: int = 1,
        temperature: float = 0.0,
        k: int | None = None,
        max_new_tokens: int | None = None,
        batch_size: int | None = None,
        reward: Callable[..., Any] | None = None,
        language: str | None = None,
        seed: int = 0,
        at_start: bool = True,
        at_end: bool = True,
        metric_prefix: str = "eval",
        top_p: float = 1.0,
        top_k: int = 0,
        truncated: str = "grade",
        processing_class: Any = None,
    ) -> None:
        self.rows: list[Mapping[str, Any]] = _checked_rows(eval_dataset)
        self.params = SamplingParams(temperature, top_p, top_k, max_new_tokens or DEFAULT_LENGTH, seed)
        self.k = _checked_k(k, num_samples, self.params)
        if every_n_steps is not None and not _is_count(every_n_steps):
            raise UserError(f"every_n_steps={every_n_steps!r} must be a whole number from 1.")
        if max_new_tokens is not None and not _is_count(max_new_tokens):
            raise UserError(f"max_new_tokens={max_new_tokens!r} must be a whole number from 1.")
        _check_language(language)
        if not isinstance(metric_prefix, str) or not metric_prefix.strip("/ "):
            raise UserError(f"metric_prefix={metric_prefix!r} must be a name in front of the metrics, such as 'eval'.")
        grade([], [], truncated=truncated)  # refuses an unknown rule now and not after the first generation
        self.trainer = trainer
        self.every_n_steps = every_n_steps
        self.num_samples = num_samples
        self.max_new_tokens = max_new_tokens
        self.batch_size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
        self.reward = reward
        self.language = language
        self.at_start, self.at_end = at_start, at_end
        self.metric_prefix = metric_prefix.rstrip("/")
        self.truncated = truncated
        self.processing_class = processing_class
        # one plan for the whole run; it depends on neither the model nor the number of processes
        self.requests = build_requests(self.rows, num_samples=num_samples, seed=seed)
        for index, request in enumerate(self.requests[::num_samples]):
            check_texts(request.prompt, f"row {index}")
        if reward is None:
            check_golds(self.rows, "eval_dataset: row {}".format)
        self.batches = plan_batches(self.requests, self.batch_size)
        self._began, self._resumed_from = 0.0, 0
        self._last_step: int | None = None
        self._is_tidy = False
        self._has_warned = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._began, self._resumed_from = time.time(), state.global_step
        self._last_step, self._is_tidy = None, False
        if self.trainer is None and (getattr(args, "fsdp", None) or getattr(args, "deepspeed", None)):
            raise UserError(
                "EvaluationCallback cannot generate with a sharded model without its trainer; make it with "
                "EvaluationCallback(..., trainer=trainer) and hand it to trainer.add_callback()."
            )
        self._tokenizer(kwargs)  # before the first step, and not after hours at the first evaluation

    def _tokenizer(self, kwargs: Mapping[str, Any]) -> Any:
        found = kwargs.get("processing_class") if self.processing_class is None else self.processing_class
        if found is None:
            raise UserError(
                "processing_class=None: neither the trainer nor EvaluationCallback has a tokenizer; make one of them "
                "with processing_class=tokenizer."
            )
        return found

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # here and not at the start of training: by now every callback has made its files ready
        if state.global_step == 0 and self.at_start and self._last_step is None:
            self._run(args, state, control, kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # the last step here, too, while the loggers are still open
        is_last = control.should_training_stop or state.global_step >= state.max_steps
        if state.global_step % self._interval(args, state) == 0 or (is_last and self.at_end):
            self._run(args, state, control, kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        has_trained = state.global_step > self._resumed_from  # else there is nothing that an earlier run did not see
        if self.at_end and self._last_step != state.global_step and has_trained:
            self._run(args, state, control, kwargs)  # something ended the training between two steps

    def _interval(self, args: Any, state: Any) -> int:
        steps = self.every_n_steps or getattr(args, "eval_steps", None) or DEFAULT_STEPS
        return max(1, math.ceil(steps * state.max_steps) if steps < 1 else int(steps))

    def _run(self, args: Any, state: Any, control: Any, kwargs: Mapping[str, Any]) -> None:
        self._last_step = state.global_step
        length = self.max_new_tokens or getattr(args, "max_completion_length", None) or DEFAULT_LENGTH
        with self._whole_model(kwargs["model"]) as model:
            template = self._template_arguments(args)
            generator = TransformersGenerator(model, self._tokenizer(kwargs), chat_template_kwargs=template)
            found = self.evaluate(generator, max_new_tokens=length)
        self._report(args, state, control, {f"{self.metric_prefix}/{name}": value for name, value in found.items()})

    def _template_arguments(self, args: Any) -> dict[str, Any]:
        """Arguments of the chat template with which the trainer renders its own prompts, its tools among them."""
        own = {name: getattr(self.trainer, name, None) for name in ("tools", "chat_template")}
        if getattr(self.trainer, "environment_factories", None) is not None:
            del own["tools"]  # of all environments together, of which each prompt has its own alone
        # some templates print a heading for a list of tools that is empty
        found = {name: value for name, value in own.items() if value}
        return {**found, **(getattr(args, "chat_template_kwargs", None) or {})}

    @contextmanager
    def _whole_model(self, model: Any) -> Iterator[Any]:
        """The module that generates, with all its weights where they are spread over processes."""
        if self._sharding is None:
            yield getattr(model, "module", model) if type(model).__name__ == "DistributedDataParallel" else model
            return
        from torch.distributed.fsdp import FullyShardedDataParallel
        from trl.models.utils import unwrap_model_for_generation

        wrapped = self.trainer.model_wrapped
        is_fsdp1 = isinstance(wrapped, FullyShardedDataParallel)
        whole = FullyShardedDataParallel.summon_full_params(wrapped, recurse=False) if is_fsdp1 else nullcontext()
        with unwrap_model_for_generation(wrapped, self.trainer.accelerator) as unwrapped, whole:
            yield unwrapped

    @property
    def _sharding(self) -> str | None:
        from trl_ext._trainer import sharding_of

        return None if self.trainer is None else sharding_of(self.trainer.accelerator)

    def evaluate(self, generator: Generator, *, max_new_tokens: int | None = None) -> dict[str, float]:
        """Figures of a generator on the rows; every process must call it.

        Args:
            generator (`Generator`): makes the completions, such as a `TransformersGenerator`.
            max_new_tokens (`int`, *optional*): longest completion; by default that of the callback.

        Returns:
            `dict[str, float]`: the metrics without their prefix, the same on every process.
        """
        started = time.perf_counter()
        params = self.params
        if max_new_tokens is not None:
            params = SamplingParams(params.temperature, params.top_p, params.top_k, max_new_tokens, params.seed)
        completions = self._completions(generator, params)
        graded = self._graded(completions)
        found: list[dict[str, float]] = [{}]
        if PartialState().is_main_process:
            found[0] = figures(
                self.rows,
                self._rendered(generator),
                completions,
                graded,
                k=self.k,
                seed=params.seed,
                language=self.language,
            )
        if PartialState().num_processes > 1:
            broadcast_object_list(found)
        return {**found[0], "seconds": time.perf_counter() - started}

    def _completions(self, generator: Generator, params: SamplingParams) -> list[list[Completion]]:
        """`num_samples` completions of each row; each process generates its share of the batches."""
        state = PartialState()
        done: dict[str, Completion] = {}
        for start in range(0, len(self.batches), state.num_processes):
            number = start + state.process_index
            batch = self.batches[number] if number < len(self.batches) else None
            if batch is None and self._sharding is not None:
                generator.generate(self.batches[-1], params)  # the layers of the others wait for this process
            elif batch is not None:
                done.update(zip(_keys(batch), generator.generate(batch, params), strict=True))
        gathered = dict(gather_object(list(done.items())) if state.num_processes > 1 else done)
        flat = [gathered[key] for key in _keys(self.requests)]
        return [flat[start : start + self.num_samples] for start in range(0, len(flat), self.num_samples)]

    def _graded(self, completions: Sequence[Sequence[Completion]]) -> list[list[Graded]]:
        """One result for each completion; each process grades its share of the problems."""
        state = PartialState()
        own = range(state.process_index, len(self.rows), state.num_processes)
        graded = grade(
            [self.rows[i] for i in own],
            [[one.text for one in completions[i]] for i in own],
            reward=self.reward,
            is_truncated=[[one.is_truncated for one in completions[i]] for i in own],
            truncated=self.truncated,
        )
        pairs = list(zip(own, graded, strict=True))
        gathered = dict(gather_object(pairs) if state.num_processes > 1 else pairs)
        return [gathered[index] for index in range(len(self.rows))]

    def _rendered(self, generator: Generator) -> list[str] | None:
        """The rows' prompts as the model reads them: the template may open the think block."""
        if not isinstance(generator, TransformersGenerator):
            return None
        requests = self.requests[:: self.num_samples]
        given = [{**generator.chat_template_kwargs, **(r.chat_template_kwargs or {})} for r in requests]
        return [rendered(generator.tokenizer, r.prompt, own) for r, own in zip(requests, given, strict=True)]

    def _report(self, args: Any, state: Any, control: Any, metrics: dict[str, float]) -> None:
        """Log the figures, and see to it that the metrics file has exactly one line of them."""
        path = Path(args.output_dir) / METRICS_FILE
        is_main = state.is_world_process_zero
        writers = self.trainer.callback_handler.callbacks if self.trainer is not None else []
        is_written = any(isinstance(one, MetricsWriter) and one.path == path for one in writers)
        if is_main and not is_written and not self._is_tidy:
            tidy(path, self._resumed_from, self._began)
            end_last_line(path)
        self._is_tidy = True
        if self.trainer is None:
            state.log_history.append({**metrics, "step": state.global_step})
            if is_main and not self._has_warned:
                logger.warning(NO_TRAINER, path)
            self._has_warned = True
        else:
            # The trainers of TRL add the running metrics of training in their own `log` and start these anew; and each
            # log is taken for the one that is due after this step.
            should_log = control.should_log
            Trainer.log(self.trainer, dict(metrics))
            control.should_log = self.trainer.control.should_log = should_log
        if is_main and not is_written:
            path.parent.mkdir(parents=True, exist_ok=True)
            row = {"step": state.global_step, "time": round(time.time(), 3), **metrics}
            with path.open("a", encoding="utf-8") as file:
                file.write(json_line(row))


def tidy(path: Path, resumed_from: int, began: float) -> None:
    """Drop from a metrics file what an earlier run left there that this one does not go on from.

    Args:
        path (`Path`): the file; it need not exist. A file of which nothing is kept becomes `metrics.jsonl.old`.
        resumed_from (`int`): the step that this run goes on from; 0 for one that starts anew.
        began (`float`): time at which this run began; later lines are its own.
    """
    if not path.exists():
        return
    rows = read_metrics(path)
    # the times are rounded to milliseconds
    kept = [r for r in rows if _number(r, "time") >= began - 1e-3 or 0 <= _number(r, "step") <= resumed_from != 0]
    if rows and not kept:
        os.replace(path, path.with_suffix(".jsonl.old"))
    elif len(kept) < len(rows):
        partial = path.with_suffix(".jsonl.partial")
        partial.write_text("".join(map(json_line, kept)), encoding="utf-8")
        os.replace(partial, path)


def end_last_line(path: Path) -> None:
    """See to it that what is appended to a file of JSON lines starts a line, after a kill while the last was written.

    Args:
        path (`Path`): the file; it need not exist. A last line without an end is ended where it is whole, else cut.
    """
    last = path.read_bytes().rpartition(b"\n")[2] if path.exists() else b""
    if not last:
        return
    try:
        json.loads(last)
    except ValueError:
        cut_torn_line(path)
        return
    with path.open("ab") as file:
        file.write(b"\n")


def _number(row: Mapping[str, Any], name: str) -> float:
    """A figure of a line that something else may have written; 0 where it is no number."""
    value = row.get(name)
    return value if isinstance(value, (int, float)) else 0


def _keys(requests: Sequence[Request]) -> list[str]:
    return [request.key for request in requests]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _checked_rows(eval_dataset: Any) -> list[Mapping[str, Any]]:
    if isinstance(eval_dataset, (str, Mapping)) or not hasattr(eval_dataset, "__iter__"):
        raise UserError(f"eval_dataset is a {type(eval_dataset).__name__}; give a data set or a list of rows.")
    rows = list(eval_dataset)
    if not rows:
        raise UserError("eval_dataset is empty; give at least one row with prompt and solution.")
    if not all(isinstance(row, Mapping) for row in rows):
        raise UserError("eval_dataset must hold rows (dictionaries with prompt and solution).")
    return rows


def _check_language(language: str | None) -> None:
    from reward_funcs import LanguageConsistencyReward

    try:
        LanguageConsistencyReward(language)
    except ValueError as error:
        raise UserError(str(error)) from error


def _checked_k(k: int | None, num_samples: int, params: SamplingParams) -> int:
    if not _is_count(num_samples):
        raise UserError(f"num_samples={num_samples!r} must be a whole number from 1.")
    if num_samples > 1 and params.is_greedy:
        raise UserError(
            f"num_samples={num_samples} with temperature=0 gives the same completion {num_samples} times; set a "
            "temperature such as 0.6, or num_samples=1."
        )
    if k is not None and not (_is_count(k) and k <= num_samples):
        raise UserError(f"k={k!r} must be a whole number from 1 to num_samples={num_samples}; raise num_samples.")
    return k or num_samples
