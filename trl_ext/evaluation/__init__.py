"""Evaluation: metrics over several samples a problem, generation, reports and plots; importing this loads no library.

A name is imported from its module when it is first used. The function `calibration` is the one that its module keeps to
itself, since a package cannot hold both under one name: `from trl_ext.evaluation.calibration import calibration`.
"""

from typing import TYPE_CHECKING

from trl_ext._lazy import lazy_attributes

if TYPE_CHECKING:
    from trl_ext.evaluation.calibration import Bin as Bin
    from trl_ext.evaluation.calibration import Calibration as Calibration
    from trl_ext.evaluation.callback import EvaluationCallback as EvaluationCallback
    from trl_ext.evaluation.comparison import Comparison as Comparison
    from trl_ext.evaluation.comparison import compare_runs as compare_runs
    from trl_ext.evaluation.estimators import best_of_k as best_of_k
    from trl_ext.evaluation.estimators import mean_at_k as mean_at_k
    from trl_ext.evaluation.estimators import pass_at_k as pass_at_k
    from trl_ext.evaluation.generation import ServerGenerator as ServerGenerator
    from trl_ext.evaluation.generation import TransformersGenerator as TransformersGenerator
    from trl_ext.evaluation.generation import VLLMGenerator as VLLMGenerator
    from trl_ext.evaluation.generation import open_generator as open_generator
    from trl_ext.evaluation.grading import Graded as Graded
    from trl_ext.evaluation.grading import grade as grade
    from trl_ext.evaluation.grading import reward_for as reward_for
    from trl_ext.evaluation.modules import module_path as module_path
    from trl_ext.evaluation.plots import plot_runs as plot_runs
    from trl_ext.evaluation.plots import plot_training as plot_training
    from trl_ext.evaluation.report import Report as Report
    from trl_ext.evaluation.requests import Completion as Completion
    from trl_ext.evaluation.requests import Generator as Generator
    from trl_ext.evaluation.requests import Request as Request
    from trl_ext.evaluation.requests import SamplingParams as SamplingParams
    from trl_ext.evaluation.requests import plan_batches as plan_batches
    from trl_ext.evaluation.requests import problem_key as problem_key
    from trl_ext.evaluation.requests import sample_seed as sample_seed
    from trl_ext.evaluation.runner import evaluate_model as evaluate_model
    from trl_ext.evaluation.statistics import Interval as Interval
    from trl_ext.evaluation.statistics import McNemar as McNemar
    from trl_ext.evaluation.statistics import Paired as Paired
    from trl_ext.evaluation.statistics import bootstrap_interval as bootstrap_interval
    from trl_ext.evaluation.statistics import mcnemar as mcnemar
    from trl_ext.evaluation.statistics import paired_bootstrap as paired_bootstrap
    from trl_ext.evaluation.votes import cons_at_k as cons_at_k
    from trl_ext.evaluation.votes import group_answers as group_answers
    from trl_ext.evaluation.votes import vote_score as vote_score

# the same names as above, for the interpreter; a test holds the two lists together
__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "estimators": ("best_of_k", "mean_at_k", "pass_at_k"),
        "votes": ("cons_at_k", "group_answers", "vote_score"),
        "statistics": ("Interval", "McNemar", "Paired", "bootstrap_interval", "mcnemar", "paired_bootstrap"),
        "calibration": ("Bin", "Calibration"),
        "modules": ("module_path",),
        "generation": ("ServerGenerator", "TransformersGenerator", "VLLMGenerator", "open_generator"),
        "requests": (
            "Completion",
            "Generator",
            "Request",
            "SamplingParams",
            "plan_batches",
            "problem_key",
            "sample_seed",
        ),
        "grading": ("Graded", "grade", "reward_for"),
        "callback": ("EvaluationCallback",),
        "runner": ("evaluate_model",),
        "report": ("Report",),
        "comparison": ("Comparison", "compare_runs"),
        "plots": ("plot_runs", "plot_training"),
    },
)
