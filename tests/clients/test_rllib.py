"""RLlib: PPO on an id, on our own vector, and on envs of several agents."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pufferlib
import pufferlib.ocean

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("tree", reason="ray[rllib] is not installed")
pytest.importorskip("supersuit", reason="SuperSuit is not installed")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "integration.md"
START_SECONDS = 240  # a cluster takes 5 s, but may need several attempts on a busy machine


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cluster of this module, at whose address `ray.init` connects."""
    folder = tmp_path_factory.mktemp("ray")
    rig = Path(__file__).parents[1] / "rigs" / "ray_cluster.py"
    with open(folder / "log", "w") as log:
        command = [sys.executable, rig, folder, "2", str(os.getpid())]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (folder / "address").exists():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_AUTH_MODE", "disabled")
            patch.setenv("RAY_ADDRESS", (folder / "address").read_text())
            import ray

            ray.init(log_to_driver=False, logging_level="error")
            yield
            ray.shutdown()
    finally:
        process.terminate()
        process.wait()


def trained(env: str, agents: bool = False, **env_runners: Any) -> dict[str, Any]:
    """Train PPO for an iteration of 512 steps and return its results."""
    from ray.rllib.algorithms.ppo import PPOConfig

    config = (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, **env_runners)
        .training(train_batch_size=512, minibatch_size=128, num_epochs=1)
    )
    if agents:
        config = config.multi_agent(
            policies={"shared"}, policy_mapping_fn=lambda *_, **__: "shared"
        )
    algorithm = config.build_algo()
    try:
        return algorithm.train()
    finally:
        algorithm.stop()


def test_ppo_trains_on_an_id() -> None:
    results = trained("pufferlib.ocean:ocean/Cartpole-v0")["env_runners"]

    assert results["num_env_steps_sampled"] >= 512
    assert 10 < results["episode_return_mean"] < 60  # a random policy stands for about 20 steps


def test_ppo_trains_on_our_own_vector() -> None:
    options = {"num_envs_per_env_runner": 4, "gym_env_vectorize_mode": "vector_entry_point"}
    results = trained("pufferlib.ocean:ocean/Cartpole-v0", **options)["env_runners"]

    assert results["num_env_steps_sampled"] >= 512
    assert 10 < results["episode_return_mean"] < 60


def test_ppo_trains_on_bytes_as_floats() -> None:
    import gymnasium
    from ray.tune.registry import register_env

    def make(_: Any) -> Any:
        env = gymnasium.wrappers.FlattenObservation(gymnasium.make("ocean/Squared-v0"))
        return gymnasium.wrappers.DtypeObservation(env, np.float32)

    register_env("squared", make)

    assert np.isfinite(trained("squared")["env_runners"]["episode_return_mean"])


@pytest.mark.parametrize("name", ["soccer", "battle"])
def test_ppo_trains_the_agents_of_one_env(name: str) -> None:
    """Battle shows bytes, and is made as the guide says."""
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
    from ray.tune.registry import register_env

    if name == "battle":
        blocks = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        exec(next(block for block in blocks if "supersuit" in block), {})
    else:
        register_env(name, lambda _: ParallelPettingZooEnv(pufferlib.to_pettingzoo(name)))
    results = trained(name, agents=True)
    losses = results["learners"]["shared"]

    assert results["env_runners"]["num_env_steps_sampled"] >= 512
    assert np.isfinite(float(losses["total_loss"]))
