"""The exception tree, and suggestions for mistyped names."""

from __future__ import annotations

import pickle

import pytest

from pufferlib import errors
from pufferlib.errors import did_you_mean, nearest, one_line, quoted, unknown_name

ENVS = ["breakout", "cartpole", "connect4", "pong", "snake", "squared"]


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.UsageError, ValueError),
        (errors.UnknownNameError, ValueError),
        (errors.UnknownParamError, ValueError),
        (errors.UnknownParamError, TypeError),
        (errors.MissingExtraError, ImportError),
        (errors.EnvError, Exception),
        (errors.CheckpointError, Exception),
        (errors.NativeError, Exception),
    ],
)
def test_every_error_is_a_puffer_error_and_the_builtin_it_resembles(
    error: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(error, errors.PufferError)
    assert issubclass(error, builtin)
    assert str(error("what went wrong")) == "what went wrong"


def test_unknown_name_is_a_usage_error() -> None:
    assert issubclass(errors.UnknownNameError, errors.UsageError)


def test_swapped_letters_find_the_name() -> None:
    assert nearest("braekout", ENVS)[0] == "breakout"
    assert nearest("paddle_widht", ["paddle_width", "ball_speed"]) == ["paddle_width"]


def test_case_and_dashes_do_not_count_and_the_real_spelling_is_returned() -> None:
    assert nearest("Learning-Rate", ["learning_rate", "gamma"]) == ["learning_rate"]


def test_initials_find_the_name() -> None:
    assert nearest("lr", ["gamma", "learning_rate"]) == ["learning_rate"]


def test_a_name_without_similar_ones_has_no_suggestion() -> None:
    assert nearest("xyzzy", ENVS) == []
    assert did_you_mean("xyzzy", ENVS) == ""


def test_at_most_n_names_without_repeats() -> None:
    candidates = ["num_envs", "num-envs", "num_env", "num_steps", "num_layers"]

    found = nearest("num_env", candidates, n=2)

    assert found == ["num_env", "num_envs"]


def test_did_you_mean_joins_its_names_as_a_sentence() -> None:
    assert did_you_mean("braekout", ["breakout"]) == " Did you mean `breakout`?"
    joined = did_you_mean("num_env", ["num_env1", "num_env2"])
    assert joined in (
        " Did you mean `num_env1` or `num_env2`?",
        " Did you mean `num_env2` or `num_env1`?",
    )


def test_unknown_name_names_the_place_and_the_nearest() -> None:
    error = unknown_name("environment", "braekout", ENVS, where="command line")

    expected = "Unknown environment `braekout` (command line). Did you mean `breakout`?"
    assert str(error) == expected
    assert error.suggestions == ("breakout",)


def test_unknown_name_lists_a_short_choice_if_nothing_is_similar() -> None:
    error = unknown_name("section", "xyzzy", ["vec", "env"])

    assert str(error) == "Unknown section `xyzzy`. Known: vec, env."
    assert error.suggestions == ()


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(unknown_name("environment", "braekout", ENVS)))

    assert error.suggestions == ("breakout",)
    assert "braekout" in str(error)
    error = pickle.loads(pickle.dumps(errors.UnknownParamError("no", ["gap"], "gpa")))
    assert (str(error), error.suggestions, error.param) == ("no", ("gap",), "gpa")


# ---- Foreign text --------------------------------------------------------------------------------

HOSTILE = "a\npuffer: all is well\x1b[2J\x1b]0;title\x07\u202e\udc80" + "x" * 3_000_000


def test_quoted_text_is_one_short_printable_line() -> None:
    assert quoted("learning_rate") == "`learning_rate`"
    assert quoted("Größe 3") == "`Größe 3`"
    said = quoted(HOSTILE)
    assert said.startswith(r"`a\npuffer: all is well\x1b[2J\x1b]0;title\x07\u202e\udc80xxx")
    assert said.isprintable()
    assert len(said) < 100
    assert quoted("x" * 61) == f"`{'x' * 60} ...`"


def test_quoted_values_are_their_short_repr() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError

    assert quoted(3.5) == "3.5"
    assert quoted(None) == "None"
    assert quoted([1, 2]) == "[1, 2]"
    assert len(quoted([HOSTILE] * 1000)) < 100
    assert len(quoted(10**5000)) < 100
    assert quoted(Rude()).startswith("<Rude instance")


def test_messages_of_others_become_one_line() -> None:
    assert one_line(ValueError("first\n  second\t third")) == "first second third"
    assert one_line("\x1b[31mred") == r"\x1b[31mred"
    assert len(one_line(HOSTILE)) < 400


def test_unknown_name_cuts_and_escapes_its_input() -> None:
    said = str(unknown_name("key", HOSTILE, ENVS, where=f"{HOSTILE}:3"))

    assert said.isprintable()
    assert len(said) < 600
