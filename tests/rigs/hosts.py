"""Two hosts on one machine: network namespaces with a link between, and with files of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 29577
_SETUP = (
    'mount --make-rprivate / && mount --bind "$1" "$2" && hostname "$3" && shift 3 && exec "$@"'
)


class Hosts(NamedTuple):
    """The names of two namespaces; `shared` is the path where each has a folder of its own."""

    names: list[str]
    own: list[Path]
    shared: Path

    def start(self, host: int, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command on a host, in a session of its own."""
        inside = ["ip", "netns", "exec", self.names[host], "unshare", "--mount", "--uts"]
        inside += ["sh", "-c", _SETUP, "sh", str(self.own[host]), str(self.shared), f"host{host}"]
        return subprocess.Popen(
            [*inside, *command],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def torchrun(
        self, host: int, *words: str, ranks: int = 1, restarts: int = 0
    ) -> subprocess.Popen[str]:
        """Start torchrun on a host, as on each of two machines."""
        rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint={ADDRESSES[0]}:{PORT}"]
        rendezvous += [f"--rdzv-conf=is_host={int(host == 0)}", f"--local-addr={ADDRESSES[host]}"]
        sizes = ["--nnodes=2", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
        command = [sys.executable, "-m", "torch.distributed.run", *sizes, *rendezvous, *words]
        return self.start(host, *command)

    def set_link(self, state: str) -> None:
        """Set the link between the hosts `up` or `down`."""
        _ip("-n", self.names[0], "link", "set", "link0", state)


@contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    """Make two hosts; remove them in the end, with the processes that run there."""
    names = [f"puffer-{os.getpid()}-{host}" for host in range(2)]
    own, shared = [folder / name for name in ("own0", "own1")], folder / "shared"
    for path in (*own, shared):
        path.mkdir()
    try:
        for name in names:
            _ip("netns", "add", name)
        ends = [["link0", "netns", names[0]], ["link1", "netns", names[1]]]
        _ip("link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
        for host, name in enumerate(names):
            _ip("-n", name, "address", "add", f"{ADDRESSES[host]}/24", "dev", f"link{host}")
            for link in ("lo", f"link{host}"):
                _ip("-n", name, "link", "set", link, "up")
        yield Hosts(names, own, shared)
    finally:
        for name in names:
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for pid in listed.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@cache
def why_no_hosts() -> str:
    """Return why namespaces cannot be made here, "" if they can."""
    if shutil.which("ip") is None:
        return "needs `ip`, of the package iproute2"
    name = f"puffer-{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
        command = ["ip", "netns", "exec", name, "unshare", "--mount", "--uts"]
        command += ["sh", "-c", "mount --make-rprivate / && hostname try"]
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted here: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return ""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
