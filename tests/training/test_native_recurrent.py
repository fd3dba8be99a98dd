"""Recurrent policies in the native engine: equal to torch in rollouts, updates and states."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from engines import (
    ENVS,
    OPTIONS,
    SMALL,
    assert_resumes,
    assert_trains_alike,
    box,
    emulated,
    go_on,
    let_agents_leave,
    pair,
)

import pufferlib
from pufferlib import native
from pufferlib.errors import UsageError
from pufferlib.models import MLP, make_policy
from pufferlib.policies.recurrent import LSTM, MinGRU, RecurrentState, tensors_of
from pufferlib.policies.recurrent_wrapper import RecurrentWrapper
from pufferlib.training.rollout import take
from pufferlib.training.trainer import PuffeRL
from pufferlib.vectorization import Multiprocessing

CORES = ("lstm", "gru", "mingru")
NETWORKS: dict[str, dict[str, Any]] = {
    "wide": {"hidden_size": 64, "num_layers": 2, "activation": "relu"},
    "odd": {"hidden_size": 37, "num_layers": 1, "activation": "tanh"},  # of no vector's width
}
every_core = pytest.mark.parametrize("core", CORES)


def policy_of(core: str, network: str = "odd", **options: Any) -> dict[str, Any]:
    return {"recurrent": core, **NETWORKS[network], **options}


# ---- Updates -------------------------------------------------------------------------------------


@every_core
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "env",
    ["cartpole", "action masks", "agents", "Box", "both kinds", "uint8", "categories", "doubles"],
)
def test_updates_equal_those_of_torch(env: str, network: str, core: str) -> None:
    assert_trains_alike(pair(ENVS[env], policy_of(core, network)))


@every_core
@pytest.mark.parametrize("num_steps", [1, 5, 20])
def test_resets_inside_of_segments_and_stretches_train_as_in_torch(
    num_steps: int, core: str
) -> None:
    # episodes of 7 steps: most segments see an end, and begin with a recurrent state
    runs = pair(
        lambda: emulated(box(3), gymnasium.spaces.Discrete(3)),
        policy_of(core),
        num_steps=num_steps,
        batch_size=960,
        minibatch_size=400,
    )
    rollout = runs[0].engine.rollout
    assert rollout.num_stretches > 1
    assert num_steps == 1 or rollout.resets[:, 1:].any()
    assert all(part.any() for part in tensors_of(rollout.states[1]))
    assert_trains_alike(runs)


@every_core
@pytest.mark.parametrize("options", [name for name in OPTIONS if name != "steps"])
def test_options_mean_the_same_as_in_torch(options: str, core: str) -> None:
    assert_trains_alike(pair(ENVS["agents"], policy_of(core), **OPTIONS[options]))


@every_core
@pytest.mark.parametrize("options", ["segments", "value clipping", "priorities", "V-trace"])
def test_steps_of_absent_agents_do_not_count(options: str, core: str) -> None:
    runs = pair(ENVS["masks of both kinds"], policy_of(core), **OPTIONS[options])
    assert_trains_alike(let_agents_leave(runs))


@every_core
def test_squashed_actions_train_as_in_torch(core: str) -> None:
    assert_trains_alike(pair(ENVS["both kinds"], policy_of(core, squash=True)))


@every_core
@pytest.mark.parametrize("kernels", native.kernel_sets())
def test_every_set_of_kernels_trains_as_torch(
    kernels: str, core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUFFER_KERNELS", kernels)
    assert_trains_alike(pair(ENVS["both kinds"], policy_of(core), num_steps=8))


@every_core
def test_long_segments_train_as_in_torch(core: str) -> None:
    # 1500 steps are more than go through a core side by side: groups of two segments
    sizes = {"num_steps": 1500, "batch_size": 4500, "minibatch_size": 4500, "n_epochs": 1}
    assert_trains_alike(pair(lambda: pufferlib.make("cartpole", 3), policy_of(core), **sizes))


# ---- Rollouts ------------------------------------------------------------------------------------


def native_run(env: Any, core: str, **options: Any) -> PuffeRL:
    torch.manual_seed(5)
    module = make_policy(env, **policy_of(core))
    return PuffeRL(env, module, **{**SMALL, **options}, engine="native")


def halves() -> Any:
    return pufferlib.make("cartpole", 32, vec={"double_buffer": True})


def a_few_at_a_time() -> Any:
    return Multiprocessing(
        lambda: gymnasium.make("CartPole-v1"), 4, num_workers=1, mode="async", surplus_envs=4
    )


@every_core
@pytest.mark.parametrize("env", [*ENVS, "halves"])
def test_rollouts_store_what_the_policy_says_of_them(env: str, core: str) -> None:
    make_env = {**ENVS, "halves": halves}[env]
    with make_env() as vecenv, native_run(vecenv, core, num_steps=16) as run:
        for _ in range(2):
            run.evaluate()
        rollout, engine = run.engine.rollout, run.engine
        every = torch.arange(len(rollout.values))
        with torch.no_grad():
            initial = rollout.initial_state()
            part = take(rollout, every, rollout.values, rollout.values, initial)
            logprobs, _, values = engine.outputs(part)  # type: ignore[attr-defined]
        seen = rollout.masks.flatten()
        torch.testing.assert_close(
            rollout.logprobs.flatten()[seen], logprobs[seen], rtol=1e-4, atol=2e-5
        )
        torch.testing.assert_close(
            rollout.values.flatten()[seen], values[seen], rtol=1e-4, atol=2e-5
        )
        last = torch.from_numpy(vecenv.observations)
        after = engine.actor.output(last, run.state.carry.state).value.detach()
        after = after.where(torch.from_numpy(vecenv.masks), 0.0)
        torch.testing.assert_close(
            rollout.bootstrap[-rollout.num_slots :], after, rtol=1e-4, atol=2e-5
        )


def assert_states_close(expected: RecurrentState, got: RecurrentState) -> None:
    assert type(expected) is type(got)
    pairs = zip(tensors_of(expected), tensors_of(got), strict=True)
    for theirs, ours in pairs:
        torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=2e-5)


@every_core
@pytest.mark.parametrize("double_buffer", [False, True])
def test_rollouts_equal_those_of_torch(double_buffer: bool, core: str) -> None:
    """The same weights and random actions of probability 1 give the same episodes and states."""
    runs = []
    for engine in ("torch", "native"):
        env = pufferlib.make("cartpole", 16, max_steps=7, vec={"double_buffer": double_buffer})
        torch.manual_seed(1)
        policy = make_policy(env, **policy_of(core))
        with torch.no_grad():
            policy.policy.actor.bias[:] = torch.tensor([0.0, 60.0])  # always to the right
        runs.append(PuffeRL(env, policy, **SMALL, num_steps=16, engine=engine))
        for _ in range(3):
            runs[-1].evaluate()
    theirs, ours = (run.engine.rollout for run in runs)
    for name in ("actions", "rewards", "terminals", "truncations", "resets", "masks"):
        assert torch.equal(getattr(theirs, name), getattr(ours, name)), name
    assert ours.truncations.any()
    for name in ("observations", "values", "final_values", "bootstrap"):
        torch.testing.assert_close(getattr(theirs, name), getattr(ours, name), rtol=1e-4, atol=2e-5)
    assert len(ours.states) == len(theirs.states) == 4
    for expected, got in zip(theirs.states, ours.states, strict=True):
        assert_states_close(expected, got)
    assert_states_close(runs[0].state.carry.state, runs[1].state.carry.state)


@every_core
def test_final_values_know_the_episode_that_was_cut(core: str) -> None:
    with pufferlib.make("cartpole", 16, max_steps=5) as env:
        run = native_run(env, core, batch_size=80, minibatch_size=80)
        with run:
            run.evaluate()  # five steps: uncut episodes end in the last one
            rollout = run.engine.rollout
            cut = rollout.truncations[:, -1]
            assert cut.any()
            with torch.no_grad():
                *_, state = run.policy.forward_sequence(rollout.observations, None, rollout.resets)
                final = torch.from_numpy(env.final_observations)
                values = run.engine.actor.output(final, state).value
            torch.testing.assert_close(
                rollout.final_values[:, -1][cut], values[cut], rtol=1e-4, atol=2e-5
            )


@every_core
def test_slots_that_arrive_in_any_order_keep_their_states(core: str) -> None:
    with a_few_at_a_time() as env, native_run(env, core, batch_size=256, num_steps=16) as run:
        for _ in range(3):
            run.evaluate()
        rollout = run.engine.rollout
        every = torch.arange(len(rollout.values))
        with torch.no_grad():
            part = take(rollout, every, rollout.values, rollout.values, rollout.initial_state())
            _, _, values = run.engine.outputs(part)  # type: ignore[attr-defined]
        torch.testing.assert_close(rollout.values.flatten(), values, rtol=1e-4, atol=2e-5)
        run.train()


# ---- Bit for bit ---------------------------------------------------------------------------------


def trained(threads: int, core: str, env_name: str) -> list[torch.Tensor]:
    torch.set_num_threads(1)  # the start of the weights depends on torch's threads
    sizes = {"batch_size": 100 * 32, "minibatch_size": 1700, "num_steps": 16}
    with (
        pufferlib.make(env_name, 100) as env,
        native_run(env, core, torch_threads=threads, **sizes) as run,
    ):
        go_on(run, 3)
        parts = [*run.policy.parameters(), *tensors_of(run.state.carry.state)]
        return [part.detach().clone() for part in parts]


@every_core
@pytest.mark.parametrize("env_name", ["cartpole", "hybrid"])
def test_results_do_not_depend_on_threads(env_name: str, core: str) -> None:
    first = trained(1, core, env_name)
    for threads in (1, 2, 3):
        again = trained(threads, core, env_name)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True)), threads


@every_core
@pytest.mark.parametrize("other", ["native", "torch"])
def test_a_run_goes_on_bit_for_bit_after_another_engine_saved_it(
    tmp_path: Path, other: str, core: str
) -> None:
    assert_resumes(policy_of(core), other, tmp_path / "run.pt")


@every_core
def test_torch_takes_over_where_a_hook_appears(core: str) -> None:
    """The recurrent state and the rollout pass from engine to engine between any two calls."""
    with pufferlib.make("cartpole", 32) as env, native_run(env, core, num_steps=16) as run:
        go_on(run, 1)
        called: list[bool] = []
        hook = run.policy.core.register_forward_pre_hook(lambda *_: called.append(True))
        encoder = run.policy.policy.layers[0]
        other = encoder.register_forward_hook(lambda *_: called.append(True))
        with pytest.warns(UserWarning, match="does not support hooks of the policy"):
            run.evaluate()
        assert called
        hook.remove()
        other.remove()
        called.clear()
        run.train()  # in C, on a rollout of torch
        run.evaluate()
        assert not called
        before = copy.deepcopy(run.policy)
        hook = encoder.register_forward_hook(lambda *_: called.append(True))
        run.train()  # in torch, on a rollout of C
        assert called
        hook.remove()
        pairs = zip(before.parameters(), run.policy.parameters(), strict=True)
        assert all(b.isfinite().all() and not torch.equal(a, b) for a, b in pairs)


# ---- Which engine --------------------------------------------------------------------------------


def test_cores_that_only_torch_knows_are_refused() -> None:
    with pufferlib.make("cartpole", 32) as env:
        space, action = env.single_observation_space, env.single_action_space
        apart = RecurrentWrapper(MLP(space, action, 16, separate=True), LSTM(32, 32))
        skipping = RecurrentWrapper(MLP(space, action, 16, separate=False), MinGRU(16, 16))
        skipping.core = MinGRU(24, 16)
        for policy, reason in (
            (apart, "a critic of its own before a recurrent core"),
            (skipping, "core MinGRU"),
        ):
            with pytest.raises(UsageError, match=f"native: {reason}"):
                PuffeRL(env, policy, **SMALL, engine="native")
