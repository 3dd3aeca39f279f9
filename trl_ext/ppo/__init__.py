"""PPO with a critic on TRL's GRPO trainer; importing this package loads neither torch nor TRL."""

from typing import TYPE_CHECKING

from trl_ext._lazy import lazy_attributes

if TYPE_CHECKING:
    from trl_ext.ppo.config import PPOConfig as PPOConfig
    from trl_ext.ppo.trainer import PPOTrainer as PPOTrainer

__getattr__, __dir__ = lazy_attributes(__name__, {"config": ("PPOConfig",), "trainer": ("PPOTrainer",)})
