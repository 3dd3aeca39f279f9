"""Advantage presets: hand numbers, what TRL's own trainers compute, peers' published figures, and edge cases."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from trl_ext.advantages import group_advantages
from trl_ext.errors import UserError
from trl_ext.grpo.presets import (
    BASELINES,
    PRESETS,
    SCALES,
    Preset,
    RunningMean,
    check_preset,
    estimated_advantages,
    pass_at_k_advantages,
    resolved_preset,
    weighted_rewards,
)
from trl_ext.testing import tiny_model, tiny_tokenizer

NAN = float("nan")
TWO_GROUPS = [1.0, 0.0, 0.0, 0.0, 0.5, 1.0, 0.25, 0.0]
# On TWO_GROUPS: functions of verl 0.9.1 (Apache-2.0) as they are; the formulas of OpenRLHF 0.11.2 (Apache-2.0) and of
# open-instruct in torch and numpy
PEERS = {
    "verl": (
        resolved_preset("verl"),
        [1.499997, -0.499999, -0.499999, -0.499999, 0.146385, 1.317462, -0.439154, -1.024693],
    ),
    "verl gdpo": (
        resolved_preset("gdpo", eps=0.0),
        [1.620185, -0.540062, -0.540062, -0.540062, 0.158114, 1.423025, -0.474341, -1.106797],
    ),
    "verl reinforce_plus_plus": (
        resolved_preset("reinforce_pp", ddof=1),
        [1.484924, -0.777817, -0.777817, -0.777817, 0.353553, 1.484924, -0.212132, -0.777817],
    ),
    "verl reinforce_plus_plus_baseline": (
        resolved_preset("reinforce_pp", ddof=1, baseline="mean"),
        [1.742453, -0.580818, -0.580818, -0.580818, 0.145204, 1.306840, -0.435613, -1.016431],
    ),
    "verl rloo": (
        resolved_preset("rloo"),
        [1.0, -0.333333, -0.333333, -0.333333, 0.083333, 0.75, -0.25, -0.583333],
    ),
    "openrlhf reinforce": (
        resolved_preset("reinforce_pp"),
        [1.587451, -0.831522, -0.831522, -0.831522, 0.377964, 1.587451, -0.226779, -0.831522],
    ),
    "openrlhf reinforce_baseline": (
        resolved_preset("reinforce_pp", baseline="mean"),
        [1.862761, -0.620920, -0.620920, -0.620920, 0.155230, 1.397071, -0.465690, -1.086611],
    ),
    "open-instruct": (
        resolved_preset("open_instruct"),
        [1.732051, -0.577350, -0.577350, -0.577350, 0.169031, 1.521278, -0.507093, -1.183216],
    ),
}


def advantages(rewards, num_generations, preset, **kwargs):
    """Of one reward function with weight 1."""
    column = torch.tensor(rewards, dtype=torch.float64)[:, None]
    return estimated_advantages(column, torch.ones(1), num_generations, preset, **kwargs)


def script(seed, groups=3, num_generations=4, functions=2):
    """Random rewards with values that repeat, a tenth of them NaN."""
    generator = torch.Generator().manual_seed(seed)
    shape = (groups * num_generations, functions)
    rewards = torch.randint(0, 5, shape, generator=generator) / 4
    return rewards.masked_fill(torch.rand(shape, generator=generator) < 0.1, NAN)


# numbers


@pytest.mark.parametrize(
    "name, first, others",
    [
        ("trl", 0.75 / 0.5001, -0.25 / 0.5001),
        ("custom", 0.75 / 0.5001, -0.25 / 0.5001),
        ("verl", 0.75 / 0.500001, -0.25 / 0.500001),
        ("open_instruct", math.sqrt(3), -1 / math.sqrt(3)),
        ("rloo", 1.0, -1 / 3),
        ("dr_grpo", 0.75, -0.25),
        ("reinforce_pp", math.sqrt(3), -1 / math.sqrt(3)),
        ("maxrl", 0.75 / 0.250001, -0.25 / 0.250001),
        ("gdpo", 0.75 / 0.5001 / (0.5 / 0.5001 + 1e-4), -0.25 / 0.5001 / (0.5 / 0.5001 + 1e-4)),
        ("pass_at_k", 0.5 / 0.500001, -0.5 / 3 / 0.500001),
        ("reinforce", 0.5, -0.5),
    ],
)
def test_preset_of_one_success_in_four_gives_hand_numbers(name, first, others):
    running_mean = 0.5 if name == "reinforce" else None
    found = advantages([1.0, 0.0, 0.0, 0.0], 4, PRESETS[name], running_mean=running_mean)
    torch.testing.assert_close(found, torch.tensor([first] + 3 * [others]), rtol=1e-6, atol=1e-7)


def test_preset_every_name_of_the_contract_exists():
    names = "trl verl open_instruct rloo dr_grpo reinforce_pp maxrl gdpo pass_at_k reinforce custom"
    assert list(PRESETS) == names.split()
    assert all(name == preset.name and preset.note for name, preset in PRESETS.items())


@pytest.mark.parametrize("peer", PEERS)
def test_preset_reproduces_the_figures_of_its_peer(peer):
    preset, expected = PEERS[peer]
    torch.testing.assert_close(advantages(TWO_GROUPS, 4, preset), torch.tensor(expected), rtol=0, atol=2e-6)


def test_maxrl_weighs_a_prompt_by_its_inverse_success_rate():
    found = advantages([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0], 4, PRESETS["maxrl"])
    expected = [3.0, -1.0, -1.0, -1.0, 1 / 3, 1 / 3, 1 / 3, -1.0, 0.0, 0.0, 0.0, 0.0]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "baseline, expected",
    [
        ("none", [1.0, 0.0, 0.0, 0.0]),
        ("running_mean", [0.75, -0.25, -0.25, -0.25]),
        ("mean", [0.75, -0.25, -0.25, -0.25]),
        ("leave_one_out", [1.0, -1 / 3, -1 / 3, -1 / 3]),
        ("median", [1.0, 0.0, 0.0, 0.0]),
        ("batch", [0.75, -0.25, -0.25, -0.25]),
    ],
)
def test_reinforce_takes_any_baseline(baseline, expected):
    preset = resolved_preset("reinforce", baseline=baseline)
    found = advantages([1.0, 0.0, 0.0, 0.0], 4, preset, running_mean=0.25)
    torch.testing.assert_close(found, torch.tensor(expected))


def test_reinforce_works_with_one_generation_a_prompt():
    preset = resolved_preset("reinforce")
    check_preset(preset, 1)
    assert advantages([1.0, NAN, 0.0], 1, preset, running_mean=0.25).tolist() == [0.75, 0.0, -0.25]


# TRL's own code


@pytest.fixture(scope="module")
def trl_trainers(tmp_path_factory):
    """Stock trainers whose generation is real and whose rewards are scripted."""
    built = {}
    for config_class, base in ((GRPOConfig, GRPOTrainer), (RLOOConfig, RLOOTrainer)):

        class Scripted(base):
            def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
                return self.scripted

        args = config_class(
            output_dir=str(tmp_path_factory.mktemp("trl")),
            per_device_train_batch_size=12,
            num_generations=4,
            max_completion_length=2,
            report_to=[],
            use_cpu=True,
            bf16=False,
            beta=0.0,
        )
        built[base] = Scripted(
            model=tiny_model(),
            args=args,
            reward_funcs=[_first, _second],
            train_dataset=Dataset.from_list([{"prompt": f"{number}+1="} for number in range(12)]),
            processing_class=tiny_tokenizer(),
        )
    return built


def _first(completions, **kwargs):
    return [0.0] * len(completions)


def _second(completions, **kwargs):
    return [0.0] * len(completions)


def trl_advantages(trainer, rewards, weights):
    trainer.scripted, trainer.reward_weights = rewards, weights
    trainer.model.train()
    prompts = [{"prompt": f"{row // 4}+1="} for row in range(len(rewards))]
    return trainer._generate_and_score_completions(prompts)["advantages"]


@pytest.mark.parametrize(
    ("scale_rewards", "aggregation"),
    [(name, "sum_then_normalize") for name in ("group", "batch", "none")] + [("group", "normalize_then_sum")],
)
def test_trl_preset_equals_the_advantages_of_the_stock_trainer(trl_trainers, scale_rewards, aggregation):
    trainer = trl_trainers[GRPOTrainer]
    trainer.scale_rewards, trainer.multi_objective_aggregation = scale_rewards, aggregation
    preset = resolved_preset("trl", scale_rewards=scale_rewards, multi_objective_aggregation=aggregation)
    weights = torch.tensor([1.0, 0.5])
    scripts = [script(seed) for seed in range(3)]
    scripts[1][0] = NAN  # a row that no function judged
    scripts[1][1:4, 0] = NAN  # a function which judged nothing of a group
    scripts[2][:4] = torch.tensor([[1.0, NAN], [NAN, NAN], [NAN, NAN], [NAN, NAN]])  # one judged completion in a group
    for rewards in scripts:
        expected = trl_advantages(trainer, rewards.clone(), weights)
        found = estimated_advantages(rewards, weights, 4, preset)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale_rewards", ["batch", "none", False])
def test_scale_rewards_that_normalize_then_sum_does_not_read_is_refused(scale_rewards):
    with pytest.raises(UserError, match="has no effect with multi_objective_aggregation='normalize_then_sum'"):
        resolved_preset("trl", scale_rewards=scale_rewards, multi_objective_aggregation="normalize_then_sum")


def test_gdpo_preset_equals_trl_normalize_then_sum(trl_trainers):
    trainer = trl_trainers[GRPOTrainer]
    trainer.scale_rewards, trainer.multi_objective_aggregation = "group", "normalize_then_sum"
    weights = torch.tensor([2.0, 0.3])
    expected = trl_advantages(trainer, script(7), weights)
    torch.testing.assert_close(
        estimated_advantages(script(7), weights, 4, PRESETS["gdpo"]), expected, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("normalize", [False, True])
def test_rloo_preset_equals_the_advantages_of_trl_rloo(trl_trainers, normalize):
    trainer = trl_trainers[RLOOTrainer]
    trainer.normalize_advantages = normalize
    preset = resolved_preset("rloo", **({"scale": "batch_advantages"} if normalize else {}))
    weights = torch.ones(2)
    # with NaN the mean which TRL subtracts is 0 as well, as each group's leave-one-out advantages sum to 0
    for rewards in (script(1), script(2)):
        expected = trl_advantages(trainer, rewards.clone(), weights)
        torch.testing.assert_close(estimated_advantages(rewards, weights, 4, preset), expected, rtol=1e-5, atol=1e-5)


# slow reference


def reference(rewards, weights, num_generations, preset, running_mean):
    """Lists and loops over the same definition."""
    if preset.per_reward:
        single = replace(preset, per_reward=False)
        columns = [reference([[row[f]] for row in rewards], [1.0], num_generations, single, None) for f in range(2)]
        sums = [sum(w * column[row] for w, column in zip(weights, columns, strict=True)) for row in range(len(rewards))]
        return over_std(sums, [not all(map(math.isnan, row)) for row in rewards], preset)
    summed = [
        NAN if all(map(math.isnan, row)) else sum(w * r for w, r in zip(weights, row, strict=True) if not math.isnan(r))
        for row in rewards
    ]
    judged = [not math.isnan(reward) for reward in summed]
    batch = [reward for reward in summed if not math.isnan(reward)]
    result = []
    for row, reward in enumerate(summed):
        start = row // num_generations * num_generations
        group = [r for r in summed[start : start + num_generations] if not math.isnan(r)]
        others = [r for i, r in enumerate(summed[start : start + num_generations], start) if i != row and r == r]
        result.append(single_reference(reward, group, others, batch, preset, running_mean) if judged[row] else 0.0)
    return over_std(result, judged, preset) if preset.scale == "batch_advantages" else result


def single_reference(reward, group, others, batch, preset, running_mean):
    baseline = {
        "none": 0.0,
        "mean": mean(group),
        "leave_one_out": mean(others) if others else reward,
        "median": median(group),
        "batch": mean(batch),
        "running_mean": running_mean,
    }[preset.baseline]
    spread = {
        "group": std(group, preset.ddof),
        "batch": std(batch, preset.ddof),
        "leave_one_out": std(others, preset.ddof),
        "mad": 1.4826 * median([abs(r - median(group)) for r in group]),
    }.get(preset.scale)
    if preset.baseline not in ("none", "running_mean") and len(set(batch if preset.baseline == "batch" else group)) < 2:
        return 0.0
    if preset.scale == "mean":
        return (reward - baseline) / (mean(group) + preset.eps) if mean(group) > 0 else 0.0
    if spread is None or spread + preset.std_floor == 0:
        return reward - baseline
    return (reward - baseline) / (max(spread, preset.std_floor) + preset.eps)


def over_std(values, judged, preset):
    spread = max(std([v for v, j in zip(values, judged, strict=True) if j], preset.ddof), preset.std_floor)
    return [v / (spread + preset.eps) if spread > 0 else v for v in values]


def mean(values):
    return sum(values) / len(values)


def median(values):
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def std(values, ddof):
    if len(values) <= ddof or len(set(values)) < 2:
        return 0.0
    return math.sqrt(sum((v - mean(values)) ** 2 for v in values) / (len(values) - ddof))


COMBINATIONS = [
    (baseline, scale, per_reward)
    for baseline, scale, per_reward in itertools.product(BASELINES, SCALES, (False, True))
    if not (scale == "mean" and baseline in ("batch", "running_mean"))  # Preset refuses both
    and not (per_reward and baseline == "running_mean")
]


@pytest.mark.parametrize("baseline, scale, per_reward", COMBINATIONS)
def test_estimated_advantages_equal_a_slow_reference(baseline, scale, per_reward):
    for seed, (ddof, eps, floor) in enumerate([(1, 1e-4, 0.0), (0, 0.0, 0.0), (1, 0.0, 0.3)]):
        preset = Preset("custom", "group", baseline, scale, ddof, eps, floor, per_reward)
        rewards, weights = script(seed + 10), torch.tensor([1.0, 0.5])
        found = estimated_advantages(rewards, weights, 4, preset, running_mean=0.4)
        expected = torch.tensor(reference(rewards.tolist(), weights.tolist(), 4, preset, 0.4))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


# pass@k


@pytest.mark.parametrize("wins, count, k", [(1, 4, 2), (2, 6, 3), (2, 8, 4), (3, 5, 2), (1, 3, 1)])
def test_pass_at_k_equals_the_enumeration_of_all_subsets(wins, count, k):
    rewards = [1.0] * wins + [0.0] * (count - wins)
    subsets = [(subset, max(rewards[i] for i in subset)) for subset in itertools.combinations(range(count), k)]
    scores = [score for _, score in subsets]
    spread = std(scores, 0)
    of_row = [mean([score for subset, score in subsets if row in subset]) for row in range(count)]
    expected = [(own - mean(scores)) / spread for own in of_row]
    found = pass_at_k_advantages(torch.tensor(rewards), count, k=k, eps=0.0)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-6, atol=1e-7)


def test_pass_at_k_of_one_attempt_is_grpo_with_population_std():
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    expected = group_advantages(rewards, 4, ddof=0, eps=0.0)
    torch.testing.assert_close(pass_at_k_advantages(rewards, 4, k=1, eps=0.0), expected)


@pytest.mark.parametrize("rewards", [[1.0] * 4, [0.0] * 4, [1.0, 1.0, 1.0, 0.0], [1.0, NAN, NAN, 0.0], [NAN] * 4])
def test_pass_at_k_without_a_signal_is_exactly_zero(rewards):
    assert pass_at_k_advantages(torch.tensor(rewards), 4, k=2).tolist() == [0.0] * 4


def test_pass_at_k_counts_a_bonus_alone_as_failure_and_leaves_out_nan():
    plain = pass_at_k_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), 4, k=2)
    found = pass_at_k_advantages(torch.tensor([1.2, 0.2, NAN, 0.0, 0.2]), 5, k=2)
    assert found[[0, 1, 3, 4]].tolist() == plain.tolist() and found[2] == 0.0


@pytest.mark.parametrize(
    "rewards, num_generations, k", [(torch.zeros(4), 3, 2), (torch.zeros(2, 2), 2, 2), (torch.zeros(4), 4, 0)]
)
def test_pass_at_k_of_a_wrong_shape_or_k_raises(rewards, num_generations, k):
    with pytest.raises(ValueError, match="but must be"):
        pass_at_k_advantages(rewards, num_generations, k=k)


# edges


OF_THE_GROUP = [name for name in PRESETS if name not in ("reinforce", "reinforce_pp")]


@pytest.mark.parametrize("name", OF_THE_GROUP)
@pytest.mark.parametrize("value", [0.1, 0.0, 1.0, 1e6 + 0.1, -0.7])
def test_identical_rewards_give_exact_zeros_beside_another_group(name, value):
    found = advantages([value] * 3 + [1.0, 0.0, 0.3], 3, PRESETS[name])
    assert found[:3].tolist() == [0.0] * 3


@pytest.mark.parametrize("name", [*OF_THE_GROUP, "reinforce_pp"])
@pytest.mark.parametrize("rewards", [[0.1] * 6, [NAN] * 6, [0.1, NAN, NAN, NAN, 0.1, NAN]])
def test_batch_of_one_value_gives_exact_zeros(name, rewards):
    assert advantages(rewards, 3, PRESETS[name]).tolist() == [0.0] * 6


@pytest.mark.parametrize("name", OF_THE_GROUP)
def test_group_of_one_gives_exact_zeros(name):
    assert advantages([0.3, 1.0, 0.0], 1, PRESETS[name]).tolist() == [0.0] * 3
    assert advantages([0.3, NAN, NAN, 1.0], 2, PRESETS[name]).tolist() == [0.0] * 4


@pytest.mark.parametrize("name", PRESETS)
def test_row_without_a_reward_gets_zero_and_changes_no_other(name):
    preset = PRESETS[name]
    whole = advantages([1.0, 0.0, 0.0, 0.25, 1.0, 0.0], 3, preset, running_mean=0.5)
    holed = advantages([1.0, NAN, 0.0, 0.0, 0.25, 1.0, NAN, 0.0], 4, preset, running_mean=0.5)
    assert holed[[1, 6]].tolist() == [0.0, 0.0]
    torch.testing.assert_close(holed[[0, 2, 3, 4, 5, 7]], whole)


@pytest.mark.parametrize("name", PRESETS)
def test_empty_batch_gives_an_empty_result(name):
    assert estimated_advantages(torch.zeros(0, 2), torch.ones(2), 4, PRESETS[name]).shape == (0,)


@pytest.mark.parametrize("name", PRESETS)
def test_result_is_float32_and_does_not_depend_on_the_order_of_groups(name):
    rewards = torch.tensor(TWO_GROUPS, dtype=torch.bfloat16)[:, None]
    found = estimated_advantages(rewards, torch.ones(1), 4, PRESETS[name], running_mean=0.5)
    swapped = estimated_advantages(rewards.roll(4, 0), torch.ones(1), 4, PRESETS[name], running_mean=0.5)
    assert found.dtype == torch.float32
    torch.testing.assert_close(swapped, found.roll(4), rtol=0, atol=1e-7)


def test_gdpo_keeps_apart_what_the_sum_makes_equal():
    rewards = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    summed = estimated_advantages(rewards, torch.ones(2), 4, PRESETS["trl"])
    apart = estimated_advantages(rewards, torch.ones(2), 4, PRESETS["gdpo"])
    assert summed[0] == summed[1]
    # the rarer success counts more
    assert apart[0] > apart[1] + 0.25


def test_weighted_rewards_skips_none_and_marks_rows_without_any():
    rewards = torch.tensor([[1.0, 2.0], [NAN, 2.0], [NAN, NAN]])
    found = weighted_rewards(rewards, torch.tensor([1.0, 0.5]))
    torch.testing.assert_close(found, torch.tensor([2.0, 1.0, NAN], dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize(
    "rewards, weights, sentence",
    [
        (torch.zeros(4), torch.ones(1), r"rewards_per_func has shape \(4,\)"),
        (torch.zeros(4, 2), torch.ones(3), r"weights \(3,\)"),
        (torch.zeros(4, 0), torch.ones(0), "F of 1 or more"),
        (torch.tensor([[0.0, math.inf]]), torch.ones(2), "inf in column 1"),
        (torch.zeros(4, 1), torch.tensor([NAN]), "weights is .nan., but must be finite"),
    ],
)
def test_weighted_rewards_of_bad_input_raises(rewards, weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        weighted_rewards(rewards, weights)


def test_estimated_advantages_of_broken_groups_or_without_running_mean_raises():
    with pytest.raises(ValueError, match="num_generations is 3, but must be 1 or more and divide the 4 rows"):
        advantages([0.0] * 4, 3, PRESETS["trl"])
    with pytest.raises(ValueError, match="running_mean is None"):
        advantages([0.0] * 4, 4, PRESETS["reinforce"])


# RunningMean


def test_running_mean_weighs_batches_by_their_age():
    baseline = RunningMean(decay=0.5)
    assert baseline.value == 0.0
    batches = [[1.0, 0.0, NAN], [0.5], [NAN, NAN], [0.25, 0.75, 1.0]]
    total = weight = 0.0
    for batch in batches:
        baseline.update(torch.tensor(batch))
        judged = [reward for reward in batch if reward == reward]
        if judged:
            total, weight = 0.5 * total + sum(judged), 0.5 * weight + len(judged)
            assert baseline.value == pytest.approx(total / weight, abs=1e-12)


def test_running_mean_without_decay_is_the_mean_of_everything():
    baseline, rewards = RunningMean(decay=1.0), torch.arange(12.0)
    for batch in rewards.split(5):
        baseline.update(batch)
    assert baseline.value == pytest.approx(rewards.mean().item())


def test_running_mean_goes_on_from_its_state():
    first, second = RunningMean(), RunningMean()
    first.update(torch.tensor([1.0, 0.0, 0.0]))
    second.load_state_dict(first.state_dict())
    for baseline in (first, second):
        baseline.update(torch.tensor([0.3]))
    assert first.value == second.value


def test_running_mean_as_a_baseline_is_unbiased_in_expectation():
    # two actions with rewards 1 and 0 and probability p of the first: E[A * d log p / dp] = 1 whatever the baseline
    p, baseline = 0.3, 0.7
    score = {1.0: 1 / p, 0.0: -1 / (1 - p)}
    found = advantages([1.0, 0.0], 1, PRESETS["reinforce"], running_mean=baseline).tolist()
    assert p * found[0] * score[1.0] + (1 - p) * found[1] * score[0.0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("decay", [0.0, -1.0, 1.1, NAN])
def test_running_mean_with_a_bad_decay_raises(decay):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        RunningMean(decay)


@pytest.mark.parametrize("state", [{}, {"total": 1.0}, {"total": NAN, "weight": 1.0}, {"total": 0.0, "weight": -1.0}])
def test_running_mean_of_a_bad_state_raises(state):
    with pytest.raises(ValueError, match=r"but (needs|must hold)"):
        RunningMean().load_state_dict(state)
    with pytest.raises(ValueError, match="inf"):
        RunningMean().update(torch.tensor([math.inf]))


# resolved_preset and check_preset


def test_resolved_preset_without_settings_is_the_preset():
    assert all(resolved_preset(name) == preset for name, preset in PRESETS.items())


def test_resolved_preset_takes_trl_fields_and_overrides():
    assert resolved_preset("trl", scale_rewards="batch").scale == "batch"
    assert resolved_preset("trl", scale_rewards=False).scale == "none"
    assert resolved_preset("custom", multi_objective_aggregation="normalize_then_sum").per_reward
    assert resolved_preset("dr_grpo", scale_rewards="none") == PRESETS["dr_grpo"]
    assert resolved_preset("gdpo", multi_objective_aggregation="normalize_then_sum") == PRESETS["gdpo"]
    preset = resolved_preset("custom", baseline="median", scale="mad", eps=0, std_floor=0.1)
    assert (preset.baseline, preset.scale, preset.eps, preset.std_floor, preset.ddof) == ("median", "mad", 0, 0.1, 1)
    assert resolved_preset("pass_at_k", pass_k=4).pass_k == 4


@pytest.mark.parametrize(
    "name, settings, sentence",
    [
        ("rlo", {}, "advantage_estimator='rlo' is unknown; choose one of trl, .*; did you mean 'rloo'"),
        ("trl", {"baseline": "men"}, "advantage_baseline='men' is unknown.*did you mean 'me(an|dian)'"),
        ("trl", {"scale": "std"}, "advantage_scale='std' is unknown"),
        ("trl", {"ddof": 2}, "advantage_ddof=2 must be 0 or 1"),
        ("trl", {"eps": -1e-4}, "advantage_eps=-0.0001 must be a finite number of 0 or more"),
        ("trl", {"eps": "small"}, "advantage_eps='small' must be a finite number"),
        ("trl", {"std_floor": math.inf}, "advantage_std_floor=inf must be a finite number"),
        ("trl", {"scale_rewards": "rms"}, "scale_rewards='rms' is unknown"),
        ("trl", {"scale_rewards": "batch", "scale": "none"}, "two names of one setting and differ"),
        ("verl", {"scale_rewards": "batch"}, "scale_rewards='batch' and advantage_scale='group'"),
        (
            "rloo",
            {"multi_objective_aggregation": "normalize_then_sum"},
            "has no effect with advantage_estimator='rloo'",
        ),
        ("trl", {"multi_objective_aggregation": "sum"}, "multi_objective_aggregation='sum' is unknown"),
        ("dr_grpo", {"std_floor": 0.1}, "advantage_std_floor=0.1 has no effect .* scale 'none'; leave it unset"),
        ("maxrl", {"ddof": 0}, "advantage_ddof=0 has no effect"),
        ("custom", {"scale": "mad", "ddof": 0}, "advantage_ddof=0 has no effect"),
        ("pass_at_k", {"baseline": "mean"}, "advantage_baseline='mean' has no effect"),
        ("pass_at_k", {"pass_k": 0}, "pass_k=0 must be a whole number of at least 1"),
        ("trl", {"pass_k": 2}, "pass_k=2 has no effect"),
        ("maxrl", {"baseline": "running_mean"}, "divides by the group's success rate"),
        ("gdpo", {"baseline": "running_mean"}, "each reward is normalised on its own"),
    ],
)
def test_resolved_preset_of_bad_settings_says_so_in_one_sentence(name, settings, sentence):
    with pytest.raises(UserError, match=sentence):
        resolved_preset(name, **settings)


@pytest.mark.parametrize(
    "preset, num_generations, sentence",
    [
        (PRESETS["trl"], 1, "advantage_baseline='mean' needs num_generations of 2 or more, not 1"),
        (PRESETS["rloo"], 1, "advantage_baseline='leave_one_out' needs num_generations of 2"),
        (resolved_preset("reinforce", scale="group"), 1, "advantage_scale='group' needs num_generations of 2 or more"),
        (
            resolved_preset("trl", scale="leave_one_out"),
            2,
            "advantage_scale='leave_one_out' needs num_generations of 3",
        ),
        (PRESETS["pass_at_k"], 2, "pass_k=2 with num_generations=2 makes every advantage 0"),
    ],
)
def test_check_preset_refuses_groups_that_are_too_small(preset, num_generations, sentence):
    with pytest.raises(UserError, match=sentence):
        check_preset(preset, num_generations)


@pytest.mark.parametrize("name", PRESETS)
def test_check_preset_accepts_every_preset_with_its_least_group(name):
    check_preset(PRESETS[name], {"pass_at_k": 3, "reinforce": 1, "reinforce_pp": 1}.get(name, 2))
