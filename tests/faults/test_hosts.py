"""R23: ranks on two hosts, in network namespaces: separate files, a link that is cut, restarts."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from faulty import is_within
from hosts import ADDRESSES, Hosts, two_hosts, why_no_hosts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts() or "there are hosts"),
]
LONG = 300.0  # seconds, on a busy machine
ENDLESS = "--train.num-iterations=1000000"
SIZES = ["--vec.num-envs=8", "--vec.num-workers=1", "--train.batch-size=1024"]
SIZES += ["--train.minibatch-size=none", "--train.num-steps=none", "--train.checkpoint-interval=5"]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with two_hosts(tmp_path) as made:
        yield made


def train(
    hosts: Hosts, *words: str, ranks: int = 1, restarts: int = 0
) -> list[subprocess.Popen[str]]:
    run = ["-m", "pufferlib", "train", "cartpole", f"--train.run-dir={hosts.shared}"]
    both = (0, 1)
    return [
        hosts.torchrun(host, *run, *SIZES, *words, ranks=ranks, restarts=restarts) for host in both
    ]


def outputs(processes: list[subprocess.Popen[str]]) -> list[str]:
    return [process.communicate(timeout=LONG)[0] for process in processes]


def trainers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "cartpole" in child.cmdline()]


def iterations(hosts: Hosts) -> list[int]:
    logs = list(hosts.own[0].glob("*/metrics.jsonl"))
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [int(json.loads(line)["iteration"]) for line in lines]


def wait_for(hosts: Hosts, iteration: int, processes: list[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + LONG
    while iteration not in iterations(hosts):
        ended = [process for process in processes if process.poll() is not None]
        assert not ended, outputs(ended)
        assert time.monotonic() < deadline, "no iteration in time"
        time.sleep(0.05)


def wait_for_end(processes: list[psutil.Process]) -> None:
    deadline = time.monotonic() + LONG
    for process in processes:
        # a torchrun that hangs does not reap them
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "a rank has not ended"
            time.sleep(0.05)


@pytest.mark.parametrize("ranks", [1, 2])
def test_hosts_train_and_resume_with_folders_of_their_own(hosts: Hosts, ranks: int) -> None:
    processes = train(hosts, "--train.num-iterations=6", ranks=ranks)
    said = outputs(processes)
    assert [process.returncode for process in processes] == [0, 0], said
    (folder,) = hosts.own[0].iterdir()
    assert {"latest.safetensors", "config.json"} <= {path.name for path in folder.iterdir()}
    assert list(hosts.own[1].iterdir()) == []

    run = str(hosts.shared / folder.name)
    words = ["-m", "pufferlib", "resume", run, "--train.num-iterations=9"]
    processes = [hosts.torchrun(host, *words, ranks=ranks) for host in (0, 1)]
    said = outputs(processes)
    assert [process.returncode for process in processes] == [0, 0], said
    assert iterations(hosts) == list(range(1, 10))
    assert list(hosts.own[1].iterdir()) == []


def test_a_run_that_cannot_be_resumed_is_one_line_on_both_hosts(hosts: Hosts) -> None:
    words = ["-m", "pufferlib", "resume", str(hosts.shared)]
    for said in outputs([hosts.torchrun(host, *words) for host in (0, 1)]):
        assert said.count("must be the folder of a run, but") == 1


def test_a_cut_link_ends_all_ranks_and_names_those_behind_it(hosts: Hosts) -> None:
    processes = train(hosts, ENDLESS, "--train.timeout=5")
    wait_for(hosts, 7, processes)
    ranks = [rank for process in processes for rank in trainers(process)]
    assert len(ranks) == 2
    hosts.set_link("down")
    cut = time.monotonic()
    wait_for_end(ranks)
    assert is_within(time.monotonic() - cut, 30)
    assert processes[0].wait(LONG) != 0
    processes[1].kill()  # torchrun itself waits for its store on host 0
    said = outputs(processes)
    for host in range(2):
        other = f"rank {1 - host} (pid {ranks[1 - host].pid} on host{1 - host}, "
        line = f"no answer within 5 s (`--train.timeout`) from {other}{ADDRESSES[1 - host]})"
        assert said[host].count(line) == 1, said[host]
    (folder,) = hosts.own[0].iterdir()
    assert (folder / "latest.safetensors").stat().st_size


@pytest.mark.parametrize("host", [0, 1])
def test_a_rank_that_is_killed_is_named_on_both_hosts(hosts: Hosts, host: int) -> None:
    processes = train(hosts, ENDLESS, ranks=2)
    wait_for(hosts, 7, processes)
    victim, others = trainers(processes[host])[1], trainers(processes[1 - host])
    victim.kill()
    killed = time.monotonic()
    wait_for_end(others)
    assert is_within(time.monotonic() - killed, 30)
    for process, said in zip(processes, outputs(processes), strict=True):
        assert process.returncode not in (0, None)
        assert f"(pid {victim.pid} on host{host}, {ADDRESSES[host]}) has died" in said


def test_a_run_survives_kills_in_its_folder(hosts: Hosts) -> None:
    # torchrun itself may use up two restarts for one kill
    processes = train(hosts, "--train.num-iterations=60", restarts=8)
    for iteration in (7, 27):
        wait_for(hosts, iteration, processes)
        trainers(processes[1])[0].kill()
    said = outputs(processes)
    assert [process.returncode for process in processes] == [0, 0], said
    assert len(list(hosts.own[0].iterdir())) == 1
    done = iterations(hosts)
    assert done[-1] == 60
    assert done.count(1) == 1  # it continued from its checkpoint
