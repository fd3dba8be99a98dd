"""Our envs behind Stable-Baselines3 and PettingZoo, where those are installed."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from scripted import Scripted
from test_adapters import Echo, random_rows

import pufferlib
from pufferlib.adapters import pettingzoo, sb3
from pufferlib.errors import MissingExtraError, UnknownNameError, UsageError

MULTI_AGENT = [
    ("snake", {}),
    ("snake", {"width": 8, "height": 8}),
    ("connect4", {"opponent": "self"}),
]
every_multi_agent = pytest.mark.parametrize(
    ("name", "params"), MULTI_AGENT, ids=["snake", "crowded snake", "connect4"]
)


@pytest.mark.parametrize(
    ("adapter", "module", "extra"),
    [
        ("to_sb3", "stable_baselines3.common.vec_env", "sb3"),
        ("to_pettingzoo", "pettingzoo", "pettingzoo"),
    ],
)
def test_a_missing_package_is_one_line_with_its_extra(
    adapter: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for function in (sb3._sb3_class, pettingzoo._pettingzoo_class):
        function.cache_clear()
    with pytest.raises(MissingExtraError, match=rf"pip install 'pufferlib\[{extra}\]'"):
        getattr(pufferlib, adapter)(pufferlib.make("cartpole", num_envs=1))


def test_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("pettingzoo")
    page = Path(__file__).resolve().parents[2] / "docs" / "integration.md"
    blocks = re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    in_clients = ("sb3_contrib", "PresentRows", "supersuit")  # run by tests/clients
    blocks = [block for block in blocks if not any(name in block for name in in_clients)]
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(re.sub(r"total_timesteps=[\d_]+", "total_timesteps=2048", block), {})


class Relay(pufferlib.PufferEnv):
    """`a` runs two steps, `b` comes in the second and stays until the fourth."""

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.num_agents = 2
        self.single_observation_space = self.make_space((1,))
        self.single_action_space = self.make_discrete(2)

    def reset(self, seed: int | None = None) -> Any:
        self.ticks = 0
        return {"a": np.zeros(1, dtype=np.float32)}

    def step(self, actions: Any) -> Any:
        self.ticks += 1
        running = {"a": self.ticks <= 2, "b": self.ticks >= 2}
        ids = [id for id in running if running[id]]
        seen = {id: np.full(1, self.ticks, dtype=np.float32) for id in ids}
        dones = {id: self.ticks == (2 if id == "a" else 4) for id in ids}
        dones["__all__"] = self.ticks == 4
        return seen, dict.fromkeys(ids, 1.0), dones, {id: {} for id in ids}


# ---- Stable-Baselines3 ---------------------------------------------------------------------------


class TestStableBaselines3:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("stable_baselines3")

    def test_ppo_trains_on_it_and_counts_episodes(self) -> None:
        from stable_baselines3 import PPO

        env = pufferlib.to_sb3(pufferlib.make("cartpole", num_envs=16, num_workers=1))
        settings: dict[str, Any] = {"n_steps": 128, "batch_size": 512, "n_epochs": 4}
        model = PPO("MlpPolicy", env, learning_rate=2e-3, seed=1, device="cpu", **settings)
        model.learn(2048)
        first = np.mean([episode["r"] for episode in model.ep_info_buffer or ()])
        model.learn(10_240, reset_num_timesteps=False)
        last = np.mean([episode["r"] for episode in model.ep_info_buffer or ()])
        env.close()

        assert model.num_timesteps == 12_288
        assert last > 2 * first > 20  # a random policy stands for about 20 steps

    def test_it_gives_the_rows_of_the_vector_env_and_the_infos_that_sb3_reads(self) -> None:
        env = pufferlib.to_sb3(pufferlib.make("squared", num_envs=3, max_steps=5))
        twin = pufferlib.make("squared", num_envs=3, max_steps=5)
        env.seed(4)
        assert np.array_equal(env.reset(), twin.reset(seed=4))
        random = np.random.default_rng(0)
        num_ends = 0
        for _ in range(40):
            actions = random_rows(twin, random)
            observations, rewards, dones, infos = env.step(actions)
            rows, twin_rewards, twin_dones, twin_infos = twin.step(actions)
            assert np.array_equal(observations, rows)
            assert np.array_equal(rewards, twin_rewards)
            assert np.array_equal(dones, twin_dones)
            for slot, info in enumerate(infos):
                assert ("terminal_observation" in info) == dones[slot]
                if not dones[slot]:
                    continue
                num_ends += 1
                assert np.array_equal(info["terminal_observation"], twin.final_observations[slot])
                assert info["TimeLimit.truncated"] is bool(twin.truncations[slot])
                for key in ("r", "l"):
                    assert info["episode"][key] == twin_infos[slot]["episode"][key]
        assert num_ends > 10

    def test_only_a_truncated_episode_is_marked_as_such(self) -> None:
        vecenv = pufferlib.emulate(Scripted, terminals=[0], truncations=[1])
        env = pufferlib.to_sb3(vecenv)
        env.reset()
        # step 0 ends the episode, step 1 cuts the next one; final observations are 100, 101
        for truncated, final in ((False, 100.0), (True, 101.0)):
            _, _, dones, infos = env.step(np.zeros(1, dtype=np.int64))
            assert dones.tolist() == [True]
            assert infos[0]["TimeLimit.truncated"] is truncated
            assert infos[0]["terminal_observation"].tolist() == [final]

    def test_monitors_masks_and_pictures(self) -> None:
        from stable_baselines3.common.vec_env import VecMonitor

        env = VecMonitor(pufferlib.to_sb3(pufferlib.make("connect4", num_envs=2)))
        env.seed(0)
        env.reset()
        masks = np.stack(env.env_method("action_masks"))
        assert masks.shape == (2, 7)
        assert masks.all()
        assert env.has_attr("action_masks")
        assert not env.has_attr("no_such_thing")
        assert env.render_mode == "rgb_array"
        assert len(env.get_images()) == 2
        for _ in range(30):
            _, _, dones, infos = env.step(np.zeros(2, dtype=np.int64))
            assert all("episode" in info for info, done in zip(infos, dones) if done)
        env.close()

    def test_envs_without_action_masks_do_not_have_the_attribute(self) -> None:
        env = pufferlib.to_sb3(pufferlib.make("cartpole", num_envs=2))
        assert not env.has_attr("action_masks")
        with pytest.raises(AttributeError, match="`cartpole` has no action masks"):
            env.env_method("action_masks")

    def test_infos_and_an_attribute_say_which_agents_are_present(self) -> None:
        env = pufferlib.to_sb3(pufferlib.emulate(Relay, num_envs=2))
        env.reset()
        wanted = [True, False] * 2  # `b` comes in the second step, `a` leaves with it
        assert [info["agent_mask"] for info in env.reset_infos] == wanted
        for present in ([True, False], [False, True], [False, True], [True, False]):
            _, _, _, infos = env.step(np.zeros(4, dtype=np.int64))
            assert [info["agent_mask"] for info in infos] == present * 2
            assert env.get_attr("agent_mask") == env.env_method("agent_mask") == present * 2
        alone = pufferlib.to_sb3(pufferlib.make("cartpole", num_envs=2))
        alone.reset()
        assert "agent_mask" not in alone.step(np.zeros(2, dtype=np.int64))[3][0]

    def test_a_vector_env_that_returns_halves_is_refused_at_once(self) -> None:
        vecenv = pufferlib.make("cartpole", num_envs=2, double_buffer=True)
        with pytest.raises(UsageError, match="in every step, but is double-buffered"):
            pufferlib.to_sb3(vecenv)

    def test_attributes_and_methods_reach_python_envs(self) -> None:
        class Tuned(gymnasium.Env[Any, Any]):
            observation_space = Box(-1, 1, (1,), np.float32)
            action_space = Discrete(2)
            level = 1

            def reset(self, *, seed: Any = None, options: Any = None) -> Any:
                return np.zeros(1, dtype=np.float32), {}

            def step(self, action: Any) -> Any:
                return np.zeros(1, dtype=np.float32), float(self.level), False, False, {}

            def plus(self, number: int) -> int:
                return self.level + number

        env = pufferlib.to_sb3(pufferlib.emulate(Tuned, num_envs=3))
        env.reset()
        env.set_attr("level", 5, indices=[0, 2])
        assert env.get_attr("level") == [5, 1, 5]
        assert env.env_method("plus", 1, indices=2) == [6]
        assert env.step(np.zeros(3, dtype=np.int64))[1].tolist() == [5.0, 1.0, 5.0]
        assert env.env_is_wrapped(gymnasium.Wrapper) == [False] * 3
        native = pufferlib.to_sb3(pufferlib.make("cartpole", num_envs=2))
        assert native.env_is_wrapped(gymnasium.Wrapper) == [False] * 2
        with pytest.raises(UsageError, match=r"Try pufferlib.make\(..., gravity=...\)"):
            native.set_attr("gravity", 1.0)

    def test_a_flat_dict_of_observations_trains(self) -> None:
        from stable_baselines3 import PPO

        class TwoParts(gymnasium.ObservationWrapper[Any, Any, Any]):
            def __init__(self, env: Any) -> None:
                super().__init__(env)
                part = Box(-np.inf, np.inf, (2,), np.float32)
                self.observation_space = gymnasium.spaces.Dict({"cart": part, "pole": part})

            def observation(self, observation: Any) -> Any:
                return {"cart": observation[:2], "pole": observation[2:]}

        made = pufferlib.emulate(lambda: TwoParts(gymnasium.make("CartPole-v1")), num_envs=2)
        env = pufferlib.to_sb3(made)
        model = PPO("MultiInputPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu")
        model.learn(128)
        assert model.num_timesteps == 128


# ---- PettingZoo ----------------------------------------------------------------------------------


class TestPettingZoo:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("pettingzoo")

    @every_multi_agent
    def test_its_own_tests_pass_without_a_warning(self, name: str, params: dict[str, Any]) -> None:
        from pettingzoo.test import parallel_api_test, parallel_seed_test

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parallel_api_test(pufferlib.to_pettingzoo(name, **params))
            parallel_seed_test(lambda: pufferlib.to_pettingzoo(name, **params))

    @every_multi_agent
    def test_agents_get_the_rows_of_the_vector_env_until_they_end(
        self, name: str, params: dict[str, Any]
    ) -> None:
        env = pufferlib.to_pettingzoo(name, **params)
        twin = pufferlib.make(name, num_envs=1, **params)
        slot_of = {id: slot for slot, id in enumerate(env.possible_agents)}
        random = np.random.default_rng(0)
        observations, infos = env.reset(seed=3)
        rows = twin.reset(seed=3)
        assert env.agents == list(observations) == [id for id in slot_of if twin.masks[slot_of[id]]]
        num_ends = 0
        for _ in range(400):
            actions = random_rows(twin, random)
            live = list(env.agents)
            actions[[slot for id, slot in slot_of.items() if id not in live]] = 0
            chosen = {id: int(actions[slot_of[id]]) for id in live}
            observations, rewards, terminated, truncated, infos = env.step(chosen)
            rows, twin_rewards, dones, _ = twin.step(actions)
            for id in live:
                slot = slot_of[id]
                shown = twin.final_observations if dones[slot] else rows
                assert np.array_equal(observations[id], shown[slot])
                assert rewards[id] == twin_rewards[slot]
                assert terminated[id] == twin.terminals[slot]
                assert truncated[id] == twin.truncations[slot]
                assert (id in env.agents) == (not dones[slot])
                if "action_mask" in infos[id]:
                    assert twin.action_masks is not None
                    assert np.array_equal(infos[id]["action_mask"], twin.action_masks[slot])
                num_ends += int(dones[slot])
            if not env.agents:
                assert env.step({}) == ({}, {}, {}, {}, {})
                assert num_ends >= len(slot_of)
                if not all(dones):  # some had restarted already: no new episode of all agents
                    break
                observations, infos = env.reset()  # the episode that the vector env has begun
                for id, slot in slot_of.items():
                    assert np.array_equal(observations[id], rows[slot])
        assert num_ends >= len(slot_of)
        env.close()
        twin.close()

    def test_an_emulated_env_equals_the_original(self) -> None:
        rps = pytest.importorskip("pettingzoo.classic.rps_v2")
        ours = pufferlib.to_pettingzoo(pufferlib.emulate(rps.parallel_env(num_actions=3)))
        theirs = rps.parallel_env(num_actions=3)
        assert ours.possible_agents == theirs.possible_agents == ["player_0", "player_1"]
        assert ours.observation_space("player_0") == theirs.observation_space("player_0")
        random = np.random.default_rng(0)
        for episode in range(2):
            shown, _ = ours.reset(seed=1) if episode == 0 else ours.reset()
            original, _ = theirs.reset(seed=1) if episode == 0 else theirs.reset()
            assert shown == original
            while theirs.agents:
                actions = {id: int(random.integers(3)) for id in theirs.agents}
                result, expected = ours.step(actions), theirs.step(actions)
                assert result[:4] == expected[:4]
                assert ours.agents == theirs.agents
        ours.close()

    def test_agents_are_listed_only_while_they_play(self) -> None:
        env = pufferlib.to_pettingzoo(Relay)
        assert "a" in env.possible_agents  # known before any reset
        for _ in range(2):
            seen = []
            env.reset()
            assert env.agents == ["a"]
            while env.agents:
                observations, *_ = env.step(dict.fromkeys(env.agents, 0))
                seen.append({id: row.item() for id, row in observations.items()})
            assert seen == [{"a": 1}, {"a": 2, "b": 2}, {"b": 3}, {"b": 4}]
        assert env.possible_agents == ["a", "b"]

    def test_unknown_agents_and_missing_actions_raise(self) -> None:
        env = pufferlib.to_pettingzoo("connect4", opponent="self")
        env.reset(seed=0)
        with pytest.raises(UnknownNameError, match=r"Unknown agent `agent_9`. Did you mean"):
            env.step({"agent_0": 0, "agent_1": 0, "agent_9": 0})
        with pytest.raises(UsageError, match="must have one for each agent, but lacks 'agent_1'"):
            env.step({"agent_0": 0})
        with pytest.raises(UsageError, match="`action` must be a value of"):
            env.step({"agent_0": 7, "agent_1": 0})
        with pytest.raises(UsageError, match="VectorEnv of one env, but has 2"):
            pufferlib.to_pettingzoo(pufferlib.make("snake", num_envs=2))
        with pytest.raises(UsageError, match="`width` must be given where the env is made"):
            pufferlib.to_pettingzoo(pufferlib.make("snake", num_envs=1), width=8)

    def test_spaces_of_agents_are_seeded_separately(self) -> None:
        env = pufferlib.to_pettingzoo("snake", num_agents=2)
        first, second = env.possible_agents
        env.action_space(first).seed(0)
        expected = [int(env.action_space(first).sample()) for _ in range(8)]
        env.action_space(first).seed(0)
        env.action_space(second).seed(1)
        assert [int(env.action_space(first).sample()) for _ in range(8)] == expected
        assert list(env.action_spaces) == list(env.observation_spaces) == [first, second]

    def test_an_env_of_one_agent_works(self) -> None:
        env = pufferlib.to_pettingzoo(Echo)
        assert env.possible_agents == ["agent_0"]
        observations, _ = env.reset(seed=0)
        assert observations["agent_0"] in env.observation_space("agent_0")
