"""PPO and friends for TRL: pure functions, trainers and tools, re-exported lazily.

Importing this package loads neither torch nor TRL; a name is imported from its module when it is first used.
"""

from typing import TYPE_CHECKING

from trl_ext._lazy import lazy_attributes

if TYPE_CHECKING:
    from trl_ext.advantages import gae as gae
    from trl_ext.advantages import group_advantages as group_advantages
    from trl_ext.advantages import length_adaptive_lam as length_adaptive_lam
    from trl_ext.advantages import n_step_advantages as n_step_advantages
    from trl_ext.advantages import process_advantages as process_advantages
    from trl_ext.advantages import rewards_to_go as rewards_to_go
    from trl_ext.advantages import td_errors as td_errors
    from trl_ext.diagnostics import CriticAccounting as CriticAccounting
    from trl_ext.diagnostics import ObjectiveLedger as ObjectiveLedger
    from trl_ext.diagnostics import explained_variance as explained_variance
    from trl_ext.evaluation import EvaluationCallback as EvaluationCallback
    from trl_ext.evaluation import cons_at_k as cons_at_k
    from trl_ext.evaluation import pass_at_k as pass_at_k
    from trl_ext.grpo import GRPOVariantConfig as GRPOVariantConfig
    from trl_ext.grpo import GRPOVariantTrainer as GRPOVariantTrainer
    from trl_ext.kl import AdaptiveKL as AdaptiveKL
    from trl_ext.kl import FixedKL as FixedKL
    from trl_ext.kl import full_kl as full_kl
    from trl_ext.kl import kl_estimate as kl_estimate
    from trl_ext.losses import aggregate_loss as aggregate_loss
    from trl_ext.losses import bradley_terry_loss as bradley_terry_loss
    from trl_ext.losses import entropy as entropy
    from trl_ext.losses import policy_loss as policy_loss
    from trl_ext.losses import value_loss as value_loss
    from trl_ext.masking import masked_mean as masked_mean
    from trl_ext.masking import masked_var as masked_var
    from trl_ext.masking import masked_whiten as masked_whiten
    from trl_ext.ppo import PPOConfig as PPOConfig
    from trl_ext.ppo import PPOTrainer as PPOTrainer

__version__ = "0.1.0"

# the same names as above, for the interpreter; a test holds the two lists together
__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "masking": ("masked_mean", "masked_var", "masked_whiten"),
        "advantages": (
            "gae",
            "group_advantages",
            "length_adaptive_lam",
            "n_step_advantages",
            "process_advantages",
            "rewards_to_go",
            "td_errors",
        ),
        "kl": ("AdaptiveKL", "FixedKL", "full_kl", "kl_estimate"),
        "losses": ("aggregate_loss", "bradley_terry_loss", "entropy", "policy_loss", "value_loss"),
        "diagnostics": ("CriticAccounting", "ObjectiveLedger", "explained_variance"),
        "ppo": ("PPOConfig", "PPOTrainer"),
        "grpo": ("GRPOVariantConfig", "GRPOVariantTrainer"),
        "evaluation": ("EvaluationCallback", "cons_at_k", "pass_at_k"),
    },
)
