"""`procgen-`: the 16 games, through EnvPool or procgen2."""

from __future__ import annotations

import numpy as np
import pytest

import pufferlib
from pufferlib.errors import UnknownNameError, UsageError
from pufferlib.integrations import procgen
from pufferlib.integrations.packages import is_installed
from pufferlib.networks.impala import Impala
from pufferlib.vectorization.batched import Batched, SimulatorCreator, Sizes

if not pufferlib.list_envs("procgen"):
    pytest.skip("pip install 'pufferlib[procgen]'", allow_module_level=True)


def test_the_games_are_listed() -> None:
    assert len(pufferlib.list_envs("procgen")) == 16
    with pytest.raises(UnknownNameError, match="Did you mean `procgen-coinrun`"):
        pufferlib.make("procgen-coinrum")


def test_one_level_is_the_same_for_all_envs() -> None:
    with pufferlib.make("procgen-coinrun", num_envs=3, seed=0, num_levels=1) as vecenv:
        observations = vecenv.reset()
        assert (observations.shape, observations.dtype) == ((3, 64, 64, 3), np.uint8)
        assert (observations == observations[0]).all()
    with pufferlib.make("procgen-coinrun", num_envs=3, seed=0) as vecenv:
        assert not (vecenv.reset() == vecenv.observations[0]).all()


def test_the_step_of_a_reset_carries_no_data() -> None:
    ends, was_present = 0, np.ones(8, dtype=np.bool_)
    with pufferlib.make("procgen-bigfish", num_envs=8, seed=0) as vecenv:
        assert isinstance(vecenv, Batched)
        if isinstance(vecenv._simulator, procgen.Gym3Simulator):
            pytest.skip("EnvPool or Qt 5 is missing; procgen2 resets in the same step")
        vecenv.reset()
        rng = np.random.default_rng(0)
        for _ in range(300):
            _, rewards, dones, _ = vecenv.step(rng.integers(15, size=8, dtype=np.int32))
            assert (vecenv.masks == ~dones).all()
            assert (rewards[~was_present] == 0).all()
            assert not dones[~was_present].any()
            was_present, ends = vecenv.masks.copy(), ends + int(dones.sum())
        assert vecenv.drain_metrics()["episodes"] == ends > 0


def test_a_distribution_that_a_game_lacks_is_one_line() -> None:
    with pytest.raises(UsageError, match="must be one of easy, hard, memory, but got 'extreme'"):
        pufferlib.make("procgen-miner", num_envs=1, distribution_mode="extreme")


def test_the_family_trains_with_impalas_network() -> None:
    vec, policy = pufferlib.config.family_vec("procgen-coinrun"), None
    assert vec["num_envs"] == 64
    with pufferlib.make("procgen-coinrun", num_envs=2, seed=0) as vecenv:
        trainer = pufferlib.PuffeRL(vecenv, device="cpu", batch_size=16, minibatch_size=16)
        policy = trainer.policy
        trainer.evaluate()
        assert np.isfinite(trainer.train()["policy_loss"])
        trainer.close()
    assert isinstance(policy, Impala)


@pytest.mark.skipif(not is_installed("procgen"), reason="pip install procgen2")
def test_procgen2_gives_whole_episodes_too() -> None:
    def make(sizes: Sizes) -> procgen.Gym3Simulator:
        params = {"distribution_mode": "easy", "num_levels": 1, "start_level": 0}
        return procgen.Gym3Simulator("bigfish", sizes, params)

    with Batched(SimulatorCreator(make), 8) as vecenv:
        first = vecenv.reset(seed=0).copy()
        assert (vecenv.reset(seed=0) == first).all()
        rng = np.random.default_rng(0)
        ends = 0
        for _ in range(300):
            _, _, dones, infos = vecenv.step(rng.integers(15, size=8, dtype=np.int32))
            ends += int(dones.sum())
            assert not vecenv.truncations.any()  # it does not know the reason
            assert {info["level_seed"] for info in infos} == {0}
        assert ends > 0
        assert vecenv.drain_metrics()["episodes"] == ends
