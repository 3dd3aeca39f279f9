"""GRPOVariantConfig: TRL's defaults, and one sentence for every contradiction."""

import dataclasses
import logging

import pytest
from trl import GRPOConfig

from trl_ext.errors import UserError
from trl_ext.grpo import GRPOVariantConfig

# A generation batch of one completion.
ALONE = {"num_generations": 1, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1}


def test_inherited_defaults_are_those_of_trl():
    ours = {f.name: f.default for f in dataclasses.fields(GRPOVariantConfig)}
    for field in dataclasses.fields(GRPOConfig):
        if field.default is not dataclasses.MISSING:
            assert ours[field.name] == field.default, field.name


def test_every_field_of_ours_has_help_and_a_line_in_the_docstring():
    stock = {f.name for f in dataclasses.fields(GRPOConfig)}
    for field in dataclasses.fields(GRPOVariantConfig):
        if field.name not in stock:
            assert field.metadata["help"] and f"        {field.name} (" in (GRPOVariantConfig.__doc__ or ""), field.name


def test_defaults_leave_advantages_and_kl_to_trl(config):
    args = config(beta=0.1)
    assert args.has_stock_advantages and args.has_stock_kl and args.zero_std == "keep"
    assert config(scale_rewards="batch").has_stock_advantages
    assert not config(advantage_estimator="custom").has_stock_advantages
    assert not config(beta=0.1, kl_placement="reward").has_stock_kl


def test_explicit_field_wins_over_the_preset_and_is_logged(config, caplog):
    with caplog.at_level(logging.INFO, logger="trl_ext.grpo.config"):
        args = config(advantage_estimator="rloo", advantage_scale="batch_advantages", loss_type="dr_grpo")
    assert args.preset.scale == "batch_advantages" and args.preset.baseline == "leave_one_out"
    assert "advantage_scale='batch_advantages' replaces 'none' of advantage_estimator='rloo'." in caplog.text
    assert "comes from a source" not in caplog.text


def test_loss_type_the_source_does_not_go_with_is_logged(config, caplog):
    with caplog.at_level(logging.INFO, logger="trl_ext.grpo.config"):
        config(advantage_estimator="dr_grpo")
    assert "source with loss_type='dr_grpo'; this run has 'dapo'" in caplog.text


def test_one_generation_is_taken_where_no_group_is_needed(config):
    args = config(num_generations=1, advantage_estimator="reinforce")
    assert args.num_generations == 1 and type(args.num_generations) is int


def test_scale_rewards_may_say_what_the_preset_does(config):
    assert config(advantage_estimator="dr_grpo", scale_rewards=False).preset.scale == "none"
    assert config(advantage_estimator="custom", scale_rewards="batch").preset.scale == "batch"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"advantage_estimator": "dr_gpo"}, "advantage_estimator='dr_gpo' is unknown.*did you mean 'dr_grpo'"),
        ({"advantage_baseline": "median_"}, "advantage_baseline='median_' is unknown"),
        ({"advantage_scale": "goup"}, "did you mean 'group'"),
        ({"advantage_ddof": 2}, "advantage_ddof=2 must be 0 or 1"),
        ({"advantage_eps": -1.0}, "advantage_eps=-1.0 must be a finite number of 0 or more"),
        ({"advantage_std_floor": float("nan")}, "advantage_std_floor=nan"),
        ({"advantage_clip": 0.0}, "advantage_clip=0.0 must be a finite number above 0"),
        ({"advantage_clip": float("inf")}, "advantage_clip=inf"),
        ({"num_generations": 1}, "advantage_baseline='mean' needs num_generations of 2 or more, not 1"),
        (
            {"num_generations": 1, "advantage_estimator": "reinforce", "advantage_scale": "group"},
            "advantage_scale='group' needs num_generations of 2 or more, not 1",
        ),
        ({"num_generations": 0}, "num_generations=0 must be a whole number of at least 1"),
        ({"num_generations": 2, "advantage_scale": "leave_one_out"}, "needs num_generations of 3 or more, not 2"),
        ({"scale_rewards": "batch", "advantage_scale": "group"}, "are two names of one setting and differ"),
        ({"scale_rewards": "batch", "advantage_estimator": "dr_grpo"}, "are two names of one setting and differ"),
        ({"kl_placement": "reward"}, "kl_placement='reward' has no effect with beta=0.0.*set beta"),
        ({"kl_estimator": "k1"}, "kl_estimator='k1' has no effect with beta=0.0"),
        ({"kl_direction": "forward", "beta": 0.1}, "kl_direction='forward' has no effect with kl_estimator='k3'"),
        ({"kl_estimator": "k4", "beta": 0.1}, "kl_estimator='k4' is unknown; choose one of k1, k2, k3, abs, full"),
        ({"kl_placement": "lose"}, "kl_placement='lose' is unknown.*did you mean 'loss'"),
        ({"zero_std": "resampel"}, "zero_std='resampel' is unknown.*did you mean 'resample'"),
        ({"max_resample_rounds": 0}, "max_resample_rounds=0 must be a whole number of at least 1"),
        ({"replay_buffer_size": True}, "replay_buffer_size=True must be a whole number"),
        ({"beta": -0.1}, "beta=-0.1 must be a finite number of 0 or more"),
        ({"advantage_estimator": "grpo"}, r"advantage_estimator='grpo' is unknown; .*; did you mean 'trl'\?"),
        ({"advantage_estimator": None}, "advantage_estimator=None is unknown; choose one of trl, verl"),
        ({"advantage_estimator": 3}, "advantage_estimator=3 is unknown"),
        ({"advantage_estimator": ["trl"]}, r"advantage_estimator=\['trl'\] is unknown"),
        ({"advantage_ddof": True}, "advantage_ddof=True must be 0 or 1"),
        ({"advantage_eps": True}, "advantage_eps=True must be a finite number"),
        ({"advantage_std_floor": True}, "advantage_std_floor=True must be a finite number"),
        ({"advantage_clip": True}, "advantage_clip=True must be a finite number above 0"),
        ({"process_outcome_weight": True}, "process_outcome_weight=True must be a finite number"),
        ({"loss_type": "foo"}, "loss_type='foo' is unknown; choose one of grpo, dr_grpo, dapo"),
        ({"loss_type": "dr_gpo"}, r"loss_type='dr_gpo' is unknown.*did you mean 'dr_grpo'\?"),
        ({"importance_sampling_level": "foo"}, "importance_sampling_level='foo' is unknown; choose one of token, seq"),
        ({"reward_weights": [1.0, float("nan")]}, r"reward_weights=\[1.0, nan\] must hold a finite number"),
        ({"reward_weights": [float("inf")]}, r"reward_weights=\[inf\] must hold a finite number"),
        (
            {"max_resample_rounds": 5},
            "max_resample_rounds=5 has no effect with zero_std='keep'; use zero_std='resample'",
        ),
        (
            {"replay_buffer_size": 9, "zero_std": "resample"},
            "replay_buffer_size=9 has no effect with zero_std='resample'; use zero_std='replay', or leave",
        ),
        (
            {"multi_objective_aggregation": "normalize_then_sum", "scale_rewards": "none"},
            "scale_rewards='none' has no effect with multi_objective_aggregation='normalize_then_sum'",
        ),
        (
            {"multi_objective_aggregation": "normalize_then_sum", "scale_rewards": "batch"},
            "scale_rewards='batch' has no effect",
        ),
        (
            {"zero_std": "replay", "sync_ref_model": True, "beta": 0.1},
            "a reference that sync_ref_model=True moves on; use zero_std='resample' or 'mask'",
        ),
        (
            {**ALONE, "advantage_estimator": "reinforce_pp"},
            "advantage_baseline='batch' needs generation_batch_size of 2",
        ),
        (
            {**ALONE, "advantage_estimator": "reinforce", "advantage_scale": "batch"},
            "advantage_scale='batch' needs generation_batch_size of 2 or more, not 1",
        ),
        (
            {**ALONE, "advantage_estimator": "reinforce", "advantage_scale": "batch_advantages"},
            "advantage_scale='batch_advantages' needs generation_batch_size of 2",
        ),
        ({"process_outcome_weight": -1.0}, "process_outcome_weight=-1.0"),
        ({"advantage_estimator": "pass_at_k", "pass_k": 4}, "pass_k must be less than num_generations"),
        ({"advantage_ddof": 0, "advantage_estimator": "dr_grpo"}, "advantage_ddof=0 has no effect"),
        (
            {"zero_std": "mask", "num_generations": 1, "advantage_estimator": "reinforce"},
            "zero_std='mask' with num_generations=1 finds no spread",
        ),
    ],
)
def test_contradiction_is_one_clear_sentence(config, settings, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        config(**settings)
    assert "\n" not in str(caught.value)


def test_batch_of_one_completion_is_taken_where_nothing_is_compared(config):
    assert config(**ALONE, advantage_estimator="reinforce").generation_batch_size == 1
    assert (
        config(**{**ALONE, "gradient_accumulation_steps": 2}, advantage_estimator="reinforce_pp").num_generations == 1
    )


def test_defaults_written_out_and_settings_that_agree_are_taken(config):
    assert config(max_resample_rounds=3, replay_buffer_size=64).zero_std == "keep"
    assert config(zero_std="resample", max_resample_rounds=7).max_resample_rounds == 7
    both = {"scale_rewards": "batch", "advantage_scale": "batch"}
    assert config(multi_objective_aggregation="normalize_then_sum", **both).preset.scale == "batch"
    assert config(reward_weights=[1, 0.5]).reward_weights == [1, 0.5]


@pytest.mark.parametrize(
    "settings",
    [
        {"advantage_estimator": "rloo", "num_generations_eval": 1},
        {"advantage_estimator": "pass_at_k", "pass_k": 3, "num_generations_eval": 2},
    ],
)
def test_too_few_generations_of_an_evaluation_are_told_in_one_line(config, caplog, settings):
    config(**settings)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    said = f"num_generations_eval={settings['num_generations_eval']} is too few for the advantages of an evaluation"
    assert record.message.startswith(said) and "\n" not in record.message


def test_enough_generations_of_an_evaluation_are_not_talked_about(config, caplog):
    config(advantage_estimator="rloo", num_generations_eval=2)
    config(num_generations_eval=1)  # TRL's own advantages
    assert caplog.text == ""


def test_configuration_read_again_is_the_same(config):
    args = config(advantage_estimator="rloo", advantage_clip=2.0, zero_std="replay", beta=0.1, kl_estimator="k2")
    again = GRPOVariantConfig(
        **{
            f.name: getattr(args, f.name)
            for f in dataclasses.fields(args)
            if f.init and f.name not in ("generation_batch_size", "steps_per_generation")
        }
    )
    assert again.preset == args.preset and again.kl_estimator == "k2"
