"""Rows in the column layouts of other reinforcement learning libraries: verl and open-instruct."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from datasets_builders.schema import COLUMNS, Row, json_text

FORMATS = ("verl", "open_instruct")
# What a row's gold is compared as. Code is of four kinds, told by the keys of its solution.
KINDS = (
    "math",
    "choice",
    "countdown",
    "instruction",
    "judge",
    "code_asserts",
    "code_stdio",
    "code_calls",
    "code_pytest",
)

_BOX = "\\boxed"
# verl picks the reward by `data_source`: the first reads the last box, the second `#### 42`, the third runs programs.
VERL_BOXED = "DigitalLearningGmbH/MATH-lighteval"
VERL_HASHES = "openai/gsm8k"
VERL_PROGRAMS = "taco"
OURS = "trl-ext"
# Names of open-instruct's verifiers by kind; the kinds that are not here have none.
OPEN_INSTRUCT_VERIFIERS = {
    "math": "math",
    "choice": "math",
    "instruction": "ifeval",
    "judge": "general-quality_ref",
    "code_asserts": "code",
    "code_stdio": "code_stdio",
}


def to_verl(dataset: Any, *, split: str = "train", data_sources: Mapping[str, str] | None = None) -> Any:
    r"""The rows in verl's columns: `data_source`, `prompt`, `ability`, `reward_model`, `extra_info`.

    verl chooses its reward by `data_source`, so the name is that of the reward which reads the answer that the prompt
    asks for, whatever data set the row is from (that stands in `extra_info["source"]`):

    - maths and choice with `\boxed` in the prompt: `"DigitalLearningGmbH/MATH-lighteval"`, which compares the last box;
    - GSM8K without it: `"openai/gsm8k"`, which compares the number after `####`;
    - code with `inputs` and `outputs`: `"taco"`, which runs the tests;
    - everything else: `"trl-ext/<task>"`, for which verl has no reward: set `custom_reward_function.path`.

    Args:
        dataset (`Dataset | IterableDataset`): reinforcement learning rows of a builder.
        split (`str`): value of `extra_info["split"]`.
        data_sources (`Mapping[str, str]`, *optional*): `data_source` by the row's `source`, in the place of the above.

    Returns:
        `Dataset | IterableDataset`: the rows in their order, with typed columns. `reward_model` holds `style`
        (`"model"` for judged rows, else `"rule"`) and `ground_truth`: the gold, without its dollar signs where verl
        compares it.

    Raises:
        ValueError: For rows that are no reinforcement learning rows.

    Source: the column layout of verl's `examples/data_preprocess` and `default_compute_score`, which gives 0 to a boxed
        answer under `"openai/gsm8k"`: hence that name only where no box is asked for.

    Example:

    ```python
    >>> from datasets import Dataset
    >>> from datasets_builders.schema import rl_row
    >>> rows = [rl_row(r"6 * 7? Answer in \boxed{}.", "$42$", task="math", source="gsm8k")]
    >>> row = to_verl(Dataset.from_list(rows))[0]
    >>> row["data_source"], row["reward_model"]
    ('DigitalLearningGmbH/MATH-lighteval', {'style': 'rule', 'ground_truth': '42'})

    ```
    """
    return _mapped(dataset, "to_verl", _verl_row, _verl_features(), split=split, data_sources=dict(data_sources or {}))


def to_open_instruct(dataset: Any, *, verifiers: Mapping[str, str] | None = None) -> Any:
    r"""The rows in open-instruct's columns: `messages`, `ground_truth`, `dataset` (name of the verifier).

    Maths and choice go to `"math"` (the last box), instructions to `"ifeval"`, code to `"code"` (asserts) and
    `"code_stdio"`, judged rows to `"general-quality_ref"`. There is no verifier for countdown, for code that is called
    by a function name and for pytest files: name your own in `verifiers`.

    Args:
        dataset (`Dataset | IterableDataset`): reinforcement learning rows of a builder.
        verifiers (`Mapping[str, str]`, *optional*): names of verifiers by kind, one of [`KINDS`], in the place of the
            above; such a verifier gets the gold as it is.

    Returns:
        `Dataset | IterableDataset`: the rows in their order, with `source`, `source_id` and `extra` behind those three.
        A prompt of several turns ends with an empty assistant turn, because open-instruct takes the last turn of a
        conversation off before it generates.

    Raises:
        ValueError: For rows that are no reinforcement learning rows, an unknown kind, and a kind without a verifier.

    Source: `ground_truth_utils.py` and `rlvr_tokenize_v1` to `_v3` of open-instruct.

    Example:

    ```python
    >>> from datasets import Dataset
    >>> from datasets_builders.schema import rl_row
    >>> rows = [rl_row("Be brief.", '{"instruction_id": ["a"], "kwargs": [null]}', task="instruction", source="mine")]
    >>> row = to_open_instruct(Dataset.from_list(rows))[0]
    >>> row["dataset"], row["ground_truth"]
    ('ifeval', '[\'{"instruction_id": ["a"], "kwargs": [null]}\']')

    ```
    """
    given = dict(verifiers or {})
    for kind in given:
        if kind not in KINDS:
            from datasets_builders._text import hint

            raise ValueError(f"verifiers: {kind!r} is no kind of gold{hint(kind, KINDS)}")
    return _mapped(dataset, "to_open_instruct", _open_instruct_row, _open_instruct_features(), verifiers=given)


def exported(dataset: Any, name: str, *, split: str = "train") -> Any:
    """The rows in the layout of that name, one of [`FORMATS`].

    Raises:
        ValueError: For a name that is not there, with what was probably meant.
    """
    if name not in FORMATS:
        from datasets_builders._text import hint

        raise ValueError(f"export={name!r} is no known layout{hint(name, FORMATS)}")
    return to_verl(dataset, split=split) if name == "verl" else to_open_instruct(dataset)


def gold_kind(task: str, solution: str) -> str:
    """What the gold of a row is compared as: its task, and for code one of the four kinds in [`KINDS`].

    Example:

    ```python
    >>> gold_kind("math", "$4$"), gold_kind("code", '{"inputs": ["1"], "outputs": ["1"]}')
    ('math', 'code_stdio')

    ```
    """
    if task != "code":
        return task
    gold = json.loads(solution)
    if "inputs" in gold:
        return "code_calls" if gold.get("fn_name") else "code_stdio"
    return "code_asserts" if "asserts" in gold else "code_pytest"


def _mapped(dataset: Any, name: str, function: Callable[..., Row], features: Any, **arguments: Any) -> Any:
    columns = dataset.column_names or []
    if not {*COLUMNS["rl"]} <= {*columns}:
        raise ValueError(
            f"{name} takes reinforcement learning rows, with the columns {', '.join(COLUMNS['rl'])}; these have "
            f"{', '.join(columns) or 'none that are known'}"
        )
    options = {"desc": f"Exporting ({name})"} if hasattr(dataset, "select") else {}
    return dataset.map(
        function, with_indices=True, fn_kwargs=arguments, remove_columns=columns, features=features, **options
    )


def _verl_row(row: Row, index: int, split: str, data_sources: Mapping[str, str]) -> Row:
    task, solution = row["task"], row["solution"]
    found = data_sources.get(row["source"]) or _verl_source(row)
    is_compared = found in (VERL_BOXED, VERL_HASHES)
    return {
        "data_source": found,
        "prompt": row["prompt"],
        "ability": task,
        "reward_model": {
            "style": "model" if task == "judge" else "rule",
            "ground_truth": _bare(solution) if is_compared else solution,
        },
        "extra_info": {
            "split": split,
            "index": index,
            "task": task,
            "source": row["source"],
            "source_id": row["source_id"],
            "extra": row["extra"],
        },
    }


def _verl_source(row: Row) -> str:
    task = row["task"]
    asked = " ".join(turn["content"] for turn in row["prompt"] if turn["role"] in ("system", "user"))
    if task in ("math", "choice") and _BOX in asked:
        return VERL_BOXED
    if task == "math" and row["source"] == "gsm8k" and "<answer>" not in asked:
        return VERL_HASHES
    if gold_kind(task, row["solution"]) in ("code_stdio", "code_calls"):
        return VERL_PROGRAMS
    return f"{OURS}/{task}"


def _bare(solution: str) -> str:
    text = solution.strip()
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == "$" else text


def _open_instruct_row(row: Row, index: int, verifiers: Mapping[str, str]) -> Row:
    kind = gold_kind(row["task"], row["solution"])
    verifier = verifiers.get(kind) or OPEN_INSTRUCT_VERIFIERS.get(kind)
    if verifier is None:
        raise ValueError(
            f"row {index} of task {row['task']!r}: open-instruct has no verifier for {kind!r}; name yours with "
            f"verifiers={{{kind!r}: 'my_verifier'}}, or leave such rows out"
        )
    turns = list(row["prompt"])
    return {
        "messages": turns if len(turns) == 1 else [*turns, {"role": "assistant", "content": ""}],
        "ground_truth": row["solution"] if kind in verifiers else _open_instruct_gold(kind, row["solution"]),
        "dataset": verifier,
        "source": row["source"],
        "source_id": row["source_id"],
        "extra": row["extra"],
    }


def _open_instruct_gold(kind: str, solution: str) -> str:
    if kind == "math":
        return _bare(solution)
    if kind == "instruction":
        return repr([solution])  # read there with ast.literal_eval, and the text in it as JSON
    if kind == "code_asserts":
        return json_text(json.loads(solution)["asserts"])
    if kind == "code_stdio":
        gold = json.loads(solution)
        pairs = zip(gold["inputs"], gold["outputs"], strict=True)
        return json_text([{"input": given, "output": wanted} for given, wanted in pairs])
    return solution


def _messages() -> Any:
    from datasets import List, Value

    return List({"role": Value("string"), "content": Value("string")})


def _verl_features() -> Any:
    from datasets import Features, Value

    text = Value("string")
    return Features(
        {
            "data_source": text,
            "prompt": _messages(),
            "ability": text,
            "reward_model": {"style": text, "ground_truth": text},
            "extra_info": {
                "split": text,
                "index": Value("int64"),
                "task": text,
                "source": text,
                "source_id": text,
                "extra": text,
            },
        }
    )


def _open_instruct_features() -> Any:
    from datasets import Features, Value

    names = ("ground_truth", "dataset", "source", "source_id", "extra")
    return Features({"messages": _messages()} | {name: Value("string") for name in names})
