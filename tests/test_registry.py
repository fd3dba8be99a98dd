"""Names and registrations: what `make` accepts, and the errors for what it does not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import pufferlib
from pufferlib import registry
from pufferlib.errors import UnknownNameError, UsageError
from pufferlib.native import NativeCreator
from pufferlib.ocean.environment import OCEAN_REGISTRY
from pufferlib.vectorization import Serial, Threads


class Counting(pufferlib.PufferEnv):
    """Observes the number of its steps, ends after `length` of them."""

    def __init__(self, length: int = 3, buf: Any = None) -> None:
        self.length = length
        self.single_observation_space = Box(0, 100, (1,), np.float32)
        self.single_action_space = Discrete(2)
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> Any:
        self.ticks = 0
        self.observations[:] = 0
        return self.observations, []

    def step(self, actions: Any) -> Any:
        self.ticks += 1
        self.observations[:] = self.ticks
        self.rewards[:] = 1
        if self.ticks == self.length:
            self.terminals[:] = True
            self.reset()
        return self.observations, self.rewards, self.terminals, self.truncations, []


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Give every test registries of its own."""
    registered, ocean = dict(registry._registered), dict(OCEAN_REGISTRY)
    yield
    registry._registered.clear()
    registry._registered.update(registered)
    OCEAN_REGISTRY.clear()
    OCEAN_REGISTRY.update(ocean)


# ---- Names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["breakout", "Breakout", " BREAKOUT ", "ocean-breakout", "Ocean_Breakout", "puffer_breakout"],
)
def test_a_name_has_many_spellings(name: str) -> None:
    with pufferlib.make(name, num_envs=2) as vecenv:
        assert vecenv.name == "breakout"
        assert isinstance(vecenv, Threads)


@pytest.mark.parametrize("name", ["braekout", "ocean-braekout", "break-out"])
def test_an_unknown_name_offers_the_nearest(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"environment `{name}`.*Did you mean `breakout`"):
        pufferlib.make(name)


@pytest.mark.parametrize("name", ["", "ocean-", "puffer_", None, 3])
def test_what_is_no_name_is_reported_in_one_line(name: Any) -> None:
    with pytest.raises(UsageError) as caught:
        pufferlib.make(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["atari", "Minigrid", "dmc"])
def test_a_family_is_no_env_and_says_how_to_list_its_own(name: str) -> None:
    with pytest.raises(
        UnknownNameError, match=f"`puffer envs {name.lower()}` lists them"
    ) as caught:
        pufferlib.make(name)
    assert "\n" not in str(caught.value)


def test_a_mistyped_param_offers_the_nearest_in_one_line() -> None:
    with pytest.raises(UnknownNameError) as caught:
        pufferlib.make("breakout", num_envs=8, paddle_widht=3)
    assert str(caught.value).startswith("Unknown param of `breakout` `paddle_widht`.")
    assert "`paddle_width`" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ocean_envs_come_first_in_the_list() -> None:
    pufferlib.register("my-env", Counting)
    names = pufferlib.list_envs()
    assert names[: len(OCEAN_REGISTRY)] == list(OCEAN_REGISTRY)
    assert names[-1] == "my-env"
    assert len(set(names)) == len(names)


# ---- Registering ---------------------------------------------------------------------------------


def test_a_callable_can_be_registered() -> None:
    pufferlib.register("My_Env", Counting, {"length": 5})
    with pufferlib.make("my-env", num_envs=3) as vecenv:
        assert isinstance(vecenv, Serial)
        assert (vecenv.name, vecenv.num_envs) == ("My_Env", 3)
        assert [env.length for env in vecenv.envs] == [5, 5, 5]  # type: ignore[attr-defined]
    with pufferlib.make("MY-ENV", num_envs=1, length=7) as vecenv:
        assert vecenv.envs[0].length == 7  # type: ignore[attr-defined]


def test_a_module_path_is_imported_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    pufferlib.register("late", "a_module_of_mine:Counting")
    assert "late" in pufferlib.list_envs()
    with pytest.raises(UsageError, match="importable object, but got `a_module_of_mine:Counting`"):
        pufferlib.make("late")

    module = ModuleType("a_module_of_mine")
    module.Counting = Counting  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_module_of_mine", module)
    with pufferlib.make("late", num_envs=2) as vecenv:
        assert vecenv.num_envs == 2


def test_a_later_registration_wins_also_over_ocean() -> None:
    pufferlib.register("breakout", Counting)
    with pufferlib.make("breakout", num_envs=1) as vecenv:
        assert isinstance(vecenv.envs[0].env, Counting)  # type: ignore[attr-defined]
    pufferlib.register("breakout", NativeCreator("pong"))
    with pufferlib.make("breakout", num_envs=1) as vecenv:
        assert isinstance(vecenv, Threads)


def test_an_unknown_setting_of_a_registered_env_offers_the_nearest() -> None:
    pufferlib.register("my-env", Counting)
    with pytest.raises(UnknownNameError, match=r"param of `my-env` `lenght`.*`length`"):
        pufferlib.make("my-env", num_envs=1, lenght=3)


def test_an_entry_point_may_take_any_setting() -> None:
    pufferlib.register("open", lambda **settings: Counting(settings["size"]))
    with pufferlib.make("open", num_envs=1, size=9) as vecenv:
        assert vecenv.envs[0].length == 9  # type: ignore[attr-defined]


@pytest.mark.parametrize("entry_point", [3, None, "module", "a:b:c"])
def test_a_bad_entry_point_is_refused(entry_point: Any) -> None:
    with pytest.raises(UsageError, match='`entry_point` must be a callable or "module:Object"'):
        pufferlib.register("x", entry_point)


@pytest.mark.parametrize("id", ["", "  ", None])
def test_a_bad_id_is_refused(id: Any) -> None:
    with pytest.raises(UsageError, match="`id` must be a name"):
        pufferlib.register(id, Counting)


def test_additions_to_the_ocean_registry_are_honoured() -> None:
    OCEAN_REGISTRY["slow_cartpole"] = {
        "entry_point": NativeCreator("cartpole"),
        "kwargs": {"max_steps": 7},
    }
    OCEAN_REGISTRY["counting"] = {"entry_point": Counting}
    assert {"slow_cartpole", "counting"} <= set(pufferlib.list_envs())
    with pufferlib.make("ocean-slow-cartpole", num_envs=2) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(7):
            vecenv.step(0)
        assert vecenv.truncations.all()
    with pufferlib.make("puffer_counting", num_envs=2) as vecenv:
        assert isinstance(vecenv, Serial)


def test_an_entry_without_an_entry_point_is_reported() -> None:
    OCEAN_REGISTRY["empty"] = {}
    with pytest.raises(UsageError, match="`empty` must have an `entry_point`"):
        pufferlib.make("empty")


# ---- Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["breakout", "gym-CartPole-v1", "mine-with-params"])
def test_a_misspelt_option_of_make_is_found(name: str) -> None:
    pufferlib.register("mine-with-params", lambda size=3: None)
    with pytest.raises(UnknownNameError, match=r"`num_env`\. Did you mean `num_envs`") as caught:
        pufferlib.make(name, num_env=4)
    assert "\n" not in str(caught.value)
    assert caught.value.suggestions[0] == "num_envs"
