"""A Ray cluster for tests: `python ray_cluster.py FOLDER NUM_CPUS RUN`.

Writes its address to FOLDER/address and ends when the process RUN has ended, or at SIGTERM. All
test processes of one run may share it: a cluster takes long to start.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import psutil

ATTEMPTS = 5


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def spare_a_grammar(folder: Path) -> None:
    """Let no process of the cluster import what jsonschema would, which Ray imports.

    It builds a parser, 2 s for each of a dozen processes, for formats that are not checked.
    """
    (folder / "rfc3987_syntax.py").write_text("raise ImportError")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def main(folder: Path, num_cpus: int, run: psutil.Process) -> None:
    from ray.cluster_utils import Cluster

    # a node gives up if it has to wait for long until these are chosen
    names = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")
    head = {
        "num_cpus": num_cpus,
        "include_dashboard": False,
        "include_log_monitor": False,
        "no_monitor": True,
        **dict(zip(names, free_ports(len(names)), strict=True)),
    }
    for attempt in range(ATTEMPTS):
        try:
            cluster = Cluster(initialize_head=True, head_node_args=head)
            break
        except Exception:  # it waits for 15 s for a process of its own, and no longer
            if attempt == ATTEMPTS - 1:
                raise
    part = folder / "address.part"
    part.write_text(cluster.address)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # not earlier: Ray sets one of its own
    part.rename(folder / "address")
    try:
        run.wait()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
    spare_a_grammar(Path(sys.argv[1]))
    main(Path(sys.argv[1]), int(sys.argv[2]), psutil.Process(int(sys.argv[3])))
