"""Step an emulated env and its original side by side; every number must be the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pufferlib
from pufferlib.spaces import (
    ObservationLayout,
    action_layout,
    flatten_action,
    flatten_observation,
    observation_layout,
)


def row_of(layout: ObservationLayout, observation: Any) -> bytes:
    """Return the bytes of an observation's row by the slow way; padding is zero."""
    row = np.zeros(layout.shape, layout.dtype)
    flatten_observation(layout, observation, row)
    return row.tobytes()


def assert_gymnasium_parity(creator: Callable[[], Any], steps: int, seed: int = 7) -> int:
    """Compare observations, rewards, flags, final observations and infos; return the episodes."""
    original = creator()
    with pufferlib.emulate(creator) as vecenv:
        layout, actions = (
            observation_layout(vecenv.observation_space),
            action_layout(vecenv.action_space),
        )
        original.action_space.seed(seed)
        vecenv.reset(seed=seed)
        observation, _ = original.reset(seed=seed)
        assert vecenv.observations[0].tobytes() == row_of(layout, observation)
        row = np.zeros((1, *actions.shape), actions.dtype)
        episodes = 0
        for _ in range(steps):
            action = original.action_space.sample()
            flatten_action(actions, action, row[0, ...])
            *_, infos = vecenv.step(row)
            observation, reward, terminated, truncated, info = original.step(action)
            assert vecenv.rewards[0] == np.float32(reward)
            assert vecenv.terminals[0] == terminated
            assert vecenv.truncations[0] == (truncated and not terminated)
            assert info.keys() <= infos[0].keys()
            if terminated or truncated:
                episodes += 1
                assert vecenv.final_observations[0].tobytes() == row_of(layout, observation)
                assert "episode" in infos[0]
                observation, _ = original.reset()
            assert vecenv.observations[0].tobytes() == row_of(layout, observation)
    original.close()
    return episodes


def assert_parallel_parity(creator: Callable[[], Any], steps: int, seed: int = 7) -> int:
    """Compare a PettingZoo parallel env, agent by agent; return the episodes."""
    original = creator()
    with pufferlib.emulate(creator) as vecenv:
        layout = observation_layout(vecenv.observation_space)
        agents = list(original.possible_agents)
        for agent in agents:
            original.action_space(agent).seed(seed)
        answer = vecenv.reset(seed=seed)
        observations, _ = original.reset(seed=seed)
        episodes = 0
        for _ in range(steps):
            for slot, agent in enumerate(agents):
                assert vecenv.masks[slot] == (agent in observations)
                if agent in observations:
                    assert answer[agent][0].tobytes() == row_of(layout, observations[agent])
            actions = {agent: original.action_space(agent).sample() for agent in agents}
            rows = {agent: np.asarray(action)[np.newaxis] for agent, action in actions.items()}
            answer, rewards, dones, _ = vecenv.step(rows)
            live = list(original.agents)
            observations, given, terminated, truncated, _ = original.step(
                {agent: actions[agent] for agent in live}
            )
            for slot, agent in enumerate(agents):
                ended = agent in live and (terminated[agent] or truncated[agent])
                assert rewards[agent][0] == np.float32(given.get(agent, 0) if agent in live else 0)
                assert dones[agent][0] == ended
                if ended:
                    final = vecenv.final_observations[slot].tobytes()
                    assert final == row_of(layout, observations[agent])
            observations = {agent: observations[agent] for agent in original.agents}
            if not original.agents:
                episodes += 1
                observations, _ = original.reset()
    original.close()
    return episodes


def assert_turn_parity(creator: Callable[[], Any], steps: int, seed: int = 7) -> int:
    """Compare an AEC env, turn by turn, legal moves only; return the episodes."""
    original = creator()
    rng = np.random.default_rng(seed)
    with pufferlib.emulate(creator) as vecenv:
        layout = observation_layout(vecenv.observation_space)
        agents = list(original.possible_agents)
        vecenv.reset(seed=seed)
        original.reset(seed=seed)
        episodes = 0
        for _ in range(steps):
            mover = agents.index(original.agent_selection)
            for slot, agent in enumerate(agents):
                expected = row_of(layout, original.observe(agent))
                assert vecenv.observations[slot].tobytes() == expected
            legal = original.observe(agents[mover])["action_mask"]
            assert vecenv.action_masks is not None
            assert vecenv.action_masks[mover].tolist() == legal.astype(bool).tolist()
            assert (np.delete(vecenv.action_masks, mover, 0).sum(1) == 1).all()
            action = int(rng.choice(np.flatnonzero(legal)))
            vecenv.step(np.where(np.arange(len(agents)) == mover, action, 0))
            original.step(action)
            for slot, agent in enumerate(agents):
                assert vecenv.rewards[slot] == np.float32(original.rewards[agent])
                assert vecenv.terminals[slot] == original.terminations[agent]
                assert vecenv.truncations[slot] == original.truncations[agent]
            if all(original.terminations[agent] for agent in original.agents):
                episodes += 1
                for slot, agent in enumerate(agents):
                    final = vecenv.final_observations[slot].tobytes()
                    assert final == row_of(layout, original.observe(agent))
                original.reset()
    return episodes
