"""LoRA with fewer kernels: the same figures as peft's, only where its formula is the plain one."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from trl_ext._fused_lora import fused_lora
from trl_ext.testing import tiny_model

IDS = torch.tensor([[0, 0, 5, 9, 11, 3], [7, 8, 9, 4, 2, 6]])
MASK = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])


def lora_model(base=None, **settings):
    """The tiny model with an adapter that changes its logits."""
    config = LoraConfig(**{"r": 4, "lora_alpha": 12, "target_modules": "all-linear", **settings})
    model = get_peft_model(tiny_model() if base is None else base, config)
    awaken(model)
    return model


def awaken(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data = (0.3 * torch.randn(weight.shape, generator=generator)).to(weight.dtype)


@torch.no_grad()
def logits(model):
    return model(input_ids=IDS, attention_mask=MASK).logits[MASK.bool()].double()


def lora_layers(model):
    return [module for module in model.modules() if isinstance(module, LoraLayer)]


def patched(model):
    return sum("forward" in vars(layer) for layer in lora_layers(model))


def test_float32_logits_are_peft_s_and_the_layers_are_given_back():
    model = lora_model()
    plain = logits(model)
    with fused_lora(model) as count:
        assert count == patched(model) == len(lora_layers(model)) == 14
        fused = logits(model)
    assert patched(model) == 0
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-5)
    assert torch.equal(logits(model), plain)
    with model.disable_adapter():
        assert (logits(model) - plain).abs().max() > 0.1, "the adapter must matter for this comparison"


def test_bfloat16_is_as_near_to_the_exact_logits_as_peft_is():
    model = lora_model(tiny_model().to(torch.bfloat16))
    plain = logits(model)
    with fused_lora(model) as count:
        fused = logits(model)
    exact = logits(model.double())
    assert count == 14
    error, error_of_peft = (fused - exact).square().mean().sqrt(), (plain - exact).square().mean().sqrt()
    assert 0 < error < 1.5 * error_of_peft


def test_nf4_logits_are_peft_s(tmp_path):
    tiny_model(hidden_size=64, intermediate_size=128).save_pretrained(tmp_path)
    nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    model = lora_model(AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=nf4, dtype=torch.float32))
    plain = logits(model)
    with fused_lora(model) as count:
        torch.testing.assert_close(logits(model), plain, rtol=0, atol=1e-5)
    assert count == 14
    assert {type(layer).__name__ for layer in lora_layers(model)} == {"Linear4bit"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("four_bit", [False, True])
def test_logits_on_cuda_are_peft_s_to_bfloat16(tmp_path, four_bit):
    tiny_model(hidden_size=64, intermediate_size=128).save_pretrained(tmp_path)
    nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    settings = {"quantization_config": nf4} if four_bit else {}
    base = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16, device_map={"": 0}, **settings)
    model = lora_model(base)

    @torch.no_grad()
    def on_cuda():
        return model(input_ids=IDS.cuda(), attention_mask=MASK.cuda()).logits[MASK.bool().cuda()].float()

    plain = on_cuda()
    with fused_lora(model) as count:
        fused = on_cuda()
    with model.disable_adapter():
        bare = on_cuda()
    assert count == 14
    assert (fused - plain).square().mean().sqrt() < 0.05 * (plain - bare).square().mean().sqrt()


class Kernels(TorchDispatchMode):
    """Counts what runs as a kernel: all but views."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.__name__.partition(".")[0]
        if name not in ("t", "view", "transpose", "detach", "_unsafe_view", "expand", "unsqueeze"):
            self.names.append(name)
        return result


def test_layer_takes_three_kernels_where_peft_takes_seven():
    layer = lora_layers(lora_model(tiny_model().to(torch.bfloat16)))[0]
    x = torch.randn(2, 1, layer.in_features).to(torch.bfloat16)
    with torch.no_grad(), Kernels() as plain:
        layer(x)
    with torch.no_grad(), fused_lora(layer):
        layer(x)  # the first call casts the two matrices
        with Kernels() as fused:
            layer(x)
    assert sorted(fused.names) == ["addmm_", "mm", "mm"]
    assert len(plain.names) == 7, plain.names


def test_calls_with_gradients_are_peft_s():
    model = lora_model()
    loss = model(input_ids=IDS, attention_mask=MASK, labels=IDS).loss
    loss.backward()
    plain = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    with fused_lora(model):
        inside = model(input_ids=IDS, attention_mask=MASK, labels=IDS).loss
        inside.backward()
    assert torch.equal(inside, loss)
    assert len(plain) == 28
    assert all(torch.equal(model.get_parameter(name).grad, gradient) for name, gradient in plain.items())


def test_adapters_switched_within_the_block_are_seen():
    model = lora_model()
    model.add_adapter("other", LoraConfig(r=2, target_modules="all-linear"))
    awaken(model, seed=1)
    model.set_adapter("other")
    other = logits(model)
    model.set_adapter("default")
    plain = logits(model)
    with model.disable_adapter():
        bare = logits(model)
    assert (other - plain).abs().max() > 0.1
    with fused_lora(model) as count:
        with model.disable_adapter():
            assert torch.equal(logits(model), bare)
        model.set_adapter("other")
        assert torch.equal(logits(model), other)
        model.set_adapter("default")
        torch.testing.assert_close(logits(model), plain, rtol=0, atol=1e-5)
        assert not torch.equal(logits(model), plain), "the fused way rounds differently: it must have been taken"
    assert count == 14


def test_merged_adapter_is_not_added_twice():
    model = lora_model()
    plain = logits(model)
    with fused_lora(model):
        model.merge_adapter()
        torch.testing.assert_close(logits(model), plain, rtol=0, atol=1e-5)
    with fused_lora(model) as count:
        assert count == 0
        torch.testing.assert_close(logits(model), plain, rtol=0, atol=1e-5)


def test_an_error_within_the_block_gives_the_layers_back():
    model = lora_model()
    with pytest.raises(RuntimeError, match="out of memory"), fused_lora(model):
        raise RuntimeError("out of memory")
    assert patched(model) == 0


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"lora_bias": True}, {"lora_dropout": 0.5}], ids=str)
def test_other_formulas_are_left_to_peft(settings):
    model = lora_model(**settings).train()
    torch.manual_seed(0)
    plain = logits(model)
    torch.manual_seed(0)
    with fused_lora(model) as count:
        assert count == 0
        assert torch.equal(logits(model), plain)


def test_dropout_is_fused_in_eval_mode():
    model = lora_model(lora_dropout=0.5).eval()
    plain = logits(model)
    with fused_lora(model) as count:
        assert count == 14
        torch.testing.assert_close(logits(model), plain, rtol=0, atol=1e-5)


def test_hooked_layers_are_left_to_peft():
    model = lora_model()
    down = lora_layers(model)[0].lora_A["default"]
    base = lora_layers(model)[1].base_layer
    seen = []
    for module in (down, base):
        module.register_forward_hook(lambda module, inputs, output: seen.append(output.clone()))
    with fused_lora(model) as count:
        logits(model)
    assert (count, len(seen)) == (12, 2)


def test_several_active_adapters_are_left_to_peft():
    model = lora_model()
    model.add_adapter("other", LoraConfig(r=2, target_modules="all-linear"))
    model.base_model.set_adapter(["default", "other"])
    plain = logits(model)
    with fused_lora(model) as count:
        assert count == 0
        assert torch.equal(logits(model), plain)


def test_rank_stabilised_and_per_layer_ranks():
    model = lora_model(use_rslora=True, rank_pattern={"q_proj": 3}, alpha_pattern={"v_proj": 5})
    plain = logits(model)
    with fused_lora(model) as count:
        torch.testing.assert_close(logits(model), plain, rtol=0, atol=1e-5)
    assert count == 14


def test_model_without_lora_has_nothing_to_fuse():
    model = tiny_model()
    with fused_lora(model) as count:
        assert count == 0
