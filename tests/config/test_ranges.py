"""Ranges: what text spells them, values and coordinates, and section [sweep] of an ini."""

from __future__ import annotations

from pathlib import Path

import pytest

from pufferlib import config as configs
from pufferlib.config import Choice, Logit, LogUniform, OnOff, Pow2, Range, Uniform, check_range
from pufferlib.config.options import guess_value
from pufferlib.errors import UnknownNameError, UsageError

RANGES: list[Range] = [
    Uniform(-2.0, 6.0),
    Uniform(1, 8, integer=True),
    LogUniform(1e-5, 1e-1),
    LogUniform(1000, 1_000_000, integer=True),
    Logit(0.9, 0.9995),
    Pow2(64, 1024),
    Choice((32, 64, 256)),
    Choice((True, False)),
    Choice(("adam", "muon", "sgd")),
    OnOff(0.0, LogUniform(1e-4, 1.0)),
    OnOff(None, Uniform(1, 5, integer=True)),
]
every_range = pytest.mark.parametrize("each", RANGES, ids=str)


@every_range
def test_values_survive_encoding(each: Range) -> None:
    for step in range(33):
        value = each.decode([step / 32] * each.width)
        again = each.decode(each.encode(value))

        assert each.contains(value)
        assert again == pytest.approx(value) if isinstance(value, float) else again == value


@every_range
def test_the_text_of_a_range_spells_it(each: Range) -> None:
    assert configs.as_range(str(each), "x", guess_value) == each


def test_values_are_spread_as_the_distribution_says() -> None:
    assert Uniform(0, 10).decode([0.25]) == 2.5
    assert LogUniform(1e-4, 1e-2).decode([0.5]) == pytest.approx(1e-3)
    # logit(0.5) = 0 is in the middle of logit(0.1) and logit(0.9) = -logit(0.1)
    assert Logit(0.1, 0.9).decode([0.5]) == pytest.approx(0.5)
    # five powers of two, a fifth of the axis each
    assert [Pow2(64, 1024).decode([u]) for u in (0.1, 0.3, 0.5, 0.7, 0.9)] == [
        64, 128, 256, 512, 1024,
    ]  # fmt: skip
    assert [Uniform(1, 4, integer=True).decode([u]) for u in (0, 0.3, 0.6, 1)] == [1, 2, 3, 4]
    assert OnOff(0, Uniform(1, 3)).decode([0.4, 0.5]) == 0
    assert OnOff(0, Uniform(1, 3)).decode([0.6, 0.5]) == 2


@pytest.mark.parametrize(
    ("key", "given", "message"),
    [
        ("train.gamma", [], "must not be empty"),
        ("train.gamma", "", "must not be empty"),
        ("train.gamma", "loguniform 0.1 0.2", "Did you mean `log_uniform`"),
        ("train.gamma", "uniform 0.2", "must have two numbers"),
        ("train.gamma", "uniform 0.9 0.1", "to a larger one"),
        ("train.gamma", "uniform 0 2", "between 0 and 1"),
        ("train.gamma", "logit 0.5 1", "must stay between 0 and 1"),
        ("train.learning_rate", "log_uniform 0 1", "must begin above 0"),
        ("train.batch_size", "pow2 100 200", "must be powers of two"),
        ("train.batch_size", [0.5], "must be an integer"),
        ("train.n_epochs", "logit 0.1 0.9", "must be an integer"),
        ("train.norm_obs", "maybe, no", "must be true or false"),
        ("train.optimizer", "adm, muon", "Did you mean `adam`"),
        ("train.gamma", 3, "must be a list of choices or a range"),
    ],
)
def test_a_wrong_range_is_one_line(key: str, given: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_range(key, given, "the key")

    assert message in str(caught.value)
    assert "the key" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_integer_options_get_whole_numbers() -> None:
    found = check_range("train.total_timesteps", "log_uniform 1e5 1e6", "x")

    assert found.decode([0.3]) == round(1e5 * 10**0.3)
    assert isinstance(found.decode([0.3]), int)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("lr", "Did you mean `learning_rate`"),
        ("hidden_size", "Did you mean `policy.hidden_size`"),
        ("train.gama", "Did you mean `gamma`"),
        ("polcy.hidden_size", "Unknown section"),
    ],
)
def test_an_unknown_key_names_the_nearest(key: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        configs.full_key(key)


def test_ranges_stand_beside_the_values(tmp_path: Path) -> None:
    ini = tmp_path / "own.ini"
    ini.write_text(
        "[train]\nlearning_rate = 0.002\n[sweep]\nmetric = perf\nnum_trials = 7\n"
        "learning_rate = log_uniform 1e-4 1e-2 ; a comment\nenv.gravity = uniform 5 15\n"
    )

    layers = configs.load_sweep("bandit", [("sweep", "num_trials", "9")], [ini])

    assert configs.load("bandit", (), [ini]).train.learning_rate == 0.002
    assert (layers.config.metric, layers.config.num_trials) == ("perf", 9)
    assert layers.ranges["train.learning_rate"] == LogUniform(1e-4, 1e-2)
    assert layers.ranges["env.gravity"] == Uniform(5, 15)


def test_a_wrong_line_of_an_ini_is_named(tmp_path: Path) -> None:
    ini = tmp_path / "own.ini"
    ini.write_text("[sweep]\ntrain.gamma = uniform 0 2\n")
    with pytest.raises(UsageError, match=r"own.ini:2: sweep.train.gamma` must be a number between"):
        configs.load_sweep("bandit", (), [ini])
    ini.write_text("[sweep]\ntrain.gama = uniform 0 1\n")
    with pytest.raises(UnknownNameError, match=r"own.ini:2.*gamma"):
        configs.load_sweep("bandit", (), [ini])


def test_flags_of_a_sweep_are_only_for_sweeps() -> None:
    words = ["--sweep.train.learning-rate", "0.1, 0.2", "--sweep.num-trials=3"]

    assert configs.parse_overrides(words, with_sweep=True)[0] == [
        ("sweep", "train.learning_rate", "0.1, 0.2"),
        ("sweep", "num_trials", "3"),
    ]
    with pytest.raises(UnknownNameError, match="Unknown section `sweep`"):
        configs.parse_overrides(words)


def test_ten_environments_have_ranges_that_hold_their_own_values() -> None:
    from pufferlib.native import infos

    searched = 0
    for name in infos():
        config, layers = configs.load(name), configs.load_sweep(name)
        searched += bool(layers.ranges)
        for key, each in layers.ranges.items():
            section, _, option = key.partition(".")
            part = config.env if section == "env" else vars(getattr(config, section))
            if option in part and part[option] is not None:
                assert each.contains(part[option]), f"{name}: {key} = {part[option]}, not in {each}"
    assert searched >= 10
