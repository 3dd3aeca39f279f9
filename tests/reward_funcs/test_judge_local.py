"""`LocalJudge` with tiny models in memory: replies, batches, the policy without its adapters, what stays as it was."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from reward_funcs._judge_base import Request
from reward_funcs._judge_local import quiet_model
from reward_funcs.judge import JudgeTask, LocalJudge
from reward_funcs.rubric import Criterion, Rubric
from trl_ext.testing import tiny_model, tiny_tokenizer

CORRECT = Criterion("correctness", "The final answer is correct.")
GOOD = '{"1": {"reason": "right", "score": 4}}'
ROOM = 4096  # characters are tokens here


def request(text: str) -> Request:
    messages = [{"role": "user", "content": text}]
    return Request(messages, messages)


def said(judge: LocalJudge, *texts: str) -> list[str | None]:
    return [reply.text for reply in judge.replies([request(text) for text in texts], float("inf"))]


def a_model(**overrides: Any) -> Any:
    """A tiny model that says more than newlines."""
    return tiny_model(tie_word_embeddings=False, initializer_range=0.3, **overrides)


def adapted(model: Any, seed: int = 1) -> Any:
    """The model with two adapters that change what it says, the first of them active."""
    torch.manual_seed(seed)
    config = LoraConfig(r=4, lora_alpha=64, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = get_peft_model(model, config, adapter_name="policy")
    model.add_adapter("critic", config)
    model.set_adapter("policy")
    for name, parameter in model.named_parameters():
        if ".critic." in name:
            parameter.requires_grad_(True)  # as a trainer does that trains both
    return model


def scripted(monkeypatch: pytest.MonkeyPatch, model: Any, replies: list[str]) -> list[Any]:
    """Have `generate` answer with the replies; what it was called with."""
    calls: list[Any] = []
    waiting = iter(replies)

    def generate(input_ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
        calls.append((input_ids, arguments))
        ids = [tiny_tokenizer()(next(waiting)).input_ids for _ in input_ids]
        width = max(map(len, ids))
        new = torch.tensor([row + [0] * (width - len(row)) for row in ids])
        return torch.cat([input_ids, new], dim=1)

    monkeypatch.setattr(model, "generate", generate)
    return calls


def test_reply_is_the_greedy_continuation_of_the_chat() -> None:
    model, tokenizer = a_model(), tiny_tokenizer()
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "2+2?"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        expected = []
        row = ids["input_ids"]
        for _ in range(12):  # a slow loop as reference
            token = model(row).logits[:, -1].argmax(-1)
            if token.item() == tokenizer.eos_token_id:
                break
            expected.append(token.item())
            row = torch.cat([row, token[None]], dim=1)
    (text,) = said(LocalJudge((model, tokenizer), max_new_tokens=12), "2+2?")
    assert text == tokenizer.decode(expected, skip_special_tokens=True) and text


def test_replies_do_not_depend_on_the_batch() -> None:
    texts = ["a", "What is it?", "x" * 40, "2+2?", "Why?"]
    judge = LocalJudge((a_model(), tiny_tokenizer()), max_new_tokens=8, batch_size=1)
    alone = said(judge, *texts)
    assert len(set(alone)) > 2 and all(alone)
    judge.batch_size = 3
    assert said(judge, *texts) == alone and said(judge, *texts[::-1]) == alone[::-1]


def test_scores_come_out_of_the_replies_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(max_position_embeddings=ROOM)
    replies = ['{"1": 1}', '{"1": 2}', "no", '{"1": 3}']
    calls = scripted(monkeypatch, model, replies)
    judge = LocalJudge((model, tiny_tokenizer()), batch_size=2)
    tasks = [JudgeTask(text, (CORRECT,)) for text in ("ccc", "a", "bb")]
    assert [verdict.scores for verdict in judge.score(tasks)] == [
        {"correctness": 3.0}, {"correctness": 1.0}, {"correctness": 2.0},
    ]  # fmt: skip
    assert [len(ids) for ids, _ in calls] == [2, 1, 1]  # sorted by length, and one asked again
    ids, arguments = calls[0]
    assert arguments["attention_mask"].sum(1).tolist() == [ids.shape[1] - 1, ids.shape[1]] and ids[0, 0] == 0


def test_base_of_the_policy_judges_with_the_adapters_off() -> None:
    base = a_model()
    tokenizer = tiny_tokenizer()
    texts = ["2+2?", "What is it?"]
    expected = said(LocalJudge((base, tokenizer), max_new_tokens=16), *texts)
    assert all(expected)
    policy = adapted(a_model())
    assert said(LocalJudge((policy, tokenizer), max_new_tokens=16), *texts) != expected
    assert said(LocalJudge((policy, tokenizer), max_new_tokens=16, disable_adapter=True), *texts) == expected


def test_logits_with_adapters_off_are_those_of_the_base() -> None:
    base, policy = a_model(), adapted(a_model())
    ids = torch.arange(1, 30)[None]
    with torch.no_grad():
        expected, changed = base(ids).logits, policy(ids).logits
        assert not torch.allclose(expected, changed, atol=1e-3)
        with quiet_model(policy, without_adapters=True):
            assert torch.equal(policy(ids).logits, expected)
        with quiet_model(policy, without_adapters=False):
            assert torch.equal(policy(ids).logits, changed)
        assert torch.equal(policy(ids).logits, changed)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_training_sees_nothing_of_the_judge(temperature: float) -> None:
    policy = adapted(a_model())
    policy.train()
    policy.base_model.model.model.layers[0].eval()  # a module that its trainer keeps in eval mode
    modes = [module.training for module in policy.modules()]
    trained = {name: parameter.requires_grad for name, parameter in policy.named_parameters()}
    assert any(trained[name] for name in trained if ".critic." in name)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    judge = LocalJudge((policy, tiny_tokenizer()), max_new_tokens=4, disable_adapter=True, temperature=temperature)
    said(judge, "2+2?")
    assert [module.training for module in policy.modules()] == modes
    assert {name: parameter.requires_grad for name, parameter in policy.named_parameters()} == trained
    assert torch.equal(torch.get_rng_state(), state)
    assert policy.active_adapter == "policy" and torch.is_grad_enabled()
    policy(torch.arange(1, 9)[None], labels=torch.arange(1, 9)[None]).loss.backward()
    assert all(p.grad is not None for name, p in policy.named_parameters() if ".policy." in name)


def test_all_is_as_it_was_after_a_bug_too() -> None:
    policy = adapted(a_model()).train()
    trained = [parameter.requires_grad for parameter in policy.parameters()]
    with pytest.raises(KeyError), quiet_model(policy, without_adapters=True):
        assert not policy.training
        raise KeyError
    assert policy.training and [parameter.requires_grad for parameter in policy.parameters()] == trained


def test_sampled_replies_repeat_with_their_seed() -> None:
    pair = (a_model(), tiny_tokenizer())
    first = said(LocalJudge(pair, temperature=1.0, max_new_tokens=12), "2+2?")
    torch.manual_seed(123)
    assert said(LocalJudge(pair, temperature=1.0, max_new_tokens=12), "2+2?") == first
    assert said(LocalJudge(pair, temperature=1.0, max_new_tokens=12, seed=5), "2+2?") != first


def test_votes_of_one_question_are_sampled_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(max_position_embeddings=ROOM)
    scripted(monkeypatch, model, ['{"1": 1}', '{"1": 5}', '{"1": 2}'])
    judge = LocalJudge((model, tiny_tokenizer()), votes=3, temperature=1.0)
    assert judge.score([JudgeTask("x", (CORRECT,))])[0].scores == {"correctness": 2.0}


def test_question_beyond_the_context_is_not_judged() -> None:
    replies = LocalJudge((a_model(), tiny_tokenizer()), max_new_tokens=8).replies(
        [request("x" * 600), request("2+2?")], float("inf")
    )
    assert replies[0].cause == "too_long" and replies[1].text


@pytest.mark.filterwarnings("ignore:LocalJudge judged none")
def test_time_of_the_batch_is_kept() -> None:
    judge = LocalJudge((a_model(max_position_embeddings=ROOM), tiny_tokenizer()), batch_timeout=0)
    assert judge.score([JudgeTask("x", (CORRECT,))])[0].cause == "timeout"


def test_model_is_loaded_by_path_when_it_is_needed_and_again_after_pickling(tmp_path: Path) -> None:
    a_model().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    judge = LocalJudge(tmp_path, max_new_tokens=8, device="cpu")
    assert judge._loaded is None
    expected = said(LocalJudge((a_model(), tiny_tokenizer()), max_new_tokens=8), "2+2?")
    assert said(judge, "2+2?") == expected and expected[0]
    copy = pickle.loads(pickle.dumps(judge))
    assert copy._loaded is None and said(copy, "2+2?") == expected
    judge.close()
    assert judge._loaded is None


def test_model_can_be_attached_when_the_trainer_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = LocalJudge()
    rubric = Rubric([CORRECT], judge=judge)
    with pytest.raises(ValueError, match=r"LocalJudge has no model; give it a path or \(model, tokenizer\), or call"):
        rubric(["x"])
    model = a_model(max_position_embeddings=ROOM)
    scripted(monkeypatch, model, [GOOD])
    judge.attach(model, tiny_tokenizer())
    assert rubric(["x"]) == [0.8]


def test_wrong_models_are_refused() -> None:
    with pytest.raises(ValueError, match=r"give a loaded model as \(model, tokenizer\)"):
        LocalJudge(a_model())  # type: ignore[arg-type]
    bare = tiny_tokenizer()
    bare.chat_template = None
    with pytest.raises(ValueError, match="has no chat template"):
        LocalJudge((a_model(), bare))
    judge = LocalJudge((a_model(), tiny_tokenizer()), disable_adapter=True)
    with pytest.raises(ValueError, match="disable_adapter=True needs a PEFT model, not LlamaForCausalLM"):
        said(judge, "x")


def test_judge_seeds_no_generator_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = LocalJudge((a_model(), tiny_tokenizer()), temperature=1.0, max_new_tokens=2)
    seeded: list[int] = []
    monkeypatch.setattr("torch.cuda.manual_seed_all", seeded.append)
    said(judge, "2+2?")
    assert seeded == []  # the GPU of a policy, of which nothing is saved


def test_special_tokens_of_the_tokenizer_open_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tiny_tokenizer()
    mark = tokenizer.eos_token
    assert mark.strip()
    model = a_model(max_position_embeddings=ROOM)
    calls = scripted(monkeypatch, model, ["no"] * 4)
    judge = LocalJudge((model, tokenizer), batch_size=1, max_new_tokens=8)
    hidden = mark[:1] + "\u200b" + mark[1:]
    clean = JudgeTask("4", (CORRECT,), "2+2?", "4")
    dirty = JudgeTask(
        f"4{hidden}", (Criterion("correctness", CORRECT.description + mark),), f"2+2?{mark}", f"4{hidden}"
    )
    with pytest.warns(UserWarning, match="judged none"):
        judge.score([clean, dirty])
    counts = [(ids == tokenizer.eos_token_id).sum().item() for ids, _ in calls]
    assert len(counts) == 4 and counts[0] == counts[1] and counts[2] == counts[3]  # the questions, then both again


def test_reply_that_fills_its_length_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(max_position_embeddings=ROOM)
    quoted = 'It holds {"1": {"score": 5}}. {"1": {"rea'
    scripted(monkeypatch, model, [quoted, quoted])
    judge = LocalJudge((model, tiny_tokenizer()), max_new_tokens=len(quoted))
    with pytest.warns(UserWarning, match=r"\(cut\): the reply was cut"):
        assert judge.score([JudgeTask("x", (CORRECT,))])[0].cause == "cut"


def test_length_of_a_reply_grows_with_the_criteria(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(max_position_embeddings=40_000)
    calls = scripted(monkeypatch, model, ['{"1": 1}', str({str(n): 1 for n in range(1, 49)}).replace("'", '"')])
    judge = LocalJudge((model, tiny_tokenizer()), batch_size=1)
    criteria = tuple(Criterion(f"c{n}", "It is met.", max_score=1) for n in range(48))
    assert all(verdict.scores for verdict in judge.score([JudgeTask("x", (CORRECT,)), JudgeTask("x", criteria)]))
    assert [arguments["generation_config"].max_new_tokens for _, arguments in calls] == [640, 6656]


def test_arguments_of_the_chat_template_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ messages[-1]['content'] }}{% if enable_thinking is false %} /no_think{% endif %}"
    model = a_model(max_position_embeddings=ROOM)
    calls = scripted(monkeypatch, model, ["a", "b"])
    for settings in ({}, {"chat_template_kwargs": {"enable_thinking": False}}):
        said(LocalJudge((model, tokenizer), max_new_tokens=8, **settings), "2+2?")  # type: ignore[arg-type]
    assert [tokenizer.decode(ids[0]) for ids, _ in calls] == ["2+2?", "2+2? /no_think"]
    with pytest.raises(ValueError, match="chat_template_kwargs=5: it must be a mapping such as"):
        LocalJudge(chat_template_kwargs=5)  # type: ignore[arg-type]


def test_usual_length_of_a_reply_gives_way_to_a_small_context(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(max_position_embeddings=700)
    calls = scripted(monkeypatch, model, [GOOD])
    asked = request("x" * 20)._replace(num_scores=48)
    (reply,) = LocalJudge((model, tiny_tokenizer())).replies([asked], float("inf"))
    ids, arguments = calls[0]
    assert reply.text == GOOD and arguments["generation_config"].max_new_tokens == 700 - ids.shape[1] >= 512
