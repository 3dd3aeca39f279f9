"""All sources by name, each imported when it is first asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping

from datasets_builders.source import Source

# Names by the module under `sources/` whose SOURCES hold them.
_TRAINING = {
    "gsm8k": "gsm8k",
    "hendrycks_math": "hendrycks_math",
    "open_reasoner_zero": "open_reasoner_zero",
    "dapo_math": "dapo_math",
    "dapo_math_raw": "dapo_math",
    "acereason_math": "acereason_math",
    "polaris": "polaris",
    "klear_math": "klear_math",
    "omega": "omega",
    "omega_compositional": "omega",
    "omega_transformative": "omega",
    "deepscaler": "deepscaler",
    "numina": "numina",
    "openr1_math": "openr1_math",
    "openr1_math_sft": "openr1_math",
    "synthetic_2": "synthetic_2",
    "multi_subject": "multi_subject",
    "countdown": "countdown",
    "countdown_tasks": "countdown",
    "arithmetic": "arithmetic",
    "if_rlvr": "if_rlvr",
    "acecode": "acecode",
    "klear_code": "klear_code",
    "nemotron_code": "nemotron_code",
    "tulu_3": "tulu_3",
    "tulu_3_sft": "tulu_3",
    "wildchat": "wildchat",
    "hh_rlhf": "hh_rlhf",
    "ultrafeedback": "ultrafeedback",
    "ultrafeedback_binarized": "ultrafeedback_binarized",
}
_EVALUATION = {
    "math_500": "math_500",
    "aime_2024": "aime",
    "aime_2025": "aime",
    "amc_2023": "amc",
    "minerva": "minerva",
    "olympiadbench": "olympiadbench",
    "arc_easy": "arc",
    "arc_challenge": "arc",
    "gsm8k": "gsm8k",
    "ifeval": "ifeval",
    "ifbench": "ifeval",
    "humaneval": "humaneval",
    "mbpp": "mbpp",
}


class Registry(Mapping[str, Source]):
    """Sources by name; a name that is not there is an error that says which was probably meant."""

    def __init__(self, modules: Mapping[str, str], *, evaluation: bool) -> None:
        self._modules = modules
        self._evaluation = evaluation

    def __getitem__(self, name: str) -> Source:
        if name not in self._modules:
            raise KeyError(f"unknown name {name!r}{_hint(name, self)}")
        module = importlib.import_module(f"datasets_builders.sources.{self._modules[name]}")
        for source in module.SOURCES:
            if source.name == name and source.evaluation == self._evaluation:
                found: Source = source
                return found
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._modules)})"


BUILDERS = Registry(_TRAINING, evaluation=False)
EVALUATION_SETS = Registry(_EVALUATION, evaluation=True)


def training_source(name: str) -> Source:
    """The training source of a name.

    Raises:
        ValueError: For an evaluation set, and for a name that is not there, with what was probably meant.
    """
    if name in BUILDERS:
        return BUILDERS[name]
    if name in EVALUATION_SETS:
        raise ValueError(
            f"{name!r} is an evaluation set and never becomes training data; use build_eval({name!r}) to evaluate on it"
        )
    evaluation = _close(name, EVALUATION_SETS)
    if evaluation is not None and _close(name, BUILDERS) is None:
        raise ValueError(
            f"unknown source {name!r}; did you mean the evaluation set {evaluation!r}? It never becomes training data: "
            f"use build_eval({evaluation!r})"
        )
    raise ValueError(f"unknown source {name!r}{_hint(name, BUILDERS)}")


def evaluation_source(name: str) -> Source:
    """The evaluation set of a name.

    Raises:
        ValueError: For a name that is not there, with what was probably meant, and for a training source.
    """
    if name in EVALUATION_SETS:
        return EVALUATION_SETS[name]
    if name in BUILDERS:
        raise ValueError(f"{name!r} is a training source, not an evaluation set; use build({name!r})")
    raise ValueError(f"unknown evaluation set {name!r}{_hint(name, EVALUATION_SETS)}")


def _hint(name: str, names: Mapping[str, Source]) -> str:
    close = _close(name, names)
    return f"; did you mean {close!r}?" if close else f"; choose one of {', '.join(names)}"


def _close(name: str, names: Mapping[str, Source]) -> str | None:
    return next(iter(difflib.get_close_matches(str(name).lower().replace("-", "_"), names, n=1)), None)
