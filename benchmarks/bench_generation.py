"""What LoRA costs a generated token: peft's own way, the fused way of the trainers here, and no adapter at all.

    python benchmarks/bench_generation.py --output benchmarks/results/generation.json

Seconds: SmolLM2-135M with LoRA on all linear layers through transformers' `generate`, the three ways in turn; reported
are the medians of the rounds, and of the ratios within a round. Kernels: what one token dispatches, views left out,
counted on a model as deep as Qwen3-1.7B in bfloat16; a small batch on a GPU takes about as long as they take to launch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time

from bench_ppo import LORA_TARGETS, machine

VIEWS = {
    *("view", "_unsafe_view", "_reshape_alias", "as_strided", "transpose", "t", "permute", "expand", "unsqueeze"),
    *("squeeze", "slice", "select", "alias", "detach", "unbind", "split", "lift_fresh"),
}
WAYS = ("peft", "fused", "no adapter")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=45, help="tokens")
    parser.add_argument("--length", type=int, default=48, help="new tokens")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", help="JSON file")
    return parser.parse_args()


def with_lora(model):
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=LORA_TARGETS)).eval()
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0.0, 0.01)
    return model


def way_of(model, name: str):
    from trl_ext._fused_lora import fused_lora

    return {"peft": contextlib.nullcontext, "fused": lambda: fused_lora(model), "no adapter": model.disable_adapter}[
        name
    ]()


def generate(model, batch: int, prompt: int, length: int):
    import torch

    torch.manual_seed(0)
    ids = torch.randint(3, model.config.vocab_size, (batch, prompt), device=model.device)
    limits = {"max_new_tokens": length, "min_new_tokens": length}
    with torch.no_grad():
        return model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True, pad_token_id=0, **limits
        )


def seconds(args: argparse.Namespace) -> dict:
    import torch
    from transformers import AutoModelForCausalLM

    from trl_ext.smol import resolve_model

    on_gpu = torch.cuda.is_available()
    dtype = torch.bfloat16 if on_gpu else torch.float32
    model = AutoModelForCausalLM.from_pretrained(resolve_model("smol"), dtype=dtype)
    model = with_lora(model.to("cuda" if on_gpu else "cpu"))
    generate(model, args.batch, args.prompt, 4)
    rounds = []
    for _ in range(args.rounds):
        times, texts = {}, {}
        for name in WAYS:
            with way_of(model, name):
                start = time.perf_counter()
                texts[name] = generate(model, args.batch, args.prompt, args.length)
                if on_gpu:
                    torch.cuda.synchronize()
                times[name] = time.perf_counter() - start
        rounds.append(times)
        same = (texts["peft"] == texts["fused"]).float().mean().item()
        print({name: round(value, 2) for name, value in times.items()}, f"same tokens {same:.3f}", flush=True)
    tokens = args.batch * args.length
    return {
        "tokens_per_second": {name: statistics.median(tokens / times[name] for times in rounds) for name in WAYS},
        "ratio_to_peft": {name: statistics.median(t["peft"] / t[name] for t in rounds) for name in WAYS},
        "same_tokens": same,
        "rounds": rounds,
    }


def kernels() -> dict:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from transformers import Qwen3Config, Qwen3ForCausalLM

    class Counter(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.count += function.__name__.partition(".")[0] not in VIEWS
            return function(*args, **(kwargs or {}))

    sizes = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = with_lora(Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=28, **sizes, **heads)).to(torch.bfloat16))
    result = {}
    for name in WAYS:
        counts = []
        for length in (4, 12):
            with way_of(model, name), Counter() as counter:
                generate(model, 2, 8, length)
            counts.append(counter.count)
        result[name] = (counts[1] - counts[0]) // 8
    return result


def main() -> None:
    import transformers

    args = arguments()
    transformers.logging.set_verbosity_error()
    report = {
        "command": "python benchmarks/" + " ".join([sys.argv[0].rpartition("/")[2], *sys.argv[1:]]),
        "machine": machine(),
        "settings": {name: getattr(args, name) for name in ("batch", "prompt", "length", "rounds")},
        "kernels_per_token": kernels(),
        **seconds(args),
    }
    print(json.dumps({name: report[name] for name in ("kernels_per_token", "tokens_per_second", "ratio_to_peft")}))
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
