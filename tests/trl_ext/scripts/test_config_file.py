"""`--config` files: each value is read as its setting's type, or refused in one sentence that names it."""

import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from trl import ModelConfig
from trl.scripts.grpo import GRPOScriptArguments

from trl_ext.cli import main
from trl_ext.errors import UsageError, UserError
from trl_ext.grpo import GRPOVariantConfig
from trl_ext.ppo import PPOConfig
from trl_ext.scripts import _config_file, _libraries, _training
from trl_ext.scripts.check import _number

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def read(here):
    """The settings of a `--config` file that holds these lines, and of flags after it."""

    def parse(text, *argv, config=PPOConfig):
        (here / "t.yaml").write_text(f"output_dir: out\n{text}\n")
        flags = ["--config", "t.yaml", *argv]
        parsed = _training.parse((GRPOScriptArguments, config, ModelConfig), flags, prog="trl-ext some")
        return SimpleNamespace(**{name: value for one in reversed(parsed) for name, value in vars(one).items()})

    return parse


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("learning_rate: 2e-4", "learning_rate", 2e-4),
        ("learning-rate: 0.5", "learning_rate", 0.5),
        ("max_steps: 1e2", "max_steps", 100),
        ("max_steps: 20.0", "max_steps", 20),
        ("reward_weights: [2e-1, 1]", "reward_weights", [0.2, 1]),
        ("reward_weights: 2e-1", "reward_weights", [0.2]),
        ("reward_funcs: accuracy_reward", "reward_funcs", ["accuracy_reward"]),
        ("lora_target_modules: all-linear", "lora_target_modules", "all-linear"),
        ("use_peft: 'true'", "use_peft", True),
        ("no-logging-nan-inf-filter: true", "logging_nan_inf_filter", False),
        ("no_logging_nan_inf_filter: false", "logging_nan_inf_filter", True),
        ("run_name: 5", "run_name", "5"),
        ("run_name: 2026-01-02", "run_name", "2026-01-02"),
        ("save_strategy: no", "save_strategy", "no"),
        ("eval_strategy: no", "eval_strategy", "no"),
        ("logging_strategy: no", "logging_strategy", "no"),
        ("report_to: no", "report_to", []),
        ("max_completion_length:", "max_completion_length", None),
        ("resume_from_checkpoint: true", "resume_from_checkpoint", True),
        ("include_num_input_tokens_seen: all", "include_num_input_tokens_seen", "all"),
        ("include_num_input_tokens_seen: no", "include_num_input_tokens_seen", "no"),
    ],
)
def test_value_is_read_as_the_type_of_its_setting(read, text, name, expected):
    found = getattr(read(text), name)
    assert found == expected and type(getattr(found, "value", found)) is type(expected)


@pytest.mark.parametrize(("text", "expected"), [("false", "none"), ("true", "group"), ("batch", "batch")])
def test_scale_rewards_may_be_a_boolean_as_in_trl(read, text, expected):
    assert read(f"scale_rewards: {text}", config=GRPOVariantConfig).scale_rewards == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("max_steps: 2.5", "max_steps=2.5 in t.yaml must be a whole number"),
        ("max_steps: yes", "max_steps=True in t.yaml must be a whole number"),
        ("max_steps: many", "max_steps='many' in t.yaml must be a whole number"),
        ("max_steps: [1]", "max_steps=[1] in t.yaml must be a whole number"),
        ("max_steps:", "max_steps in t.yaml has no value; it must be a whole number, or leave the line out"),
        ("learning_rate: {a: 1}", "learning_rate={'a': 1} in t.yaml must be a number"),
        ("learning_rate: fast", "learning_rate='fast' in t.yaml must be a number"),
        ("reward_weights: [a]", "reward_weights=['a'] in t.yaml must be a list of numbers, such as [1.0, 0.5]"),
        ("reward_funcs: {a: 1}", "reward_funcs={'a': 1} in t.yaml must be a list, such as [a, b]"),
        ("use_peft: maybe", "use_peft='maybe' in t.yaml must be true or false"),
        ("use_peft: [true]", "use_peft=[True] in t.yaml must be true or false"),
        ("output_dir: [a]", "output_dir=['a'] in t.yaml must be text"),
        ("dataset_name: [a]", "dataset_name=['a'] in t.yaml must be text"),
        ("critic: no", "critic=False in t.yaml must be text; YAML reads yes, no, on and off as true and false"),
        ("save_strategy: yes", "save_strategy=True in t.yaml must be one of no, steps, epoch, best"),
        ("save_strategy: stepz", "must be one of no, steps, epoch, best; did you mean 'steps'?"),
        ("hub_strategy: no", "hub_strategy=False in t.yaml must be one of end, every_save, checkpoint"),
        ("log_level: loud", "log_level='loud' in t.yaml must be one of detail, debug, info"),
        ("dtype: float33", "dtype='float33' in t.yaml must be one of auto, bfloat16, float16, float32; did you mean"),
        ("debug: nothing", "debug='nothing' in t.yaml must be a list of one of underflow_overflow"),
        ("parallelism_config: {a: 1}", "parallelism_config={'a': 1} in t.yaml must be left out here and set in Python"),
        ("accelerator_config: nowhere.json", "or the path of a JSON file"),
        ("seed: -1", "seed=-1 must be a whole number between 0 and 4294967295"),
        ("seed: 1.5", "seed=1.5 in t.yaml must be a whole number"),
        ("env: [1]", "env=[1] in t.yaml must hold lines of `NAME: value`"),
        ("env: {A: [1]}", "env: A=[1] in t.yaml must be text or a number"),
        ("env: {A: }", "env: A=None in t.yaml must be text or a number"),
        ("env: {A=B: 1}", "env: 'A=B' in t.yaml is no name of an environment variable"),
        ("help: true", "unknown key 'help' in t.yaml"),
        ("seed: 1\nseed: 2", "t.yaml: the key 'seed' stands twice, in line 1 and line 2; keep one"),
        ("generation_kwargs: {a: 1, a: 2}", "t.yaml: the key 'a' stands twice, in line 1; keep one"),
        ("learning_rate: 1\nlearning-rate: 2", "t.yaml gives 'learning_rate' and 'learning-rate', two names of one"),
        ("model: a\nmodel_name_or_path: b", "t.yaml gives 'model' and 'model_name_or_path', two names of one setting"),
        ("load_best_model_at_end: true", "requires the save and eval strategy to match"),
    ],
)
@pytest.mark.parametrize("command", ["ppo", "grpo"])
def test_value_of_another_type_ends_in_one_line(here, refused, command, text, sentence):
    if command == "grpo" and text.startswith("critic"):
        text, sentence = text.replace("critic", "zero_std"), sentence.replace("critic", "zero_std")
    (here / "t.yaml").write_text(text)
    refused([command, "--config", "t.yaml"], sentence, status=2)


def test_environment_of_a_file_is_set(read, monkeypatch):
    for name in ("TRL_EXT_ONE", "TRL_EXT_TWO"):
        monkeypatch.setenv(name, "before")
    read("env: {TRL_EXT_ONE: 5, TRL_EXT_TWO: ''}")
    assert (os.environ["TRL_EXT_ONE"], os.environ["TRL_EXT_TWO"]) == ("5", "")


def test_flag_with_hyphens_replaces_the_other_name_of_its_setting(read):
    assert read("beta: 0.1", "--kl-coef", "0.2").beta == 0.2


# --- tables in a setting ------------------------------------------------------------------------------------------

TABLES = [
    "generation_kwargs",
    "model_init_kwargs",
    "lr_scheduler_kwargs",
    "chat_template_kwargs",
    "gradient_checkpointing_kwargs",
]


@pytest.mark.parametrize("name", TABLES)
def test_table_is_read_from_yaml_from_json_in_yaml_and_from_json_in_a_flag(read, name):
    table = {"a": 1, "b": {"c": [1e-6, True]}, "d": "text"}
    ways = [
        read(yaml.safe_dump({name: table})),
        read(yaml.safe_dump({name: json.dumps(table)})),
        read("seed: 1", f"--{name}", json.dumps(table)),
    ]
    assert [getattr(way, name) for way in ways] == [table] * 3


def test_number_with_an_exponent_is_one_inside_a_table_and_a_commit_is_not(read):
    found = read("lr_scheduler_kwargs: {min_lr: 1e-6, rates: [2E5, -3.e-2], name: e5, revision: 12e4}")
    expected = {"min_lr": 1e-6, "rates": [2e5, -0.03], "name": "e5", "revision": "12e4"}
    assert found.lr_scheduler_kwargs == expected


def test_table_of_booleans_is_read_from_yaml_and_from_a_flag(read):
    assert read("liger_kernel_config: {rope: true}").liger_kernel_config == {"rope": True}
    assert read("seed: 1", "--liger_kernel_config", '{"rope": false}').liger_kernel_config == {"rope": False}


@pytest.mark.parametrize("value", ["text", "[1]", "5"])
def test_table_that_is_none_ends_in_one_line(here, call, refused, value):
    (here / "t.yaml").write_text(f"generation_kwargs: {value}")
    refused(
        ["ppo", "--config", "t.yaml"], 'in t.yaml must be a table of names and values, such as {"name": 1}', status=2
    )
    refused(call("ppo", "--generation_kwargs", value), f"'{value}' must be a table of names and values", status=2)


def test_json_that_is_none_ends_in_one_line(here, call, refused):
    refused(
        call("ppo", "--generation_kwargs", '{"a" 1}'), "must be JSON such as '{\"name\": 1}' (Expecting ':'", status=2
    )


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("model_init_kwargs", "model_init_kwargs holds 'nothing', which LlamaForCausalLM.__init__ does not take"),
        ("lr_scheduler_kwargs", "lr_scheduler_kwargs holds 'nothing', which get_linear_schedule_with_warmup does not"),
        ("accelerator_config", "accelerator_config holds 'nothing', which AcceleratorConfig.__init__ does not take"),
    ],
)
def test_unknown_name_in_a_table_ends_in_one_line(call, refused, flag, sentence):
    refused(call("ppo", f"--{flag}", '{"nothing": 1}'), sentence)


def test_type_error_about_something_else_keeps_its_traceback():
    with pytest.raises(TypeError, match="unexpected keyword argument 'solution'"), _libraries.clear_errors({"a": {}}):
        (lambda: None)(solution=1)


# --- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "x.yaml is empty; it must hold `name: value` lines"),
        (b"# nothing\n", "x.yaml is empty"),
        (b"- a\n", "x.yaml must hold `name: value` lines"),
        (b"text only\n", "x.yaml must hold `name: value` lines"),
        (b"seed: 1\nk: [1\n", "x.yaml is not valid YAML: line 3, column 1: while parsing a flow sequence, expected"),
        (b"seed: 1\n\tk: 2\n", "x.yaml is not valid YAML: line 2, column 1: while scanning for the next token, found"),
        (b"seed: b: c\n", "x.yaml is not valid YAML: line 1, column 8: mapping values are not allowed here"),
        (b"seed: 1\n---\nseed: 2\n", "line 2, column 1: expected a single document in the stream, but found another"),
        (b"seed: *x\n", "x.yaml is not valid YAML: line 1, column 7: found undefined alias 'x'"),
        (b"? [a]\n: 1\n", "x.yaml is not valid YAML: line 1, column 3: while constructing a mapping, found unhashable"),
        (b"seed: 1\nsplit: \x07\n", "x.yaml is not valid YAML: line 2, column 8: '\\x07' is not allowed"),
        (b"seed: 1\nsplit: 2024-13-45\n", "line 2, column 8: month must be in 1..12; write text in quotes"),
        (b"seed: &a {x: *a}\n", "x.yaml is not valid YAML: line 1: what stands here holds itself"),
        (b"[" * 5000, "x.yaml is not valid YAML: its lists or tables are nested too deeply"),
        ("split: é".encode("latin1"), "x.yaml is not UTF-8 text (unexpected end of data, byte 7); convert it to UTF-8"),
        ("seed: 1".encode("utf-16"), "x.yaml is not UTF-8 text (invalid start byte, byte 0)"),
    ],
)
@pytest.mark.parametrize("command", [["ppo"], ["eval"], ["data", "build"]])
def test_file_that_is_no_settings_ends_in_one_line_that_says_where(here, refused, command, content, sentence):
    (here / "x.yaml").write_bytes(content)
    refused([*command, "--config", "x.yaml"], sentence, status=2)


def test_file_that_may_not_be_read_ends_in_one_line(here, refused, monkeypatch):
    def read_text(self, **settings):
        raise PermissionError(13, "Permission denied", str(self))

    (here / "x.yaml").write_text("seed: 1")
    monkeypatch.setattr(_config_file.Path, "read_text", read_text)
    refused(["ppo", "--config", "x.yaml"], "x.yaml cannot be read: Permission denied", status=2)


def test_byte_order_mark_is_no_part_of_the_first_key(here, refused):
    (here / "x.yaml").write_bytes(b"\xef\xbb\xbfseed: x\n")
    refused(["ppo", "--config", "x.yaml"], "seed='x' in x.yaml", status=2)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--config", "a", "--config", "b"], "--config is given twice; put the settings into one file"),
        (["--config=a", "--config", "b"], "--config is given twice"),
        (["--config", "."], "--config . is a folder; name a YAML file or a recipe"),
        (["--config", "--seed", "1"], "--config needs a YAML file or the name of a recipe"),
        (["--config="], "--config needs a YAML file or the name of a recipe"),
    ],
)
@pytest.mark.parametrize("command", [["ppo"], ["grpo"], ["eval"], ["data", "build"]])
def test_config_flag_that_names_no_one_file_ends_in_one_line(here, refused, command, argv, sentence):
    refused([*command, *argv], sentence, status=2)


# --- packages, models and folders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_report_to_a_package_that_is_missing_ends_in_one_line_before_a_model_is_loaded(
    call, refused, monkeypatch, name
):
    monkeypatch.setattr(_libraries, "_is_installed", lambda module: False)
    monkeypatch.setattr(_training, "build_trainer", lambda *args, **more: pytest.fail("a trainer was built"))
    sentence = f"report_to='{name}' needs {name}; install it with `pip install {name}`"
    refused(call("ppo", "--report_to", name), sentence, status=2)


def test_report_to_an_unknown_name_ends_in_one_line(call, refused):
    refused(call("ppo", "--report_to", "tensorbord"), "report_to='tensorbord' must be one of none, all, az", status=2)


def test_report_to_tensorboard_may_use_the_other_package(monkeypatch):
    monkeypatch.setattr(_libraries, "_is_installed", lambda module: module == "tensorboardX")
    _libraries.refuse_missing_reports(["tensorboard"])
    with pytest.raises(UsageError, match="needs wandb"):
        _libraries.refuse_missing_reports(["tensorboard", "wandb"])


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            ImportError("X is missing.\nPlease install it with `pip install x`"),
            r"^X is missing. Please install it with",
        ),
        (
            ModuleNotFoundError("The 'deepspeed>=1' distribution was not found"),
            r"needs deepspeed>=1; install it with `pip install 'deepspeed>=1'`$",
        ),
    ],
)
def test_import_error_that_says_what_to_install_is_one_sentence(error, sentence):
    with pytest.raises(UserError, match=sentence), _libraries.clear_errors({}):
        raise error


@pytest.mark.parametrize("error", [ModuleNotFoundError("No module named 'x'"), ImportError("cannot import name 'y'")])
def test_import_error_of_the_users_own_code_keeps_its_traceback(error):
    with pytest.raises(ImportError) as raised, _libraries.clear_errors({}):
        raise error
    assert raised.value is error


def test_model_that_is_a_file_or_nowhere_and_an_output_that_is_a_file_end_in_one_line(here, call, refused):
    refused(call("ppo", "--model", "rows.jsonl"), "model_name_or_path='rows.jsonl' is a file; name a Hub id or the")
    refused(call("ppo", "--model", " "), "name the model: --model")
    refused(
        call("ppo", "--model", "nobody/nothing"), "the model 'nobody/nothing' cannot be loaded: We couldn't connect"
    )
    refused(call("ppo", "--output_dir", "rows.jsonl"), "output_dir='rows.jsonl' is a file; name a folder")
    (here / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    refused(["plot", ".", "--output_dir", "rows.jsonl"], "output_dir='rows.jsonl' is a file; name a folder")


@pytest.mark.parametrize("word", ["word", "-x"])
def test_argument_that_belongs_to_no_flag_ends_in_one_line(call, refused, word):
    refused(call("ppo", "--use_peft", "true", word), f"unknown argument '{word}'; write options as --name", status=2)


@pytest.mark.parametrize("name", [".", ".a", "a..b", "a."])
def test_reward_with_an_empty_part_is_refused(name):
    with pytest.raises(UserError, match=r"is no module\.function, such as my_rewards"):
        _training.load_reward(name)


# --- `trl-ext eval` and `trl-ext data` ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "text", "sentence"),
    [
        ("eval", "num_samples:", "num_samples in the configuration file has no value; give one, or leave the line out"),
        ("eval", "num_samples: [1]", "num_samples: [1] in the configuration file must be one value"),
        ("eval", "num_samples: 2.5", "argument --num_samples: 2.5 is no whole number of at least 1"),
        ("eval", "model: [a]", "in the configuration file must be one value"),
        ("eval", "output_dir: [a]", "output_dir: ['a'] in the configuration file must be one value"),
        (
            "eval",
            "dtype: no",
            "dtype: False in the configuration file must be text; write yes, no, on and off in quotes",
        ),
        ("eval", "compare: 5", "compare: 5 in the configuration file must be a list of 2"),
        ("eval", "compare: [a]", "compare: ['a'] in the configuration file must be a list of 2"),
        ("eval", "benchmarks: {a: 1}", "benchmarks: {'a': 1} in the configuration file must be a list of texts"),
        ("eval", "k: {a: 1}", "k: {'a': 1} in the configuration file must be one value"),
        ("data", "split: [a]", "split: ['a'] in the configuration file must be one value"),
        ("data", "seed:", "seed in the configuration file has no value"),
        ("data", "decontaminate: no", "decontaminate: False in the configuration file must be text"),
        ("data", "local_path: [[a]]", "local_path: [['a']] in the configuration file must be a list of texts"),
        ("data", "split: a\ndataset_train_split: b", "dataset_train_split in the configuration file is another name"),
    ],
)
def test_setting_of_another_type_for_eval_and_data_ends_in_one_line(here, refused, command, text, sentence):
    (here / "x.yaml").write_text(text)
    argv = ["eval"] if command == "eval" else ["data", "build", "gsm8k"]
    refused([*argv, "--config", "x.yaml"], sentence, status=2)


def test_setting_of_data_without_a_value_is_the_default_where_that_is_none(here):
    from trl_ext.scripts._data_arguments import arguments

    Path("x.yaml").write_text("streaming:\nmin_difficulty:\nmax_samples: 1e3\n")
    found = arguments("build", ["gsm8k", "--config", "x.yaml"])
    assert (found.streaming, found.min_difficulty, found.max_samples) == (None, None, 1000)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gsm8k: [1\n", "r.yaml is not valid YAML: line 2, column 1: while parsing a flow sequence"),
        ("gsm8k: 2024-13-40", "r.yaml is not valid YAML: line 1, column 8: month must be in 1..12"),
    ],
)
def test_recipe_of_a_mixture_that_is_no_yaml_says_where(here, refused, text, sentence):
    Path("r.yaml").write_text(text)
    refused(["data", "mix", "--recipe", "r.yaml", "--dry_run"], sentence, status=2)


def test_whole_number_of_a_flag_may_have_an_exponent_and_no_fraction():
    read = partial(_number(int, 1))
    assert [read(text) for text in ("8", "8.0", "1e3")] == [8, 8, 1000] and type(read("1e3")) is int
    for text in ("2.5", "inf", "nan", "0", "x"):
        with pytest.raises(Exception, match=f"{text} is no whole number of at least 1"):
            read(text)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["ppo", "grpo"])
def test_run_from_yaml_with_every_kind_of_value(here, call, command):
    settings = {
        "save_strategy": False,
        "learning_rate": "2e-4",
        "reward_weights": ["5e-1"],
        "generation_kwargs": {"repetition_penalty": "1.1e0"},
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr": "1e-6"},
        "model_init_kwargs": {"low_cpu_mem_usage": True},
    }
    (here / "t.yaml").write_text(yaml.safe_dump(settings).replace("'", ""))
    more = ["--num_generations", "2"] if command == "grpo" else []
    assert main(call(command, "--config", "t.yaml", *more)) == 0
    written = yaml.safe_load((here / "out" / _training.RESOLVED_CONFIG).read_text())
    expected = {"save_strategy": "no", "learning_rate": 2e-4, "reward_weights": [0.5]}
    expected |= {"lr_scheduler_kwargs": {"min_lr": 1e-6}, "generation_kwargs": {"repetition_penalty": 1.1}}
    assert {name: written[name] for name in expected} == expected
    assert not list((here / "out").glob("checkpoint-*"))
