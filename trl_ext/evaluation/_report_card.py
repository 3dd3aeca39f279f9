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
        `list[EvalResult]`: the name of a metric tells how the samples were drawn, so that figures of other settings
        stand beside it.
    """
    from huggingface_hub import EvalResult

    how = _how(results)
    return [
        EvalResult(
            task_type=TASK_TYPE,
            task_name="Text Generation",
            dataset_type=str(data.get("path") or benchmark),
            dataset_name=benchmark,
            dataset_config=data.get("config"),
            dataset_split=data.get("split"),
            dataset_revision=data.get("revision"),
            metric_type=metric,
            metric_name=f"{metric} ({how})",
            metric_value=round(figure["value"], 4),
            verified=False,
        )
        for benchmark, one in results["benchmarks"].items()
        for data in [one.get("data") or {}]
        for metric, figure in one["metrics"].items()
        if figure["value"] is not None
    ]


def _how(results: Mapping[str, Any]) -> str:
    sampling = results["sampling"]
    if sampling["temperature"] == 0:
        return "greedy"
    return f"{results['num_samples']} samples, temperature {sampling['temperature']:g}, top_p {sampling['top_p']:g}"


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
