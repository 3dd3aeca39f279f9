"""Generation with transformers: what is drawn, where it ends, and that the model is left as it was."""

import math
import random

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from trl_ext.errors import UserError
from trl_ext.evaluation._generate_transformers import SeededSampling, TransformersGenerator, evaluating
from trl_ext.evaluation.requests import Request, SamplingParams, plan_batches, sample_seed
from trl_ext.testing import tiny_model, tiny_tokenizer

SAMPLED = SamplingParams(temperature=1.0, max_new_tokens=24)
PROMPTS = ["2+2=", "What is the sum of 17 and 25?", "a", "Name three colours, please."]


def a_request(prompt, seed=0, key="p:0"):
    return Request(key, prompt, seed)


def some_requests(number=12):
    return [Request(f"p{i}:0", PROMPTS[i % 4] + "!" * (i // 4), sample_seed(0, f"p{i}", 0)) for i in range(number)]


@pytest.fixture
def generator():
    return TransformersGenerator(tiny_model(), tiny_tokenizer())


def lora_model():
    model = get_peft_model(tiny_model(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    noise = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0.0, 0.5, generator=noise)
    return model


# --- what is drawn


def chi_square(counts, probabilities):
    """Sum of (observed - expected)^2 / expected over the tokens that can be drawn."""
    expected = sum(counts) * probabilities
    return float(((torch.tensor(counts) - expected)[expected > 0] ** 2 / expected[expected > 0]).sum())


def draws(logits, params, number=20_000):
    """How often each token is drawn for `number` different seeds."""
    scores = logits.repeat(number, 1)
    processor = SeededSampling([sample_seed(0, "p", i) for i in range(number)], params, torch.device("cpu"))
    return torch.bincount(processor(None, scores).argmax(-1), minlength=len(logits)).tolist()


# 99.9 % quantiles of chi-square with so many degrees of freedom
LIMITS = {3: 16.27, 4: 18.47, 7: 24.32}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_samples_are_distributed_as_the_softmax(temperature):
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5, 1.5, -2.0, 0.2])
    counts = draws(logits, SamplingParams(temperature=temperature))
    assert chi_square(counts, torch.softmax(logits / temperature, -1)) < LIMITS[7]
    # the test can fail: another temperature is far away
    assert chi_square(counts, torch.softmax(logits / (temperature * 1.2), -1)) > LIMITS[7]


def test_successive_steps_of_one_generator_are_distributed_as_the_softmax():
    logits = torch.tensor([1.0, 0.0, 0.0, -1.0, 2.0])
    processor = SeededSampling([5], SamplingParams(temperature=1.0), torch.device("cpu"))
    counts = [0] * 5
    for _ in range(20_000):
        counts[int(processor(None, logits[None]).argmax())] += 1
    assert chi_square(counts, torch.softmax(logits, -1)) < LIMITS[4]


def test_top_k_draws_from_the_k_likeliest():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5, 1.5])
    counts = draws(logits, SamplingParams(temperature=1.0, top_k=4))
    kept = torch.softmax(logits.masked_fill(logits < 0.5, -math.inf), -1)
    assert counts[2] == counts[3] == 0
    assert chi_square(counts, kept) < LIMITS[3]


def test_top_p_draws_from_the_smallest_set_that_holds_the_share():
    logits = torch.log(torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05]))
    counts = draws(logits, SamplingParams(temperature=1.0, top_p=0.9))
    assert counts[4] == 0
    assert chi_square(counts, torch.tensor([0.4, 0.3, 0.15, 0.1, 0.0]) / 0.95) < LIMITS[3]
    assert sum(draws(logits, SamplingParams(temperature=1.0, top_p=0.01), 50)[1:]) == 0


def test_temperature_divides_before_top_p():
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    # at temperature 2 the shares are 0.41, 0.32, 0.26: two tokens hold 0.6
    assert draws(logits, SamplingParams(temperature=2.0, top_p=0.6), 500)[1] > 0
    assert draws(logits, SamplingParams(temperature=0.2, top_p=0.6), 500)[1:] == [0, 0]


def test_smallest_uniform_number_never_takes_an_unlikely_token(monkeypatch):
    # 0 is one of the numbers that float32 draws; as an exponential variable it would win against any logit
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, generator=None: self.fill_(0.5).__setitem__(1, 0.0))
    processor = SeededSampling([0], SamplingParams(temperature=1.0), torch.device("cpu"))
    assert processor(None, torch.tensor([[0.0, 5.0, -1.0]])).argmax() == 0


def test_greedy_is_the_greedy_search_of_transformers(generator):
    tokenizer, model = generator.tokenizer, generator.model
    requests = some_requests(6)
    found = generator.generate(requests, SamplingParams(max_new_tokens=24))
    for request, completion in zip(requests, found, strict=True):
        ids = tokenizer(request.prompt, return_tensors="pt")["input_ids"]
        expected = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24, pad_token_id=0
        )
        assert completion.text == tokenizer.decode(expected[0, ids.shape[1] :], skip_special_tokens=True)


def test_equal_batches_give_equal_completions(generator):
    requests = some_requests()
    assert generator.generate(requests, SAMPLED) == generator.generate(requests, SAMPLED)


@pytest.mark.parametrize("params", [SAMPLED, SamplingParams(max_new_tokens=24), SamplingParams(0.8, 0.9, 20, 24)])
def test_completion_depends_on_neither_neighbours_nor_order(generator, params):
    requests = some_requests()
    together = {r.key: c for r, c in zip(requests, generator.generate(requests, params), strict=True)}
    shuffled = random.Random(1).sample(requests, len(requests))
    for batch in plan_batches(shuffled, 5):
        for request, completion in zip(batch, generator.generate(batch, params), strict=True):
            assert completion == together[request.key]
    assert len({completion.text for completion in together.values()}) > 1


def test_seed_of_the_request_decides_and_that_of_the_settings_does_not(generator):
    first, second = (generator.generate([a_request("2+2=", seed)], SAMPLED)[0].text for seed in (1, 2))
    assert first != second
    params = SamplingParams(temperature=1.0, max_new_tokens=24, seed=99)
    assert generator.generate([a_request("2+2=", 1)], params)[0].text == first


def test_models_own_generation_settings_are_not_used(generator):
    expected = generator.generate(some_requests(4), SAMPLED)
    settings = generator.model.generation_config
    settings.repetition_penalty, settings.do_sample, settings.temperature, settings.top_k = 5.0, True, 0.01, 1
    settings.max_length, settings.no_repeat_ngram_size, settings.suppress_tokens = 3, 1, [1, 2, 3, 4, 5, 40]
    assert generator.generate(some_requests(4), SAMPLED) == expected


# --- where it ends


class Scripted(torch.nn.Module):
    """Stands in the place of the LM head: the tokens of a script for each row, step by step."""

    def __init__(self, scripts):
        super().__init__()
        self.scripts, self.step = scripts, -1

    def forward(self, hidden):
        self.step += 1
        logits = torch.zeros(*hidden.shape[:2], len(tiny_tokenizer()))
        for row, script in enumerate(self.scripts):
            logits[row, -1, script[min(self.step, len(script) - 1)]] = 50.0
        return logits


def scripted(*texts, **settings):
    tokenizer = tiny_tokenizer()
    model = tiny_model(tie_word_embeddings=False, **settings)
    model.lm_head = Scripted([tokenizer(text)["input_ids"] for text in texts])
    return TransformersGenerator(model, tokenizer)


def test_end_token_ends_a_completion_and_is_counted():
    generator = scripted("ab<|im_end|>c", "abcde")
    short, long = generator.generate([a_request("x", 0), a_request("y", 1)], SamplingParams(max_new_tokens=5))
    assert (short.text, short.num_tokens, short.is_truncated) == ("ab", 3, False)
    assert (long.text, long.num_tokens, long.is_truncated) == ("abcde", 5, True)


def test_end_token_in_the_last_place_is_no_truncation():
    [completion] = scripted("abc<|im_end|>").generate([a_request("x")], SamplingParams(max_new_tokens=4))
    assert (completion.text, completion.num_tokens, completion.is_truncated) == ("abc", 4, False)


def test_every_end_token_of_the_model_ends_a_completion():
    generator = scripted("ab<eos>cd")
    eos = generator.tokenizer.convert_tokens_to_ids("<eos>")
    params = SamplingParams(max_new_tokens=5)
    assert generator.generate([a_request("x")], params)[0].is_truncated
    generator = scripted("ab<eos>cd")
    generator.model.generation_config.eos_token_id = [eos, generator.tokenizer.eos_token_id]
    chat = TransformersGenerator(generator.model, generator.tokenizer)
    [completion] = chat.generate([a_request("x")], params)
    assert (completion.text, completion.num_tokens, completion.is_truncated) == ("ab", 3, False)
    assert chat.describe()["stop_token_ids"] == sorted([eos, generator.tokenizer.eos_token_id])


def test_model_without_end_tokens_goes_on_to_the_limit():
    generator = scripted("ab<|im_end|>cd")
    generator.model.generation_config.eos_token_id = None
    generator.tokenizer.eos_token = None
    open_ended = TransformersGenerator(generator.model, generator.tokenizer)
    [completion] = open_ended.generate([a_request("x")], SamplingParams(max_new_tokens=5))
    assert (completion.num_tokens, completion.is_truncated) == (5, True)


def test_prompt_near_the_end_of_the_context_gets_the_room_there_is():
    generator = scripted("abcdefgh", "abcdefgh", max_position_embeddings=10)
    near, far = generator.generate([a_request("x" * 7), a_request("y")], SamplingParams(max_new_tokens=6))
    assert (near.text, near.num_tokens, near.is_truncated) == ("abc", 3, True)
    assert (far.text, far.num_tokens, far.is_truncated) == ("abcdef", 6, True)


def test_prompt_longer_than_the_context_is_named():
    generator = scripted("a", max_position_embeddings=10)
    with pytest.raises(UserError, match="request long:3: the prompt has 10 tokens and the model's context 10"):
        generator.generate([a_request("x"), a_request("y" * 10, key="long:3")], SamplingParams(max_new_tokens=4))


# --- prompts


def sees(generator, prompt):
    """The text that the model is given for a prompt."""
    seen = []
    hook = generator.model.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True
    )
    generator.generate([a_request(prompt)], SamplingParams(max_new_tokens=1))
    hook.remove()
    return generator.tokenizer.decode(seen[0][0])


def test_text_is_given_as_it_is_and_a_conversation_in_the_template(generator):
    system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert sees(generator, "2+2=") == "2+2="
    assert sees(generator, system) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_conversation_that_ends_with_the_assistant_is_gone_on_with(generator):
    begun = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well"}]
    assert sees(generator, begun).endswith("<|im_start|>assistant\nWell")


def test_arguments_of_the_template_are_passed_on():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }}{{ '<think>' if thinking else '' }}"
    asked = [{"role": "user", "content": "Hi"}]
    thinking = TransformersGenerator(tiny_model(), tokenizer, chat_template_kwargs={"thinking": True})
    assert sees(thinking, asked) == "Hi<think>"
    assert sees(TransformersGenerator(tiny_model(), tokenizer), asked) == "Hi"


def test_empty_prompt_starts_from_the_token_that_texts_begin_or_end_with(generator):
    assert sees(generator, "") == "<|im_end|>"
    generator.tokenizer.bos_token = "<|im_start|>"
    assert sees(generator, "") == "<|im_start|>"
    generator.tokenizer.bos_token = generator.tokenizer.eos_token = None
    with pytest.raises(UserError, match="request p:0: the prompt is empty"):
        sees(generator, "")


def test_conversation_without_a_template_is_refused(generator):
    generator.tokenizer.chat_template = None
    with pytest.raises(UserError, match="no chat template"):
        generator.generate([a_request([{"role": "user", "content": "Hi"}])], SamplingParams())


def test_no_requests_give_no_completions(generator):
    assert generator.generate([], SamplingParams()) == []


# --- the model afterwards


def state_of(model, tokenizer):
    """Everything about a model and the process that a training run could notice."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return {
        "training": [module.training for module in model.modules()],
        "gradients": [parameter.requires_grad for parameter in model.parameters()],
        "weights": [parameter.detach().clone() for parameter in model.parameters()],
        "checkpointing": [getattr(module, "gradient_checkpointing", None) for module in model.modules()],
        "generation": (id(base.generation_config), base.generation_config.to_dict()),
        "use_cache": model.config.use_cache,
        "attributes": sorted(vars(base)),
        "padding": (tokenizer.padding_side, tokenizer.pad_token, tokenizer.truncation_side),
        "random": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()),
        "grad_enabled": torch.is_grad_enabled(),
    }


def assert_same(before, after):
    assert before.keys() == after.keys()
    for name in before:
        if name == "weights":
            assert all(map(torch.equal, before[name], after[name]))
        elif name == "random":
            assert before[name][:2] == after[name][:2]
            assert torch.equal(before[name][2], after[name][2])
        else:
            assert before[name] == after[name], name


@pytest.fixture(params=["plain", "lora"])
def training_model(request):
    """A model as a trainer has it: in training mode but for a frozen part, with checkpointing and its own settings."""
    model = lora_model() if request.param == "lora" else tiny_model()
    model.train()
    next(module for name, module in model.named_modules() if name.endswith("layers.0.mlp")).eval()
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    model.generation_config.temperature, model.generation_config.top_k = 0.3, 7
    return model


def test_model_and_random_state_are_left_as_they_were(training_model):
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = "right"
    generator = TransformersGenerator(training_model, tokenizer)
    before = state_of(training_model, tokenizer)
    generator.generate(some_requests(4), SAMPLED)
    assert_same(before, state_of(training_model, tokenizer))


def test_model_is_left_as_it_was_after_an_error(training_model):
    tokenizer = tiny_tokenizer()
    generator = TransformersGenerator(training_model, tokenizer)
    before, calls = state_of(training_model, tokenizer), []

    def failing(module, args, output):
        calls.append(module.training)
        if len(calls) == 3:
            raise RuntimeError("out of memory")

    embeddings = training_model.get_input_embeddings()
    hook = embeddings.register_forward_hook(failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        generator.generate(some_requests(4), SAMPLED)
    hook.remove()
    assert calls == [False] * 3
    assert_same(before, state_of(training_model, tokenizer))


def test_training_mode_changes_no_completion(training_model):
    expected = TransformersGenerator(training_model.eval(), tiny_tokenizer()).generate(some_requests(4), SAMPLED)
    training_model.train()
    for module in training_model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    assert TransformersGenerator(training_model, tiny_tokenizer()).generate(some_requests(4), SAMPLED) == expected


def test_autocast_of_the_trainer_changes_no_completion(generator):
    expected = generator.generate(some_requests(4), SAMPLED)
    dtypes = []
    generator.model.model.layers[0].mlp.register_forward_hook(lambda m, args, output: dtypes.append(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        assert generator.generate(some_requests(4), SAMPLED) == expected
    assert set(dtypes) == {torch.float32}


def test_forward_that_accelerate_wrapped_in_autocast_is_passed_by(generator):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    expected = generator.generate(some_requests(4), SAMPLED)
    AcceleratorState._reset_state(reset_partial_state=False)
    try:
        model = Accelerator(mixed_precision="bf16", cpu=True).prepare_model(generator.model)
        wrapped = model.forward
        dtypes = []
        model.model.layers[0].mlp.register_forward_hook(lambda m, args, output: dtypes.append(output.dtype))
        assert generator.generate(some_requests(4), SAMPLED) == expected
        assert set(dtypes) == {torch.float32}
        assert model.forward == wrapped
        model(torch.tensor([[5]]))
        assert dtypes[-1] == torch.bfloat16
    finally:
        AcceleratorState._reset_state(reset_partial_state=False)


def test_evaluating_restores_nothing_it_did_not_change():
    model = tiny_model()
    with evaluating(model):
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    assert not any(module.training for module in model.modules())


def test_encoder_decoder_is_refused():
    model = tiny_model()
    model.config.is_encoder_decoder = True
    with pytest.raises(UserError, match="needs a decoder"):
        TransformersGenerator(model, tiny_tokenizer())


@pytest.mark.model
@pytest.mark.slow
def test_demo_model_answers_in_another_batch_as_before(smol_path):
    generator = TransformersGenerator.from_pretrained("smol", dtype="float32", device="cpu")
    assert generator.describe()["model"] == "smol"
    asked = [[{"role": "user", "content": f"What is {a} + {a + 3}?"}] for a in (2, 17, 123)]
    requests = [Request(f"{i}:0", prompt, sample_seed(0, str(i), 0)) for i, prompt in enumerate(asked)]
    params = SamplingParams(temperature=0.7, top_p=0.95, max_new_tokens=12)
    together = generator.generate(requests, params)
    assert [generator.generate([request], params)[0] for request in requests] == together
