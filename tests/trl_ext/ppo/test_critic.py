"""The three critics: where their weights live, what their values are, and what they leave alone."""

import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaForSequenceClassification

from trl_ext._trainer import backbone_of
from trl_ext.ppo.critic import AdapterCritic, ModelCritic, SharedCritic, ValueHead, hidden_size_of
from trl_ext.testing import tiny_model, tiny_tokenizer


def _policy(seed=0, **lora):
    torch.manual_seed(seed)
    settings = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **lora}
    return get_peft_model(tiny_model(), LoraConfig(**settings))


def _inputs(batch=3, prompt=4, completion=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 100, (batch, prompt + completion), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    mask[1:2, -2:] = 0
    names = ("prompt_ids", "completion_ids"), ("prompt_mask", "completion_mask")
    parts = ids.split([prompt, completion], 1), mask.split([prompt, completion], 1)
    return {n: p for group, values in zip(names, parts, strict=True) for n, p in zip(group, values, strict=True)}


def _awake(critic, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in critic.parameters().values():
        parameter.data.normal_(0.0, 0.2, generator=generator)
    return critic


def _active_values(critic, inputs):
    with critic.active():
        return critic.values(inputs)


CRITICS = {
    "adapter": lambda: AdapterCritic(_policy(), seed=1),
    "shared": lambda: SharedCritic(_policy(), detach=False),
    "model": lambda: ModelCritic(tiny_model(seed=3), 101, {}),
}


@pytest.fixture(params=CRITICS)
def critic(request):
    return CRITICS[request.param]()


def test_values_of_a_new_critic_are_zero(critic):
    values = _active_values(critic, _inputs())
    assert values.shape == (3, 6) and values.dtype == torch.float32
    assert (values == 0).all()


def test_values_are_those_before_each_token_and_after_the_last(critic):
    _awake(critic)
    inputs = _inputs()
    values = _active_values(critic, inputs).detach()
    for length in (1, 3):  # the value before token t does not depend on what comes after
        shorter = {n: t[:, :length] if n.startswith("completion") else t for n, t in inputs.items()}
        torch.testing.assert_close(_active_values(critic, shorter)[:2], values[:2, : length + 1], atol=1e-5, rtol=1e-5)
    changed = {**inputs, "completion_ids": inputs["completion_ids"].clone()}
    changed["completion_ids"][:, 2] = 50
    difference = (_active_values(critic, changed) - values).abs().amax(0) > 1e-6
    assert difference.tolist() == [False, False, False, True, True, True]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_rollout_values_do_not_depend_on_the_batch_size(critic, batch_size):
    _awake(critic)
    inputs = _inputs()
    values = critic.rollout_values(inputs, batch_size)
    torch.testing.assert_close(values, _active_values(critic, inputs).detach(), atol=1e-6, rtol=1e-5)
    assert not values.requires_grad


def test_parameters_of_the_critics_are_the_head_and_its_own_trunk(critic):
    names = set(critic.parameters())
    assert {"head.linear.weight", "head.linear.bias"} <= names
    trunk = {n for n in names if n.startswith("trunk.")}
    assert len(trunk) == {"adapter": 8, "shared": 0, "model": 20}[critic.mode]
    assert all(p.requires_grad and p.dtype == torch.float32 for p in critic.parameters().values())
    assert all(".value." in n for n in trunk) or critic.mode != "adapter"


# --- adapter ------------------------------------------------------------------------------------------------------


def test_adapter_critic_leaves_the_policys_output_and_gradients_as_they_were():
    model = _policy()
    ids = torch.tensor([tiny_tokenizer()("hello").input_ids])
    before, trainable = model(input_ids=ids).logits, {n for n, p in model.named_parameters() if p.requires_grad}
    state = torch.random.get_rng_state()
    critic = _awake(AdapterCritic(model, seed=1))
    assert torch.equal(torch.random.get_rng_state(), state)  # the rollouts are those of a run without a critic
    assert torch.equal(model(input_ids=ids).logits, before)
    policy = {n for n, p in model.named_parameters() if p.requires_grad and ".value." not in n}
    assert policy == trainable and model.active_adapter == "default"
    with critic.active():
        assert not torch.equal(model(input_ids=ids).logits, before)
    assert torch.equal(model(input_ids=ids).logits, before)
    assert {n for n, p in model.named_parameters() if p.requires_grad and ".value." not in n} == trainable


def test_adapter_critic_after_an_error_inside_gives_the_policys_adapter_back():
    critic = AdapterCritic(_policy(), seed=1)
    with pytest.raises(RuntimeError, match="boom"), critic.active():
        raise RuntimeError("boom")
    layers = [m for m in critic.model.modules() if hasattr(m, "_active_adapter")]
    assert layers and all(m.active_adapters == ["default"] for m in layers)


def test_adapter_critic_depends_on_its_seed_alone():
    weights = []
    for seed, noise in ((1, 0), (1, 5), (2, 0)):
        torch.manual_seed(noise)
        model = _policy(seed=noise)
        weights.append({n: p for n, p in AdapterCritic(model, seed=seed).trunk_parameters().items() if "lora_A" in n})
    assert all(torch.equal(weights[0][n], weights[1][n]) for n in weights[0])
    assert not any(torch.equal(weights[0][n], weights[2][n]) for n in weights[0])


@pytest.mark.parametrize(
    "lora", [{"init_lora_weights": "pissa"}, {"use_dora": True}, {"lora_dropout": 0.5}, {"use_rslora": True}]
)
def test_adapter_critic_of_a_special_lora_leaves_the_base_and_is_plain(lora):
    model = _policy(**lora)
    base = {n: p.clone() for n, p in model.named_parameters() if "lora" not in n}
    critic = AdapterCritic(model, seed=1)
    assert all(torch.equal(p, base[n]) for n, p in model.named_parameters() if n in base)
    config = model.peft_config["value"]
    assert config.init_lora_weights is True and config.lora_dropout == 0.0 and not config.use_dora
    policy = model.peft_config["default"]
    assert policy.lora_dropout == lora.get("lora_dropout", 0.0) and policy.use_dora == lora.get("use_dora", False)
    values = _active_values(_awake(critic), _inputs())
    assert torch.isfinite(values).all() and (values != 0).any()


def test_adapter_critic_leaves_trained_extra_modules_of_the_policy_alone():
    model = _policy(modules_to_save=["embed_tokens"])
    ids = torch.tensor([tiny_tokenizer()("hello").input_ids])
    before = model(input_ids=ids).logits
    critic = _awake(AdapterCritic(model, seed=1))
    assert torch.equal(model(input_ids=ids).logits, before)
    saved = [n for n, p in model.named_parameters() if "modules_to_save" in n and p.requires_grad]
    assert saved and not [n for n in critic.parameters() if "modules_to_save" in n]
    _active_values(critic, _inputs()).sum().backward()
    assert all(p.grad is None for n, p in model.named_parameters() if ".value." not in n)


# --- shared -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detach", [False, True])
def test_shared_critic_detached_sends_no_gradient_to_the_trunk(detach):
    model = _policy()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0.0, 0.3)
    critic = _awake(SharedCritic(model, detach=detach))
    hidden = critic.forward_trunk(_inputs())
    critic.values_from_hidden(hidden, 5).sum().backward()
    gradients = [p.grad for n, p in model.named_parameters() if "lora_" in n]
    assert all(g is None for g in gradients) if detach else all(g.abs().max() > 0 for g in gradients)
    assert critic.head.linear.weight.grad.abs().max() > 0


def test_shared_critic_values_from_the_policys_pass_equal_its_own():
    critic = _awake(SharedCritic(_policy(), detach=False))
    inputs = _inputs()
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    output = critic.backbone(input_ids=ids, attention_mask=mask)
    torch.testing.assert_close(critic.values_from_hidden(output.last_hidden_state, 5), critic.values(inputs))


# --- model --------------------------------------------------------------------------------------------------------


def test_model_critic_from_a_path_starts_at_zero_and_trains_the_trunk(tmp_path):
    tiny_model(seed=5).save_pretrained(tmp_path)
    state = torch.random.get_rng_state()
    critic = ModelCritic(str(tmp_path), 101, {})
    assert (critic.values(_inputs()) == 0).all() and critic.head.normalize
    loaded = dict(critic.backbone.named_parameters())
    assert torch.equal(loaded["norm.weight"], tiny_model(seed=5).model.norm.weight)
    assert torch.equal(loaded["embed_tokens.weight"], tiny_model(seed=5).model.embed_tokens.weight)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("how", ["path", "module"])
def test_model_critic_from_a_reward_model_keeps_its_head(tmp_path, how):
    torch.manual_seed(4)
    config = tiny_model().config
    config.num_labels = 1
    reward_model = LlamaForSequenceClassification(config).eval()
    reward_model.save_pretrained(tmp_path)
    critic = ModelCritic(str(tmp_path) if how == "path" else reward_model, 101, {})
    inputs = _inputs(batch=1)
    inputs = {n: t if "mask" not in n else torch.ones_like(t) for n, t in inputs.items()}
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    expected = reward_model(input_ids=ids).logits[0, 0]
    torch.testing.assert_close(critic.values(inputs)[0, -1], expected, atol=1e-5, rtol=1e-5)
    assert not critic.head.normalize
    assert not [n for n in critic.parameters() if "score" in n]


def test_model_critic_from_a_lora_model_trains_the_lora_alone():
    critic = ModelCritic(_policy(), 101, {})
    assert len(critic.trunk_parameters()) == 8 and all("lora_" in n for n in critic.trunk_parameters())


@pytest.mark.parametrize("untied", [False, True])
def test_model_critic_leaves_the_language_head_out(untied):
    model = tiny_model(tie_word_embeddings=not untied)
    critic = ModelCritic(model, 101, {})
    assert not [n for n in critic.parameters() if "lm_head" in n]
    _awake(critic).values(_inputs()).sum().backward()
    assert all(p.grad is not None for p in critic.parameters().values())
    assert model.lm_head.weight.requires_grad == (not untied)  # tied, it is the embedding, which trains


# --- head ---------------------------------------------------------------------------------------------------------


def test_value_head_is_linear_in_the_normalised_state():
    head = ValueHead(8)
    nn.init.normal_(head.linear.weight)
    nn.init.normal_(head.linear.bias)
    hidden = torch.randn(2, 3, 8)
    expected = (F.rms_norm(hidden, (8,), eps=1e-6) * head.linear.weight[0]).sum(-1) + head.linear.bias
    torch.testing.assert_close(head(hidden), expected)
    torch.testing.assert_close(head(1000 * hidden), head(hidden), atol=1e-5, rtol=1e-5)


def test_value_head_under_autocast_and_bfloat16_states_is_float32():
    head = ValueHead(8)
    nn.init.normal_(head.linear.weight)
    hidden = torch.randn(2, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = head(hidden)
    assert values.dtype == torch.float32 and torch.equal(values, head(hidden))
    assert head(hidden.bfloat16()).dtype == torch.float32


def test_backbone_is_the_trunk_below_peft_and_the_language_head():
    plain, lora = tiny_model(), _policy()
    assert backbone_of(plain) is plain.model and backbone_of(lora) is lora.base_model.model.model
    assert hidden_size_of(lora) == 32


@torch.no_grad()
def test_adapter_critic_of_replicated_layers_leaves_the_policy_as_it_was():
    policy = _policy(layer_replication=[[0, 2], [1, 2]])
    inputs = torch.tensor([[5, 6, 7, 8]])
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_()
    logits, names = policy(input_ids=inputs).logits, {name for name, _ in policy.named_parameters()}
    critic = AdapterCritic(policy, seed=0)
    assert torch.equal(policy(input_ids=inputs).logits, logits)
    assert names < {name for name, _ in policy.named_parameters()}
    assert len(critic.trunk_parameters()) == sum("lora_" in name for name in names) == 12


def test_adapter_critic_beside_trained_tokens_reads_the_base_embedding():
    torch.manual_seed(0)
    lora = LoraConfig(r=4, target_modules=["q_proj"], trainable_token_indices=[5, 6], task_type="CAUSAL_LM")
    policy = get_peft_model(tiny_model(tie_word_embeddings=False), lora)
    critic = _awake(AdapterCritic(policy, seed=0))
    values = _active_values(critic, _inputs())
    for name, parameter in policy.named_parameters():
        if "trainable_tokens_delta" in name:
            parameter.data.add_(1.0)
    assert torch.equal(_active_values(critic, _inputs()), values)
    assert all("trainable_tokens" not in name for name in critic.parameters())


def test_adapter_critic_owns_its_part_of_an_embedding_too():
    policy = _policy(target_modules=["q_proj", "embed_tokens"])
    critic = AdapterCritic(policy, seed=0)
    embedding = {name for name, _ in policy.named_parameters() if "lora_embedding" in name and name.endswith(".value")}
    assert len(embedding) == 2 and embedding < set(critic.trunk_parameters())
    assert all(parameter.requires_grad for parameter in critic.trunk_parameters().values())


class _NamedValue(nn.Module):
    """A layer that keeps its projection under the name of the critic's adapter, as BERT's attention does."""

    def __init__(self, projection):
        super().__init__()
        self.value = projection

    def forward(self, x):
        return self.value(x)


def test_adapter_critic_owns_no_module_of_the_base_that_is_called_value():
    base = tiny_model()
    for layer in base.model.layers:
        layer.self_attn.v_proj = _NamedValue(layer.self_attn.v_proj)
    policy = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "value"], task_type="CAUSAL_LM"))
    critic = AdapterCritic(policy, seed=0)
    assert all("lora_" in name and name.endswith(".value.weight") for name in critic.trunk_parameters())
    assert len(critic.trunk_parameters()) == 8
    frozen = [name for name, parameter in policy.named_parameters() if not parameter.requires_grad]
    assert sum(name.endswith("v_proj.value.base_layer.weight") for name in frozen) == 2
