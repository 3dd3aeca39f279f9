"""The figures as metadata of a model card: a `model-index`, as the Hub reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

TASK_TYPE = "text-generation"


def eval_results(results: Mapping[str, Any]) -> list[Any]:
    """One `huggingface_hub.EvalResult` for each figure, as a share between 0 and 1.

    Args:
        results (`Mapping`): what `results.json` holds.

    Returns:
        `list[EvalResult]`: the name of a metric tells which problems there were, how the samples were drawn and how
        they were graded, so that figures of other settings stand beside it. Of a part of a set, the name of the
        set says so, too.
    """
    from huggingface_hub import EvalResult

    how, reward = _how(results), results.get("reward")
    return [
        EvalResult(
            task_type=TASK_TYPE,
            task_name="Text Generation",
            dataset_type=str(data.get("path") or benchmark),
            dataset_name=f"{benchmark} ({_part(one)})" if _is_part(one) else benchmark,
            dataset_config=data.get("config"),
            dataset_split=data.get("split"),
            dataset_revision=data.get("revision"),
            # by another reward it is another metric: nobody must read it as the set's usual one
            metric_type=f"{reward}/{metric}" if reward else metric,
            metric_name=f"{metric} ({_part(one)}, {how})",
            metric_value=round(figure["value"], 4),
            verified=False,
        )
        for benchmark, one in results["benchmarks"].items()
        for data in [one.get("data") or {}]
        for metric, figure in one["metrics"].items()
        if figure["value"] is not None
    ]


def _is_part(one: Mapping[str, Any]) -> bool:
    return bool((one.get("data") or {}).get("max_problems"))


def _part(one: Mapping[str, Any]) -> str:
    count = one["num_problems"]
    return f"{'first ' * _is_part(one)}{count} problem{'s' * (count != 1)}"


def _how(results: Mapping[str, Any]) -> str:
    """Everything that was chosen and changes a figure, as far as it is not the usual."""
    sampling = results["sampling"]
    count = results["num_samples"]
    parts = ["greedy"]
    if sampling["temperature"] != 0:
        parts = [
            f"{count} sample{'s' * (count != 1)}",
            f"temperature {sampling['temperature']:g}",
            f"top_p {sampling['top_p']:g}",
            *([f"top_k {sampling['top_k']}"] if sampling["top_k"] else []),
            f"seed {sampling['seed']}",
        ]
    parts.append(f"at most {sampling['max_new_tokens']} tokens")
    parts += ["truncated is wrong"] * (results.get("truncated") == "wrong")
    for name in ("reward", "best_of_reward"):
        parts += [f"{name} {results[name]}"] if results.get(name) else []
    return ", ".join(parts)


def model_index_yaml(results: Mapping[str, Any]) -> str:
    """The metadata as YAML, to be put between the `---` lines of a card by hand."""
    import yaml
    from huggingface_hub.repocard_data import eval_results_to_model_index

    found = eval_results(results)
    generator = results["generator"]
    name = Path(str(generator.get("adapter") or generator.get("model") or "model")).name
    index = eval_results_to_model_index(name, found) if found else []
    text: str = yaml.safe_dump({"model-index": index}, sort_keys=False, allow_unicode=True)
    return text
