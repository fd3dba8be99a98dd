"""Ray: envs in actors of a cluster, which runs on this machine for the tests."""

from __future__ import annotations

import fcntl
import functools
import gc
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from waiting import PATIENCE, is_within, wait_until

import pufferlib
from pufferlib.errors import EnvError, MissingExtraError, UsageError, WorkerError
from pufferlib.native import NativeCreator
from pufferlib.vectorization import Ray, Serial, VectorEnv
from pufferlib.vectorization.failures import Failure
from pufferlib.vectorization.ray import Actor

pytestmark = pytest.mark.slow  # a cluster takes long to start

if TYPE_CHECKING:
    import ray

NUM_CPUS = 2


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the cluster of this test run; the first to ask starts it, if need be."""
    global ray
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rfc3987_syntax", None)  # see ray_cluster.py
        ray = pytest.importorskip("ray")  # here, since it takes long
    if "RAY_ADDRESS" in os.environ:
        return os.environ["RAY_ADDRESS"]
    folder, run = tmp_path_factory.getbasetemp(), os.getpid()
    if "PYTEST_XDIST_WORKER" in os.environ:  # what all test processes have in common
        folder, run = folder.parent, os.getppid()
    folder /= "ray"
    folder.mkdir(exist_ok=True)
    started: subprocess.Popen[bytes] | None = None
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "log").exists():
            with open(folder / "log", "w") as log:
                started = subprocess.Popen(
                    [
                        sys.executable,
                        Path(__file__).parents[1] / "rigs" / "ray_cluster.py",
                        folder,
                        str(NUM_CPUS),
                        str(run),  # another test process may need it when this one is done
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
    try:
        wait_until((folder / "address").exists, started)
    except AssertionError:
        pytest.fail((folder / "log").read_text())
    return (folder / "address").read_text()


@pytest.fixture(scope="module")
def _module_connection(address: str) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_AUTH_MODE", "disabled")
    patch.setenv("RAY_ADDRESS", address)
    yield
    ray.shutdown()
    patch.undo()


@pytest.fixture
def connected(_module_connection: None) -> None:
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="error")


@pytest.fixture
def disconnected(_module_connection: None) -> None:
    ray.shutdown()


# ---- The numbers of Serial -----------------------------------------------------------------------


def rows(vecenv: VectorEnv) -> dict[str, Any]:
    names = ["observations", "rewards", "terminals", "truncations", "masks"]
    names += [] if vecenv.action_masks is None else ["action_masks"]
    reported = {name: getattr(vecenv, name).tobytes() for name in names}
    reported["final"] = vecenv.final_observations[vecenv.truncations].tobytes()
    return reported


def play(vecenv: VectorEnv, steps: int, seed: int = 0) -> list[Any]:
    rng, story = np.random.default_rng(seed), []
    for _ in range(steps):
        *_, infos = vecenv.step(rng.integers(0, vecenv.action_space.n, vecenv.num_agents))
        episodes = [(i["episode"]["r"], i["episode"]["l"]) if i else None for i in infos]
        story.append((rows(vecenv), episodes))
    return story


def test_python_envs_play_the_game_of_serial(connected: None) -> None:
    limit = 12  # held by the closure

    def create() -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1", max_episode_steps=limit)

    serial = Serial(create, 5)
    with serial, Ray(create, 5, 3) as vecenv:  # more workers than CPUs
        assert (vecenv.num_envs, vecenv.num_workers, vecenv.envs_per_worker) == (5, 3, 2)
        for seed in (7, 8):
            assert (vecenv.reset(seed=seed) == serial.reset(seed=seed)).all()
            stories = [play(each, 30) for each in (serial, vecenv)]
            assert stories[0] == stories[1]
        expected, metrics = serial.drain_metrics(), vecenv.drain_metrics()
        assert metrics == pytest.approx(expected)
        assert metrics["episodes"] >= 10  # 5 envs, 30 steps, 12 at most for each
        assert vecenv.drain_metrics() == {"episodes": 0.0}
        assert vecenv.snapshot() is None
        first = vecenv.reset().copy()
        assert (first != vecenv.reset()).any()  # seeds of its own


def test_c_envs_play_the_game_of_serial_and_can_go_back(connected: None) -> None:
    create = functools.partial(NativeCreator("connect4"))
    serial = Serial(create, 3)
    with serial, Ray(create, 3, 2) as vecenv:
        assert vecenv.action_masks is not None
        for each in (serial, vecenv):
            each.reset(seed=1)
        assert play(serial, 25) == play(vecenv, 25)
        assert serial.drain_metrics() == pytest.approx(vecenv.drain_metrics())

        state = vecenv.snapshot()
        assert state is not None
        assert (state == serial.snapshot()).all()
        serial.restore(state)
        expected = play(serial, 20, seed=3)
        assert play(vecenv, 20, seed=3) == expected
        vecenv.restore(state)
        assert not vecenv.recv().rewards.any()
        assert play(vecenv, 20, seed=3) == expected

        before = vecenv.observations.copy()
        vecenv.restore(state[2], env=2)  # the second worker's
        assert (vecenv.observations[:2] == before[:2]).all()
        serial.restore(state)
        assert (vecenv.observations[2] == serial.observations[2]).all()
        assert (vecenv.render(2) == serial.render(2)).all()
        with pytest.raises(UsageError, match=r"`env` must be in 0..2, but got 3"):
            vecenv.render(3)
        with pytest.raises(UsageError, match="`state` must be 3 rows"):
            vecenv.restore(state[:2])


# ---- What envs can do wrong ----------------------------------------------------------------------

FINE, RAISE, HOLD_A_LOCK, EXIT, HANG = range(5)


class Fickle(pufferlib.PufferEnv):
    """Two agents by name. Does what the action of the first says."""

    num_agents = 2

    def __init__(self) -> None:
        self.single_observation_space = pufferlib.PufferEnv.make_space((2,))
        self.single_action_space = pufferlib.PufferEnv.make_discrete(5)
        super().__init__()

    def reset(self, seed: int | None = None) -> Any:
        self.ticks = 0
        return self.look()

    def look(self) -> dict[str, Any]:
        return {name: np.array([self.ticks, os.getpid()], np.float32) for name in ("a", "b")}

    def step(self, actions: dict[str, int]) -> Any:
        self.ticks += 1
        infos: dict[str, Any] = {"a": {"ticks": self.ticks}, "b": {}}
        if actions["a"] == RAISE:
            raise ValueError("out of luck")
        if actions["a"] == HOLD_A_LOCK:
            infos["a"]["lock"] = threading.Lock()
        if actions["a"] == EXIT:
            os.kill(os.getpid(), signal.SIGKILL)
        if actions["a"] == HANG:
            time.sleep(3600)
        rewards = {name: float(action) for name, action in actions.items()}
        return self.look(), rewards, {"a": False, "b": False, "__all__": False}, infos


def test_what_goes_wrong_is_named(connected: None) -> None:
    with Ray(Fickle, 4, 2) as vecenv:
        observations = vecenv.reset(seed=0)
        assert list(observations) == ["a", "b"]
        pids = observations["a"][:, 1]
        assert pids[0] == pids[1] != pids[2] == pids[3]
        assert np.float32(os.getpid()) not in pids
        observations, rewards, dones, infos = vecenv.step({"a": [0, 0, 0, 0], "b": [1, 2, 3, 4]})
        assert rewards["b"].tolist() == [1, 2, 3, 4]
        assert not dones["a"].any()
        assert list(infos) == [{"ticks": 1}, {}] * 4

        def act(env: int, action: int) -> None:
            rows = np.zeros((4, 2), np.int32)
            rows[env, 0] = action
            vecenv.step(rows.ravel())

        with pytest.raises(EnvError, match=r"Fickle \(env 3\), `step`: raised ValueError: out of"):
            act(3, RAISE)
        with pytest.raises(UsageError, match="`reset` must be called before `step`"):
            act(3, FINE)
        assert vecenv.reset(seed=0)["a"][:, 0].tolist() == [0, 0, 0, 0]
        with pytest.raises(EnvError, match=r"\(env 1, agent a\), `step`: .*cannot pickle"):
            act(1, HOLD_A_LOCK)
        vecenv.reset(seed=0)
        act(0, FINE)
        started = time.monotonic()
        with pytest.raises(WorkerError) as caught:
            act(2, EXIT)
        assert is_within(time.monotonic() - started, 20)
        said = str(caught.value)
        assert said.startswith("worker 1 (envs 2 to 3) died during `step`: its worker process has")
        assert "\n" not in said
        assert (caught.value.worker, caught.value.envs) == (1, range(2, 4))
        with pytest.raises(UsageError, match="`step` must not be called on a closed Ray"):
            act(0, FINE)
        vecenv.close()


# a busy machine may not have seen yet that the CPU of the lost one is free
@pytest.mark.filterwarnings("ignore:.*shares the CPUs of other workers:UserWarning")
def test_a_lost_actor_is_replaced_and_its_envs_are_truncated(connected: None) -> None:
    with Ray(Fickle, 4, 2, restart=1) as vecenv:
        vecenv.reset(seed=0)
        actions = np.zeros(8, np.int32)
        vecenv.step(actions)
        actions[4] = EXIT  # of env 2, which worker 1 has
        with pytest.warns(UserWarning, match=r"worker 1 \(envs 2 to 3\) died.*0 restarts left"):
            observations, _, _, infos = vecenv.step(actions)
        assert vecenv.truncations.tolist() == [False] * 4 + [True] * 4
        assert observations["a"][:, 0].tolist() == [2, 2, 0, 0]
        assert vecenv.final_observations[4:, 0].tolist() == [1] * 4
        assert list(infos)[4:] == [{}] * 4
        assert vecenv.step(np.zeros(8, np.int32))[0]["b"][:, 0].tolist() == [3, 3, 1, 1]
        assert vecenv.drain_metrics()["restarts"] == 1
        with pytest.raises(WorkerError, match=r"worker 1 \(envs 2 to 3\) died"):
            vecenv.step(actions)


@pytest.mark.parametrize("num_cpus", ["default", "1"])
def test_a_lost_node_is_replaced_by_what_is_left_or_named_at_once(num_cpus: str) -> None:
    pytest.importorskip("ray")
    script = Path(__file__).parents[1] / "rigs" / "lose_a_node.py"
    done = subprocess.run(
        [sys.executable, script, num_cpus],
        capture_output=True,
        text=True,
        timeout=600,
        env={key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"},
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert is_within(said["seconds"], 60)  # `timeout` is 120 s for each of four restarts
    if num_cpus == "1":
        assert re.fullmatch(
            r"WorkerError: worker \d \(env \d\) cannot be replaced: the cluster has [24] CPUs, "
            r"0 of them free; a worker needs 1\. Try more machines, .*",
            said["error"],
        )
    else:
        assert said["error"] == ""
        # two of four have begun again, at the step at which they were missed
        begun_again = [seen < said["steps"] for seen in said["observations"]]
        assert sorted(begun_again) == [False, False, True, True]
        assert sum("shares the CPUs of other workers" in line for line in said["warnings"]) == 2


def test_a_module_that_only_the_driver_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "only_the_driver.py").write_text("class Env: pass\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        data = cloudpickle.dumps(importlib.import_module("only_the_driver").Env)
        del sys.modules["only_the_driver"]
    failure = Actor(data, 0, 1, []).call("create")
    assert isinstance(failure, Failure)
    assert failure.message == (
        "`env_creator` must be importable in a worker, but ModuleNotFoundError: No module named "
        f"'only_the_driver' on the machine {socket.gethostname()}. Try "
        '`ray.init(runtime_env={"working_dir": "."})` before, or '
        "`cloudpickle.register_pickle_by_value` of the module."
    )


def test_nothing_waits_for_the_slowest_unless_it_hangs(connected: None) -> None:
    vecenv = Ray(Fickle, 2, 2, mode="async", surplus_envs=1, timeout=30)
    assert (vecenv.num_envs, vecenv.surplus_envs, vecenv.num_agents) == (2, 1, 6)
    assert vecenv.batch_slots == 4
    first = vecenv.reset(seed=0)
    assert [first[id].shape for id in ("a", "b")] == [(2, 2), (2, 2)]
    assert (np.arange(6)[vecenv.recv().slots] == np.arange(6)[vecenv.slots]).all()
    held, other = np.arange(6)[vecenv.slots][::2].tolist()  # the first slots of two envs
    observations, _, dones, _ = vecenv.step(np.array([HANG, 0, 0, 7 % 5]))
    last = 0 + 2 + 4 - held - other
    order = sorted([other, last])
    counts = [int(each == other) for each in order]
    assert np.arange(6)[vecenv.slots][::2].tolist() == order
    assert observations["a"][:, 0].tolist() == observations["b"][:, 0].tolist() == counts
    assert [len(dones[id]) for id in ("a", "b")] == [2, 2]
    vecenv.send(np.zeros(4, np.int32))
    for turn in range(2, 4):
        batch = vecenv.recv()
        assert np.arange(6)[batch.slots][::2].tolist() == order
        counts = [turn if each == other else turn - 1 for each in order]
        assert batch.observations[::2, 0].tolist() == counts
        assert batch.observations[1::2, 0].tolist() == counts
        ticks = [info.get("ticks") for info in batch.infos]
        assert ticks == [counts[0], None, counts[1], None]
        vecenv.send(np.zeros(4, np.int32))
    vecenv.recv()
    vecenv.send(np.array([0, 0, HANG, 0]))  # and another: one is not enough for a batch
    vecenv._timeout = 0.5
    with pytest.raises(WorkerError) as caught:
        vecenv.recv()
    env = held // 2
    said = f"worker {env} (env {env}) did not finish `step` within 0.5 s (`timeout`)."
    assert str(caught.value) == said
    assert (caught.value.worker, caught.value.envs) == (env, range(env, env + 1))


def test_what_cannot_begin_says_why() -> None:
    lock = threading.Lock()
    with pytest.raises(
        UsageError, match="`env_creator` must be picklable to reach another machine"
    ):
        Ray(lambda: lock, 1, 1)
    with pytest.raises(UsageError, match="`mode` must be sync or async"):
        Ray(Fickle, 1, 1, mode="often")  # type: ignore[arg-type]


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pufferlib\[ray\]'") as caught:
        Ray(Fickle, 1, 1)
    assert "\n" not in str(caught.value)


# ---- Connections ---------------------------------------------------------------------------------


class Failing(Fickle):
    """Cannot be created."""

    def __init__(self) -> None:
        raise OSError("no display")


LISTENERS = """
import sys
from pathlib import Path
import psutil
from ray_cluster import ATTEMPTS, spare_a_grammar
spare_a_grammar(Path(sys.argv[1]))
from pufferlib.errors import PufferError
from pufferlib.native import NativeEnv
from pufferlib.vectorization import Ray

for attempt in range(ATTEMPTS):
    try:
        vecenv = Ray(lambda: NativeEnv("cartpole"), 1, 1)
        break
    except PufferError:  # Ray waits for 30 s for a process of its own, and no longer
        if attempt == ATTEMPTS - 1:
            raise
with vecenv:
    vecenv.reset(seed=0)
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        for each in process.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                print(each.laddr.ip)
"""


def test_a_cluster_of_its_own_listens_on_loopback_only(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # its sockets need a short path
        done = subprocess.run(
            [sys.executable, "-c", LISTENERS, tmp_path],
            env={
                **variables,
                "PYTHONPATH": str(Path(__file__).parents[1] / "rigs"),
                "RAY_AUTH_MODE": "disabled",
                "RAY_TMPDIR": folder,  # else it joins the cluster of another test of this moment
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert done.returncode == 0, done.stderr
    addresses = done.stdout.split()
    assert len(addresses) >= 3  # of the driver, the server of the cluster, the node
    assert {each.removeprefix("::ffff:") for each in addresses} == {"127.0.0.1"}


def test_a_connection_of_its_own_ends_with_the_last_vector(disconnected: None) -> None:
    with pytest.raises(EnvError, match="no display"):
        Ray(Failing, 1, 1)
    assert not ray.is_initialized()
    one = pufferlib.make("cartpole", num_envs=8, num_workers=1, backend="ray", seed=3)
    other = Ray(Fickle, 1, 1)
    trainer = pufferlib.PuffeRL(
        one, batch_size=128, num_steps=16, n_epochs=1, device="cpu", dashboard="off"
    )
    log = trainer.evaluate()
    trainer.train()
    trainer.close()
    assert log["episodes"] > 0  # 16 steps each: some of 8 poles fall
    one.close()
    one.close()
    assert ray.is_initialized()
    other.reset(seed=0)
    other.step(np.zeros(2, np.int32))
    del other
    gc.collect()
    assert not ray.is_initialized()


def test_a_connection_of_the_user_stays(connected: None) -> None:
    with Ray(Fickle, 1, 1) as vecenv:
        actor = vecenv._actors[0]
        with pytest.raises(UsageError, match="`num_workers` must not exceed `num_envs`"):
            Ray(Fickle, 1, 2)
    assert ray.is_initialized()

    with pytest.raises(ray.exceptions.RayActorError):  # Ray does not say when a kill is done
        wait_until(lambda: ray.get(actor.call.remote("snapshot")) and False)
