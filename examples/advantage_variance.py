# /// script
# dependencies = ["trl-ext[demo]"]
# ///
"""Bias and variance of every advantage estimator, on a bandit whose policy gradient is known exactly.

    python examples/advantage_variance.py            # measure and print, 12 s on two cores
    python examples/advantage_variance.py --write    # also write the results, docs/advantage_variance.md and its plot

How it differs from training: one token a completion, 0/1 rewards of known chance, a policy that stands still. Measured
at G = 8: `rloo` unbiased, noise = signal after 200 completions (REINFORCE: 696); cosine of `trl` 0.996, `maxrl` 0.901.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure

from trl_ext.grpo.presets import PRESETS, RunningMean, estimated_advantages, resolved_preset

ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS = ROOT / "docs" / "advantage_variance.md", ROOT / "benchmarks" / "results" / "advantage_variance.json"
BEGIN, END = "<!-- variance: written by examples/advantage_variance.py -->", "<!-- end of variance -->"
ESTIMATORS = {**PRESETS, "reinforce_pp, mean": resolved_preset("reinforce_pp", baseline="mean")}
ESTIMATORS["reinforce, none"] = resolved_preset("reinforce", baseline="none")
PLOTTED = ("rloo", "trl", "maxrl", "pass_at_k", "reinforce_pp", "reinforce", "reinforce, none")
GENERATIONS, BLOCKS = (2, 4, 8, 16), 10
HEAD = "| estimator | " + " | ".join(f"G = {g}" for g in GENERATIONS) + " |\n" + "|---" * (len(GENERATIONS) + 1) + "|"
FIGURES = {
    "scale": (".2f", "Scale: length of the mean estimate along the true gradient"),
    "cosine": (".3f", "Direction: cosine between the mean estimate and the true gradient"),
    "completions": (".0f", "Variance: completions until the noise is no larger than the mean estimate"),
}


def bandit():
    """Policy and chance of a reward, (P, K) each: 8 prompts from hopeless to nearly solved, 4 arms."""
    ability, easiness = torch.tensor([2.0, 0.5, -0.5, -2.0]), torch.linspace(-4.0, 4.0, 8)
    policy = torch.tensor([0.0, 0.5, 1.0, -0.5]).softmax(0)
    return policy.expand(8, 4).double(), (ability + easiness[:, None]).sigmoid().double()


def exact_gradient(policy, chances):
    """(P, K) gradient of the mean success rate by the logits: pi_a (q_a - sum_b pi_b q_b) / P."""
    return policy * (chances - (policy * chances).sum(1, keepdim=True)) / len(policy)


def advantages(rewards, preset):
    """(S, P, G): `estimated_advantages` of each batch; in one call where no batch looks beyond its groups."""
    if not (preset.per_reward or preset.scale.startswith("batch") or preset.baseline in ("batch", "running_mean")):
        return estimated_advantages(rewards.reshape(-1, 1), torch.ones(1), rewards.shape[2], preset).view(rewards.shape)
    past, found = RunningMean(), []
    for batch in rewards.reshape(len(rewards), -1, 1):
        found.append(estimated_advantages(batch, torch.ones(1), rewards.shape[2], preset, running_mean=past.value))
        past.update(batch)
    return torch.stack(found).view(rewards.shape)


def gradients(policy, arms, advantage):
    """(S, P, K): mean over all completions of advantage * (one-hot of the arm - policy), the gradient of log pi."""
    advantage = advantage.double() / advantage[0].numel()
    chosen = policy.new_zeros(len(arms), *policy.shape).scatter_add_(2, arms, advantage)
    return chosen - policy * advantage.sum(2, keepdim=True)


def figures(estimates, gradient, size):
    """Scale, direction and variance of (S, P, K) estimates from `size` completions, and the weight of each prompt."""
    mean, squared = estimates.mean(0), gradient.square().sum()
    variance, scale = estimates.var(0).sum(), (mean * gradient).sum() / squared
    signal = (mean.square().sum() - variance / len(estimates)).clamp(min=1e-12)  # without the noise left in the mean
    found = {"scale": scale, "cosine": scale * (squared / signal).sqrt(), "completions": size * variance / signal}
    found["weights"] = (mean * gradient).sum(1) / gradient.square().sum(1) / scale
    return {name: value.tolist() for name, value in found.items()}


def measured(policy, chances, completions, seed):
    """Figures of each estimator and number of generations that it works with, with standard errors from blocks."""
    torch.manual_seed(seed)
    gradient, rows = exact_gradient(policy, chances), []
    for count in GENERATIONS:
        size = count * len(policy)  # of a batch
        arms = policy.multinomial(completions // size * count, replacement=True)
        rewards = torch.bernoulli(chances.gather(1, arms))
        arms, rewards = (drawn.unflatten(1, (-1, count)).transpose(0, 1) for drawn in (arms, rewards))
        for name, preset in ESTIMATORS.items():
            if preset.kind == "pass_at_k" and preset.pass_k >= count:
                continue
            estimates = gradients(policy, arms, advantages(rewards, preset))
            row = {"estimator": name, "num_generations": count, **figures(estimates, gradient, size)}
            blocks = [figures(block, gradient, size) for block in estimates.tensor_split(BLOCKS)]
            spread = {key: torch.tensor([block[key] for block in blocks]).std(0) for key in (*FIGURES, "weights")}
            rows.append(row | {f"{key}_se": (std / BLOCKS**0.5).tolist() for key, std in spread.items()})
    return rows


def filled(text, record):
    """The page with the tables of the record between the markers: a row an estimator, a column a G."""
    rows, block = {(row["estimator"], row["num_generations"]): row for row in record["figures"]}, BEGIN
    for key, (digits, title) in FIGURES.items():
        error = max(100 * row[f"{key}_se"] / row[key] for row in rows.values())
        block += f"\n\n**{title}** (standard errors up to {error:.1f} %)\n\n{HEAD}"
        for name in ESTIMATORS:
            cells = [format(rows[name, g][key], digits) if (name, g) in rows else "-" for g in GENERATIONS]
            block += f"\n| {name} | {' | '.join(cells)} |"
    where = f"{record['machine']['device']}, torch {record['versions']['torch']}"
    block += f"\n\n`{record['command']}`: {record['settings']['completions']:,} completions for each G; {where}.\n\n"
    if (text.count(BEGIN), text.count(END)) != (1, 1) or text.index(END) < text.index(BEGIN):
        raise ValueError(f"the page must hold {BEGIN} ... {END} once: add the two markers")
    return text.partition(BEGIN)[0] + block + END + text.partition(END)[2]


def plot(record, path):
    """Weight of each prompt by its success rate, and variance by number of generations."""
    left, right = (figure := Figure(figsize=(12, 4.8), layout="constrained")).subplots(1, 2)
    for index, name in enumerate(PLOTTED):
        rows = {row["num_generations"]: row for row in record["figures"] if row["estimator"] == name}
        style, row = {"marker": "osD^vPX*"[index], "label": name}, rows[8]
        if index < 5:  # the others weight prompts as rloo does
            left.errorbar(torch.mul(*bandit()).sum(1), row["weights"], row["weights_se"], capsize=2, **style)
        right.plot(list(rows), [row["completions"] for row in rows.values()], **style)
    left.set(title="Bias of the direction, G = 8", xlabel="success rate of the prompt", ylabel="weight (1 = unbiased)")
    right.set(title="Variance", xlabel="G, completions a prompt", ylabel="completions until noise = signal")
    right.set(ylim=(0, None), xticks=GENERATIONS)
    left.legend(frameon=False)
    right.legend(frameon=False, ncols=2)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=128_000, help="completions for each G, 2,560 or more")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    record = {"command": " ".join(["python examples/advantage_variance.py", *sys.argv[1:]]), "settings": vars(args)}
    record["versions"] = {"python": sys.version.split()[0], "torch": torch.__version__}
    record["machine"] = {"device": f"{os.cpu_count()} CPU cores", "torch_threads": torch.get_num_threads()}
    record["figures"] = measured(*bandit(), args.completions, args.seed)
    print(filled(f"{BEGIN}{END}", record))
    if args.write:
        RESULTS.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
        plot(record, PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
