"""The schema of a run: layers, types, ranges, the command line, and invalid input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pufferlib
from pufferlib import config
from pufferlib.config import (
    Config,
    PolicyConfig,
    TrainConfig,
    VecConfig,
    describe,
    load,
    parse_overrides,
)
from pufferlib.errors import UnknownNameError, UsageError

ENV = "an_env_without_ini"


def from_command_line(*argv: str) -> Config:
    overrides, rest = parse_overrides(argv)
    assert rest == []
    return load(ENV, overrides)


def from_ini(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "my.ini"
    path.write_text(text)
    return load(ENV, files=[path])


# Layers


def test_without_layers_the_dataclass_defaults_hold() -> None:
    expected = Config(name=ENV, vec=VecConfig(), env={}, policy=PolicyConfig(), train=TrainConfig())

    assert load(ENV) == expected


def test_later_layers_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = tmp_path / "configs" / "my_env.ini"
    packaged.parent.mkdir()
    packaged.write_text("[train]\ngamma = 0.1\nclip_coef = 0.1\nent_coef = 0.1\nvf_coef = 0.1\n")
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    first, second = tmp_path / "first.ini", tmp_path / "second.ini"
    first.write_text("[train]\nclip_coef = 0.2\nent_coef = 0.2\nvf_coef = 0.2\n")
    second.write_text("[train]\nent_coef = 0.3\nvf_coef = 0.3\n")

    train = load("My-Env", [("train", "vf_coef", "0.4")], [first, second]).train

    assert (train.gamma, train.clip_coef, train.ent_coef, train.vf_coef) == (0.1, 0.2, 0.3, 0.4)


def test_every_packaged_ini_loads() -> None:
    paths = list((Path(pufferlib.__file__).parent / "configs").glob("*.ini"))
    assert paths
    for path in paths:
        assert load(path.stem).name == path.stem


def test_a_name_that_is_a_path_has_no_ini() -> None:
    assert load("../configs/breakout").train == TrainConfig()


def test_a_users_class_gets_the_settings_of_gymnasiums_envs() -> None:
    gym = config.load("gym-CartPole-v1")
    for name in ("my_module:Tag", "package.module:make_env", "gym_like:Env"):
        own = config.load(name)
        assert (own.vec, own.train) == (gym.vec, gym.train)


def test_ini_allows_comments_blank_lines_and_both_spellings(tmp_path: Path) -> None:
    text = """
        ; a comment
        # another
        [train]
        learning-rate = 0.043   ; 3 seeds, score 850 +- 9 at 12M steps
        total_timesteps = 12_000_000
        device = cuda:0
        [env]
        paddle-width = 3
        title = a;b
        [policy]
        recurrent = LSTM
    """

    loaded = from_ini(tmp_path, text)

    assert loaded.train.learning_rate == 0.043
    assert loaded.train.total_timesteps == 12_000_000
    assert loaded.train.device == "cuda:0"
    assert loaded.env == {"paddle_width": 3, "title": "a;b"}
    assert loaded.policy.recurrent == "lstm"


# Types


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("total_timesteps", "1e6", 1_000_000),
        ("total_timesteps", "10_000_000", 10_000_000),
        ("seed", str(2**63 - 1), 2**63 - 1),  # beyond what a float holds exactly
        ("learning_rate", "3e-4", 3e-4),
        ("learning_rate", "1", 1.0),
        ("norm_adv", "no", False),
        ("norm_adv", "True", True),
        ("target_kl", "none", None),
        ("target_kl", "0.02", 0.02),
        ("compile", "true", "on"),
        ("compile", "0", "off"),
        ("compile", "Auto", "auto"),
        ("run_dir", "My Runs", "My Runs"),
    ],
)
def test_text_becomes_a_value_of_the_declared_type(key: str, text: str, value: object) -> None:
    loaded = getattr(load(ENV, [("train", key, text)]).train, key)

    assert loaded == value
    assert type(loaded) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("1e3", 1000.0),
        ("0.5", 0.5),
        ("true", True),
        ("none", None),
        ("Easy", "Easy"),
    ],
)
def test_env_params_get_the_plainest_type(text: str, value: object) -> None:
    loaded = load(ENV, [("env", "level", text)]).env["level"]

    assert loaded == value
    assert type(loaded) is type(value)


def test_python_values_are_checked_and_converted() -> None:
    train = TrainConfig.from_dict({"learning_rate": 1, "total_timesteps": 1e6, "compile": True})

    assert (train.learning_rate, train.total_timesteps, train.compile) == (1.0, 1_000_000, "on")
    assert type(train.learning_rate) is float
    assert type(train.total_timesteps) is int
    with pytest.raises(UsageError, match="`gamma` must be a number between 0 and 1, but got 2"):
        TrainConfig(gamma=2)
    with pytest.raises(UnknownNameError, match=r"`lr`\. Did you mean `learning_rate`\?"):
        TrainConfig.from_dict({"lr": 1})


@pytest.mark.parametrize(
    ("key", "text", "requirement"),
    [
        ("gamma", "1.5", "a number between 0 and 1, but got 1.5"),
        ("gamma", "high", "a number between 0 and 1, but got `high`"),
        ("gamma", "none", "a number between 0 and 1, but got `none`"),
        ("gamma", "nan", "a number between 0 and 1, but got nan"),
        ("learning_rate", "inf", "a number of at least 0, but got inf"),
        ("learning_rate", "1" + "0" * 400, "a number of at least 0, but got 1000"),
        ("n_epochs", "0", "an integer of at least 1, but got 0"),
        ("n_epochs", "1.5", "an integer of at least 1, but got 1.5"),
        ("n_epochs", "inf", "an integer of at least 1, but got inf"),
        ("n_epochs", "true", "an integer of at least 1, but got `true`"),
        ("minibatch_size", "-4", "an integer of at least 1, or none, but got -4"),
        ("norm_adv", "maybe", "true or false, but got `maybe`"),
        ("engine", "tocrh", "one of auto, native, torch, but got `tocrh`. Did you mean `torch`?"),
    ],
)
def test_an_invalid_value_is_refused_by_name(key: str, text: str, requirement: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(ENV, [("train", key, text)])

    assert f"`--train.{key.replace('_', '-')}` must be {requirement}" in str(caught.value)


# Invalid files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\ngama = 1", "Unknown key of [train] `gama` ({path}:2). Did you mean `gamma`"),
        ("[trian]\ngamma = 1", "Unknown section `trian` ({path}:1). Did you mean `train`?"),
        ("[train]\n\ngamma = 2", "`{path}:3: train.gamma` must be a number between 0 and 1"),
        ("gamma = 1", "{path}:1 must be `[section]` or `key = value`, but got `gamma = 1`."),
        ("[train]\ngamma", "{path}:2 must be `[section]` or `key = value`, but got `gamma`."),
        ("[train]\ngamma =  ; 1", "{path}:2 must be `[section]` or `key = value`"),
        ("[train]\nn-epochs=1\nn_epochs=2", "{path}:3 must not set `n_epochs` again: line 2"),
        (
            "[train]\nnum_envs = 8",
            "Unknown key of [train] `train.num_envs` ({path}:2). Did you mean `vec.num_envs`?",
        ),
    ],
)
def test_mistakes_in_a_file_are_named_with_their_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        from_ini(tmp_path, text)

    assert str(caught.value).startswith(message.format(path=tmp_path / "my.ini"))
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.ini"
    binary.write_bytes(b"\xff\xfe\xff")

    with pytest.raises(UsageError, match=r"but got `absent.ini`: No such file or directory\."):
        load(ENV, files=["absent.ini"])
    with pytest.raises(UsageError, match="it is not a file"):
        load(ENV, files=[tmp_path])
    with pytest.raises(UsageError, match=r"it is not UTF-8 text\."):
        load(ENV, files=[binary])


# The command line


def test_both_spellings_of_a_value_are_parsed_and_the_rest_kept() -> None:
    argv = ["train", "--train.learning-rate", "3e-4", "breakout", "--vec.num_envs=8", "--json"]

    overrides, rest = parse_overrides(argv)

    assert overrides == [("train", "learning_rate", "3e-4"), ("vec", "num_envs", "8")]
    assert rest == ["train", "breakout", "--json"]


def test_flags_need_no_value_and_leave_other_words() -> None:
    overrides, rest = parse_overrides(["--train.compile", "breakout", "--train.norm-adv", "off"])

    assert overrides == [("train", "compile", "true"), ("train", "norm_adv", "off")]
    assert rest == ["breakout"]
    assert from_command_line("--train.compile", "--train.norm-adv", "off").train.compile == "on"


def test_env_params_may_be_negative() -> None:
    loaded = from_command_line("--env.gravity", "-9.8", "--env.paddle-width=3", "--env.fast=yes")

    assert loaded.env == {"gravity": -9.8, "paddle_width": 3, "fast": True}


def test_a_double_dash_ends_the_options() -> None:
    assert parse_overrides(["--", "--train.gamma", "1"]) == ([], ["--", "--train.gamma", "1"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--train.gamma"], "`--train.gamma` must have a value (float), but got none."),
        (["--vec.num-envs", "--json"], "`--vec.num-envs` must have a value (int or none)"),
        (["--env.max-steps"], "`--env.max-steps` must have a value, but got none. Try a number"),
        (["--env.max-steps", "--json"], "`--env.max-steps` must have a value, but got none."),
        (["--train.device", "gpu"], "`device` must be auto, cpu, cuda, cuda:N or mps"),
        (["--train.device", "cuda:x"], "`device` must be auto, cpu, cuda, cuda:N or mps"),
        (["--train.lr", "1"], "Unknown key of [train] `lr` (--train.lr). Did you mean `learning_r"),
        (["--train.lr=1"], "Unknown key of [train] `lr` (--train.lr). Did you mean `learning_r"),
        (["--trian.gamma", "1"], "Unknown section `trian` (--trian.gamma). Did you mean `train`?"),
        (["--train.num-envs", "8"], "Unknown key of [train] `train.num_envs` (--train.num-envs)."),
    ],
)
def test_mistakes_on_the_command_line_are_named(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_command_line(*argv)

    assert str(caught.value).startswith(message)


# Saving and showing


def test_a_config_survives_json() -> None:
    original = from_command_line("--env.paddle-width", "3", "--train.target-kl", "0.1")

    assert Config.from_dict(json.loads(json.dumps(original.to_dict()))) == original


def test_from_dict_fills_absent_keys_and_refuses_unknown_ones() -> None:
    assert Config.from_dict({"name": ENV}) == load(ENV)
    with pytest.raises(UnknownNameError, match=r"`trian`\. Did you mean `train`\?"):
        Config.from_dict({"name": ENV, "trian": {}})


@pytest.mark.parametrize("section", ["vec", "policy", "train"])
def test_every_option_is_described(section: str) -> None:
    rows = describe(section)

    assert rows
    for row in rows:
        assert row.help
        assert row.type
        assert getattr(getattr(load(ENV), section), row.key) == row.default


def test_descriptions_show_type_and_choices() -> None:
    rows = {row.key: row for row in describe("train")}

    assert rows["gamma"].type == "float"
    assert rows["num_steps"].type == "int or none"
    assert rows["compile"].type == "auto | on | off"
    assert describe("env") == []
    with pytest.raises(UnknownNameError, match="Unknown section `trian`"):
        describe("trian")


def test_help_needs_neither_numpy_nor_torch_nor_gymnasium() -> None:
    code = (
        "import sys, pufferlib.config as c; c.describe('train');"
        "heavy = {'numpy', 'torch', 'gymnasium'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_without_the_packaged_layer_only_the_users_settings_count() -> None:
    assert config.load("snake").env == {"obs": "planes"}
    assert config.load("snake", packaged=False).env == {}
    assert config.load("snake", [("env", "vision", "3")], packaged=False).env == {"vision": 3}
