"""check_env: sound envs of every API pass, and faults that a run would survive are reported."""

from __future__ import annotations

import random
import re
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import pufferlib
from pufferlib import PufferEnv, check_env
from pufferlib.checks import Finding, Report
from pufferlib.errors import EnvError, UnknownNameError, UsageError

VECTOR = Box(-1, 1, (2,), np.float32)


class Gym(gymnasium.Env[Any, Any]):
    """Episodes of 3 to 7 random steps."""

    observation_space, action_space = VECTOR, Discrete(3)
    closed = 0

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 8))
        return self.look(), {}

    def look(self) -> Any:
        return (self.np_random.random(2) * self.scale).astype(np.float32)

    def step(self, action: Any) -> Any:
        self.left -= 1
        return self.look(), float(action), self.left == 0, False, {}

    def close(self) -> None:
        self.closed += 1


class Legacy:
    observation_space, action_space = VECTOR, Discrete(3)

    def seed(self, seed: int) -> None:
        self.env = Gym()
        self.env.reset(seed=seed)

    def reset(self) -> Any:
        return self.env.reset()[0]

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = self.env.step(action)
        return observation, reward, terminated, info


class Plain(PufferEnv):
    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.observation_space, self.action_space = VECTOR, self.make_multi_discrete([2, 3])
        self.env = Gym()

    def reset(self, seed: int | None = None) -> Any:
        return self.env.reset(seed=seed)[0]

    def step(self, action: Any) -> Any:
        return self.env.step(int(action.sum()))


class Dicts(PufferEnv):
    num_agents = 2

    def __init__(self) -> None:
        super().__init__()
        self.single_observation_space, self.single_action_space = VECTOR, Box(-1, 1, (1,))
        self.rng = np.random.default_rng()

    def look(self) -> Any:
        return {id: self.rng.random(2).astype(np.float32) for id in ("a", "b")}

    def reset(self, seed: int | None = None) -> Any:
        self.rng = np.random.default_rng(seed) if seed is not None else self.rng
        self.left = int(self.rng.integers(3, 8))
        return self.look()

    def step(self, actions: Any) -> Any:
        self.left -= 1
        over = self.left == 0
        rewards = {id: float(action[0]) for id, action in actions.items()}
        return self.look(), rewards, {"a": over, "b": over, "__all__": over}, {}


class InPlace(PufferEnv):
    def __init__(self, buf: Any = None) -> None:
        self.single_observation_space, self.single_action_space = VECTOR, Discrete(3)
        self.num_agents = 2
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> Any:
        self.rng = np.random.default_rng(seed)
        self.observations[:] = self.rng.random((2, 2))
        return self.observations, []

    def step(self, actions: Any) -> Any:
        self.rewards[:] = actions
        if self.rng.random() < 0.2:
            self.truncations[:] = True
            self.final_observations[:] = self.observations
        self.observations[:] = self.rng.random((2, 2))
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Zoo:
    """PettingZoo's parallel API; b leaves after the first step."""

    possible_agents = ("a", "b")

    def observation_space(self, agent: str) -> Any:
        return VECTOR

    def action_space(self, agent: str) -> Any:
        return Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.left = ["a", "b"], int(self.rng.integers(2, 6))
        return self.look(), {id: {} for id in self.agents}

    def look(self) -> Any:
        return {id: self.rng.random(2).astype(np.float32) for id in self.agents}

    def step(self, actions: Any) -> Any:
        self.left -= 1
        ends = {id: self.left == 0 or id == "b" for id in self.agents}
        answer = self.look(), dict.fromkeys(ends, 1.0), ends, dict.fromkeys(ends, False), {}
        self.agents = [id for id in self.agents if not ends[id]]
        return answer


SOUND = [Gym, Legacy, Plain, Dicts, InPlace, Zoo]


def texts(report: Report) -> list[str]:
    """Return all but the note about speed, which differs from run to run."""
    return [str(finding) for finding in report.findings if "a second" not in finding.text]


def found(create: Callable[[], Any], steps: int = 100) -> list[str]:
    return texts(check_env(create, steps=steps))


# ---- Sound envs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("env", SOUND)
def test_sound_envs_of_every_api_pass(env: Any) -> None:
    report = check_env(env, steps=100)
    assert texts(report) == []
    assert report.ok
    assert report.name == env.__name__
    assert report.verdict == f"{env.__name__}: ok, 0 errors, 0 warnings, 1 note"
    report.raise_for_errors()


@pytest.mark.parametrize("name", ["cartpole", "snake", "connect4", "continuous"])
def test_c_envs_pass(name: str) -> None:
    assert check_env(name, steps=100).findings == ()


def test_check_env_takes_what_emulate_and_make_take() -> None:
    pufferlib.register("a-checked-env", Gym, {"scale": 0.5})
    for x in (Gym, Gym(), lambda: Gym(), "a-checked-env", "A_CHECKED_ENV", f"{__name__}:Gym"):
        assert texts(check_env(x, steps=20)) == []
    for name in ("CartPole-v1", "Pendulum-v1"):
        assert texts(check_env(gymnasium.make(name), steps=50))[:1] in (
            [],
            ["note: PendulumEnv, `step`: no episode ended within 50 random steps."],
        )


def test_params_reach_the_env_and_unknown_ones_raise() -> None:
    report = check_env(Gym, kwargs={"scale": 5.0}, steps=20)
    assert texts(report) == [
        "warning: Gym, `reset`: `observation` is outside of Box(-1.0, 1.0, (2,), float32): it has "
        "1.3489336 at [0]."
    ]
    for x in (Gym, f"{__name__}:Gym"):
        with pytest.raises(UnknownNameError, match=r"`scael`\. Did you mean `scale`"):
            check_env(x, kwargs={"scael": 5.0})
    with pytest.raises(UsageError, match="env params must go to a class or factory"):
        check_env(Gym(), kwargs={"scale": 5.0})


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (3, "must get an env, or the class or factory of one, but got 3"),
        ("no-such-env", "Unknown environment `no-such-env`"),
        ("no_such_module:Env", "must name an importable object"),
        (f"{__name__}:VECTOR", "must be a class or a factory of envs"),
    ],
)
def test_an_object_that_is_not_an_env_is_a_usage_error(x: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_env(x)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_steps_are_checked(steps: Any) -> None:
    with pytest.raises(UsageError, match="`steps` must be a whole number of at least 1"):
        check_env(Gym, steps=steps)


def test_a_given_env_stays_open_and_a_made_one_is_closed() -> None:
    env, made = Gym(), []
    check_env(env, steps=5)
    assert env.closed == 0
    check_env(lambda: made.append(Gym()) or made[-1], steps=5)  # type: ignore[func-returns-value]
    assert made[0].closed == 2  # twice: that must be fine


def test_global_generators_are_restored() -> None:
    class Rolling(Gym):
        def look(self) -> Any:
            return np.full(2, np.random.random() + random.random() - 1, np.float32)

    random.seed(1)
    np.random.seed(1)
    states = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    check_env(Rolling, steps=20)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states  # type: ignore[index, union-attr]


def test_other_warnings_still_reach_the_user() -> None:
    class Noisy(Gym):
        def close(self) -> None:
            warnings.warn("the door squeaks", stacklevel=1)

    with pytest.warns(UserWarning, match="the door squeaks"):
        assert found(Noisy) == []


# ---- Faults that a run survives ------------------------------------------------------------------


class Aliased(Gym):
    state = np.zeros(2, np.float32)

    def look(self) -> Any:
        self.state[:] = super().look()
        return self.state


class AliasedDicts(Dicts):
    state = np.zeros(2, np.float32)

    def look(self) -> Any:
        self.state[:] = super().look()["a"]
        return {"a": self.state, "b": self.state}


class Greedy(Gym):
    action_space = Box(-1, 1, (2,), np.float32)

    def step(self, action: Any) -> Any:
        action += 1
        return super().step(0)


class Seedless(Gym):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None)


class Positional(Gym):
    def reset(self, options: Any = None) -> Any:  # type: ignore[override]
        return super().reset(seed=7)


class Global(Gym):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            np.random.seed(seed)
        return super().reset(seed=seed)

    def look(self) -> Any:
        return np.random.random(2).astype(np.float32)


class Unbounded(Gym):
    action_space = Box(-np.inf, np.inf, (1,), np.float32)

    def step(self, action: Any) -> Any:
        return super().step(0)


class Limited(Gym):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        answer = super().reset(seed=seed)
        self.left = 20
        return answer


class Endless(Limited):
    def step(self, action: Any) -> Any:
        self.left = 2
        return super().step(action)


class Wide(Gym):
    observation_space = Box(-1, 1, (2,), np.float64)

    def look(self) -> Any:
        return self.np_random.random(2)


class Locked(Gym):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class CloseOnce(Gym):
    def close(self) -> None:
        super().close()
        if self.closed > 1:
            raise ValueError("closed already")


class Drawn(Gym):
    metadata: Any = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    render_mode = "rgb_array"
    picture: Any = np.zeros((4, 4, 3), np.uint8)

    def render(self) -> Any:
        return self.picture


class DrawnGray(Drawn):
    picture = np.zeros((4, 4), np.uint8)


class DrawnOther(Drawn):
    render_mode = "ansi"
    picture = "text"


class DrawnNot(Drawn):
    def render(self) -> Any:
        raise NotImplementedError


class NoAll(Dicts):
    def step(self, actions: Any) -> Any:
        observations, rewards, dones, infos = super().step(actions)
        del dones["__all__"]
        return observations, rewards, dones, infos


class NoReward(Dicts):
    def step(self, actions: Any) -> Any:
        observations, rewards, dones, infos = super().step(actions)
        del rewards["b"]
        return observations, rewards, dones, infos


class OneWaits(Dicts):
    def step(self, actions: Any) -> Any:
        observations, rewards, dones, infos = super().step(actions)
        del observations["b"]
        rewards.setdefault("b", 0.0)
        return observations, rewards, dones, infos


class FewCame(Dicts):
    num_agents = 3


class Unwritten(InPlace):
    def step(self, actions: Any) -> Any:
        self.truncations[1] = True
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Rebound(InPlace):
    def reset(self, seed: int | None = None) -> Any:
        self.observations = np.zeros((2, 2), np.float32)
        return None


class NoChoice(InPlace):
    has_action_masks = True

    def reset(self, seed: int | None = None) -> Any:
        assert self.action_masks is not None
        self.action_masks[1] = False
        return super().reset(seed)


class NanMetric(Gym):
    def step(self, action: Any) -> Any:
        *parts, _ = super().step(action)
        return *parts, {"score": float("nan"), "perf": 300.0}


FAULTS: dict[type, list[str]] = {
    NanMetric: ["warning: NanMetric, `step`: metric `score` must be finite, but got nan."],
    Aliased: [
        "warning: Aliased, `step`: must not change observations it has returned, but does. "
        "Try a copy."
    ],
    AliasedDicts: [
        "warning: AliasedDicts, `step`: must not change observations it has returned, but "
        "does. Try a copy."
    ],
    Greedy: ["warning: Greedy, `step`: must not change its `action`, but does."],
    Seedless: [
        "warning: Seedless, `reset`: the same seed and actions gave different `observations` in "
        "`reset`."
    ],
    Positional: [
        "warning: Positional, `reset`: must take `seed` and `options` by keyword, but takes no "
        "`seed`."
    ],
    Global: [
        "warning: Global, `step`: draws from the global generator of `random` or `numpy.random`, "
        "which its seed does not set. Try `np.random.default_rng(seed)`."
    ],
    Unbounded: [
        "warning: Unbounded, `__init__`: `action_space` must have bounds for policies to know its "
        "scale, but has none."
    ],
    Limited: [
        "note: Limited, `step`: all 5 episodes end after 20 steps. If that is a time limit, mark "
        'it: `truncated`, or `info["TimeLimit.truncated"]`.'
    ],
    Endless: ["note: Endless, `step`: no episode ended within 100 random steps."],
    Wide: [
        "note: Wide, `__init__`: `observation_space` is float64, twice the memory of float32, "
        "which policies read."
    ],
    Locked: [
        "note: Locked, `deepcopy`: cannot be copied (TypeError: cannot pickle '_thread.lock' "
        "object): more than one must come from a class or factory."
    ],
    CloseOnce: [
        "warning: CloseOnce, `close`: must not fail when called twice, but raised ValueError: "
        "closed already."
    ],
    Drawn: [],
    DrawnGray: [
        "warning: DrawnGray, `render`: must return uint8 pixels [height, width, 3] or None, but "
        "got uint8 (4, 4)."
    ],
    DrawnOther: [
        "warning: DrawnOther, `render`: `render_mode` must be one of metadata's ['rgb_array'], "
        "but got 'ansi'."
    ],
    DrawnNot: ["error: DrawnNot, `render`: raised NotImplementedError."],
    NoAll: [
        "warning: NoAll, `step`: `dones` lacks '__all__': an episode ends when every agent is done."
    ],
    NoReward: ["warning: NoReward, `step`: `rewards` lacks agent 'b', which acted: it gets 0."],
    OneWaits: [
        "note: OneWaits, `step`: `observations` lacks agent 'b', which has not ended: it waits."
    ],
    FewCame: ["note: FewCame, `step`: `num_agents` is 3, but only 2 agents took part."],
    Unwritten: [
        "error: Unwritten, `step`: `final_observations` must hold the last observation where "
        "`truncations` is set, but was not written."
    ],
    Rebound: [
        "error: Rebound, `reset`: must write into `self.observations`, but replaces it by another "
        "array. Try `self.observations[:] = ...`."
    ],
    NoChoice: [
        "error: NoChoice, `reset`: `action_mask` must allow at least one choice of component 0, "
        "but allows none."
    ],
}


@pytest.mark.parametrize("env", FAULTS, ids=lambda env: env.__name__)
def test_a_fault_is_one_line(env: type) -> None:
    place = r" \(\S+test_check_env\.py:\d+, in \w+\)$"  # of the exception in the env
    assert [re.sub(place, ".", line) for line in found(env)] == FAULTS[env]


def test_findings_name_the_class_inside_of_wrappers() -> None:
    wrapped = pufferlib.Wrapper(gymnasium.wrappers.TimeLimit(Gym(scale=9.0), 2))
    assert found(lambda: wrapped)[0].startswith("warning: Gym, `reset`: `observation` is outside")


def test_all_agents_done_without_all_is_a_warning() -> None:
    class Stuck(Dicts):
        def step(self, actions: Any) -> Any:
            observations, rewards, dones, infos = super().step(actions)
            return observations, rewards, {**dones, "__all__": False}, infos

    assert found(Stuck)[0] == (
        "warning: Stuck, `step`: `dones['__all__']` is False though every agent is done: none "
        "can act."
    )


def test_a_slow_env_is_not_played_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pufferlib.checks.play._SECONDS", 0.0)
    env = types.SimpleNamespace(count=0)

    class Counted(Gym):
        def step(self, action: Any) -> Any:
            env.count += 1
            return super().step(action)

    check_env(Counted, steps=10_000)
    assert env.count < 100  # the probe of 64 steps, and next to nothing after it


# ---- Reports -------------------------------------------------------------------------------------


def test_a_report_counts_and_raises() -> None:
    note, error = Finding("note", "it is late"), Finding("error", "`step`: is missing")
    report = Report("Env", (error, error, note))
    assert not report.ok
    assert report.of("note") == ["it is late"]
    assert str(report).splitlines() == [
        "error: `step`: is missing",
        "error: `step`: is missing",
        "note: it is late",
        "Env: broken, 2 errors, 0 warnings, 1 note",
    ]
    assert repr(report) == str(report)
    with pytest.raises(EnvError, match=r"^`step`: is missing \(1 more in `check_env`\)$"):
        report.raise_for_errors()


def test_errors_come_first() -> None:
    class Both(Aliased):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], None

    assert [line.partition(":")[0] for line in found(Both)] == ["error", "warning"]
