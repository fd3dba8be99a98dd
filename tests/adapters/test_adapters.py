"""Our envs behind Gymnasium: its own checks pass, and all numbers are the vector env's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import Scripted
from torch import Tensor, nn
from torch.distributions import Categorical

import pufferlib
from pufferlib.adapters import GymnasiumEnv
from pufferlib.errors import UnknownNameError, UsageError
from pufferlib.native import infos as native_infos
from pufferlib.ocean import OCEAN_REGISTRY, gymnasium_id, register_gymnasium
from pufferlib.spaces import action_layout, action_values

OCEAN = list(native_infos())
every_env = pytest.mark.parametrize("name", OCEAN)


def one_agent(name: str) -> dict[str, Any]:
    """Return the params that leave an env with one agent, if it can have one."""
    takes_number = any(param.name == "num_agents" for param in native_infos()[name].params)
    return {"num_agents": 1} if takes_number else {}


def has_one_agent(name: str) -> bool:
    with pufferlib.make(name, num_envs=1, num_workers=1, **one_agent(name)) as vecenv:
        return vecenv.num_agents == 1


every_single_env = pytest.mark.parametrize("name", list(filter(has_one_agent, OCEAN)))


def random_rows(vecenv: Any, random: np.random.Generator) -> Any:
    """Return a row of actions for each slot: indices, reals within [-1, 1], or both."""
    layout = action_layout(vecenv.action_space)
    rows = np.empty((vecenv.num_agents, *layout.shape), layout.dtype)
    indices, reals = layout.split(rows)
    indices[...] = random.integers(0, layout.nvec, indices.shape)
    reals[...] = random.uniform(-1, 1, reals.shape)
    return action_values(layout, rows)


def as_values(vecenv: Any, rows: Any) -> Any:
    """Return rows of actions as Gymnasium has them: those of a Tuple are a tuple of arrays."""
    layout = action_layout(vecenv.action_space)
    if not layout.structured:
        return rows
    return rows[:, 0].astype(np.int64), rows[:, 1:].astype(np.float32)


# ---- Registration --------------------------------------------------------------------------------


@every_single_env
def test_gymnasiums_checker_passes_on_every_ocean_env(name: str) -> None:
    env = gymnasium.make(gymnasium_id(name), **one_agent(name))
    check_env(env.unwrapped)
    env.close()


def test_ids_are_the_names_in_camel_case() -> None:
    assert gymnasium_id("cartpole") == "ocean/Cartpole-v0"
    assert gymnasium_id("connect4") == "ocean/Connect4-v0"
    assert gymnasium_id("two_words") == "ocean/TwoWords-v0"
    assert register_gymnasium() == [gymnasium_id(name) for name in OCEAN]


def test_what_is_added_to_ocean_can_be_registered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OCEAN_REGISTRY, "scripted", {"entry_point": Scripted, "kwargs": {}})
    assert "ocean/Scripted-v0" in register_gymnasium()
    try:
        with gymnasium.make("ocean/Scripted-v0", terminals=[1]) as env:
            env.reset(seed=0)
            # rewards 1, 2; the final observation of step 1 is 100 + 1
            assert env.step(0)[1:4] == (1.0, False, False)
            observation, reward, terminated, truncated, _ = env.step(0)
        assert (observation.item(), reward, terminated, truncated) == (101.0, 2.0, True, False)
    finally:
        del gymnasium.registry["ocean/Scripted-v0"]


@pytest.mark.parametrize(
    "script",
    [
        "import gymnasium; e = gymnasium.make('pufferlib.ocean:ocean/Cartpole-v0')",
        "import gymnasium, pufferlib.ocean; e = gymnasium.make('ocean/Cartpole-v0')",
        "import gymnasium, pufferlib; pufferlib.make; e = gymnasium.make('ocean/Cartpole-v0')",
    ],
)
def test_registration_needs_no_torch(script: str) -> None:
    check = "; e.reset(seed=1); import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script + check], check=True)


def test_importing_the_package_alone_stays_light() -> None:
    script = "import pufferlib, sys; assert not {'gymnasium', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_params_are_keywords_of_make_and_make_vec() -> None:
    with gymnasium.make("ocean/Breakout-v0", brick_rows=2) as env:
        # 6 rows of 18 bricks in 114 features: without 4 rows there are 72 fewer
        assert env.observation_space.shape == (42,)
    envs = gymnasium.make_vec("ocean/Breakout-v0", num_envs=3, brick_rows=2, num_workers=1)
    assert envs.observation_space.shape == (3, 42)
    assert envs.spec is not None
    assert envs.spec.id == "ocean/Breakout-v0"
    envs.close()
    with pytest.raises(UnknownNameError, match="Did you mean `brick_rows`"):
        gymnasium.make("ocean/Breakout-v0", brick_row=2)


@pytest.mark.parametrize("make", [gymnasium.make, gymnasium.make_vec])
def test_an_unknown_keyword_is_a_type_error_in_words_of_python_too(make: Any) -> None:
    """TorchRL passes `frameskip` to every env, and looks for these words."""
    said = r"Unknown param of `cartpole` `frameskip`.*unexpected keyword argument 'frameskip'"
    with pytest.raises(TypeError, match=said) as caught:
        make("ocean/Cartpole-v0", frameskip=4)
    assert isinstance(caught.value, UnknownNameError)


def test_many_agents_raise_as_gymnasium_env_and_work_as_a_vector() -> None:
    with pytest.raises(UsageError, match=r"must have one agent .* has 16.*to_pettingzoo\(\"snake"):
        gymnasium.make("ocean/Snake-v0")
    envs = gymnasium.make_vec("ocean/Snake-v0", num_envs=2)
    assert envs.num_envs == 32  # 2 boards of 16 snakes
    _, infos = envs.reset(seed=1)
    assert infos["agent_mask"].all()
    envs.close()


def test_gymnasiums_own_vector_takes_our_single_envs() -> None:
    envs = gymnasium.make_vec("ocean/Cartpole-v0", num_envs=2, vectorization_mode="sync")
    assert isinstance(envs, SyncVectorEnv)
    observations, _ = envs.reset(seed=[3, 3])
    assert np.array_equal(observations[0], observations[1])
    envs.close()


# ---- One env -------------------------------------------------------------------------------------


@every_single_env
def test_a_single_env_plays_the_episodes_of_its_vector_env(name: str) -> None:
    env = GymnasiumEnv(name, **one_agent(name))
    twin = pufferlib.make(name, num_envs=1, **one_agent(name))
    random = np.random.default_rng(0)
    observation, _ = env.reset(seed=5)
    rows = twin.reset(seed=5)
    assert np.array_equal(observation, rows[0])
    for _ in range(1000):
        action = random_rows(twin, random)
        value = as_values(twin, action)
        one = tuple(part[0] for part in value) if isinstance(value, tuple) else value[0]
        observation, reward, terminated, truncated, info = env.step(one)
        rows, rewards, dones, _ = twin.step(action)
        assert reward == rewards[0]
        assert (terminated, truncated) == (twin.terminals[0], twin.truncations[0])
        assert np.array_equal(observation, (twin.final_observations if dones[0] else rows)[0])
        if dones[0]:
            metrics = twin.drain_metrics()
            if name != "drive" or not truncated:  # a car that is cut on its way has no result
                info.pop("action_mask", None)
                assert {key: metrics[key] for key in info} == info
            assert "perf" in info
            observation, _ = env.reset()  # the very episode that the vector env has begun
            assert np.array_equal(observation, rows[0])
    env.close()
    twin.close()


def test_a_seed_is_exact_during_and_after_an_episode() -> None:
    env = GymnasiumEnv("cartpole")
    twin = pufferlib.make("cartpole", num_envs=1)
    first = twin.reset(seed=7)[0].copy()
    for steps in (0, 3, 500):
        assert np.array_equal(env.reset(seed=7)[0], first)
        for _ in range(steps):
            if env.step(0)[2]:
                break
    assert np.array_equal(env.reset(seed=7)[0], first)
    # amid an episode, a reset without a seed is another one, determined by the last seed
    second = env.reset()[0]
    assert not np.array_equal(second, first)
    env.reset(seed=7)
    assert np.array_equal(env.reset()[0], second)


def test_a_seed_held_by_the_vector_env_is_used_by_the_first_reset() -> None:
    seeded = pufferlib.make("cartpole", num_envs=1, seed=3)
    first = pufferlib.make("cartpole", num_envs=1).reset(seed=3)[0]
    assert np.array_equal(GymnasiumEnv(seeded).reset()[0], first)


def test_after_an_end_only_reset_may_follow() -> None:
    env = GymnasiumEnv(Scripted, terminals=[0])
    with pytest.raises(UsageError, match="`reset` must be called before `step`"):
        env.step(0)
    env.reset(seed=0)
    assert env.step(0)[2]
    with pytest.raises(UsageError, match="`reset` must be called before `step`"):
        env.step(0)
    env.reset()
    env.step(0)


def test_a_wrong_action_raises() -> None:
    env = GymnasiumEnv("cartpole")
    env.reset(seed=0)
    for action in (2, -1, 0.5, [0, 0], None):
        with pytest.raises(UsageError, match="`action` must be"):
            env.step(action)
    with pytest.raises(UsageError, match="`render_mode` must be 'rgb_array' or None"):
        GymnasiumEnv("cartpole", render_mode="ansi")
    with pytest.raises(UsageError, match="VectorEnv of one env, but has 2"):
        GymnasiumEnv(pufferlib.make("cartpole", num_envs=2))


def test_action_masks_are_in_every_info_and_fit_sample() -> None:
    env = GymnasiumEnv("connect4", statistics=False)
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1] * 7
    keys, seen = set(info), set()
    for _ in range(200):
        action = env.action_space.sample(mask=info["action_mask"])
        _, _, terminated, truncated, info = env.step(action)
        assert set(info) == keys  # at the end of an episode too
        assert np.array_equal(env.action_masks(), info["action_mask"]) or terminated or truncated
        if terminated or truncated:
            assert info["action_mask"].tolist() == [1] * 7  # no action follows
            _, info = env.reset()
        seen.add(int(info["action_mask"].sum()))
    assert min(seen) < 7  # a full column is masked


@pytest.mark.parametrize(("name", "has_masks"), [("connect4", True), ("cartpole", False)])
def test_an_env_has_action_masks_where_it_has_any(name: str, has_masks: bool) -> None:
    env = gymnasium.make(gymnasium_id(name))
    assert env.has_wrapper_attr("action_masks") == has_masks
    assert hasattr(env.unwrapped, "action_masks") == has_masks
    if has_masks:
        env.reset(seed=0)
        masks = env.get_wrapper_attr("action_masks")()
        assert (masks.dtype, masks.tolist()) == (np.bool_, [True] * 7)


def test_statistics_wrappers_of_gymnasium_work() -> None:
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("ocean/Cartpole-v0"))
    env.reset(seed=0)
    total, terminated = 0.0, False
    while not terminated:
        _, reward, terminated, _, info = env.step(0)
        total += float(reward)
    assert info["episode"]["r"] == total
    assert info["score"] == total  # cartpole's own metric: the steps it stood
    envs = gymnasium.make_vec("ocean/Cartpole-v0", num_envs=2)
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    envs.reset(seed=0)
    while True:
        *_, infos = envs.step(np.zeros(2, dtype=np.int64))
        if "episode" in infos:
            break
    inner = infos["final_info"]["episode"]["r"]
    assert np.array_equal(infos["episode"]["r"][infos["_episode"]], inner[infos["_final_info"]])
    envs.close()


def test_pictures_need_a_render_mode() -> None:
    with gymnasium.make("ocean/Cartpole-v0", render_mode="rgb_array") as env:
        env.reset(seed=0)
        picture = env.render()
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
    with gymnasium.make("ocean/Cartpole-v0", disable_env_checker=True) as env:
        env.reset(seed=0)
        assert env.unwrapped.render() is None
    envs = pufferlib.to_gymnasium(pufferlib.make("cartpole", num_envs=2))
    envs.reset(seed=0)
    assert [frame.shape for frame in envs.render() or ()] == [picture.shape] * 2
    envs.close()


def test_adapted_single_envs_can_be_emulated() -> None:
    vecenv = pufferlib.emulate(gymnasium.make("ocean/Cartpole-v0"))
    twin = pufferlib.make("cartpole", num_envs=1)
    random = np.random.default_rng(0)
    assert np.array_equal(vecenv.reset(seed=1), twin.reset(seed=1))
    for _ in range(300):
        actions = random_rows(twin, random)
        for ours, theirs in zip(vecenv.step(actions)[:3], twin.step(actions)[:3]):
            assert np.array_equal(ours, theirs)


# ---- Vectors -------------------------------------------------------------------------------------


@every_env
def test_gymnasium_vectors_have_the_rows_of_the_vector_env(name: str) -> None:
    params = [param.name for param in native_infos()[name].params]
    limits = {"max_steps": 300} if "max_steps" in params else {}
    envs = pufferlib.to_gymnasium(pufferlib.make(name, num_envs=4, **limits))
    twin = pufferlib.make(name, num_envs=4, **limits)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert envs.num_envs == twin.num_agents
    assert envs.single_observation_space == twin.observation_space
    assert envs.observation_space.shape == twin.observations.shape
    random = np.random.default_rng(0)
    assert np.array_equal(envs.reset(seed=2)[0], twin.reset(seed=2))
    num_ends = 0
    for _ in range(700):
        actions = random_rows(twin, random)
        values = as_values(twin, actions)
        observations, rewards, terminated, truncated, infos = envs.step(values)
        rows, twin_rewards, dones, twin_infos = twin.step(actions)
        assert np.array_equal(observations, rows)
        assert np.array_equal(rewards, twin_rewards)
        assert np.array_equal(terminated, twin.terminals)
        assert np.array_equal(truncated, twin.truncations)
        assert dones.any() == ("final_obs" in infos)
        if not dones.any():
            continue
        for key in ("_final_obs", "_final_info", "_episode"):
            assert np.array_equal(infos[key], dones)
        for slot in np.flatnonzero(dones):
            num_ends += 1
            assert np.array_equal(infos["final_obs"][slot], twin.final_observations[slot])
            episode = twin_infos[slot]["episode"]
            for key in ("r", "l"):
                assert infos["episode"][key][slot] == episode[key]
                assert infos["final_info"]["episode"][key][slot] == episode[key]
        assert all(infos["final_obs"][slot] is None for slot in np.flatnonzero(~dones))
    assert num_ends > 0
    assert observations in envs.observation_space
    envs.close()
    envs.close()
    twin.close()


@pytest.mark.parametrize("id", ["CartPole-v1", "Taxi-v4", "Pendulum-v1"])
def test_a_vector_returns_what_gymnasiums_own_returns(id: str) -> None:
    """Over one env, whose seed is the same: observations, flags and infos, to the last bit."""
    ours = pufferlib.to_gymnasium(pufferlib.emulate(lambda: gymnasium.make(id)), statistics=False)
    theirs = SyncVectorEnv([lambda: gymnasium.make(id)], autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert np.array_equal(ours.reset(seed=4)[0], theirs.reset(seed=4)[0])
    ours.action_space.seed(0)
    num_ends = 0
    for _ in range(450):
        actions = ours.action_space.sample()
        *rows, infos = ours.step(actions)
        *their_rows, their_infos = theirs.step(actions)
        assert rows[0].dtype == their_rows[0].dtype
        assert np.array_equal(rows[0], their_rows[0])
        assert np.array_equal(rows[1], np.float32(their_rows[1]))
        for flags, their_flags in zip(rows[2:], their_rows[2:]):
            assert np.array_equal(flags, their_flags)
        assert ("final_obs" in infos) == ("final_obs" in their_infos)
        if "action_mask" in their_infos:
            assert np.array_equal(infos["action_mask"], their_infos["action_mask"])
        if "final_obs" in infos:
            num_ends += 1
            assert np.array_equal(infos["final_obs"][0], their_infos["final_obs"][0])
            for key, value in their_infos["final_info"].items():
                assert np.array_equal(infos["final_info"][key], value)
    assert num_ends > 0
    ours.close()
    theirs.close()


class Echo(gymnasium.Env[Any, Any]):
    """Shows the action it got, part by part; ends after three steps."""

    observation_space = Dict(
        {
            "count": Discrete(9, start=-4),
            "inner": Tuple((Box(-1, 1, (2,), np.float64), MultiBinary(3))),
        }
    )
    action_space = Dict(
        {
            "turn": Discrete(9, start=-4),
            "inner": Tuple((Box(-1, 1, (2,), np.float32), MultiDiscrete([2, 2, 2]))),
        }
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.ticks = 0
        zeros = (np.zeros(2), np.zeros(3, dtype=np.int8))
        return {"count": np.int64(-4), "inner": zeros}, {}

    def step(self, action: Any) -> Any:
        self.ticks += 1
        real, flags = action["inner"]
        shown = (real.astype(np.float64), flags.astype(np.int8))
        observation = {"count": np.int64(action["turn"]), "inner": shown}
        return observation, 0.0, self.ticks == 3, False, {}


def test_structured_values_are_trees_of_arrays() -> None:
    envs = pufferlib.to_gymnasium(pufferlib.emulate(Echo, num_envs=5))
    envs.reset(seed=0)
    envs.action_space.seed(1)
    for tick in range(1, 7):
        actions = envs.action_space.sample()
        observations, _, terminated, _, infos = envs.step(actions)
        assert observations in envs.observation_space
        assert observations["count"].dtype == np.int64
        assert terminated.all() == (tick % 3 == 0)
        if terminated.all():
            assert (observations["count"] == -4).all()
            shown = infos["final_obs"][4]
            assert shown in envs.single_observation_space
            assert shown["count"] == actions["turn"][4]
            assert np.array_equal(shown["inner"][0], actions["inner"][0][4])
        else:
            assert np.array_equal(observations["count"], actions["turn"])
            assert np.array_equal(observations["inner"][0], actions["inner"][0])
            assert np.array_equal(observations["inner"][1], actions["inner"][1])


@pytest.mark.parametrize(
    ("turn", "wanted"),
    [
        (np.full(2, 5), r"`action\['turn'\]` must be a value of Discrete\(9, start=-4\)"),
        (np.zeros(3, int), r"`action\['turn'\]` must be of shape \(2,\), but got shape \(3,\)"),
        (np.zeros(2), r"`action\['turn'\]` must be of dtype int64, but got float64"),
        (None, r"`action` must be a dict with the keys \['.*, but got the keys \['inner'\]"),
    ],
)
def test_a_wrong_batch_of_actions_names_its_leaf(turn: Any, wanted: str) -> None:
    envs = pufferlib.to_gymnasium(pufferlib.emulate(Echo, num_envs=2))
    envs.reset(seed=0)
    actions = envs.action_space.sample()
    actions["turn"] = turn
    if turn is None:
        del actions["turn"]
    with pytest.raises(UsageError, match=wanted):
        envs.step(actions)


def test_returned_arrays_do_not_change_later() -> None:
    envs = pufferlib.to_gymnasium(pufferlib.make("cartpole", num_envs=8))
    first, _ = envs.reset(seed=0)
    kept = first.copy()
    results = envs.step(np.zeros(8, dtype=np.int64))
    copies = [part.copy() for part in results[:4]]
    for _ in range(50):
        envs.step(np.zeros(8, dtype=np.int64))
    assert np.array_equal(first, kept)
    assert all(np.array_equal(part, copied) for part, copied in zip(results, copies))


def test_unseeded_resets_are_determined_by_the_last_seed() -> None:
    envs = pufferlib.to_gymnasium(pufferlib.make("cartpole", num_envs=8))
    runs = []
    for _ in range(2):
        runs.append([envs.reset(seed=1)[0], envs.reset()[0], envs.reset()[0]])
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0][1], runs[0][2])
    for seed in (-1, 0.5, [0.5] * 8):
        with pytest.raises(UsageError, match="`seed` must be a whole number"):
            envs.reset(seed=seed)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must be one for each of 8 envs, but got 2"):
        envs.reset(seed=[1, 2])
    with pytest.raises(UsageError, match="`reset_mask`"):
        envs.reset(options={"reset_mask": np.ones(8, dtype=np.bool_)})


@pytest.mark.parametrize(
    "make",
    [
        lambda: pufferlib.make("cartpole", num_envs=4, num_workers=1),
        lambda: pufferlib.make("gym-CartPole-v1", num_envs=4, backend="serial"),
    ],
    ids=["C", "Python"],
)
def test_a_list_seeds_each_env_and_none_in_it_stands_for_any(make: Any) -> None:
    envs = pufferlib.to_gymnasium(make())
    first = envs.reset(seed=[7, 1, 7, 3])[0]
    assert np.array_equal(first[0], first[2])
    assert np.array_equal(first[0], envs.reset(seed=7)[0][0])
    assert np.array_equal(envs.reset(seed=np.array([7, 1, 7, 3]))[0], first)
    after = envs.reset()[0]
    envs.reset(seed=[7, 1, 7, 3])
    assert np.array_equal(envs.reset()[0], after)  # determined by the last seeds
    partly = envs.reset(seed=[None, 1, None, None])[0]
    assert np.array_equal(partly[1], first[1])
    assert len(np.unique(partly, axis=0)) == 4
    envs.close()


# ---- Next-step autoreset -------------------------------------------------------------------------


class Waits(gymnasium.Env[Any, Any]):
    """Counts its steps since the reset, and ends at the `limit`; the mask of 0 is 1 0, then 1 1."""

    observation_space, action_space = Box(0, 99, (1,), np.float32), Discrete(2)

    def __init__(self, limit: int) -> None:
        self.limit, self.num_steps = limit, 0

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        mask = np.array([1, int(self.ticks > 0)], dtype=np.int8)
        return np.array([self.ticks], np.float32), {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.ticks = 0
        return self._seen()

    def step(self, action: Any) -> Any:
        self.ticks += 1
        self.num_steps += 1
        seen, info = self._seen()
        return seen, 1.0, False, self.ticks == self.limit, info


def test_the_step_after_an_end_returns_the_reset_and_does_not_move_the_env() -> None:
    limits = iter([2, 3])
    vecenv = pufferlib.emulate(lambda: Waits(next(limits)), num_envs=2, backend="serial")
    envs = pufferlib.to_gymnasium(vecenv, autoreset_mode="next_step")
    envs.reset(seed=0)
    shown = []
    for _ in range(6):
        observations, rewards, _, truncated, infos = envs.step(np.zeros(2, dtype=np.int64))
        shown.append((observations[:, 0].tolist(), rewards.tolist(), truncated.tolist()))
        masks = infos["action_mask"].tolist()
        assert masks == [[1, int(tick > 0)] for tick in observations[:, 0]]
        assert not {"final_obs", "final_info"} & set(infos)
        assert infos.get("_episode", np.zeros(2, bool)).tolist() == truncated.tolist()
    # env 0 ends after two steps, env 1 after three; 0 is the first observation of an episode
    assert shown == [
        ([1, 1], [1, 1], [False, False]),
        ([2, 2], [1, 1], [True, False]),
        ([0, 3], [0, 1], [False, True]),
        ([1, 0], [1, 0], [False, False]),
        ([2, 1], [1, 1], [True, False]),
        ([0, 2], [0, 1], [False, False]),
    ]
    assert [env.env.num_steps for env in vecenv.envs] == [4, 5]


ENDS: dict[str, tuple[Any, Any]] = {
    "cartpole": (
        lambda rows: rows[:, 2] < 0,  # pushing away from it tips the pole
        lambda rows: (abs(rows[:, 0]) > 2.4) | (abs(rows[:, 2]) > np.float32(np.pi / 15)),
    ),
    "acrobot": (
        lambda rows: np.where(rows[:, 4] > 0, 0, 2),  # against the swing lifts the arm
        # -cos(a) - cos(a + b) > 1, of (cos a, sin a, cos b, sin b)
        lambda rows: rows[:, 1] * rows[:, 3] - rows[:, 0] * rows[:, 2] - rows[:, 0] > 1,
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_terminal_step_returns_the_observation_that_ended_the_episode(name: str) -> None:
    """Envs with a step loop of their own in C: the pole has fallen, the arm is above the line."""
    choose, has_ended = ENDS[name]
    vecenv = pufferlib.make(name, num_envs=64, num_workers=1)
    envs = pufferlib.to_gymnasium(vecenv, autoreset_mode="next_step")
    observations, _ = envs.reset(seed=1)
    num_ends = 0
    for _ in range(400):
        actions = choose(observations).astype(np.int64)
        observations, _, terminated, _, _ = envs.step(actions)
        assert np.array_equal(has_ended(observations), terminated)
        num_ends += int(terminated.sum())
    assert num_ends > 50
    envs.close()


@every_single_env
def test_next_step_vectors_have_the_numbers_of_gymnasiums_own(name: str) -> None:
    limits = {"max_steps": 40} if "max_steps" in _params(name) else {}
    params = {**one_agent(name), **limits}
    ours = gymnasium.make_vec(
        gymnasium_id(name), num_envs=3, num_workers=1, autoreset_mode="next_step", **params
    )
    theirs = gymnasium.make_vec(
        gymnasium_id(name), num_envs=3, vectorization_mode="sync", num_workers=1, **params
    )
    assert ours.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert theirs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    seeds = [3, 1, 4]
    assert np.array_equal(ours.reset(seed=seeds)[0], theirs.reset(seed=seeds)[0])
    ours.action_space.seed(0)
    num_ends = 0
    for _ in range(300):
        actions = ours.action_space.sample()
        result, expected = ours.step(actions), theirs.step(actions)
        for part, wanted in zip(result[:4], expected[:4], strict=True):
            assert np.array_equal(part, np.asarray(wanted, dtype=part.dtype))
        infos, wanted_infos = result[4], expected[4]
        assert set(infos) == set(wanted_infos)
        for key in infos:
            assert np.array_equal(infos[key], wanted_infos[key]), key
        num_ends += int((result[2] | result[3]).sum())
    assert num_ends > 0 or not limits
    ours.close()
    theirs.close()


def _params(name: str) -> list[str]:
    return [param.name for param in native_infos()[name].params]


def test_the_mode_has_gymnasiums_names_and_is_an_attribute() -> None:
    vecenv = pufferlib.make("cartpole", num_envs=2, num_workers=1)
    for given in ("next_step", "NextStep", AutoresetMode.NEXT_STEP):
        envs = pufferlib.to_gymnasium(vecenv, autoreset_mode=given)
        assert envs.autoreset_mode is envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    envs = pufferlib.to_gymnasium(vecenv)
    assert envs.autoreset_mode is envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    for wrong in ("nextstep?", AutoresetMode.DISABLED):
        with pytest.raises(UsageError, match="`autoreset_mode` must be one of same_step, next_s"):
            pufferlib.to_gymnasium(vecenv, autoreset_mode=wrong)


def test_next_step_needs_envs_that_can_wait() -> None:
    with pytest.raises(UsageError, match="'same_step' for envs of several agents"):
        pufferlib.to_gymnasium(pufferlib.make("snake", num_envs=1), autoreset_mode="next_step")
    wrapped = pufferlib.Wrapper(pufferlib.make("cartpole", num_envs=2))
    with pytest.raises(UsageError, match="cannot step some of its envs without the others"):
        pufferlib.to_gymnasium(wrapped, autoreset_mode="next_step")


@pytest.mark.parametrize(
    "options",
    [{"double_buffer": True}, {"backend": "multiprocessing", "vec": {"mode": "async"}}],
    ids=["double-buffered", "asynchronous"],
)
def test_a_vector_env_that_returns_parts_is_refused_at_once(options: dict[str, Any]) -> None:
    vecenv = pufferlib.make("cartpole", num_envs=2, num_workers=2, **options)
    with pytest.raises(UsageError, match="must return all of its slots in every step, but is"):
        pufferlib.to_gymnasium(vecenv)
    vecenv.close()


def test_wrappers_and_vector_envs_of_users_are_stepped_through() -> None:
    class Doubled(pufferlib.Wrapper):
        def step(self, actions: Any) -> Any:
            observations, rewards, dones, infos = super().step(actions)
            return observations, rewards * 2, dones, infos

    class Own(pufferlib.vectorization.VectorEnv):
        def __init__(self) -> None:
            self.num_envs = 2
            self.observation_space = Box(-1, 1, (1,), np.float32)
            self.action_space = Discrete(2)

        def reset(self, seed: int | None = None) -> Any:
            return np.zeros((2, 1), dtype=np.float32)

        def step(self, actions: Any) -> Any:
            info = {"TimeLimit.truncated": True, "final_observation": [1.0]}
            return np.zeros((2, 1)), np.ones(2), np.array([True, False]), [info, {}]

    doubled = pufferlib.to_gymnasium(Doubled(pufferlib.make("cartpole", num_envs=2)))
    doubled.reset(seed=0)
    assert doubled.step(np.zeros(2, dtype=np.int64))[1].tolist() == [2.0, 2.0]
    own = pufferlib.to_gymnasium(Own())
    own.reset()
    _, _, terminated, truncated, infos = own.step(np.zeros(2, dtype=np.int64))
    assert (terminated.tolist(), truncated.tolist()) == ([False, False], [True, False])
    assert infos["final_obs"][0].tolist() == [1.0]


@pytest.mark.parametrize("given", ["cartpole", Echo(), None])
def test_an_object_that_is_not_a_vector_env_raises_one_line(given: Any) -> None:
    with pytest.raises(UsageError, match=r"`vecenv` must be a VectorEnv.*Try `pufferlib\.[me]"):
        pufferlib.to_gymnasium(given)


# ---- A loop as CleanRL writes them ---------------------------------------------------------------


def head(width: int, outputs: int, scale: float) -> nn.Sequential:
    layers = [nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)]
    for layer in layers[::2]:
        nn.init.orthogonal_(layer.weight, np.sqrt(2))  # type: ignore[arg-type]
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    with torch.no_grad():
        layers[-1].weight.mul_(scale)  # type: ignore[operator, union-attr]
    return nn.Sequential(*layers)


def minibatches(size: int, number: int) -> Iterator[Tensor]:
    yield from torch.randperm(size).split(size // number)


@pytest.mark.slow
def test_a_loop_in_the_style_of_cleanrl_learns() -> None:
    """PPO on `to_gymnasium`: after 28,672 steps, the pole stands three times as long."""
    torch.manual_seed(1)
    num_envs, num_steps, gamma, lam = 16, 128, 0.99, 0.95
    envs = pufferlib.to_gymnasium(pufferlib.make("cartpole", num_envs=num_envs, num_workers=1))
    actor, critic = head(4, envs.single_action_space.n, 0.01), head(4, 1, 1.0)  # type: ignore[attr-defined]
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=2e-3, eps=1e-5)
    obs = torch.zeros(num_steps, num_envs, 4)
    actions, logprobs, rewards, dones, values = torch.zeros(5, num_steps, num_envs)
    next_obs = torch.as_tensor(envs.reset(seed=1)[0])
    returns_of: list[list[float]] = []
    for _ in range(14):
        returns_of.append([])
        for step in range(num_steps):
            obs[step] = next_obs
            with torch.no_grad():
                policy = Categorical(logits=actor(next_obs))
                action = policy.sample()
                actions[step], logprobs[step] = action, policy.log_prob(action)
                values[step] = critic(next_obs).squeeze(-1)
            observation, reward, terminated, truncated, infos = envs.step(action.numpy())
            rewards[step] = torch.as_tensor(reward)
            if "final_obs" in infos:
                for slot in np.flatnonzero(truncated):
                    with torch.no_grad():
                        final = critic(torch.as_tensor(infos["final_obs"][slot])).item()
                    rewards[step, slot] += gamma * final
                returns_of[-1] += infos["episode"]["r"][infos["_episode"]].tolist()
            dones[step] = torch.as_tensor(terminated | truncated)
            next_obs = torch.as_tensor(observation)
        with torch.no_grad():
            next_value, advantage = critic(next_obs).squeeze(-1), torch.zeros(num_envs)
            advantages = torch.zeros_like(rewards)
            for step in reversed(range(num_steps)):
                alive = 1 - dones[step]
                delta = rewards[step] + gamma * next_value * alive - values[step]
                advantage = delta + gamma * lam * alive * advantage
                advantages[step], next_value = advantage, values[step]
        batch = [part.flatten(0, 1) for part in (obs, actions, logprobs, advantages, values)]
        for _ in range(4):
            for rows in minibatches(num_steps * num_envs, 4):
                o, a, old, adv, value = (part[rows] for part in batch)
                policy = Categorical(logits=actor(o))
                ratio = (policy.log_prob(a) - old).exp()
                normal = (adv - adv.mean()) / (adv.std() + 1e-8)
                gain = torch.min(ratio * normal, ratio.clamp(0.8, 1.2) * normal).mean()
                value_loss = (critic(o).squeeze(-1) - (value + adv)).square().mean()
                optimizer.zero_grad()
                (0.25 * value_loss - gain - 0.01 * policy.entropy().mean()).backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()
    envs.close()
    first, last = np.mean(returns_of[0]), np.mean(returns_of[-1])

    assert first < 40
    assert last > 3 * first
