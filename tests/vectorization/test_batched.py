"""Batched: a simulator's batches in rows, exact at every end of an episode."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from walks import ACTIONS, Walk, WalkPool, make_walks, walks

import pufferlib
from pufferlib.emulation import env_seed
from pufferlib.errors import EnvError, UsageError
from pufferlib.spaces import make_space
from pufferlib.vectorization import Multiprocessing, Serial
from pufferlib.vectorization.batched import Batched, Outcome, Simulator, SimulatorCreator, Sizes

NUM_ENVS = 5


def played(vecenv: Any, steps: int = 100, seed: int = 7) -> list[Any]:
    """Return what each step of `vecenv` gives, final observations where truncated."""
    actions = np.random.default_rng(1).integers(3, size=(steps, NUM_ENVS), dtype=np.int32)
    out: list[Any] = [vecenv.reset(seed=seed).tolist()]
    for each in actions:
        observations, rewards, dones, infos = vecenv.step(each)
        finals = vecenv.final_observations[vecenv.truncations]
        episodes = [info.get("episode", {}) for info in infos]
        counted = [(episode.get("r"), episode.get("l")) for episode in episodes]
        flags = vecenv.terminals.tolist(), vecenv.truncations.tolist(), vecenv.masks.tolist()
        parts = observations.tolist(), rewards.tolist(), dones.tolist(), finals.tolist()
        out.append((*parts, *flags, counted))
    metrics = vecenv.drain_metrics()
    out.append({name: metrics[name] for name in ("episodes", "mean_reward", "episode_length")})
    return out


# ---- Same numbers as a plain loop ----------------------------------------------------------------


def test_rows_equal_those_of_serial() -> None:
    with Batched(walks(), NUM_ENVS) as batched, Serial(Walk, NUM_ENVS) as serial:
        expected = played(serial)
        assert played(batched) == expected
        assert expected[-1]["episodes"] > 50  # 100 steps of 5 envs, some 4 for each episode


def test_a_second_seeded_reset_begins_the_same_episodes() -> None:
    with Batched(walks(), NUM_ENVS) as batched:
        assert played(batched) == played(batched)


def test_send_and_recv_give_the_rows_of_step() -> None:
    with Batched(walks(), NUM_ENVS) as halves, Batched(walks(), NUM_ENVS) as whole:
        first = whole.reset(seed=3)
        halves.reset(seed=3)
        assert (halves.recv().observations == first).all()
        for _ in range(20):
            observations, rewards, dones, _ = whole.step(np.ones(NUM_ENVS, dtype=np.int32))
            halves.send(np.ones(NUM_ENVS, dtype=np.int32))
            batch = halves.recv()
            assert (batch.observations == observations).all()
            assert (batch.rewards == rewards).all()
            assert ((batch.terminals | batch.truncations) == dones).all()


@pytest.mark.parametrize("kind", ["serial", "multiprocessing"])
def test_other_backends_give_the_same_rows(kind: str) -> None:
    # workers have several of these vector envs of one env, which take the seeds of their place
    outer = Serial if kind == "serial" else functools.partial(Multiprocessing, num_workers=2)
    with Batched(walks(), NUM_ENVS) as batched, outer(walks(), NUM_ENVS) as nested:
        assert played(nested) == played(batched)


def test_final_observations_follow_terminals_too() -> None:
    with Batched(walks(), NUM_ENVS) as batched:
        batched.reset(seed=0)
        for _ in range(10):
            batched.step(np.zeros(NUM_ENVS, dtype=np.int32))
            ended = batched.terminals | batched.truncations
            length, tick = (
                batched.final_observations[ended, 0],
                batched.final_observations[ended, 1],
            )
            assert (length == tick).all()  # the last tick of its episode
            assert (batched.observations[ended, 1] == 0).all()  # the first of the next


def test_infos_carry_the_numbers_of_the_simulator() -> None:
    with Batched(walks(), NUM_ENVS) as batched:
        batched.reset(seed=0)
        *_, infos = batched.step(np.zeros(NUM_ENVS, dtype=np.int32))
        assert [info["ticks"] for info in infos] == [1.0] * NUM_ENVS
        while not batched.drain_metrics().get("ticks", 0) >= 2:  # the shortest episode
            batched.step(np.zeros(NUM_ENVS, dtype=np.int32))


class Pictures(Simulator):
    """Every env shows its tick in an array of the simulator, and ends after three steps."""

    def __init__(self, sizes: Sizes) -> None:
        self.observation_space, self.action_space = make_space((2, 2), dtype=np.uint8), ACTIONS
        self.ticks = np.zeros(sizes.num_envs, dtype=np.int64)
        self.shown = np.zeros((sizes.num_envs, 2, 2), dtype=np.uint8)

    def reset(self, seeds: Any) -> Outcome:
        self.ticks[:] = np.arange(len(self.ticks)) % 3
        return self.outcome(self.ticks == 3, None)

    def send(self, actions: Any, slots: Any) -> None:
        self.ticks += 1

    def recv(self) -> Outcome:
        ended = self.ticks == 3
        finals = np.full((ended.sum(), 2, 2), 3, dtype=np.uint8)
        self.ticks[ended] = 0
        return self.outcome(ended, finals if ended.any() else None)

    def outcome(self, ended: Any, finals: Any) -> Outcome:
        self.shown[:] = self.ticks[:, None, None]
        return Outcome(self.shown, np.ones(len(ended)), ended, np.zeros_like(ended), finals)

    def close(self) -> None:
        pass


def test_pictures_are_rows_without_a_copy() -> None:
    with Batched(SimulatorCreator(Pictures), NUM_ENVS) as batched:
        shown = batched._simulator.shown  # type: ignore[attr-defined]
        assert np.shares_memory(batched.reset(seed=0), shown)
        for step in range(1, 7):
            observations, _, dones, _ = batched.step(np.zeros(NUM_ENVS, dtype=np.int32))
            ticks = (np.arange(NUM_ENVS) + step) % 3
            assert (observations == ticks[:, None, None]).all()
            assert batched.observations is observations
            assert np.shares_memory(observations, shown)
            assert (dones == (ticks == 0)).all()
            assert (batched.final_observations[dones] == 3).all()


def test_pictures_are_copied_into_the_rows_of_a_larger_vector() -> None:
    with Serial(SimulatorCreator(Pictures), NUM_ENVS) as nested:
        rows = nested.reset(seed=0)
        for step in range(1, 7):
            observations, *_ = nested.step(np.zeros(NUM_ENVS, dtype=np.int32))
            assert (observations[:, 0, 0] == step % 3).all()  # each is env 0 of its own batch
            assert np.shares_memory(observations, rows)


def test_a_reward_that_is_not_finite_names_its_env() -> None:
    class Endless(Pictures):
        def outcome(self, ended: Any, finals: Any) -> Outcome:
            rewards = np.where(np.arange(len(ended)) == 3, np.inf, 1.0)
            return super().outcome(ended, finals)._replace(rewards=rewards)

    with (
        Batched(SimulatorCreator(Endless), NUM_ENVS) as batched,
        pytest.raises(EnvError, match=r"env 3, `reset`: `reward` must be finite, but got inf"),
    ):
        batched.reset(seed=0)


# ---- Asynchronous batches ------------------------------------------------------------------------


def test_async_batches_are_exact_for_every_slot() -> None:
    """Each slot is compared with a plain loop over its env; actions depend on its own step."""
    surplus, seed = 3, 11
    total = NUM_ENVS + surplus
    plain = [Walk() for _ in range(total)]
    expected: list[Any] = [env.reset(seed=env_seed(seed, n))[0] for n, env in enumerate(plain)]
    counts, present = np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.bool_)
    seen, episodes = set(), 0
    with Batched(walks(), NUM_ENVS, mode="async", surplus_envs=surplus) as batched:
        assert (batched.num_agents, batched.batch_slots) == (total, NUM_ENVS)
        batched.reset(seed=seed)
        batch = batched.recv()
        for _ in range(300):
            for row, slot in enumerate(np.asarray(batch.slots).tolist()):
                seen.add(slot)
                reward, terminal, truncation = 0.0, False, False
                if present[slot]:  # it has acted: the plain env takes the same step
                    action = (slot + counts[slot]) % 3
                    observation, reward, terminal, truncation, _ = plain[slot].step(action)
                    expected[slot] = observation
                    counts[slot] += 1
                elif counts[slot]:  # its episode had ended: this was the step of its reset
                    expected[slot] = plain[slot].reset()[0]
                assert (batch.observations[row] == expected[slot]).all()
                assert batch.rewards[row] == reward
                assert (batch.terminals[row], batch.truncations[row]) == (terminal, truncation)
                ended = terminal or truncation
                assert batch.masks[row] == (not ended)  # no data in the step of a reset
                if ended:
                    assert (batched.final_observations[slot] == expected[slot]).all()
                    assert batch.infos[row]["episode"]["l"] == plain[slot].length
                    episodes += 1
                present[slot] = not ended
            slots = np.asarray(batch.slots)
            batched.send(((slots + counts[slots]) % 3).astype(np.int32))
            batch = batched.recv()
        metrics = batched.drain_metrics()
        episodes += int((batch.terminals | batch.truncations).sum())  # of the last batch
        assert seen == set(range(total))
        assert metrics["episodes"] == episodes > 100


def test_a_reset_drops_async_steps_under_way() -> None:
    with Batched(walks(), NUM_ENVS, mode="async", surplus_envs=3) as batched:
        first = batched.reset(seed=5).copy()
        batched.recv()
        batched.send(np.zeros(NUM_ENVS, dtype=np.int32))
        assert (batched.reset(seed=5) == first).all()
        assert (batched.recv().rewards == 0).all()


# ---- Seeds ---------------------------------------------------------------------------------------


def test_env_0_gets_the_seed_and_the_others_get_others() -> None:
    with Batched(walks(), NUM_ENVS) as batched:
        batched.reset(seed=123)
        seeds = batched._simulator._pool.seeds  # type: ignore[attr-defined]
        assert seeds[0] == 123
        assert len(set(seeds)) == NUM_ENVS


def test_a_reset_without_a_seed_goes_on_with_the_streams() -> None:
    with Batched(walks(), NUM_ENVS) as batched:
        batched.reset(seed=1)
        pool = batched._simulator._pool  # type: ignore[attr-defined]
        batched.send(np.zeros(NUM_ENVS, dtype=np.int32))
        batched.reset()  # a step is under way
        assert batched._simulator._pool is pool  # type: ignore[attr-defined]
        assert (batched.observations[:, 1] == 0).all()


# ---- Making, mistakes, training ------------------------------------------------------------------


def test_make_steps_such_envs_by_their_simulator() -> None:
    pufferlib.register("walks", walks())
    with pufferlib.make("walks", num_envs=4, num_workers=1) as vecenv:
        assert (vecenv.backend, vecenv.num_workers) == ("batched", 1)
    with pufferlib.make("walks", num_envs=4, backend="serial") as vecenv:
        assert vecenv.backend == "serial"
    options = {"mode": "async", "surplus_envs": 2}
    with pufferlib.make("walks", num_envs=4, vec=options) as vecenv:
        assert vecenv.surplus_envs == 2
    with pytest.raises(UsageError, match="not an env of a batched simulator, but got batched"):
        pufferlib.make("gym-CartPole-v1", backend="batched")
    with pytest.raises(UsageError, match="param of `walks`"):
        pufferlib.make("walks", size=3)


def test_an_action_outside_of_the_space_is_refused() -> None:
    with Batched(walks(), NUM_ENVS) as batched:
        batched.reset(seed=0)
        with pytest.raises(
            UsageError, match=r"must be in 0\.\.2 for Discrete\(3\), but slot 0 got 3"
        ):
            batched.step(np.full(NUM_ENVS, 3, dtype=np.int32))
        batched.step(np.zeros(NUM_ENVS, dtype=np.int32))


class Broken(WalkPool):
    """Gives nan, or raises."""

    def recv(self) -> Any:
        observations, *rest = super().recv()
        observations[3, 1] = np.nan
        return observations, *rest


class Raising(WalkPool):
    def recv(self) -> Any:
        raise RuntimeError("lost\nthe game")


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        (Broken, r"env 3, `step`: `observation` must be finite"),
        (Raising, r"`recv` raised RuntimeError: lost the game"),
    ],
)
def test_errors_of_a_simulator_are_one_line(pool: type[WalkPool], said: str) -> None:
    def make(sizes: Sizes) -> Any:
        simulator = make_walks(sizes)
        simulator._make_pool = functools.partial(pool, batch_size=sizes.batch_envs)
        return simulator

    with Batched(SimulatorCreator(make), NUM_ENVS) as batched:
        batched.reset(seed=0)
        with pytest.raises(EnvError, match=said) as caught:
            batched.step(np.zeros(NUM_ENVS, dtype=np.int32))
        assert "\n" not in str(caught.value)
        with pytest.raises(UsageError, match="`reset` must be called before `step`"):
            batched.step(np.zeros(NUM_ENVS, dtype=np.int32))


def test_close_frees_the_simulator_and_is_safe_twice() -> None:
    batched = Batched(walks(), NUM_ENVS)
    batched.reset(seed=0)
    batched.close()
    batched.close()
    assert batched._simulator._pool is None  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="closed"):
        batched.step(np.zeros(NUM_ENVS, dtype=np.int32))


@pytest.mark.parametrize("options", [{}, {"mode": "async", "surplus_envs": 4}])
def test_a_policy_trains_on_batches(options: dict[str, Any]) -> None:
    with Batched(walks(), 8, **options) as batched:
        trainer = pufferlib.PuffeRL(batched, device="cpu", batch_size=384, num_steps=16, seed=1)
        for _ in range(2):
            metrics = trainer.evaluate()
            losses = trainer.train()
        # episodes of 2 to 6 steps
        assert 2 <= metrics["episode_length"] <= 6
        assert np.isfinite(losses["policy_loss"])
        trainer.close()
