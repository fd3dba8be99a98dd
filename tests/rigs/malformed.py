"""Malformed envs of every API: each breaks one rule, and has the exact error that names it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Text, Tuple

from pufferlib import PufferEnv

VECTOR = Box(-1, 1, (4,), np.float32)
ZEROS = np.zeros(4, np.float32)
BYTES = Box(0, 255, (4,), np.uint8)
NO_BYTES = np.zeros(4, np.uint8)


class Gym(gymnasium.Env[Any, Any]):
    """A sound Gymnasium env, but for the parts that `wrong` replaces."""

    def __init__(self, space: Any = VECTOR, first: Any = ZEROS, **wrong: Any) -> None:
        self.observation_space, self.action_space = space, Discrete(2)
        self.first, self.wrong = first, wrong

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.wrong.get("reset", (self.first, {}))

    def step(self, action: Any) -> Any:
        parts = {"observation": self.first, "reward": 1.0}
        parts |= {"terminated": False, "truncated": False, "info": {}}
        return self.wrong.get("step", tuple((parts | self.wrong)[name] for name in parts))


class NoSpaces(Gym):
    def __init__(self) -> None:
        pass


class NoMethods(gymnasium.Env[Any, Any]):
    observation_space, action_space = VECTOR, Discrete(2)


class NoAction(Gym):
    def __init__(self) -> None:
        super().__init__()
        del self.action_space


class Unmakeable(Gym):
    def __init__(self) -> None:
        raise FileNotFoundError("level.txt\nis missing")


class BadStart(Gym):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise KeyError("level")


class Picky(Gym):
    def step(self, action: Any) -> Any:
        if action != 0:
            raise ValueError(f"{action!r} is not allowed")
        return super().step(action)


class BadMask(Gym):
    def action_masks(self) -> Any:
        return self.wrong["mask"]


class RaisingMask(Gym):
    def action_masks(self) -> Any:
        raise RuntimeError("no board")


class BadEnd(Gym):
    """Breaks in the reset that follows an end."""

    resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets += seed is None
        return (ZEROS[: 4 - self.resets], {})


class Legacy:
    """gym before 0.26."""

    observation_space, action_space = VECTOR, Discrete(2)

    def __init__(self, first: Any = ZEROS, step: Any = (ZEROS, 0.0, False, {})) -> None:
        self.first, self.answer = first, step

    def reset(self) -> Any:
        return self.first

    def step(self, action: Any) -> Any:
        return self.answer


class NoStep:
    observation_space, action_space = VECTOR, Discrete(2)

    def reset(self) -> Any:
        return ZEROS


class Plain(PufferEnv):
    """The plain form."""

    def __init__(self, first: Any = ZEROS, step: Any = (ZEROS, 0.0, False, {})) -> None:
        super().__init__()
        self.observation_space = self.make_space((4,))
        self.action_space = self.make_discrete(2)
        self.first, self.answer = first, step

    def reset(self) -> Any:
        return self.first

    def step(self, action: Any) -> Any:
        return self.answer


class Spaceless(PufferEnv):
    def reset(self) -> Any: ...
    def step(self, action: Any) -> Any: ...


class Undefined(PufferEnv):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space, self.action_space = VECTOR, Discrete(2)

    def reset(self) -> Any: ...


BOTH = {"a": ZEROS, "b": ZEROS}
ALIVE = {"a": False, "b": False, "__all__": False}
PAID = {"a": 0.0, "b": 0.0}


class Dicts(PufferEnv):
    """The multi-agent form."""

    def __init__(self, first: Any = BOTH, num_agents: Any = 2, **wrong: Any) -> None:
        super().__init__()
        self.num_agents = num_agents
        self.single_observation_space = self.make_space((4,))
        self.single_action_space = self.make_discrete(2)
        self.first, self.wrong = first, wrong

    def reset(self) -> Any:
        return self.first

    def step(self, actions: Any) -> Any:
        parts = {"observations": BOTH, "rewards": PAID, "dones": ALIVE, "infos": {}}
        return self.wrong.get("step", tuple((parts | self.wrong).values()))


class InPlace(PufferEnv):
    """The in-place form."""

    def __init__(self, space: Any = VECTOR, masks: bool = False, **wrong: Any) -> None:
        self.single_observation_space, self.single_action_space = space, Discrete(2)
        self.num_agents, self.has_action_masks = 2, masks
        super().__init__()
        self.wrong = wrong

    def reset(self, seed: int | None = None) -> Any:
        self.observations[:] = 0
        return self.wrong.get("first", (self.observations, []))

    def step(self, actions: Any) -> Any:
        parts = {"observations": self.observations, "rewards": self.rewards}
        parts |= {"terminals": self.terminals, "truncations": self.truncations}
        self.change()
        return self.wrong.get("step", tuple((parts | {"infos": []} | self.wrong).values()))

    def change(self) -> None: ...


class NanRewards(InPlace):
    def change(self) -> None:
        self.rewards[1] = np.nan


class Unwritten(InPlace):
    def change(self) -> None:
        self.truncations[1] = True


class Rebound(InPlace):
    def reset(self, seed: int | None = None) -> Any:
        self.observations = np.zeros((2, 4), np.float32)
        return None


class NoChoice(InPlace):
    def reset(self, seed: int | None = None) -> Any:
        assert self.action_masks is not None
        self.action_masks[1] = False
        return super().reset()


class Zoo:
    """PettingZoo's parallel API, without PettingZoo."""

    possible_agents: Any = ("a", "b")
    second: Any = VECTOR

    def __init__(self, **wrong: Any) -> None:
        self.wrong = wrong

    def observation_space(self, agent: str) -> Any:
        return VECTOR if agent == "a" else self.second

    def action_space(self, agent: str) -> Any:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return self.wrong.get("reset", (BOTH, {"a": {}, "b": {}}))

    def step(self, actions: Any) -> Any:
        flags = {"a": False, "b": False}
        parts = {"observations": BOTH, "rewards": PAID, "terminations": flags}
        parts |= {"truncations": flags, "infos": {}}
        return self.wrong.get("step", tuple((parts | self.wrong).values()))


class NoAgents(Zoo):
    possible_agents = ()


class Uneven(Zoo):
    second = Box(-1, 1, (5,), np.float32)


class WordSpace(Zoo):
    second = "Box"


class NoSpaceOf(Zoo):
    def observation_space(self, agent: str) -> Any:
        return {"a": VECTOR}[agent]


class NoList(Zoo):
    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return BOTH, {}


class Turns(Zoo):
    """PettingZoo's AEC API, whose next agent does not exist."""

    metadata: Any = {}  # noqa: RUF012

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.agent_selection = ["a", "b"], "c"
        self.infos: Any = {"a": {}, "b": {}}

    def agent_iter(self) -> Any: ...

    def observe(self, agent: str) -> Any:
        return ZEROS

    def step(self, action: Any) -> None: ...


class Case(NamedTuple):
    """A malformed env, its error, and what else `check_env` calls an error."""

    create: Callable[[], Any]
    said: str
    more: tuple[str, ...] = ()


CASES: dict[str, Case] = {
    # ---- Gymnasium
    "space missing": Case(NoSpaces, "NoSpaces must set `observation_space`, but has none."),
    "action space missing": Case(NoAction, "NoAction must set `action_space`, but has none."),
    "space is a shape": Case(
        lambda: Gym(space=(4,)),
        "`observation_space` of Gym must be a Gymnasium space, but got (4,).",
    ),
    "space unsupported": Case(
        lambda: Gym(Dict(word=Text(5))),
        "Gym (env 0), `observation_space`: `observation_space['word']` must be a Box, "
        "Discrete, MultiDiscrete or MultiBinary (or a Dict or Tuple of these), but got Text. "
        "Try a wrapper that turns it into one of them.",
    ),
    "space empty": Case(
        lambda: Gym(Dict()),
        "Gym (env 0), `observation_space`: `observation_space` must have at least one leaf, "
        "but got Dict().",
    ),
    "constructor raises": Case(
        Unmakeable, "Unmakeable (env 0), `__init__`: raised FileNotFoundError: level.txt is missing"
    ),
    "reset raises": Case(BadStart, "BadStart (env 0), `reset`: raised KeyError: 'level'"),
    "reset not written": Case(
        NoMethods,
        "NoMethods (env 0), `reset`: must return 2 parts (observation, info), but got None.",
    ),
    "reset gives no info": Case(
        lambda: Gym(reset=ZEROS),
        "Gym (env 0), `reset`: must return 2 parts (observation, info), but got array([0., "
        "0., 0., 0.], dtype=float32).",
    ),
    "reset info none": Case(
        lambda: Gym(reset=(ZEROS, None)),
        "Gym (env 0), `reset`: `info` must be a dict, but got None (NoneType).",
    ),
    "reset later": Case(
        lambda: BadEnd(terminated=True),
        "BadEnd (env 0), `reset`: `observation` must be of shape (4,), but got shape (3,).",
    ),
    "step four parts": Case(
        lambda: Gym(step=(ZEROS, 0.0, False, {})),
        "Gym (env 0), `step`: must return 5 parts (observation, reward, terminated, "
        "truncated, info), but got 4 parts.",
    ),
    "step six parts": Case(
        lambda: Gym(step=(ZEROS, 0.0, False, False, {}, 1)),
        "Gym (env 0), `step`: must return 5 parts (observation, reward, terminated, "
        "truncated, info), but got 6 parts.",
    ),
    "step none": Case(
        lambda: Gym(step=None),
        "Gym (env 0), `step`: must return 5 parts (observation, reward, terminated, "
        "truncated, info), but got None.",
    ),
    "action refused": Case(Picky, "Picky (env 0), `step`: raised ValueError: 1 is not allowed"),
    "shape": Case(
        lambda: Gym(observation=ZEROS[:1]),
        "Gym (env 0), `step`: `observation` must be of shape (4,), but got shape (1,).",
    ),
    "scalar": Case(
        lambda: Gym(observation=0.0),
        "Gym (env 0), `step`: `observation` must be of shape (4,), but got shape ().",
    ),
    "ragged": Case(
        lambda: Gym(observation=[[0.0], [0.0, 1.0]]),
        "Gym (env 0), `step`: `observation` must be an array of shape (4,), but got [[0.0], "
        "[0.0, 1.0]].",
    ),
    "none": Case(
        lambda: Gym(observation=None),
        "Gym (env 0), `step`: `observation` must be of shape (4,), but got None.",
    ),
    "objects": Case(
        lambda: Gym(observation=np.array([None] * 4)),
        "Gym (env 0), `step`: `observation` must be of dtype float32, but got object: "
        "array([None, None, None, None], dtype=object).",
    ),
    "300 for a byte": Case(
        lambda: Gym(BYTES, NO_BYTES, observation=np.full(4, 300)),
        "Gym (env 0), `step`: `observation` must be within the range of uint8, but got "
        "array([300, 300, 300, 300]).",
    ),
    "-1 for a byte": Case(
        lambda: Gym(BYTES, NO_BYTES, observation=np.full(4, -1)),
        "Gym (env 0), `step`: `observation` must be within the range of uint8, but got "
        "array([-1, -1, -1, -1]).",
    ),
    "3.7 for a byte": Case(
        lambda: Gym(BYTES, NO_BYTES, observation=np.full(4, 3.7)),
        "Gym (env 0), `step`: `observation` must be of dtype uint8, but got float64: "
        "array([3.7, 3.7, 3.7, 3.7]).",
    ),
    "choice": Case(
        lambda: Gym(Discrete(3, start=1), 1, observation=0),
        "Gym (env 0), `step`: `observation` must be a value of Discrete(3, start=1), but got "
        "array(0).",
    ),
    "choice of a float": Case(
        lambda: Gym(Discrete(3), 1, observation=1.0),
        "Gym (env 0), `step`: `observation` must be of dtype int32, but got float64: array(1.).",
    ),
    "two as a bit": Case(
        lambda: Gym(MultiBinary(2), np.zeros(2, np.int8), observation=[0, 2]),
        "Gym (env 0), `step`: `observation` must be a value of MultiBinary(2), but got "
        "array([0, 2]).",
    ),
    "keys": Case(
        lambda: Gym(Dict(x=VECTOR), {"x": ZEROS}, observation={"y": ZEROS}),
        "Gym (env 0), `step`: `observation` must be a dict with the keys ['x'], but got the "
        "keys ['y'].",
    ),
    "extra key": Case(
        lambda: Gym(Dict(x=VECTOR), {"x": ZEROS}, observation={"x": ZEROS, "y": ZEROS}),
        "Gym (env 0), `step`: `observation` must be a dict with the keys ['x'], but got the "
        "keys ['x', 'y'].",
    ),
    "tuple": Case(
        lambda: Gym(Tuple([VECTOR, BYTES]), (ZEROS, NO_BYTES), observation=(ZEROS,)),
        "Gym (env 0), `step`: `observation` must be a tuple of 2, but got (array([0., 0., 0.,"
        " 0.], dtype=float32),).",
    ),
    "deep leaf": Case(
        lambda: Gym(
            Dict(x=Tuple([VECTOR, BYTES])),
            {"x": (ZEROS, NO_BYTES)},
            observation={"x": (ZEROS, np.full(4, 256))},
        ),
        "Gym (env 0), `step`: `observation['x'][1]` must be within the range of uint8, but "
        "got array([256, 256, 256, 256]).",
    ),
    "nan observation": Case(
        lambda: Gym(observation=ZEROS * np.nan),
        "Gym (env 0), `step`: `observation` must be finite, but got array([nan, nan, nan, "
        "nan], dtype=float32) (ndarray).",
    ),
    "nan reward": Case(
        lambda: Gym(reward=float("nan")),
        "Gym (env 0), `step`: `reward` must be finite, but got nan (float).",
    ),
    "inf reward": Case(
        lambda: Gym(reward=np.float64("inf")),
        "Gym (env 0), `step`: `reward` must be finite, but got inf (float).",
    ),
    "text reward": Case(
        lambda: Gym(reward="1"),
        "Gym (env 0), `step`: `reward` must be a number, but got '1' (str).",
    ),
    "reward of one": Case(
        lambda: Gym(reward=np.ones(1)),
        "Gym (env 0), `step`: `reward` must be a number, but got array([1.]) (ndarray).",
    ),
    "terminated": Case(
        lambda: Gym(terminated="no"),
        "Gym (env 0), `step`: `terminated` must be True or False, but got 'no' (str).",
    ),
    "truncated": Case(
        lambda: Gym(truncated=0.5),
        "Gym (env 0), `step`: `truncated` must be True or False, but got 0.5 (float).",
    ),
    "info none": Case(
        lambda: Gym(info=None),
        "Gym (env 0), `step`: `info` must be a dict, but got None (NoneType).",
    ),
    "mask size": Case(
        lambda: BadMask(mask=np.ones(3, bool)),
        "BadMask (env 0), `reset`: `action_mask` must be 2 flags, one for each choice, but "
        "got bool of shape (3,).",
        (
            "BadMask, `step`: `action_mask` must be 2 flags, one for each choice, but got bool of"
            " shape (3,).",
        ),
    ),
    "mask of floats": Case(
        lambda: BadMask(mask=np.ones(2)),
        "BadMask (env 0), `reset`: `action_mask` must be 2 flags, one for each choice, but "
        "got float64 of shape (2,).",
        (
            "BadMask, `step`: `action_mask` must be 2 flags, one for each choice, but got float64"
            " of shape (2,).",
        ),
    ),
    "mask of nothing": Case(
        lambda: BadMask(mask=np.zeros(2, bool)),
        "BadMask (env 0), `reset`: `action_mask` must allow at least one choice of component "
        "0, but allows none.",
        (
            "BadMask, `step`: `action_mask` must allow at least one choice of component 0, but "
            "allows none.",
        ),
    ),
    "mask raises": Case(
        RaisingMask, "RaisingMask (env 0), `action_masks`: raised RuntimeError: no board"
    ),
    "many faults": Case(
        lambda: Gym(observation=ZEROS[:1], reward=None, terminated=None, truncated=None, info=0),
        "Gym (env 0), `step`: `info` must be a dict, but got 0 (int).",
        (
            "Gym, `step`: `observation` must be of shape (4,), but got shape (1,).",
            "Gym, `step`: `reward` must be a number, but got None (NoneType).",
            "Gym, `step`: `terminated` must be True or False, but got None (NoneType).",
            "Gym, `step`: `truncated` must be True or False, but got None (NoneType).",
        ),
    ),
    # ---- Legacy gym
    "legacy three parts": Case(
        lambda: Legacy(step=(ZEROS, 0.0, False)),
        "Legacy (env 0), `step`: must return 4 parts (observation, reward, done, info) or 5 "
        "parts (observation, reward, terminated, truncated, info), but got 3 parts.",
    ),
    "legacy done": Case(
        lambda: Legacy(step=(ZEROS, 0.0, None, {})),
        "Legacy (env 0), `step`: `done` must be True or False, but got None (NoneType).",
    ),
    "legacy info": Case(
        lambda: Legacy(step=(ZEROS, 0.0, False, None)),
        "Legacy (env 0), `step`: `info` must be a dict, but got None (NoneType).",
    ),
    "legacy reset": Case(
        lambda: Legacy(first=None),
        "Legacy (env 0), `reset`: `observation` must be of shape (4,), but got None.",
    ),
    "legacy step missing": Case(NoStep, "NoStep must define `step`, but has none."),
    # ---- PufferEnv, plain
    "plain spaces": Case(Spaceless, "Spaceless must set `observation_space`, but has none."),
    "plain step missing": Case(Undefined, "Undefined must define `step`, but has none."),
    "plain reward": Case(
        lambda: Plain(step=(ZEROS, ZEROS, False, {})),
        "Plain (env 0), `step`: `reward` must be a number, but got array([0., 0., 0., 0.], "
        "dtype=float32) (ndarray). One for each agent: make it a ParallelEnv of PettingZoo. One "
        "for each objective: make one number of them, as LinearReward of mo-gymnasium does.",
    ),
    "plain done": Case(
        lambda: Plain(step=(ZEROS, 0.0, np.array([True]), {})),
        "Plain (env 0), `step`: `done` must be True or False, but got array([ True]) (ndarray).",
    ),
    "plain step none": Case(
        lambda: Plain(step=None),
        "Plain (env 0), `step`: must return 4 parts (observation, reward, done, info) or 5 "
        "parts (observation, reward, terminated, truncated, info), but got None.",
    ),
    # ---- PufferEnv, dicts
    "dicts reset": Case(
        lambda: Dicts(first=ZEROS),
        "Dicts (env 0), `reset`: `observations` must be a dict by agent id, but got "
        "array([0., 0., 0., 0.], dtype=float32) (ndarray).",
    ),
    "dicts empty": Case(
        lambda: Dicts(first={}),
        "Dicts (env 0), `reset`: must return an observation of at least one agent, but got none.",
    ),
    "dicts too many": Case(
        lambda: Dicts(first={**BOTH, "c": ZEROS}),
        "Dicts (env 0), `reset`: `num_agents` must count every agent, but is 2 and agent 'c' "
        "comes after ['a', 'b'].",
    ),
    "dicts observation": Case(
        lambda: Dicts(observations={"a": ZEROS, "b": ZEROS[:1]}),
        "Dicts (env 0, agent b), `step`: `observation` must be of shape (4,), but got shape (1,).",
    ),
    "dicts nan": Case(
        lambda: Dicts(observations={"a": ZEROS, "b": ZEROS * np.nan}),
        "Dicts (env 0, agent b), `step`: `observation` must be finite, but got array([nan, "
        "nan, nan, nan], dtype=float32) (ndarray).",
    ),
    "dicts rewards": Case(
        lambda: Dicts(rewards=0.0),
        "Dicts (env 0), `step`: `rewards` must be a dict by agent id, but got 0.0 (float).",
    ),
    "dicts reward": Case(
        lambda: Dicts(rewards={"a": 0.0, "b": float("inf")}),
        "Dicts (env 0, agent b), `step`: `reward` must be finite, but got inf (float).",
    ),
    "dicts unknown agent": Case(
        lambda: Dicts(rewards={**PAID, "c": 1.0}),
        "Dicts (env 0), `step`: `rewards` must be of agents ['a', 'b'], but got one of 'c'.",
    ),
    "dicts dones": Case(
        lambda: Dicts(dones=False),
        "Dicts (env 0), `step`: `dones` must be a dict by agent id, but got False (bool).",
    ),
    "dicts done": Case(
        lambda: Dicts(dones={"a": False, "b": "maybe", "__all__": False}),
        "Dicts (env 0, agent b), `step`: `done` must be True or False, but got 'maybe' (str).",
    ),
    "dicts all": Case(
        lambda: Dicts(dones={"a": False, "b": False, "__all__": None}),
        "Dicts (env 0), `step`: `done` must be True or False, but got None (NoneType).",
    ),
    "dicts info": Case(
        lambda: Dicts(infos={"a": {}, "b": [1]}),
        "Dicts (env 0, agent b), `step`: `info` must be a dict, but got [1] (list).",
    ),
    "dicts infos": Case(
        lambda: Dicts(infos=[{}, {}]),
        "Dicts (env 0), `step`: `infos` must be a dict by agent id, but got [{}, {}] (list).",
    ),
    "dicts three parts": Case(
        lambda: Dicts(step=(BOTH, PAID, ALIVE)),
        "Dicts (env 0), `step`: must return 4 parts (observations, rewards, dones, infos) or "
        "5 (observations, rewards, terminateds, truncateds, infos), but got 3 parts.",
    ),
    "dicts number": Case(
        lambda: Dicts(num_agents=2.0),
        "`num_agents` of Dicts must be a whole number of at least 1, but got 2.0.",
    ),
    # ---- PufferEnv, in place
    "rows four parts": Case(
        lambda: InPlace(step=(1, 2, 3, 4)),
        "InPlace (env 0), `step`: must return 5 parts (observations, rewards, terminals, "
        "truncations, infos), but got 4 parts.",
    ),
    "rows shape": Case(
        lambda: InPlace(observations=np.zeros((3, 4), np.float32)),
        "InPlace (env 0), `step`: `observations` must be of shape (2, 4), but got shape (3, 4).",
    ),
    "rows wrap around": Case(
        lambda: InPlace(Box(-128, 127, (4,), np.int8), observations=np.full((2, 4), 300)),
        "InPlace (env 0), `step`: `observations` must be within the range of int8, but got "
        "array([[300, 300, 300, 300], [300, 300, 300, 300]]).",
    ),
    "rows flags": Case(
        lambda: InPlace(terminals=np.array([0, 2])),
        "InPlace (env 0), `step`: `terminals` must be of dtype bool, but got int64: array([0, 2]).",
    ),
    "rows infos": Case(
        lambda: InPlace(infos=5),
        "InPlace (env 0), `step`: `infos` must be a dict, or a list of dicts, but got 5 (int).",
    ),
    "rows rewards": Case(
        NanRewards,
        "NanRewards (env 0), `step`: `rewards` must be finite, but got array([ 0., nan], "
        "dtype=float32) (ndarray).",
    ),
    "rows first": Case(
        lambda: InPlace(first=np.zeros(4)),
        "InPlace (env 0), `reset`: `observations` must be of shape (2, 4), but got shape (4,).",
    ),
    # ---- PettingZoo
    "zoo without agents": Case(
        NoAgents, "NoAgents must list its agents in `possible_agents`, but has none."
    ),
    "zoo uneven": Case(
        Uneven,
        "`observation_space` must be the same for all agents of Uneven, but a has Box(-1.0, "
        "1.0, (4,), float32) and b has Box(-1.0, 1.0, (5,), float32). Try "
        "`pufferlib.emulation.PadAgents` around it.",
    ),
    "zoo space": Case(
        WordSpace, "`observation_space('b')` of WordSpace must be a Gymnasium space, but got 'Box'."
    ),
    "zoo space raises": Case(
        NoSpaceOf, "NoSpaceOf must give `observation_space('b')`, but raised KeyError('b')."
    ),
    "zoo agents": Case(
        NoList, "NoList (env 0), `reset`: must set `agents`, the live agents, but has none."
    ),
    "zoo reset": Case(
        lambda: Zoo(reset=BOTH),
        "Zoo (env 0), `reset`: must return 2 parts (observations, infos), but got {'a': "
        "array([0., 0., 0., 0.], dtype=float32), 'b': array(....",
    ),
    "zoo first observation": Case(
        lambda: Zoo(reset=({"a": ZEROS}, {})),
        "Zoo (env 0), `reset`: `observations` must have one of every agent in `agents`, but "
        "lacks 'b'.",
    ),
    "zoo ghost": Case(
        lambda: Zoo(observations={**BOTH, "ghost": ZEROS}),
        "Zoo (env 0), `step`: `possible_agents` must list every agent, but ['a', 'b'] lacks "
        "'ghost'.",
    ),
    "zoo ghost's reward": Case(
        lambda: Zoo(rewards={**PAID, "ghost": 1.0}),
        "Zoo (env 0), `step`: `rewards` must be of agents ['a', 'b'], but got one of 'ghost'.",
    ),
    "zoo reward missing": Case(
        lambda: Zoo(rewards={"a": 0.0}),
        "Zoo (env 0), `step`: `rewards` must have one of every agent that acted, but lacks 'b'.",
    ),
    "zoo termination missing": Case(
        lambda: Zoo(terminations={"a": False}),
        "Zoo (env 0), `step`: `terminations` must have one of every agent that acted, but "
        "lacks 'b'.",
    ),
    "zoo four parts": Case(
        lambda: Zoo(step=(BOTH, PAID, ALIVE, {})),
        "Zoo (env 0), `step`: must return 5 parts (observations, rewards, terminations, "
        "truncations, infos), but got 4 parts.",
    ),
    "zoo flag": Case(
        lambda: Zoo(truncations={"a": False, "b": 2}),
        "Zoo (env 0, agent b), `step`: `truncated` must be True or False, but got 2 (int).",
    ),
    "turns": Case(
        Turns,
        "Turns (env 0), `step`: `agent_selection` must be an agent of ['a', 'b'], but got 'c'"
        " (str).",
    ),
}


def without_place(said: str) -> str:
    """Leave out the line of an env that raised: it changes with the file of the env."""
    return re.sub(r" \(\S+\.py:\d+, in \w+\)$", "", said)
