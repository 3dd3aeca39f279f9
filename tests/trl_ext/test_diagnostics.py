"""Critic and objective figures: hand numbers, float64 references, and the same figures for every split."""

import math
import threading

import pytest
import torch
from accelerate import Accelerator

from trl_ext.advantages import td_errors
from trl_ext.diagnostics import CriticAccounting, ObjectiveLedger, explained_variance
from trl_ext.losses import value_loss

SINGLE = type("Single", (), {"num_processes": 1})()


class Rank:
    """One of several threads which stand for processes: `gather` and `reduce` really exchange tensors."""

    device = torch.device("cpu")

    def __init__(self, rank, num_processes, slots, barrier):
        self.rank, self.num_processes, self._slots, self._barrier = rank, num_processes, slots, barrier

    def gather(self, tensor):
        self._slots[self.rank] = tensor.clone()
        self._barrier.wait()
        joined = torch.cat(list(self._slots))
        self._barrier.wait()
        return joined

    def reduce(self, tensor, reduction="mean"):
        total = self.gather(tensor[None]).sum(0)
        return total / self.num_processes if reduction == "mean" else total


def reduce_on_processes(parts):
    """Call `reduce` of each part on a thread of its own."""
    slots, barrier, results = [None] * len(parts), threading.Barrier(len(parts), timeout=30), [None] * len(parts)

    def work(rank):
        results[rank] = parts[rank].reduce(Rank(rank, len(parts), slots, barrier))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def batch(seed=0, shape=(6, 13), offset=0.0, noise=1.0):
    """Everything `update` takes, in float64, with NaN and inf wherever the mask is 0."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(shape, generator=generator) < 0.7).long()
    mask[0] = 0
    values, old, returns = (
        offset + noise * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    values, old = values + 0.3 * noise, (old + returns) / 2
    old, returns = (torch.where(mask.bool(), x, bad) for x, bad in ((old, math.nan), (returns, math.inf)))
    deltas = noise * torch.randn(shape, generator=generator, dtype=torch.float64)
    loss, stats = value_loss(values, old, returns, mask, cliprange=0.5 * noise)
    return {
        "values": values, "returns": returns, "mask": mask, "old_values": old,
        "td_errors": torch.where(mask.bool(), deltas, math.nan), "loss": loss, "stats": stats,
    }  # fmt: skip


def rows(data, chosen):
    cut = {name: x[chosen] for name, x in data.items() if name != "stats"}
    return cut | {"stats": {name: x[chosen] for name, x in data["stats"].items()}}


def updated(data, num_buckets=4):
    accounting = CriticAccounting(num_buckets)
    accounting.update(**data)
    return accounting


def reference_figures(data, num_buckets=4):
    """Each figure from its definition on the selected tokens."""
    keep = data["mask"].bool()
    v, r, old, td = (data[name][keep] for name in ("values", "returns", "old_values", "td_errors"))
    error, variance = v - r, r.var(correction=0)
    figures = {
        "num_tokens": len(v),
        "loss": data["loss"][keep].double().mean(),
        "loss_unclipped": data["stats"]["loss_unclipped"][keep].double().mean(),
        "loss_clipped": data["stats"]["loss_clipped"][keep].double().mean(),
        "clip_frac": data["stats"]["clipped"][keep].mean(dtype=torch.float64),
        "clip_frac_region": data["stats"]["clipped_region"][keep].mean(dtype=torch.float64),
        "explained_variance": 1 - error.var(correction=0) / variance,
        "explained_variance_old": 1 - (old - r).var(correction=0) / variance,
        "r2": 1 - error.square().mean() / variance,
        "bias": error.mean(),
        "rmse": error.square().mean().sqrt(),
        "corr": torch.corrcoef(torch.stack([v, r]))[0, 1],
        "zero_variance": 0.0,
        "td_error_mean": td.mean(),
        "td_error_abs": td.abs().mean(),
        "td_error_std": td.std(correction=0),
        "td_error_max": td.abs().max(),
    }
    for name, x in (("values", v), ("returns", r)):
        figures |= {f"{name}_mean": x.mean(), f"{name}_std": x.std(correction=0)}
        figures |= {f"{name}_min": x.min(), f"{name}_max": x.max()}
    buckets = [[] for _ in range(num_buckets)]
    for row in range(len(keep)):
        places = keep[row].nonzero().flatten().tolist()
        for number, place in enumerate(places):
            difference = data["values"][row, place] - data["returns"][row, place]
            buckets[math.floor(num_buckets * number / len(places))].append(difference)
    for bucket, errors in enumerate(buckets):
        if errors:
            figures[f"rmse_bucket_{bucket}"] = torch.stack(errors).square().mean().sqrt()
            figures[f"bias_bucket_{bucket}"] = torch.stack(errors).mean()
    return {name: float(x) for name, x in figures.items()}


def assert_same(actual, expected, rel=1e-9):
    assert sorted(actual) == sorted(expected)
    for name, value in expected.items():
        assert actual[name] == pytest.approx(value, rel=rel, abs=1e-12), name


# --- explained variance


def test_explained_variance_hand_numbers():
    returns, ones = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.ones(1, 4)
    assert explained_variance(returns, returns, ones) == 1.0
    assert explained_variance(torch.full((1, 4), 2.5), returns, ones) == 0.0
    assert explained_variance(-returns, returns, ones) == -3.0
    assert explained_variance(returns / 2, returns, ones) == 0.75


def test_explained_variance_ignores_bias_and_masked_entries():
    returns = torch.tensor([[1.0, 2.0, math.nan, 4.0]])
    assert explained_variance(returns + 100, returns, torch.tensor([[1, 1, 0, 1]])) == 1.0


@pytest.mark.parametrize("mask", [[[1, 1, 1]], [[1, 0, 0]], [[0, 0, 0]]])
@pytest.mark.parametrize("value", [0.1, 7.0])
def test_explained_variance_equal_returns_give_zero(mask, value):
    for dtype in (torch.float32, torch.float64):
        returns = torch.full((1, 3), 0.1, dtype=dtype)
        assert explained_variance(torch.full((1, 3), value, dtype=dtype), returns, torch.tensor(mask)) == 0.0


def test_explained_variance_bad_shape_raises():
    with pytest.raises(ValueError, match="mask has shape"):
        explained_variance(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(3, 2))


# --- critic accounting


def test_critic_accounting_hand_numbers_show_the_bias_that_explained_variance_hides():
    returns = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    accounting = CriticAccounting(num_buckets=2)
    accounting.update(returns + torch.tensor([2.0, 2.0, 3.0, 3.0]), returns, torch.ones(1, 4))
    figures = accounting.compute()
    assert figures["bias"] == 2.5
    assert figures["rmse"] == pytest.approx(math.sqrt(6.5))
    assert figures["r2"] == pytest.approx(1 - 26 / 5)
    assert figures["explained_variance"] == pytest.approx(0.8)
    assert (figures["bias_bucket_0"], figures["bias_bucket_1"]) == (2.0, 3.0)
    assert (figures["values_min"], figures["values_max"], figures["returns_mean"]) == (3.0, 7.0, 2.5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_buckets", [1, 4, 7])
def test_critic_accounting_ragged_mask_equals_the_definitions(seed, num_buckets):
    data = batch(seed)
    assert_same(updated(data, num_buckets).compute(), reference_figures(data, num_buckets))


@pytest.mark.parametrize(("offset", "noise"), [(0.0, 1.0), (1e6, 1.0), (1e6, 1e-2), (-1e6, 1e-3)])
@pytest.mark.parametrize("cuts", [[6], [1, 5], [2, 2, 2], [1] * 6])
def test_critic_accounting_any_micro_batches_give_the_same_figures(offset, noise, cuts):
    data = batch(1, offset=offset, noise=noise)
    accounting, start = CriticAccounting(), 0
    for cut in cuts:
        accounting.update(**rows(data, slice(start, start + cut)))
        start += cut
    assert_same(accounting.compute(), updated(data).compute())
    assert_same(accounting.compute(), reference_figures(data), rel=1e-6)


@pytest.mark.parametrize("cuts", [[3, 3], [1, 2, 3], [6, 0], [0, 0, 6]])
def test_critic_accounting_any_processes_give_the_same_figures(cuts):
    data = batch(2, offset=1e6)
    starts = [sum(cuts[:rank]) for rank in range(len(cuts))]
    parts = [
        updated(rows(data, slice(start, start + cut))) if cut else CriticAccounting()
        for start, cut in zip(starts, cuts, strict=True)
    ]
    before = [part.compute() for part in parts]
    for reduced in reduce_on_processes(parts):
        assert_same(reduced.compute(), updated(data).compute())
    assert [part.compute() for part in parts] == before


def test_critic_accounting_merge_equals_one_accounting():
    data = batch(3, offset=1e6)
    whole = updated(data)
    for cut in (0, 2, 6):
        left = updated(rows(data, slice(0, cut))) if cut else CriticAccounting()
        left.merge(updated(rows(data, slice(cut, 6))) if cut < 6 else CriticAccounting())
        assert_same(left.compute(), whole.compute())


def test_critic_accounting_one_process_reduces_without_communication():
    accounting = updated(batch(4))
    assert accounting.reduce(SINGLE).compute() == accounting.compute()
    reduced = accounting.reduce(Accelerator(cpu=True))
    reduced.update(**batch(5))
    assert reduced.compute()["num_tokens"] > accounting.compute()["num_tokens"]


def test_critic_accounting_figures_without_data_are_left_out():
    assert CriticAccounting().compute() == {"num_tokens": 0.0}
    data = batch(5)
    accounting = CriticAccounting()
    accounting.update(data["values"], data["returns"], torch.zeros_like(data["mask"]))
    assert accounting.compute() == {"num_tokens": 0.0}
    accounting.update(data["values"], data["returns"], data["mask"])
    assert not {"loss", "clip_frac", "td_error_mean", "explained_variance_old"} & set(accounting.compute())
    one = CriticAccounting()
    one.update(torch.ones(1, 1), torch.zeros(1, 1), torch.ones(1, 1))
    assert {name for name in one.compute() if "bucket" in name} == {"rmse_bucket_0", "bias_bucket_0"}


def test_critic_accounting_equal_returns_are_flagged_and_not_flattered():
    accounting = CriticAccounting()
    for _ in range(3):
        returns = torch.full((2, 3), 0.1, dtype=torch.float64)
        accounting.update(returns, returns, torch.ones(2, 3), old_values=returns)
    figures = accounting.compute()
    assert figures["zero_variance"] == 1.0
    for name in ("explained_variance", "explained_variance_old", "r2", "corr"):
        assert figures[name] == 0.0
    accounting.update(torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1))
    assert accounting.compute()["zero_variance"] == 0.0
    assert accounting.compute()["explained_variance"] == pytest.approx(1.0)


def test_critic_accounting_old_values_of_some_batches_are_judged_by_their_own_returns():
    data = batch(6)
    accounting = updated(data)
    accounting.update(torch.zeros(1, 2), torch.tensor([[50.0, -50.0]]), torch.ones(1, 2))
    expected = reference_figures(data)["explained_variance_old"]
    assert accounting.compute()["explained_variance_old"] == pytest.approx(expected)


def test_critic_accounting_half_precision_is_summed_in_float64():
    values = torch.full((1, 4096), 1.0, dtype=torch.bfloat16)
    accounting = CriticAccounting()
    accounting.update(values, torch.zeros_like(values), torch.ones(1, 4096))
    assert accounting.compute()["bias"] == 1.0
    assert accounting.compute()["num_tokens"] == 4096


def test_critic_accounting_state_round_trip_and_reset():
    data, loaded = batch(7), CriticAccounting()
    accounting = updated(rows(data, slice(0, 3)))
    loaded.load_state_dict(accounting.state_dict())
    accounting.reset()
    assert accounting.compute() == {"num_tokens": 0.0}
    loaded.update(**rows(data, slice(3, 6)))
    assert_same(loaded.compute(), updated(data).compute())
    loaded.load_state_dict(accounting.state_dict())
    assert loaded.compute() == {"num_tokens": 0.0}


def test_critic_accounting_holds_no_graph():
    values = torch.randn(2, 3, requires_grad=True)
    loss, stats = value_loss(values, None, torch.zeros(2, 3), torch.ones(2, 3))
    accounting = CriticAccounting()
    accounting.update(values, torch.zeros(2, 3), torch.ones(2, 3), loss=loss, stats=stats)
    assert not any(x.requires_grad for x in accounting.state_dict()["state"].values())


def test_accounting_never_reads_a_value_on_the_device():
    # meta tensors hold no numbers: whatever would wait for a device raises here
    x = torch.zeros(2, 3, device="meta")
    loss, stats = value_loss(x, x, x, x, cliprange=0.2)
    accounting, other, ledger = CriticAccounting(), CriticAccounting(), ObjectiveLedger()
    for each in (accounting, other, accounting):
        each.update(x, x, x, old_values=x, td_errors=x, loss=loss, stats=stats)
        ledger.add("value", loss.sum(), weight=0.5)
    accounting.merge(other)
    with pytest.raises((RuntimeError, NotImplementedError)):
        accounting.compute()


def test_critic_accounting_td_errors_of_a_perfect_critic_are_zero():
    values = torch.tensor([[0.5, 0.5]])
    deltas = td_errors(torch.tensor([[0.0, 0.5]]), values, torch.ones(1, 2))
    accounting = CriticAccounting()
    accounting.update(values, values, torch.ones(1, 2), td_errors=deltas)
    figures = accounting.compute()
    assert [figures[f"td_error_{name}"] for name in ("mean", "abs", "std", "max")] == [0.0] * 4


def test_critic_accounting_bad_arguments_raise():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="num_buckets is 0"):
        CriticAccounting(0)
    with pytest.raises(ValueError, match="old_values has shape"):
        CriticAccounting().update(x, x, x, old_values=x[:1])
    with pytest.raises(ValueError, match="loss has shape"):
        CriticAccounting().update(x, x, x, loss=x.sum())
    with pytest.raises(ValueError, match=r"values has shape \(3,\)"):
        CriticAccounting().update(x[0], x[0], x[0])
    with pytest.raises(ValueError, match="stats lacks"):
        CriticAccounting().update(x, x, x, stats={"clipped": x})
    with pytest.raises(ValueError, match="num_buckets is 2"):
        CriticAccounting(3).merge(CriticAccounting(2))
    with pytest.raises(ValueError, match="num_buckets is 2"):
        CriticAccounting(3).load_state_dict(CriticAccounting(2).state_dict())


# --- objective ledger


def test_objective_ledger_hand_numbers_sum_over_micro_batches():
    ledger = ObjectiveLedger()
    for policy, value in ((0.25, 4.0), (-1.0, 2.0)):
        ledger.add("policy", torch.tensor(policy, requires_grad=True))
        ledger.add("value", value, weight=0.5)
    ledger.add("entropy", torch.tensor([2.0]), weight=-0.01)
    assert ledger.compute() == {"policy": -0.75, "value": 3.0, "entropy": -0.02, "total": -0.75 + 3.0 - 0.02}
    assert ledger.total == -0.75 + 3.0 - 0.02


def test_objective_ledger_total_is_exactly_the_sum_of_its_terms():
    ledger, generator = ObjectiveLedger(), torch.Generator().manual_seed(0)
    for step in range(300):
        ledger.add(f"term_{step % 5}", torch.randn((), generator=generator) * 10 ** (step % 7), weight=0.1 * (step % 3))
    terms = ledger.compute()
    assert terms.pop("total") == sum(terms.values())


def test_objective_ledger_equals_the_loss_that_was_weighted():
    policy, value, entropy = (torch.randn(()) for _ in range(3))
    ledger = ObjectiveLedger()
    for name, term, weight in (("policy", policy, 1.0), ("value", value, 0.1), ("entropy", entropy, -0.01)):
        ledger.add(name, term, weight)
    assert ledger.total == pytest.approx((policy + 0.1 * value - 0.01 * entropy).item(), rel=1e-5, abs=1e-7)


def test_objective_ledger_merge_adds_terms_and_reset_forgets():
    left, right = ObjectiveLedger(), ObjectiveLedger()
    left.add("policy", 1.0)
    right.add("policy", 2.0, weight=2.0)
    right.add("kl", torch.tensor(3.0))
    left.merge(right)
    assert left.compute() == {"policy": 5.0, "kl": 3.0, "total": 8.0}
    left.reset()
    assert left.compute() == {"total": 0.0}
    assert right.total == 7.0


def test_objective_ledger_reduce_is_the_mean_over_processes():
    left, right = ObjectiveLedger(), ObjectiveLedger()
    left.add("policy", 1.0)
    left.add("kl", torch.tensor(4.0))
    right.add("kl", 2.0)
    right.add("policy", torch.tensor(3.0))
    for reduced in reduce_on_processes([left, right]):
        assert reduced.compute() == {"kl": 3.0, "policy": 2.0, "total": 5.0}
    assert left.total == 5.0


def test_objective_ledger_one_process_reduces_to_a_copy():
    ledger = ObjectiveLedger()
    ledger.add("policy", 1.0)
    for accelerator in (SINGLE, Accelerator(cpu=True)):
        reduced = ledger.reduce(accelerator)
        reduced.add("policy", 1.0)
        assert (ledger.total, reduced.total) == (1.0, 2.0)


def test_objective_ledger_bad_arguments_raise():
    ledger = ObjectiveLedger()
    with pytest.raises(ValueError, match="name is 'total'"):
        ledger.add("total", 1.0)
    with pytest.raises(ValueError, match=r"value of 'policy' has shape \(2,\)"):
        ledger.add("policy", torch.zeros(2))
