"""Envs that break the rules: what emulation says of them, and that it loses nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete
from playback import VECTOR, Dicts, Gym

import pufferlib
from pufferlib.errors import EnvError
from pufferlib.spaces import ObservationChecks

IMAGE = Box(0, 255, (2, 2, 1), np.uint8)
PARTS = Dict(image=IMAGE, speed=VECTOR)
ZEROS = np.zeros(2, np.float32)


class NoReset:
    observation_space, action_space = VECTOR, Discrete(2)

    def step(self, action: Any) -> Any: ...


class NoStep:
    observation_space, action_space = VECTOR, Discrete(2)

    def reset(self) -> Any: ...


class NoSpace:
    action_space = Discrete(2)

    def reset(self) -> Any: ...

    def step(self, action: Any) -> Any: ...


class WrongSpace(NoSpace):
    observation_space: ClassVar = (4,)


class Raising(Gym):
    def step(self, action: Any) -> Any:
        raise ZeroDivisionError("the world\nended")


class RaisingReset(Gym):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise KeyError("level")


class BadMask(Gym):
    flags: Any = (True,)

    def action_masks(self) -> Any:
        return np.array(self.flags)


class NoChoice(BadMask):
    flags = (False, False)


class NoDict(Dicts):
    def reset(self) -> Any:
        return ZEROS


def dicts(*script: Any, **settings: Any) -> Callable[[], Any]:
    return lambda: Dicts(list(script), **settings)


BROKEN: dict[str, tuple[Callable[[], Any], str]] = {
    "no reset": (NoReset, "NoReset must define `reset`, but has none."),
    "no step": (NoStep, "NoStep must define `step`, but has none."),
    "no space": (NoSpace, "NoSpace must set `observation_space`, but has none."),
    "wrong space": (
        WrongSpace,
        "`observation_space` of WrongSpace must be a Gymnasium space, but got (4,).",
    ),
    "text space": (
        lambda: Gym(spaces.Text(5)),
        "Gym (env 0), `observation_space`: `observation_space` must be a Box, Discrete, "
        "MultiDiscrete or MultiBinary (or a Dict or Tuple of these), but got Text. "
        "Try a wrapper that turns it into one of them.",
    ),
    "step raises": (
        Raising,
        "Raising (env 1), `step`: raised ZeroDivisionError: the world ended",
    ),
    "reset raises": (RaisingReset, "RaisingReset (env 0), `reset`: raised KeyError: 'level'"),
    "reset without info": (
        lambda: Gym(reset=ZEROS),
        "Gym (env 0), `reset`: must return 2 parts (observation, info), but got "
        "array([0., 0.], dtype=float32).",
    ),
    "reset info": (
        lambda: Gym(reset=(ZEROS, None)),
        "Gym (env 0), `reset`: `info` must be a dict, but got None (NoneType).",
    ),
    "four parts": (
        lambda: Gym(step=(ZEROS, 1.0, False, {})),
        "Gym (env 1), `step`: must return 5 parts (observation, reward, terminated, truncated, "
        "info), but got 4 parts.",
    ),
    "no parts": (
        lambda: Gym(step=None),
        "Gym (env 1), `step`: must return 5 parts (observation, reward, terminated, truncated, "
        "info), but got None.",
    ),
    "shape": (
        lambda: Gym(first=ZEROS, observation=np.zeros(1, np.float32)),
        "Gym (env 1), `step`: `observation` must be of shape (2,), but got shape (1,).",
    ),
    "first shape": (
        lambda: Gym(first=np.zeros((2, 2), np.float32)),
        "Gym (env 0), `reset`: `observation` must be of shape (2,), but got shape (2, 2).",
    ),
    "dtype": (
        lambda: Gym(first=ZEROS, observation=np.array(["a", "b"])),
        "Gym (env 1), `step`: `observation` must be of dtype float32, but got <U1: "
        "array(['a', 'b'], dtype='<U1').",
    ),
    "none": (
        lambda: Gym(first=ZEROS, observation=None),
        "Gym (env 1), `step`: `observation` must be of shape (2,), but got None.",
    ),
    "too big for a byte": (
        lambda: Gym(
            IMAGE, first=np.zeros((2, 2, 1), np.uint8), observation=np.full((2, 2, 1), 300)
        ),
        "Gym (env 1), `step`: `observation` must be within the range of uint8, but got "
        "array([[[300], [300]], [[300], [300]]]).",
    ),
    "below zero": (
        lambda: Gym(IMAGE, first=np.zeros((2, 2, 1), np.uint8), observation=np.full((2, 2, 1), -1)),
        "Gym (env 1), `step`: `observation` must be within the range of uint8, but got "
        "array([[[-1], [-1]], [[-1], [-1]]]).",
    ),
    "a float for a byte": (
        lambda: Gym(
            IMAGE, first=np.zeros((2, 2, 1), np.uint8), observation=np.full((2, 2, 1), 3.7)
        ),
        "Gym (env 1), `step`: `observation` must be of dtype uint8, but got float64: "
        "array([[[3.7], [3.7]], [[3.7], [3.7]]]).",
    ),
    "no choice": (
        lambda: Gym(Discrete(3), first=0, observation=3),
        "Gym (env 1), `step`: `observation` must be a value of Discrete(3), but got array(3).",
    ),
    "key": (
        lambda: Gym(PARTS, first={"image": np.zeros((2, 2, 1), np.uint8)}),
        "Gym (env 0), `reset`: `observation` must be a dict with the keys ['image', 'speed'], "
        "but got the keys ['image'].",
    ),
    "leaf": (
        lambda: Gym(PARTS, first={"image": np.zeros((2, 2, 1), np.uint8), "speed": [1.0]}),
        "Gym (env 0), `reset`: `observation['speed']` must be of shape (2,), but got shape (1,).",
    ),
    "nan observation": (
        lambda: Gym(first=ZEROS, observation=np.array([0, np.nan], np.float32)),
        "Gym (env 0), `step`: `observation` must be finite, but got "
        "array([ 0., nan], dtype=float32) (ndarray).",
    ),
    "inf observation": (
        lambda: Gym(first=np.array([np.inf, 0], np.float32)),
        "Gym (env 0), `reset`: `observation` must be finite, but got "
        "array([inf, 0.], dtype=float32) (ndarray).",
    ),
    "nan leaf": (
        lambda: Gym(PARTS, first={"image": np.zeros((2, 2, 1), np.uint8), "speed": ZEROS * np.nan}),
        "Gym (env 0), `reset`: `observation['speed']` must be finite, but got "
        "array([nan, nan], dtype=float32) (ndarray).",
    ),
    "nan final observation": (
        lambda: Gym(first=ZEROS, observation=ZEROS * np.nan, terminated=True),
        "Gym (env 0), `step`: `observation` must be finite, but got "
        "array([nan, nan], dtype=float32) (ndarray).",
    ),
    "nan reward": (
        lambda: Gym(reward=math.nan),
        "Gym (env 1), `step`: `reward` must be finite, but got nan (float).",
    ),
    "inf reward": (
        lambda: Gym(reward=np.float32(-np.inf)),
        "Gym (env 1), `step`: `reward` must be finite, but got -inf (float).",
    ),
    "reward beyond float32": (
        lambda: Gym(reward=1e39),
        "Gym (env 1), `step`: `reward` must be finite, but got 1e+39 (float).",
    ),
    "reward array": (
        lambda: Gym(reward=np.ones(1)),
        "Gym (env 1), `step`: `reward` must be a number, but got array([1.]) (ndarray).",
    ),
    "rewards of agents or objectives": (
        lambda: Gym(reward=[0, 0]),
        "Gym (env 1), `step`: `reward` must be a number, but got [0, 0] (list). One for each "
        "agent: make it a ParallelEnv of PettingZoo. One for each objective: make one number of "
        "them, as LinearReward of mo-gymnasium does.",
    ),
    "reward none": (
        lambda: Gym(reward=None),
        "Gym (env 1), `step`: `reward` must be a number, but got None (NoneType).",
    ),
    "terminated": (
        lambda: Gym(terminated="no"),
        "Gym (env 1), `step`: `terminated` must be True or False, but got 'no' (str).",
    ),
    "truncated": (
        lambda: Gym(truncated=None),
        "Gym (env 1), `step`: `truncated` must be True or False, but got None (NoneType).",
    ),
    "info": (
        lambda: Gym(info=[1]),
        "Gym (env 1), `step`: `info` must be a dict, but got [1] (list).",
    ),
    "mask size": (
        BadMask,
        "BadMask (env 0), `reset`: `action_mask` must be 2 flags, one for each choice, but got "
        "bool of shape (1,).",
    ),
    "mask of nothing": (
        NoChoice,
        "NoChoice (env 0), `reset`: `action_mask` must allow at least one choice of component 0, "
        "but allows none.",
    ),
    "no dict": (
        lambda: NoDict([]),
        "NoDict (env 0), `reset`: `observations` must be a dict by agent id, but got "
        "array([0., 0.], dtype=float32) (ndarray).",
    ),
    "dict parts": (
        dicts(({"a": 1}, {}, {})),
        "Dicts (env 1), `step`: must return 4 parts (observations, rewards, dones, infos) or 5 "
        "(observations, rewards, terminateds, truncateds, infos), but got 3 parts.",
    ),
    "dict of rewards": (
        dicts(({"a": 1}, 0.0, {}, {})),
        "Dicts (env 1), `step`: `rewards` must be a dict by agent id, but got 0.0 (float).",
    ),
    "agent's reward": (
        dicts(({"a": 1}, {"b": "much"}, {}, {})),
        "Dicts (env 1, agent b), `step`: `reward` must be a number, but got 'much' (str).",
    ),
    "too many agents": (
        dicts(first={"a": 1, "b": 2, "c": 3}),
        "Dicts (env 0), `reset`: `num_agents` must count every agent, but is 2 and agent 'c' "
        "comes after ['a', 'b'].",
    ),
    "no agents": (
        dicts(first={}),
        "Dicts (env 0), `reset`: must return an observation of at least one agent, but got none.",
    ),
    "number of agents": (
        dicts(num_agents=0),
        "`num_agents` of Dicts must be a whole number of at least 1, but got 0.",
    ),
}


@pytest.mark.filterwarnings("ignore:.*is outside of Box")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_env_raises_one_line(name: str) -> None:
    creator, said = BROKEN[name]
    with pytest.raises(EnvError) as caught:
        _run(creator, sound_first="(env 1" in said)
    place = r" \(\S+test_broken_envs\.py:\d+, in \w+\)$"
    assert re.sub(place, "", str(caught.value)) == said
    assert "\n" not in str(caught.value)


def _run(creator: Callable[[], Any], sound_first: bool) -> None:
    """Reset and step a broken env, behind a sound one if `sound_first`."""
    if not sound_first:
        vecenv = pufferlib.emulate(creator)
        vecenv.reset(seed=0)
        vecenv.step(0)
        return
    env = creator()
    if isinstance(env, Dicts):
        first: Any = Dicts([({"a": 1, "b": 2}, {}, {}, {})] * 9, num_agents=env.num_agents)
    else:
        first = Gym(env.observation_space, env.action_space)
        first.said = {key: env.said[key] for key in ("first",) if key in env.said}
        if "first" in first.said:
            first.said["observation"] = first.said["first"]
    envs = iter([first, env])
    vecenv = pufferlib.emulate(lambda: next(envs), num_envs=2)
    vecenv.reset(seed=0)
    vecenv.step(0)


def test_the_envs_own_traceback_is_chained() -> None:
    vecenv = pufferlib.emulate(Raising)
    vecenv.reset(seed=0)
    with pytest.raises(EnvError) as caught:
        vecenv.step(0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_values_outside_of_their_box_warn_once() -> None:
    vecenv = pufferlib.emulate(lambda: Gym(observation=np.full(2, 5, np.float32)))
    with pytest.warns(
        UserWarning, match=r"Gym \(env 0\), `reset`: `observation` is outside of Box"
    ):
        vecenv.reset(seed=0)
    assert vecenv.observations.tolist() == [[5, 5]]


def test_large_finite_values_are_finite() -> None:
    rows = np.full((3, 4), 3e38, np.float32)
    with np.errstate(over="ignore"):
        assert ObservationChecks(Box(-np.inf, np.inf, (4,), np.float32), rows).nonfinite() is None


def test_casts_lose_only_float_precision() -> None:
    vecenv = pufferlib.emulate(lambda: Gym(observation=np.array([0.1, 0.2])))
    assert vecenv.reset(seed=0)[0].tolist() == [np.float32(0.1), np.float32(0.2)]
    vecenv = pufferlib.emulate(lambda: Gym(observation=[1, 0]))
    assert vecenv.reset(seed=0)[0].tolist() == [1, 0]
