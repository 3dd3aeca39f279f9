"""A resumed run is the run that never stopped; a checkpoint is whole or absent; a saved policy is the policy alone."""

import copy
import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from huggingface_hub.utils import filter_repo_objects
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from trl_ext import _checkpoint as shared
from trl_ext.errors import UserError
from trl_ext.ppo import checkpoint as checkpoints
from trl_ext.testing import tiny_model, tiny_tokenizer

MODES = ("adapter", "shared", "shared_detach", "shared_full", "model")
TIMES = ("step_time", "time/", "critic/seconds", "train_")
# 2 epochs of 2 minibatches: a generation batch lasts 4 optimizer steps
SAVED = {
    "save_strategy": "steps",
    "save_steps": 1,
    "num_iterations": 2,
    "num_mini_batches": 2,
    "gradient_accumulation_steps": 2,
    "per_device_train_batch_size": 2,
    "max_steps": 6,
    "lr_scheduler_type": "linear",
    "max_grad_norm": 1.0,
}


def _figures(trainer):
    rows = [row for row in trainer.state.log_history if "loss" in row]
    return {row["step"]: {k: v for k, v in row.items() if not k.startswith(TIMES)} for row in rows}


def _assert_continues(resumed, whole, step):
    ours, theirs = _figures(resumed), _figures(whole)
    assert max(ours) == max(theirs) > step
    for number in range(step + 1, max(theirs) + 1):
        assert ours[number].keys() == theirs[number].keys()
        for name, value in theirs[number].items():
            assert ours[number][name] == pytest.approx(value, rel=1e-5, abs=1e-7), f"{name} of step {number}"


@pytest.fixture
def whole(run):
    """A run that was not interrupted, with a checkpoint at each step."""
    return lambda mode, **settings: run(mode, **{**SAVED, **settings})[0]


@pytest.fixture
def resume(build_trainer, tmp_path):
    """A new trainer that goes on from `checkpoint-<step>` of the run in tmp_path, in a folder of its own."""

    def go_on(mode, step, **settings):
        resumed = build_trainer(mode, **{**SAVED, "output_dir": str(tmp_path / "resumed"), **settings})
        resumed.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{step}"))
        return resumed

    return go_on


@pytest.mark.parametrize("mode", MODES)
def test_resume_inside_a_generation_batch_continues_the_run(whole, resume, weights_of, mode):
    uninterrupted = whole(mode, kl_coef=0.1)
    resumed = resume(mode, 3, kl_coef=0.1)
    _assert_continues(resumed, uninterrupted, 3)
    for (name, ours), theirs in zip(weights_of(resumed).items(), weights_of(uninterrupted).values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("step", [1, 2, 4, 5])
def test_resume_at_any_step_continues_the_run(whole, resume, step):
    settings = {"kl_coef": 0.1, "kl_placement": "loss", "kl_estimator": "k3", "entropy_coef": 0.02}
    uninterrupted = whole("adapter", **settings)
    _assert_continues(resume("adapter", step, **settings), uninterrupted, step)


@pytest.mark.parametrize("step", [2, 5, 8])
def test_resume_in_a_later_epoch_continues_with_the_order_of_that_epoch(whole, resume, step):
    # 16 prompts, 8 of them a generation batch of one step: two steps an epoch, each in a new order
    prompts = [f"{number}-{number % 5}=" for number in range(16)]
    settings = {"prompts": prompts, "num_iterations": 1, "num_mini_batches": 1, "gradient_accumulation_steps": 4}
    uninterrupted = whole("shared", max_steps=9, **settings)
    resumed = resume("shared", step, max_steps=9, **settings)
    assert list(resumed._logs["prompt"]) == list(uninterrupted._logs["prompt"])
    _assert_continues(resumed, uninterrupted, step)


def test_resume_with_controllers_and_running_scale_continues_the_run(whole, resume):
    settings = {
        "kl_coef": 0.2,
        "kl_target": 0.5,
        "kl_horizon": 20,
        "reward_running_scale": True,
        "use_adaptive_entropy": True,
        "entropy_target": 5.0,
        "max_steps": 9,
    }
    uninterrupted, resumed = whole("shared", **settings), resume("shared", 5, **settings)
    _assert_continues(resumed, uninterrupted, 5)
    assert resumed.kl_controller.value == pytest.approx(uninterrupted.kl_controller.value) != 0.2
    assert resumed.reward_scale.state_dict() == uninterrupted.reward_scale.state_dict()
    assert resumed.reward_scale.moments[0] == 3 * 8  # three generation batches of 8 completions


def test_resume_while_updates_are_stopped_stays_stopped_until_the_next_rollouts(whole, resume):
    settings = {"target_kl": 1e-6, "learning_rate": 0.1, "max_steps": 7}
    uninterrupted, resumed = whole("adapter", **settings), resume("adapter", 3, **settings)
    stopped = [row["policy/updates_stopped"] for row in _figures(uninterrupted).values()]
    assert stopped[2:5] == [1.0, 1.0, 0.0]
    _assert_continues(resumed, uninterrupted, 3)


def test_resume_of_a_pretrained_adapter_keeps_its_reference(build_trainer, resume, lora):
    def pretrained():
        torch.manual_seed(3)
        return get_peft_model(tiny_model(), lora(init_lora_weights=False))

    settings = {"peft_config": None, "kl_coef": 0.1}
    uninterrupted = build_trainer("adapter", model=pretrained(), **{**SAVED, **settings})
    uninterrupted.train()
    resumed = resume("adapter", 3, model=pretrained(), **settings)
    _assert_continues(resumed, uninterrupted, 3)
    start = dict(pretrained().named_parameters())
    reference = {n: p for n, p in resumed.model.named_parameters() if ".ref." in n}
    assert len(reference) == 8
    for name, parameter in reference.items():
        assert torch.equal(parameter, start[name.replace(".ref.", ".default.")])
        assert not parameter.requires_grad


class Loaded(TrainerCallback):
    """Weights and the critic's optimizer state when training begins."""

    def on_train_begin(self, args, state, control, **kwargs):
        trainer = self.trainer
        self.weights = {name: weight.clone() for name, weight in self.weights_of(trainer).items()}
        in_group = {id(p) for p in trainer.optimizer.param_groups[-1]["params"]}
        critic = {name: p for name, p in trainer.critic.parameters().items() if id(p) in in_group}
        self.states = {name: copy.deepcopy(trainer.optimizer.state[p]) for name, p in critic.items()}


@pytest.mark.parametrize("mode", MODES)
def test_checkpoint_restores_critic_and_optimizer_exactly(whole, build_trainer, weights_of, tmp_path, mode):
    saved = whole(mode, max_steps=2)
    loaded = Loaded()
    fresh = build_trainer(mode, **{**SAVED, "output_dir": str(tmp_path / "resumed")}, callbacks=[loaded])
    loaded.trainer, loaded.weights_of = fresh, weights_of
    before = {name: weight.clone() for name, weight in weights_of(fresh).items()}
    fresh.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    changed = {name for name in before if not torch.equal(before[name], loaded.weights[name])}
    assert {"critic.head.linear.weight", "critic.head.linear.bias"} <= changed
    for name, weight in weights_of(saved).items():
        assert torch.equal(weight, loaded.weights[name]), name
    assert loaded.states.keys() == saved.critic.parameters().keys()
    for name, parameter in saved.critic.parameters().items():
        state = saved.optimizer.state[parameter]
        assert state["step"] == loaded.states[name]["step"] == 2
        assert torch.equal(state["exp_avg_sq"], loaded.states[name]["exp_avg_sq"])
    assert all(p.requires_grad for p in fresh.critic.parameters().values())


def test_checkpoint_holds_the_policys_adapter_alone_and_loads_with_peft(whole, tmp_path):
    trainer = whole("adapter", max_steps=1)
    trainer.save_model(str(tmp_path / "final"))
    ids = torch.tensor([tiny_tokenizer()("hello 12").input_ids])
    expected = trainer.model.eval()(input_ids=ids).logits
    for folder in (tmp_path / "out" / "checkpoint-1", tmp_path / "final"):
        names = list(load_file(folder / "adapter_model.safetensors"))
        assert len(names) == 8 and all("lora_" in name and "value" not in name.split(".") for name in names)
        assert not [path for path in folder.rglob("*") if path.name == "value"]
        loaded = PeftModel.from_pretrained(tiny_model(), folder).eval()
        assert torch.equal(loaded(input_ids=ids).logits, expected)
    assert not torch.equal(tiny_model()(input_ids=ids).logits, expected)


def test_checkpoint_of_full_weights_loads_as_a_plain_model(whole, tmp_path):
    from transformers import AutoModelForCausalLM

    trainer = whole("shared_full", max_steps=1, kl_coef=0.0)
    ids = torch.tensor([tiny_tokenizer()("hello 12").input_ids])
    for folder in (tmp_path / "out" / "checkpoint-1",):
        loaded = AutoModelForCausalLM.from_pretrained(folder)
        assert torch.equal(loaded(input_ids=ids).logits, trainer.model.eval()(input_ids=ids).logits)
        assert not [name for name in load_file(folder / "model.safetensors") if "head.linear" in name]


@pytest.mark.parametrize("mode", MODES)
def test_save_model_writes_the_critic_only_when_asked(build_trainer, awaken, tmp_path, mode):
    for save_critic in (False, True):
        trainer = build_trainer(mode, save_critic=save_critic)
        awaken(trainer)
        folder = tmp_path / f"saved-{save_critic}"
        trainer.save_model(str(folder))
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        critic = {"critic/critic.safetensors", "critic/critic_config.json"}
        assert files & critic == (critic if save_critic else set())
        assert not [name for name in files if "partial" in name or name.startswith(("value", "ref"))]
        assert "tokenizer.json" in files and "training_args.bin" in files
    other = build_trainer(mode)
    checkpoints.load_critic(other.critic, folder)
    for name, parameter in other.critic.parameters().items():
        assert torch.equal(parameter, trainer.critic.parameters()[name])
    config = json.loads((folder / "critic" / "critic_config.json").read_text())
    assert config["critic"] == trainer.args.critic and config["hidden_size"] == 32


def test_save_model_after_an_error_leaves_the_old_files(build_trainer, awaken, tmp_path, monkeypatch):
    trainer = build_trainer("adapter", save_critic=True)
    folder = tmp_path / "saved"
    trainer.save_model(str(folder))
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    awaken(trainer)
    monkeypatch.setattr(checkpoints, "save_critic", _fail)
    with pytest.raises(KeyboardInterrupt):
        trainer.save_model(str(folder))
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    monkeypatch.undo()
    assert not (folder / "_partial").exists()
    (folder / "_partial" / "critic").mkdir(parents=True)  # of a killed process
    trainer.save_model(str(folder))
    assert not [path.name for path in folder.iterdir() if "partial" in path.name]
    assert (folder / "adapter_model.safetensors").read_bytes() != before["adapter_model.safetensors"]


def _fail(*args, **kwargs):
    raise KeyboardInterrupt("killed in the middle of a save")


def _beside_readme(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "README.md")


@pytest.mark.parametrize("place", ["save_critic", "save_state", "_save_rng_state", "replace_folder"])
def test_checkpoint_interrupted_by_a_kill_is_absent_and_the_earlier_one_intact(
    build_trainer, resume, whole, logs_of, tmp_path, monkeypatch, place
):
    uninterrupted = whole("adapter", max_steps=3)
    shutil.rmtree(tmp_path / "out")
    trainer = build_trainer("adapter", **{**SAVED, "max_steps": 3})
    owner = {"_save_rng_state": trainer, "save_critic": checkpoints}.get(place, shared)
    real, calls = getattr(owner, place), []

    def killed_the_second_time(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            _fail()
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, place, killed_the_second_time)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    monkeypatch.undo()
    assert _beside_readme(tmp_path / "out") == ["checkpoint-1"]
    again = build_trainer("adapter", **{**SAVED, "max_steps": 3})
    again.train(resume_from_checkpoint=True)  # the last whole one
    assert max(_figures(again)) == 3
    left = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert [n for n in left if n != "README.md"] == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert uninterrupted.state.global_step == 3


def test_save_clears_what_killed_processes_left(build_trainer, tmp_path):
    out = tmp_path / "out"
    names = ("_partial-checkpoint-7", "_deleted-checkpoint-6", "_old-checkpoint-1", "_old-checkpoint-9")
    for name in (*names, "_old-notes", "_partial-results"):
        (out / name).mkdir(parents=True)
        (out / name / "critic.safetensors").write_text(name)
    (out / "checkpoint-1").mkdir()
    build_trainer("adapter", save_strategy="steps", save_steps=1, max_steps=1).train()
    assert _beside_readme(out) == ["_old-notes", "_partial-results", "checkpoint-1", "checkpoint-9"]
    assert (out / "checkpoint-9" / "critic.safetensors").read_text() == "_old-checkpoint-9"
    assert shared.fault_of(out / "checkpoint-1") is None


def test_replacement_that_fails_puts_the_old_folder_back(tmp_path):
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "old").write_text("")
    with pytest.raises(FileNotFoundError):
        shared.replace_folder(tmp_path / "missing", tmp_path / "checkpoint-1")
    assert [path.name for path in tmp_path.rglob("*")] == ["checkpoint-1", "old"]


def _saved_with_critic(build_trainer, folder):
    build_trainer("shared", save_critic=True).save_model(str(folder))
    assert sorted(path.name for path in (folder / "critic").iterdir()) == ["critic.safetensors", "critic_config.json"]


def test_save_without_critic_removes_the_one_of_an_earlier_run(build_trainer, tmp_path, caplog):
    folder = tmp_path / "saved"
    _saved_with_critic(build_trainer, folder)
    build_trainer("shared").save_model(str(folder))
    assert not (folder / "critic").exists() and (folder / "adapter_model.safetensors").is_file()
    assert caplog.text.count("it belongs to an earlier policy") == 1


def test_save_without_critic_leaves_other_files_and_checkpoints_alone(build_trainer, tmp_path):
    folder = tmp_path / "saved"
    _saved_with_critic(build_trainer, folder)
    (folder / "critic" / "notes.txt").write_text("mine")
    build_trainer("shared").save_model(str(folder))
    assert [path.name for path in (folder / "critic").iterdir()] == ["notes.txt"]
    trainer = build_trainer("shared", save_strategy="steps", save_steps=1, max_steps=1)
    trainer.train()
    checkpoint = tmp_path / "out" / "checkpoint-1"
    before = sorted(path.name for path in (checkpoint / "critic").iterdir())
    trainer.save_model(str(checkpoint))
    assert sorted(path.name for path in (checkpoint / "critic").iterdir()) == before
    assert "state_0.pt" in before


def test_pushed_checkpoint_does_not_take_the_critic_of_an_earlier_run_along(build_trainer, tmp_path, monkeypatch):
    out, pushed = tmp_path / "out", []

    def upload(self, *, folder_path, ignore_patterns=None, **kwargs):
        names = [str(path.relative_to(folder_path)) for path in Path(folder_path).rglob("*") if path.is_file()]
        pushed.append(sorted(filter_repo_objects(names, ignore_patterns=ignore_patterns)))

    monkeypatch.setattr(HfApi, "upload_folder", upload)
    _saved_with_critic(build_trainer, out)
    (out / "_partial-checkpoint-3").mkdir()
    (out / "_partial-checkpoint-3" / "optimizer.pt").write_text("of a run killed now")
    trainer = build_trainer("shared")
    checkpoint = out / "checkpoint-1"
    trainer.save_model(str(checkpoint))
    trainer.push_in_progress, trainer.hub_model_id = None, "user/model"
    trainer._push_from_checkpoint(str(checkpoint))
    assert "adapter_model.safetensors" in pushed[0]
    assert not [name for name in pushed[0] if "critic" in name or "optimizer" in name]


def test_checkpoint_written_again_replaces_the_old_one(build_trainer, weights_of, tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1, "max_grad_norm": 1.0}
    build_trainer("adapter", seed=1, **settings).train()
    trainer = build_trainer("adapter", seed=2, **settings)
    trainer.train()
    saved = load_file(tmp_path / "out" / "checkpoint-1" / "critic" / "critic.safetensors")
    assert torch.equal(saved["head.linear.weight"], trainer.critic.head.linear.weight)
    assert [p.name for p in (tmp_path / "out").iterdir() if p.name.startswith((".", "_"))] == []


def test_save_total_limit_keeps_the_newest(whole, resume, tmp_path):
    whole("adapter", save_total_limit=2, max_steps=4)
    names = sorted(p.name for p in (tmp_path / "out").iterdir() if "checkpoint" in p.name)
    assert names == ["checkpoint-3", "checkpoint-4"]
    assert resume("adapter", 3, max_steps=4).state.global_step == 4


@pytest.mark.parametrize("limit", [1, 2, None])
@pytest.mark.parametrize("mode", ["adapter", "shared_full"])
def test_load_best_model_at_end_restores_policy_and_critic_of_the_best_checkpoint(
    build_trainer, weights_of, tmp_path, mode, limit
):
    from datasets import Dataset

    trainer = build_trainer(
        mode,
        **{**SAVED, "max_steps": 3, "save_total_limit": limit},
        eval_dataset=Dataset.from_dict({"prompt": ["1+1=", "2+2="] * 2}),
        eval_strategy="steps",
        eval_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_score",
        greater_is_better=True,
        kl_coef=0.0,
    )
    scores = iter([0.1, 0.9, 0.5])
    history = {}
    evaluate = trainer.evaluate

    def scored(*args, **kwargs):
        history[trainer.state.global_step] = {
            name: weight.detach().clone() for name, weight in weights_of(trainer).items()
        }
        return {**evaluate(*args, **kwargs), "eval_score": next(scores)}

    trainer.evaluate = scored
    trainer.train()
    best = tmp_path / "out" / "checkpoint-2"
    assert trainer.state.best_model_checkpoint == str(best) and best.is_dir()
    state = json.loads((best / "trainer_state.json").read_text())
    assert state["best_model_checkpoint"] == str(best)
    for name, weight in weights_of(trainer).items():
        assert torch.equal(weight, history[2][name]), name
    assert any(not torch.equal(history[3][name], history[2][name]) for name in history[2])
    kept = sorted(p.name for p in (tmp_path / "out").iterdir() if "checkpoint" in p.name)
    assert kept == {1: ["checkpoint-2"], 2: ["checkpoint-2", "checkpoint-3"]}.get(
        limit, ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    )


def test_save_only_model_checkpoints_hold_weights_and_no_state(whole, tmp_path):
    whole("adapter", save_only_model=True, max_steps=1)
    critic = tmp_path / "out" / "checkpoint-1" / "critic"
    assert sorted(p.name for p in critic.iterdir()) == ["critic.safetensors", "critic_config.json"]


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saved, resumed", [("adapter", "shared"), ("shared", "model"), ("model", "adapter")])
def test_resume_with_another_critic_is_refused(whole, resume, saved, resumed):
    whole(saved, max_steps=1)
    written, wanted = saved.split("_")[0], resumed.split("_")[0]
    with pytest.raises(UserError, match=f"written with critic='{written}'.*critic='{wanted}'; resume with critic="):
        resume(resumed, 1)


def test_resume_of_a_grpo_checkpoint_is_refused(resume, lora, reward, tmp_path):
    from datasets import Dataset

    args = GRPOConfig(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=4,
        max_steps=1,
        save_steps=1,
        bf16=False,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    rows = Dataset.from_dict({"prompt": ["1+1="] * 4})
    trainer = GRPOTrainer(tiny_model(), reward, args, rows, processing_class=tiny_tokenizer(), peft_config=lora())
    trainer.train()
    with pytest.raises(UserError, match=r"holds no critic, so PPOTrainer did not write it; .* pass that policy"):
        resume("adapter", 1)


def test_resume_with_another_number_of_processes_is_refused(whole, resume, tmp_path):
    whole("adapter", max_steps=1)
    path = tmp_path / "out" / "checkpoint-1" / "critic" / "state_0.pt"
    state = torch.load(path, weights_only=True)
    torch.save({**state, "num_processes": 2}, path)
    with pytest.raises(UserError, match="written by 2 processes and this run has 1; resume with the same number"):
        resume("adapter", 1)


def test_resume_with_another_lora_is_refused_with_the_name_that_differs(whole, build_trainer, tmp_path):
    whole("model", max_steps=1)
    other = build_trainer("model", value_model=tiny_model(num_hidden_layers=1), output_dir=str(tmp_path / "resumed"))
    with pytest.raises(UserError, match=r"differ at 'trunk\.layers\.1\..*same peft_config or value_model"):
        other.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))


def test_load_critic_of_another_width_is_refused(build_trainer, tmp_path):
    narrow = build_trainer("model", value_model=tiny_model(num_hidden_layers=1, intermediate_size=16))
    wide = build_trainer("model", value_model=tiny_model(num_hidden_layers=1))
    checkpoints.save_critic(narrow.critic, tmp_path)
    with pytest.raises(UserError, match=r"has shape .*16.* and .*64.* here; resume with the same"):
        checkpoints.load_critic(wide.critic, tmp_path)


OTHER_LORAS = {
    "other": (
        {"target_modules": ["q_proj", "k_proj"]},
        r"has no '.*k_proj.*' and has '.*v_proj.*'.*\(8 tensors differ",
    ),
    "fewer": ({"target_modules": ["q_proj"]}, r"has 'base_model.*layers\.0\.self_attn\.v_proj\.lora_A\.weight'"),
    "more": ({"target_modules": ["q_proj", "v_proj", "o_proj"]}, r"has no '.*o_proj\.lora_A\.weight'"),
    "dora": ({"use_dora": True}, r"has no '.*lora_magnitude_vector"),
    "tokens": ({"trainable_token_indices": [3]}, r"has no '.*embed_tokens.*trainable_tokens_delta"),
    "modules": ({"modules_to_save": ["embed_tokens"]}, r"has no '.*embed_tokens"),
}


@pytest.mark.parametrize("mode", ["shared", "model"])
def test_resume_with_other_target_modules_is_refused_before_anything_is_loaded(whole, resume, lora, mode):
    whole(mode, max_steps=1)
    with pytest.raises(
        UserError, match=OTHER_LORAS["other"][1] + r".*; resume with the same model and peft_config, or"
    ):
        resume(mode, 1, peft_config=lora(target_modules=["q_proj", "k_proj"]))


@pytest.mark.parametrize(
    "mode, other, said",
    [
        ("shared", "shared_full", "holds an adapter and this run trains full weights; resume with the same"),
        ("shared_full", "shared", "holds full weights and this run trains an adapter; resume with the same"),
    ],
)
def test_resume_of_full_weights_with_an_adapter_is_refused_and_the_other_way_round(whole, resume, mode, other, said):
    whole(mode, max_steps=1, kl_coef=0.0)
    with pytest.raises(UserError, match=said):
        resume(other, 1, kl_coef=0.0)


@pytest.mark.parametrize("case", OTHER_LORAS)
def test_policy_of_another_lora_is_refused_with_the_first_tensors_that_differ(lora, tmp_path, case):
    changes, said = OTHER_LORAS[case]
    get_peft_model(tiny_model(), lora()).save_pretrained(tmp_path / "plain")
    get_peft_model(tiny_model(), lora(**changes)).save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match=said) as refusal:
        shared.check_policy(get_peft_model(tiny_model(), lora(**changes)), tmp_path / "plain")
    assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="resume with the same model and peft_config"):
        shared.check_policy(get_peft_model(tiny_model(), lora()), tmp_path / "other")
    shared.check_policy(get_peft_model(tiny_model(), lora(**changes)), tmp_path / "other")


@pytest.mark.parametrize(
    "changes", [{"bias": "all"}, {"target_modules": ["embed_tokens", "q_proj"]}, {"use_rslora": True}]
)
def test_policy_of_the_same_lora_is_accepted(lora, tmp_path, changes):
    policy = get_peft_model(tiny_model(), lora(**changes))
    policy.save_pretrained(tmp_path)
    shared.check_policy(get_peft_model(tiny_model(), lora(**changes)), tmp_path)
    whole_names = load_file(tmp_path / "adapter_model.safetensors")
    torch.save(whole_names, tmp_path / "adapter_model.bin")
    (tmp_path / "adapter_model.safetensors").unlink()
    shared.check_policy(policy, tmp_path)
    del whole_names[next(name for name in whole_names if "lora_A" in name)]
    torch.save(whole_names, tmp_path / "adapter_model.bin")
    with pytest.raises(UserError, match="has no "):
        shared.check_policy(policy, tmp_path)


def test_policy_with_several_adapters_is_compared_with_each_and_needs_its_own(lora, tmp_path):
    policy = get_peft_model(tiny_model(), lora(), adapter_name="default")
    policy.add_adapter("second", lora(r=2))
    policy.save_pretrained(tmp_path)
    shared.check_policy(policy, tmp_path)
    shared.check_policy(
        get_peft_model(tiny_model(), lora()), tmp_path
    )  # the checkpoint's second one is loaded beside it
    other = get_peft_model(tiny_model(), lora())
    other.add_adapter("second", lora(r=3))
    with pytest.raises(UserError, match=r"has shape \(2, 32\) in .*second.* and \(3, 32\) here|has shape \(2, 32\)"):
        shared.check_policy(other, tmp_path)
    with pytest.raises(UserError, match="holds the adapter 'default' and 'second' and this run trains 'third'"):
        shared.check_policy(get_peft_model(tiny_model(), lora(), adapter_name="third"), tmp_path)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", ["1GB", "20KB"])
def test_full_weights_are_compared_by_name_and_shape_in_one_file_or_parts(tmp_path, tied, size):
    tiny_model(tie_word_embeddings=tied).save_pretrained(tmp_path, max_shard_size=size)
    assert (tmp_path / "model.safetensors.index.json").is_file() == (size == "20KB")
    shared.check_policy(tiny_model(tie_word_embeddings=tied), tmp_path)
    with pytest.raises(UserError, match=r"has 'model\.layers\.1\..*which this run lacks"):
        shared.check_policy(tiny_model(tie_word_embeddings=tied, num_hidden_layers=1), tmp_path)
    with pytest.raises(UserError, match=r"has no 'model\.layers\.2\."):
        shared.check_policy(tiny_model(tie_word_embeddings=tied, num_hidden_layers=3), tmp_path)
    with pytest.raises(UserError, match=r"has shape \(.*64.*\) in .* and \(.*48.*\) here"):
        shared.check_policy(tiny_model(tie_word_embeddings=tied, intermediate_size=48), tmp_path)


def test_folder_without_a_policy_is_refused(lora, tmp_path):
    for policy in (tiny_model(), get_peft_model(tiny_model(), lora())):
        with pytest.raises(UserError, match="holds no weights of a policy"):
            shared.check_policy(policy, tmp_path)


def test_saved_lora_config_is_the_policys(whole, tmp_path):
    whole("adapter", max_steps=1)
    saved = LoraConfig.from_pretrained(tmp_path / "out" / "checkpoint-1")
    assert saved.r == 4 and set(saved.target_modules) == {"q_proj", "v_proj"}


def test_resume_inside_a_generation_batch_of_another_shape_is_refused_with_the_old_one(whole, resume):
    whole("shared")
    with pytest.raises(ValueError, match=r"made with .*steps_per_generation=\d+.*; resume with that"):
        resume("shared", 3, num_mini_batches=1)


def test_resume_between_generation_batches_takes_another_shape(whole, resume):
    whole("shared")
    resumed = resume("shared", 4, num_iterations=1)
    assert resumed.state.global_step == resumed.args.max_steps


@pytest.mark.parametrize("mode", ["adapter", "shared"])
def test_resume_with_another_rank_is_refused_in_one_sentence(whole, resume, lora, mode):
    whole(mode)
    with pytest.raises(ValueError, match=r"resume with the same .*peft_config") as refusal:
        resume(mode, 4, peft_config=lora(r=2))
    assert "\n" not in str(refusal.value)


def test_resume_from_a_folder_that_is_not_there_says_so(build_trainer, tmp_path):
    with pytest.raises(ValueError, match="no checkpoint"):
        build_trainer("shared").train(resume_from_checkpoint=str(tmp_path / "nowhere"))
