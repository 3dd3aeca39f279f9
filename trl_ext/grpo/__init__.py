"""GRPO and its relatives on TRL's GRPO trainer: group advantages by name; importing this package loads no torch."""

from typing import TYPE_CHECKING

from trl_ext._lazy import lazy_attributes

if TYPE_CHECKING:
    from trl_ext.grpo.config import GRPOVariantConfig as GRPOVariantConfig
    from trl_ext.grpo.trainer import GRPOVariantTrainer as GRPOVariantTrainer

__getattr__, __dir__ = lazy_attributes(__name__, {"config": ("GRPOVariantConfig",), "trainer": ("GRPOVariantTrainer",)})
