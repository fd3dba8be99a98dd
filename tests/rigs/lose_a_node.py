"""A Ray cluster of two nodes loses one: `python lose_a_node.py NUM_CPUS`, or `default`.

Prints, as JSON, what a vector env with four workers says and does then.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from ray_cluster import free_ports, spare_a_grammar


class Counter(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(0, 1e9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.ticks = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.ticks += 1
        return np.full(1, self.ticks, np.float32), 0.0, False, False, {}


def main(num_cpus: str) -> dict[str, Any]:
    from ray.cluster_utils import Cluster

    from pufferlib.vectorization import Ray

    quiet: dict[str, Any] = {"include_log_monitor": False, "include_dashboard": False}
    names = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")

    def ports() -> dict[str, int]:
        return dict(zip(names, free_ports(len(names)), strict=True))

    head = {"num_cpus": 2, "no_monitor": True, **quiet, **ports()}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    other = cluster.add_node(num_cpus=2, include_log_monitor=False, **ports())
    cluster.wait_for_nodes()
    options = {} if num_cpus == "default" else {"num_cpus": float(num_cpus)}
    said: dict[str, Any] = {"error": ""}
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            Ray(Counter, 4, 4, address=cluster.address, worker_options=options, restart=4) as envs,
        ):
            warnings.simplefilter("always")
            envs.reset(seed=0)
            actions = np.zeros(4, np.int64)
            envs.step(actions)
            cluster.remove_node(other, allow_graceful=False)
            said["steps"] = 1
            seconds = []  # of each step; workers live for a while after their machine is gone
            try:
                while sum(envs.observations[:, 0] < said["steps"]) < 2 and sum(seconds) < 240:
                    seconds.append(-time.monotonic())
                    envs.step(actions)
                    seconds[-1] += time.monotonic()
                    said["steps"] += 1
            except Exception as error:
                seconds[-1] += time.monotonic()
                said["error"] = f"{type(error).__name__}: {error}"
            said["observations"] = envs.observations[:, 0].tolist()
            said["seconds"] = max(seconds)
        said["warnings"] = [str(each.message) for each in caught]
    finally:
        cluster.shutdown()
    return said


if __name__ == "__main__":
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
    with tempfile.TemporaryDirectory() as folder:
        spare_a_grammar(Path(folder))
        result = main(sys.argv[1])
    sys.stdout.write(json.dumps(result))
