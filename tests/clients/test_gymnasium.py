"""Gymnasium's wrappers over our vectors give what they give over Gymnasium's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import vector as wrappers

import pufferlib
import pufferlib.ocean

Wrap = Callable[[VectorEnv], VectorEnv]


def transformed(envs: VectorEnv) -> VectorEnv:
    return wrappers.TransformObservation(
        envs, lambda rows: 2 * rows, single_observation_space=envs.single_observation_space
    )


def each_transformed(envs: VectorEnv) -> VectorEnv:
    return wrappers.VectorizeTransformObservation(
        envs,
        gymnasium.wrappers.TransformObservation,
        func=lambda row: 3 * row,
        observation_space=envs.single_observation_space,
    )


def rescaled(envs: VectorEnv) -> VectorEnv:
    return wrappers.RescaleObservation(envs, np.float32(0), np.float32(1))


OBSERVATIONS: dict[str, Wrap] = {
    "normalize": wrappers.NormalizeObservation,
    "transform": transformed,
    "vectorize": each_transformed,
    "flatten": wrappers.FlattenObservation,
    "rescale": rescaled,
    "dtype": lambda envs: wrappers.DtypeObservation(envs, np.float64),
    "reshape": lambda envs: wrappers.ReshapeObservation(
        envs, (int(np.prod(envs.single_observation_space.shape)), 1)
    ),
}
REWARDS: dict[str, Wrap] = {
    "statistics": wrappers.RecordEpisodeStatistics,
    "normalize reward": wrappers.NormalizeReward,
    "clip reward": lambda envs: wrappers.ClipReward(envs, -0.5, 0.5),
    "infos as list": wrappers.DictInfoToList,
}


def play_both(ours: VectorEnv, theirs: VectorEnv) -> int:
    """Play the same actions in both, compare all they return, and count the ends."""
    seeds = [3, 1, 4]
    assert np.array_equal(ours.reset(seed=seeds)[0], theirs.reset(seed=seeds)[0])
    theirs.action_space.seed(0)
    num_ends = 0
    for _ in range(200):
        actions = theirs.action_space.sample()
        result, wanted = ours.step(actions), theirs.step(actions)
        for part, expected in zip(result[:4], wanted[:4], strict=True):
            assert np.allclose(part, expected, rtol=1e-5, atol=1e-6)
        num_ends += int((wanted[2] | wanted[3]).sum())
    ours.close()
    theirs.close()
    return num_ends


@pytest.mark.parametrize(
    "wrap", [*OBSERVATIONS.values(), *REWARDS.values()], ids=[*OBSERVATIONS, *REWARDS]
)
def test_a_wrapper_gives_what_it_gives_over_gymnasiums_own_vector(wrap: Wrap) -> None:
    id, params = "ocean/Squared-v0", {"max_steps": 20}
    ours = gymnasium.make_vec(id, num_envs=3, autoreset_mode="next_step", **params)
    theirs = gymnasium.make_vec(id, num_envs=3, vectorization_mode="sync", **params)

    assert play_both(wrap(ours), wrap(theirs)) > 20


class TwoParts(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Cartpole with a Dict of observations."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        part = Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"cart": part, "pole": part})

    def observation(self, observation: Any) -> Any:
        return {"cart": observation[:2], "pole": observation[2:]}


def test_parts_of_a_dict_are_filtered_and_flattened_alike() -> None:
    def wrap(envs: VectorEnv) -> VectorEnv:
        return wrappers.FlattenObservation(wrappers.FilterObservation(envs, ["pole"]))

    vecenv = pufferlib.emulate(TwoParts, num_envs=3, backend="serial")
    ours = pufferlib.to_gymnasium(vecenv, autoreset_mode="next_step")
    theirs = gymnasium.vector.SyncVectorEnv([TwoParts] * 3)

    assert play_both(wrap(ours), wrap(theirs)) > 10
