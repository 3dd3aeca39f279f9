"""Scores, advantages and targets: against hand numbers, identities and a slow loop."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from trl_ext.ppo.scoring import Rollouts, RunningScale, estimate, last_token_index, score_at_end, shape_scores


class OneProcess:
    num_processes = 1


def _args(**settings):
    defaults = {
        "gamma": 1.0,
        "lam": 0.95,
        "lam_policy": None,
        "lam_value": None,
        "length_adaptive_lam": None,
        "whiten_advantages": False,
        "whiten_rewards": False,
        "bootstrap_truncated": False,
        "critic_target": "gae",
        "reward_running_scale": False,
        "reward_clip": None,
        "missing_eos_penalty": None,
    }
    return SimpleNamespace(**{**defaults, **settings})


def _rollouts(seed=0, batch=5, length=7, kl=True):
    """Ragged rows, one with a gap of tool tokens, one without a score (mask 0); junk stands outside the mask."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    lengths = torch.tensor([length, 4, 1, 6, 5])[:batch]
    mask = (torch.arange(length) < lengths[:, None]).long()
    mask[3, 2:4] = 0
    mask[4] = 0
    return Rollouts(
        scores=draw(batch),
        values=draw(batch, length + 1),
        mask=mask,
        kl_penalty=torch.where(mask.bool(), 0.1 * draw(batch, length), 0.0) if kl else None,
        truncated=torch.tensor([True, False, True, False, True])[:batch],
    )


def _slow(rollouts, args, lam):
    """Advantages (B, T) of the trainable tokens one after the other, from the last to the first."""
    batch, length = rollouts.mask.shape
    advantages, rewards_to_go, td = (torch.zeros(batch, length) for _ in range(3))
    for b in range(batch):
        steps = [t for t in range(length) if rollouts.mask[b, t]]
        bootstrap = 0.0
        if steps and args.bootstrap_truncated and rollouts.truncated[b]:
            bootstrap = rollouts.values[b, steps[-1] + 1].item()
        running, to_go, next_value = 0.0, bootstrap, bootstrap
        for t in reversed(steps):
            reward = rollouts.scores[b].item() if t == steps[-1] else 0.0
            if rollouts.kl_penalty is not None:
                reward -= rollouts.kl_penalty[b, t].item()
            delta = reward + args.gamma * next_value - rollouts.values[b, t].item()
            running = delta + args.gamma * lam * running
            to_go = reward + args.gamma * to_go
            advantages[b, t], rewards_to_go[b, t], td[b, t] = running, to_go, delta
            next_value = rollouts.values[b, t].item()
    return advantages, rewards_to_go, td


def _close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("gamma, lam", itertools.product([0.0, 0.9, 1.0], [0.0, 0.5, 0.95, 1.0]))
def test_estimate_equals_a_slow_loop(gamma, lam, bootstrap):
    for seed in range(3):
        rollouts, args = _rollouts(seed), _args(gamma=gamma, lam=lam, bootstrap_truncated=bootstrap)
        result = estimate(rollouts, args, OneProcess)
        advantages, _, td = _slow(rollouts, args, lam)
        mask = rollouts.mask.bool()
        _close(result["advantages"], advantages)
        _close(result["returns"], torch.where(mask, advantages + rollouts.values[:, :-1], 0.0))
        _close(result["td_errors"], td)
        _close(result["old_values"], torch.where(mask, rollouts.values[:, :-1], 0.0))


@pytest.mark.parametrize("bootstrap", [False, True])
def test_advantages_with_lambda_one_are_monte_carlo_minus_value(bootstrap):
    rollouts, args = _rollouts(), _args(gamma=0.9, lam=1.0, bootstrap_truncated=bootstrap)
    _, to_go, _ = _slow(rollouts, args, 1.0)
    mask = rollouts.mask.bool()
    _close(estimate(rollouts, args, OneProcess)["advantages"], torch.where(mask, to_go - rollouts.values[:, :-1], 0.0))


def test_advantages_with_lambda_zero_are_td_errors():
    result = estimate(_rollouts(), _args(gamma=0.9, lam=0.0), OneProcess)
    _close(result["advantages"], result["td_errors"])


def test_advantages_by_hand():
    rollouts = Rollouts(
        scores=torch.tensor([1.0]),
        values=torch.tensor([[0.2, 0.5, 9.0, 9.0]]),
        mask=torch.tensor([[1, 1, 0]]),
        kl_penalty=torch.tensor([[0.1, 0.0, 7.0]]),
        truncated=torch.tensor([False]),
    )
    result = estimate(rollouts, _args(gamma=0.5, lam=0.5), OneProcess)
    # delta = (-0.1 + 0.5 * 0.5 - 0.2, 1 - 0.5) = (-0.05, 0.5); A = (-0.05 + 0.25 * 0.5, 0.5)
    _close(result["advantages"], torch.tensor([[0.075, 0.5, 0.0]]))
    _close(result["returns"], torch.tensor([[0.275, 1.0, 0.0]]))
    _close(result["token_rewards"], torch.tensor([[-0.1, 1.0, 0.0]]))


def test_lambda_of_policy_and_value_may_differ():
    rollouts = _rollouts()
    result = estimate(rollouts, _args(lam=0.3, lam_policy=0.5, lam_value=1.0), OneProcess)
    mask = rollouts.mask.bool()
    _close(result["advantages"], _slow(rollouts, _args(), 0.5)[0])
    _close(result["returns"], torch.where(mask, _slow(rollouts, _args(), 1.0)[1], 0.0))
    only_value = estimate(rollouts, _args(lam=0.3, lam_value=1.0), OneProcess)
    _close(only_value["advantages"], _slow(rollouts, _args(), 0.3)[0])


def test_length_adaptive_lambda_is_of_the_policy_alone():
    rollouts = _rollouts()
    result = estimate(rollouts, _args(lam=0.7, length_adaptive_lam=0.5), OneProcess)
    lengths = rollouts.mask.sum(1)
    for row, length in enumerate(lengths.tolist()):
        lam = max(0.0, 1 - 1 / (0.5 * length)) if length else 0.0
        _close(result["advantages"][row], _slow(rollouts, _args(), lam)[0][row])
    values = torch.where(rollouts.mask.bool(), rollouts.values[:, :-1], 0.0)
    _close(result["returns"], _slow(rollouts, _args(), 0.7)[0] + values)


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("target", ["gae", "reward_to_go", "terminal", "td"])
def test_critic_target_is_what_its_name_says(target, bootstrap):
    rollouts, args = _rollouts(), _args(gamma=0.9, critic_target=target, bootstrap_truncated=bootstrap)
    advantages, to_go, td = _slow(rollouts, args, 0.95)
    mask, values = rollouts.mask.bool(), rollouts.values[:, :-1]
    expected = {
        "gae": advantages + values,
        "reward_to_go": to_go,
        "terminal": rollouts.scores[:, None].expand_as(values),
        "td": td + values,
    }[target]
    result = estimate(rollouts, args, OneProcess)
    _close(result["returns"], torch.where(mask, expected, 0.0))
    _close(result["advantages"], advantages)


def test_whitened_advantages_have_mean_zero_and_variance_one_over_the_mask():
    rollouts = _rollouts()
    result = estimate(rollouts, _args(whiten_advantages=True), OneProcess)
    kept, raw = (result[name][rollouts.mask.bool()].double() for name in ("advantages", "raw_advantages"))
    assert kept.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert kept.var(unbiased=False).item() == pytest.approx(1.0, rel=1e-4)
    assert torch.corrcoef(torch.stack([kept, raw]))[0, 1] == pytest.approx(1.0)
    _close(result["raw_advantages"], _slow(rollouts, _args(), 0.95)[0])
    assert (result["advantages"][~rollouts.mask.bool()] == 0).all()


def test_whitened_rewards_have_variance_one_and_their_mean():
    rollouts = _rollouts()
    plain = estimate(rollouts, _args(), OneProcess)["token_rewards"]
    kept, mask = plain[rollouts.mask.bool()], rollouts.mask.bool()
    expected = (plain - kept.mean()) / kept.std(unbiased=False) + kept.mean()  # as TRL <= 1.12
    result = estimate(rollouts, _args(whiten_rewards=True), OneProcess)
    torch.testing.assert_close(result["token_rewards"], torch.where(mask, expected, 0.0), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("junk", [1e9, float("nan"), float("inf")])
def test_estimate_does_not_read_what_the_mask_hides(junk):
    settings = {"whiten_advantages": True, "whiten_rewards": True, "bootstrap_truncated": True}
    rollouts = _rollouts()
    expected = estimate(rollouts, _args(**settings), OneProcess)
    hidden = ~rollouts.mask.bool()
    last = last_token_index(rollouts.mask)
    bootstrap_at = torch.arange(rollouts.values.size(1)) == (last + 1)[:, None]
    hidden_values = torch.cat([hidden, torch.ones(len(hidden), 1, dtype=torch.bool)], 1)
    hidden_values &= ~(bootstrap_at & rollouts.truncated[:, None] & (last >= 0)[:, None])
    rollouts.values = rollouts.values.masked_fill(hidden_values, junk)
    rollouts.kl_penalty = rollouts.kl_penalty.masked_fill(hidden, junk)
    for name, tensor in estimate(rollouts, _args(**settings), OneProcess).items():
        assert torch.equal(tensor, expected[name]), name


def test_bootstrap_is_for_truncated_rows_alone():
    rollouts = _rollouts()
    without, with_bootstrap = (
        estimate(rollouts, _args(lam=1.0, bootstrap_truncated=flag), OneProcess)["advantages"] for flag in (False, True)
    )
    changed = (without != with_bootstrap).any(1)
    assert changed.tolist() == [True, False, True, False, False]  # the last row is truncated and has no score
    difference = with_bootstrap[0] - without[0]
    _close(difference, torch.full((7,), rollouts.values[0, 7].item()))  # gamma 1: the value after the last token


def test_estimate_without_any_trainable_token_is_zero():
    rollouts = _rollouts()
    rollouts.mask = torch.zeros_like(rollouts.mask)
    result = estimate(rollouts, _args(whiten_advantages=True, whiten_rewards=True), OneProcess)
    assert all((tensor == 0).all() for tensor in result.values())


def test_score_stands_on_the_last_trainable_token():
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 0, 0]])
    assert last_token_index(mask).tolist() == [2, 0, 2, 1, -1]
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    expected = [[0.0, 0.0, 1.0], [2.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 4.0, 0.0], [0.0, 0.0, 0.0]]
    assert score_at_end(scores, mask).tolist() == expected


def test_scores_are_scaled_then_clipped_then_penalised():
    scale = RunningScale()
    scale.update(torch.tensor([-2.0, 2.0]))  # std 8 ** 0.5
    scores, truncated = torch.tensor([8.0, -8.0, 1.0]), torch.tensor([True, False, True])
    assert shape_scores(scores, truncated, _args(), scale).tolist() == scores.tolist()
    assert shape_scores(scores, truncated, _args(reward_clip=2.0), scale).tolist() == [2.0, -2.0, 1.0]
    assert shape_scores(scores, truncated, _args(missing_eos_penalty=0.5), scale).tolist() == [7.5, -8.0, 0.5]
    every = _args(reward_running_scale=True, reward_clip=1.5, missing_eos_penalty=10.0)
    expected = [1.5 - 10, -1.5, 8**-0.5 - 10]
    assert shape_scores(scores, truncated, every, scale).tolist() == pytest.approx(expected)


def test_running_scale_is_the_standard_deviation_of_all_scores_seen():
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(n, generator=generator) * 3 + 50 for n in (1, 4, 7)]
    scale = RunningScale()
    assert scale.std == 1.0
    for batch in batches:
        scale.update(torch.cat([batch, torch.tensor([torch.nan])]))
    assert scale.std == pytest.approx(torch.cat(batches).double().std().item(), rel=1e-6)
    again = RunningScale()
    again.load_state_dict(scale.state_dict())
    assert again.std == scale.std


@pytest.mark.parametrize("scores", [[2.0], [2.0, 2.0, 2.0], [], [float("nan")]])
def test_running_scale_of_scores_without_spread_is_one(scores):
    scale = RunningScale()
    scale.update(torch.tensor(scores))
    assert scale.std == 1.0
