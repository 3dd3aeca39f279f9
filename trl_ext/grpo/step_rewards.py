"""A process reward model as a step reward: token classification at the separator behind each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor

from trl_ext._text import did_you_mean
from trl_ext.grpo.steps import Steps, completion_text

SCORES = ("probability", "logit")
Splitter = Callable[[str], list[tuple[int, int]]]


class TokenClassificationStepReward:
    r"""Score of each step by a token-classification model: P(positive class) at the separator behind the step.

    The model reads `<bos> prompt step_1 separator step_2 separator ...`, each part tokenized by itself, and its labels
    stand at the last token of each separator. A causal model thus scores all steps of a completion in one forward, each
    knowing those before it. Nothing takes a gradient.

    Args:
        model (`PreTrainedModel | str`): an `AutoModelForTokenClassification`, or its name or folder. It is put in
            evaluation mode.
        tokenizer (`PreTrainedTokenizerBase`, *optional*): the model's own tokenizer, which need not be the policy's; by
            default that of the model's name.
        splitter (`Callable[[str], list[tuple[int, int]]]`, *optional*): start and end of each step of a text, such as
            `reward_funcs.steps.split_sentences`; by default the stretches between separators.
        step_separator (`str`): the separator that the model was trained with.
        positive_label (`int | str`): class of a right step, by index or by its name in `config.id2label`. A model with
            one class scores by its sigmoid.
        score (`str`): `"probability"`, or `"logit"`: the log-odds of the positive class, log(p / (1 - p)).
        prompt_text (`Callable`, *optional*): text of a prompt; by default a text as it is, and of messages their
            contents, one a line.
        batch_size (`int`): completions a forward.
        max_length (`int`, *optional*): tokens that the model reads, by default its `max_position_embeddings`. Steps
            beyond them get `None`.
        device (`str | torch.device`, *optional*): where the model is moved, by default where it is.
        name (`str`): name in the logs.

    Raises:
        ValueError: For an unknown score or label, a count below 1, or a separator without tokens.

    Source:
        The input format of TRL's `PRMTrainer` (to 1.15, after Uesato et al. 2022, arXiv 2211.14275), whose
        `step_separator` this is. Differs: too long inputs lose their last steps and say so with `None`.

    Example:

    ```python
    >>> from transformers import LlamaForTokenClassification
    >>> from trl_ext.testing import tiny_model, tiny_tokenizer
    >>> model = LlamaForTokenClassification(tiny_model().config)
    >>> step_reward = TokenClassificationStepReward(model, tiny_tokenizer())
    >>> step_reward(["2 + 2 = 4\nso 4"], prompts=["2 + 2?"])[0].ends
    [9, 14]

    ```
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        splitter: Splitter | None = None,
        step_separator: str = "\n",
        positive_label: int | str = 1,
        score: Literal["probability", "logit"] = "probability",
        prompt_text: Callable[[Any], str] | None = None,
        batch_size: int = 8,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        name: str = "token_classification_step_reward",
    ) -> None:
        if score not in SCORES:
            hint = did_you_mean(str(score), SCORES)
            raise ValueError(f"score is {score!r}, but must be 'probability' or 'logit'{hint}.")
        _check_count("batch_size", batch_size)
        if max_length is not None:
            _check_count("max_length", max_length)
        if splitter is not None and not callable(splitter):
            raise ValueError(
                f"splitter is {splitter!r:.60}, but must be a function from a text to spans: pass one of "
                "reward_funcs.steps, or leave it out to cut at step_separator."
            )
        if not isinstance(step_separator, str):
            raise ValueError(
                f"step_separator is {step_separator!r:.60}, but must be a text: pass that of the training."
            )
        self.model, self.tokenizer = _loaded(model, tokenizer)
        self.model.eval()
        if device is not None:
            self.model.to(device)
        self.separator_ids: list[int] = self._ids(step_separator)
        if not self.separator_ids:
            raise ValueError(
                f"step_separator is {step_separator!r}, which has no tokens: pass the separator of the training."
            )
        self.splitter = splitter or _SeparatorSplitter(step_separator)
        self.positive_label = _label_index(positive_label, self.model.config)
        self.score = score
        self.prompt_text = prompt_text or _prompt_text
        self.batch_size = batch_size
        self.max_length = max_length or getattr(self.model.config, "max_position_embeddings", None)
        self.__name__ = name

    def __call__(
        self, completions: Sequence[Any], *, prompts: Sequence[Any] | None = None, **columns: Any
    ) -> list[Steps]:
        """Steps of each completion.

        Args:
            completions (`Sequence`): N completions: texts, or lists of messages.
            prompts (`Sequence`, *optional*): N prompts, which the model reads before the steps.
            **columns: not looked at.

        Returns:
            `list[Steps]`: N of them, with character offsets.

        Raises:
            ValueError: When there is not one prompt for each completion.
        """
        if prompts is not None and len(prompts) != len(completions):
            raise ValueError(
                f"prompts has {len(prompts)} entries, but must have one for each of the {len(completions)} completions."
            )
        texts = [completion_text(completion) for completion in completions]
        spans = [self.splitter(text) for text in texts]
        heads = [""] * len(texts) if prompts is None else [self.prompt_text(prompt) for prompt in prompts]
        inputs = [
            self._input(head, [text[start:end] for start, end in row])
            for head, text, row in zip(heads, texts, spans, strict=True)
        ]
        scores = self._scores(inputs)
        return [
            Steps([*row_scores, *[None] * (len(row) - len(row_scores))], [end for _, end in row], "char")
            for row, row_scores in zip(spans, scores, strict=True)
        ]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _input(self, head: str, steps: Sequence[str]) -> tuple[list[int], list[int]]:
        """Token ids of the model's input, and the position of each step's score that is within `max_length`."""
        bos = self.tokenizer.bos_token_id
        ids = [*([] if bos is None else [bos]), *(self._ids(head) if head else [])]
        positions = []
        for step in steps:
            ids += [*self._ids(step), *self.separator_ids]
            positions.append(len(ids) - 1)
        length = min(len(ids), self.max_length or len(ids))
        return ids[:length], [position for position in positions if position < length]

    def _scores(self, inputs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Score at each position of each input, in order; inputs of similar length share a forward."""
        order = sorted((row for row, (_, positions) in enumerate(inputs) if positions), key=lambda i: len(inputs[i][0]))
        scores: list[list[float]] = [[] for _ in inputs]
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            found = self._forward([inputs[row] for row in rows])
            for row, row_scores in zip(rows, found, strict=True):
                scores[row] = row_scores
        return scores

    @torch.no_grad()
    def _forward(self, inputs: Sequence[tuple[list[int], list[int]]]) -> Iterator[list[float]]:
        device = next(self.model.parameters()).device
        width = max(len(ids) for ids, _ in inputs)
        pad = self.tokenizer.pad_token_id or 0
        # on the right, so that the positions of the tokens are those of the training
        input_ids = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in inputs], device=device)
        lengths = torch.tensor([len(ids) for ids, _ in inputs], device=device)
        mask = (torch.arange(width, device=device) < lengths[:, None]).long()
        logits: Tensor = self.model(input_ids=input_ids, attention_mask=mask).logits
        counts = [len(positions) for _, positions in inputs]
        rows = torch.arange(len(inputs), device=device).repeat_interleave(torch.tensor(counts, device=device))
        columns = torch.tensor(list(chain.from_iterable(positions for _, positions in inputs)), device=device)
        scores = iter(self._score(logits[rows, columns].float()).tolist())
        return ([next(scores) for _ in range(count)] for count in counts)

    def _score(self, logits: Tensor) -> Tensor:
        """(S, C) logits -> (S,) scores."""
        if logits.shape[1] == 1:
            log_odds = logits[:, 0]
        else:
            others = torch.arange(logits.shape[1], device=logits.device) != self.positive_label
            log_odds = logits[:, self.positive_label] - logits[:, others].logsumexp(1)
        # the sigmoid of the log-odds is the softmax
        return log_odds.sigmoid() if self.score == "probability" else log_odds


class _SeparatorSplitter:
    """Spans of what stands between separators, white space aside."""

    def __init__(self, separator: str) -> None:
        self.separator = separator

    def __call__(self, text: str) -> list[tuple[int, int]]:
        spans = []
        start = 0
        for step in text.split(self.separator):
            bare = step.strip()
            if bare:
                begin = start + len(step) - len(step.lstrip())
                spans.append((begin, begin + len(bare)))
            start += len(step) + len(self.separator)
        return spans


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"{name} is {value!r:.60}, but must be 1 or more, a whole number; leave it out for the default."
        )


def _loaded(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    if isinstance(model, str):
        # imported here: a model that is passed needs neither
        from transformers import AutoModelForTokenClassification, AutoTokenizer

        tokenizer = tokenizer or AutoTokenizer.from_pretrained(model)
        model = AutoModelForTokenClassification.from_pretrained(model)
    if tokenizer is None:
        raise ValueError("tokenizer is None, but a model that is no name needs one: pass the model's own tokenizer.")
    return model, tokenizer


def _label_index(label: int | str, config: Any) -> int:
    names = {int(index): str(name) for index, name in config.id2label.items()}
    if len(names) == 1:
        return 0
    for index, name in names.items():
        if label in (index, name):
            return index
    known = ", ".join(f"{index} ({name})" for index, name in sorted(names.items()))
    raise ValueError(f"positive_label is {label!r}, but must be one of the model's classes: {known}.")


def _prompt_text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(completion_text({**message, "role": "assistant"}) for message in prompt)
