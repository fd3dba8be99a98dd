"""The native engine beside the torch engine: equal updates and rules, random numbers of its own."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
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
    let_agents_leave,
    pair,
)
from torch import nn

import pufferlib
from pufferlib import native
from pufferlib.errors import UsageError
from pufferlib.models import make_policy
from pufferlib.training.native_engine import NativeEngine
from pufferlib.training.ppo import explained_variance
from pufferlib.training.torch_engine import TorchEngine
from pufferlib.training.trainer import PuffeRL

NETWORKS = {
    "shared": {"separate": False, "activation": "relu"},
    "separate": {"separate": True, "activation": "tanh"},
    "deep": {"separate": False, "activation": "tanh", "num_layers": 4, "hidden_size": 37},
    "one layer": {"separate": True, "activation": "relu", "num_layers": 1, "hidden_size": 130},
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("env", ENVS)
def test_updates_equal_those_of_torch(env: str, network: str) -> None:
    assert_trains_alike(pair(ENVS[env], NETWORKS[network]))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    ("env", "network"),
    [("cartpole", "shared"), ("agents", "shared"), ("both kinds", "separate"), ("Box", "deep")],
)
def test_options_mean_the_same_as_in_torch(env: str, network: str, options: str) -> None:
    assert_trains_alike(pair(ENVS[env], NETWORKS[network], **OPTIONS[options]))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("env", ["cartpole", "masks of both kinds"])
def test_steps_of_absent_agents_do_not_count(env: str, options: str) -> None:
    runs = let_agents_leave(pair(ENVS[env], NETWORKS["separate"], **OPTIONS[options]))
    assert_trains_alike(runs)


@pytest.mark.parametrize("env", ["Box", "both kinds", "one category"])
def test_squashed_actions_train_as_in_torch(env: str) -> None:
    assert_trains_alike(pair(ENVS[env], {**NETWORKS["shared"], "squash": True}))


# ---- Rollouts ------------------------------------------------------------------------------------


def native_run(env: Any, policy: dict[str, Any] | None = None, **options: Any) -> PuffeRL:
    torch.manual_seed(5)
    module = make_policy(env, **(policy or NETWORKS["shared"]))
    return PuffeRL(env, module, **{**SMALL, **options}, engine="native")


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("env", ENVS)
def test_rollouts_store_what_the_policy_says_of_them(env: str, squash: bool) -> None:
    with ENVS[env]() as vecenv, native_run(vecenv, {"squash": squash}) as run:
        run.evaluate()
        rollout, engine = run.engine.rollout, run.engine
        assert isinstance(engine, NativeEngine)
        from pufferlib.training.rollout import take

        every = torch.arange(len(rollout.values))
        with torch.no_grad():
            part = take(rollout, every, rollout.values, rollout.values, None)
            logprobs, _, values = engine.outputs(part)
        seen = rollout.masks.flatten()
        torch.testing.assert_close(
            rollout.logprobs.flatten()[seen], logprobs[seen], rtol=1e-4, atol=2e-5
        )
        torch.testing.assert_close(
            rollout.values.flatten()[seen], values[seen], rtol=1e-4, atol=2e-5
        )
        if rollout.num_stretches == 1:  # the value after a rollout is that of what comes next
            last = torch.from_numpy(vecenv.observations)
            after = engine.actor.output(last, None).value.detach()
            after = after.where(torch.from_numpy(vecenv.masks), 0.0)
            torch.testing.assert_close(rollout.bootstrap, after, rtol=1e-4, atol=2e-5)


def test_rollouts_in_c_equal_rollouts_step_by_step() -> None:
    """The same weights and random actions of probability 1 give the same episodes."""
    runs = []
    for engine in ("torch", "native"):
        env = pufferlib.make("cartpole", 16)
        torch.manual_seed(1)
        policy = make_policy(env, **NETWORKS["shared"])
        with torch.no_grad():
            policy.actor.bias[:] = torch.tensor([0.0, 60.0])  # always to the right
        runs.append(PuffeRL(env, policy, **SMALL, num_steps=16, reward_scale=2.0, engine=engine))
        for _ in range(3):
            stats = runs[-1].evaluate()
    theirs, ours = (run.engine.rollout for run in runs)
    for name in ("actions", "rewards", "terminals", "truncations", "resets", "masks"):
        assert torch.equal(getattr(theirs, name), getattr(ours, name)), name
    torch.testing.assert_close(theirs.observations, ours.observations)
    torch.testing.assert_close(theirs.values, ours.values, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(theirs.bootstrap, ours.bootstrap, rtol=1e-4, atol=1e-5)
    assert ours.resets.any()
    assert stats["episodes"] > 0
    assert torch.equal(runs[0].state.carry.resets, runs[1].state.carry.resets)


@pytest.mark.parametrize(
    ("env_name", "hidden_size", "is_largest"),
    [("tower", 8, "env"), ("cartpole", 512, "forward")],
)
def test_the_time_of_a_rollout_in_c_is_divided_between_envs_and_policy(
    env_name: str, hidden_size: int, is_largest: str
) -> None:
    sizes = {"hidden_size": hidden_size, "num_layers": 2}
    options = {"num_steps": 64, "batch_size": 4096}
    with pufferlib.make(env_name, 64) as env, native_run(env, sizes, **options) as run:
        for _ in range(3):
            run.evaluate()
            run.train()
        log = run.mean_and_log()

    env_seconds, forward_seconds = log["time/env"], log["time/forward"]
    assert min(env_seconds, forward_seconds) > 0
    assert (env_seconds > forward_seconds) == (is_largest == "env")


@pytest.mark.parametrize("core", ["none", "gru"])
@pytest.mark.parametrize(
    ("env_name", "params", "always"),
    [("cartpole", {"max_steps": 9}, [1]), ("drive", {"max_steps": 9, "num_agents": 32}, [3, 7])],
)
def test_rollouts_in_c_are_normalised_as_torch_does(
    env_name: str, params: dict[str, Any], always: list[int], core: str
) -> None:
    """As above, with statistics that change from rollout to rollout; some cars have no place."""
    runs: list[PuffeRL] = []
    for engine in ("torch", "native"):
        env = pufferlib.make(env_name, 16, **params)
        torch.manual_seed(1)
        policy = make_policy(env, **NETWORKS["shared"], recurrent=core)
        inner = policy if core == "none" else policy.policy
        with torch.no_grad():
            inner.critic.weight.normal_()
            inner.actor.bias[always] = 60.0  # one action of each component
        size = {**SMALL, "num_steps": 16, "batch_size": max(1024, 16 * env.num_agents)}
        run = PuffeRL(env, policy, **size, norm_obs=True, engine=engine)
        for _ in range(4):
            run.evaluate()
        runs.append(run)
    theirs, ours = (run.engine.rollout for run in runs)
    for name in ("actions", "terminals", "truncations", "resets", "masks"):
        assert torch.equal(getattr(theirs, name), getattr(ours, name)), name
    assert ours.truncations.any()
    assert ours.all_present == (env_name == "cartpole")
    torch.testing.assert_close(theirs.observations, ours.observations)
    assert ours.observations.abs().max() > 2
    cut, close = ours.truncations, {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(theirs.values[ours.masks], ours.values[ours.masks], **close)
    torch.testing.assert_close(theirs.final_values[cut], ours.final_values[cut], **close)
    torch.testing.assert_close(theirs.bootstrap, ours.bootstrap, **close)
    norms = [run.observation_norm for run in runs]
    assert norms[0] is not None
    assert norms[1] is not None
    torch.testing.assert_close(norms[0].state_dict(), norms[1].state_dict())


def test_final_values_are_those_of_final_observations() -> None:
    with pufferlib.make("cartpole", 16, max_steps=5) as env, native_run(env) as run:
        run.evaluate()
        rollout = run.engine.rollout
        assert rollout.truncations.any()
        # the env of one step is cut in its last: the row of final observations still holds it
        cut = rollout.truncations[:, -1]
        if cut.any():
            final = torch.from_numpy(env.final_observations)[cut]
            with torch.no_grad():
                values = run.engine.actor.output(final, None).value
            torch.testing.assert_close(rollout.final_values[:, -1][cut], values)
        assert (rollout.final_values[rollout.truncations] != 0).all()


@pytest.mark.parametrize("num_envs", [16, 41])
@pytest.mark.parametrize("env_name", ["cartpole", "multiagent"])
def test_targets_equal_those_of_torch_over_all_stretches_of_a_slot(
    env_name: str, num_envs: int
) -> None:
    env = pufferlib.make(env_name, num_envs, max_steps=7)
    options = {"num_steps": 8, "batch_size": 24 * env.num_agents, "minibatch_size": 64}
    with env, native_run(env, **options) as run:
        run.evaluate()
        engine, rollout = run.engine, run.engine.rollout
        assert isinstance(engine, NativeEngine)
        assert rollout.num_stretches == 3
        assert rollout.truncations.any()
        rollout.masks[::3, 4:] = False  # agents that leave
        rollout.all_present = False
        variance, ours = engine._set_targets(), engine._targets
        theirs = engine.targets(rollout)
        seen = rollout.masks
        torch.testing.assert_close(ours.advantages, theirs.advantages, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.returns[seen], theirs.returns[seen], rtol=1e-5, atol=1e-5)
        wanted = explained_variance(rollout.values, theirs.returns, seen)
        assert variance == pytest.approx(float(wanted), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("bad", [False, True])
def test_rewards_are_normalised_as_torch_does(bad: bool, threads: int) -> None:
    torch.manual_seed(1)
    env = pufferlib.make("cartpole", 41, max_steps=7)
    options = {"num_steps": 8, "batch_size": 24 * env.num_agents, "norm_reward": True}
    with env, native_run(env, torch_threads=threads, **options) as run:
        run.evaluate()
        engine, rollout, ours = run.engine, run.engine.rollout, run.reward_norm
        assert isinstance(engine, NativeEngine)
        assert ours is not None
        theirs = copy.deepcopy(ours)
        rollout.terminals[::2, -1] = False  # some episodes go on
        rollout.masks[::3, 4:] = False  # agents that leave
        rollout.all_present = False
        for number in range(3):
            rewards = 5 + 3 * torch.randn_like(rollout.rewards)
            rewards[0, 4] = torch.nan  # an agent that is absent
            if bad and number == 1:  # not finite: these rewards are counted, and nothing else
                rewards[-1, 1] = torch.inf
            rollout.rewards.copy_(rewards)
            TorchEngine.normalise_rewards(engine, theirs)
            wanted = rollout.rewards.clone()
            rollout.rewards.copy_(rewards)
            engine.normalise_rewards(ours)
            torch.testing.assert_close(rollout.rewards, wanted, equal_nan=True)
            torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
        assert ours.returns.any()


def test_actions_are_drawn_as_often_as_they_are_likely() -> None:
    # 32 slots x 1024 steps of one category: the share of a choice has deviation below 0.003
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, -30.0])
    env = emulated(gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(5))
    with env, native_run(env, batch_size=32768, minibatch_size=8192) as run:
        with torch.no_grad():
            run.policy.actor.weight.zero_()
            run.policy.actor.bias.copy_(logits)
        run.evaluate()
        shares = torch.bincount(run.engine.rollout.actions.flatten(), minlength=5) / 32768
        torch.testing.assert_close(shares, logits.softmax(0), atol=0.012, rtol=0)


def test_reals_are_drawn_with_mean_and_deviation() -> None:
    env = pufferlib.make("continuous", 64)
    with env, native_run(env, batch_size=32768, minibatch_size=8192) as run:
        with torch.no_grad():
            run.policy.actor.weight.zero_()
            run.policy.actor.bias.fill_(0.5)
            run.policy.log_std.fill_(-1.0)
        run.evaluate()
        drawn = run.engine.rollout.actions.flatten()
        center, scale = float(run.policy.center[0]), float(run.policy.scale[0])
        noise = (drawn - (center + 0.5 * scale)) / np.exp(-1.0)
        assert abs(float(noise.mean())) < 0.02
        assert float(noise.std()) == pytest.approx(1, abs=0.02)
        # kurtosis of a Gaussian is 3
        assert float((noise**4).mean()) == pytest.approx(3, abs=0.2)


# ---- Bit for bit ---------------------------------------------------------------------------------


def test_a_new_state_of_the_optimizer_is_used() -> None:
    with pufferlib.make("cartpole", 32) as env, native_run(env) as run:
        for _ in range(2):
            run.evaluate()
            updates = run.train()["updates"]
            states = list(run.optimizer.state.values())
            assert len(states) == len(list(run.policy.parameters()))
            assert all(state["step"] == updates and state["exp_avg"].any() for state in states)
            run.optimizer.state.clear()  # moments start again


def trained(threads: int, env_name: str = "cartpole", **options: Any) -> list[torch.Tensor]:
    torch.set_num_threads(1)  # the start of the weights depends on torch's threads
    with pufferlib.make(env_name, 48) as env:
        run = native_run(env, torch_threads=threads, num_steps=16, **options)
        with run:
            for _ in range(3):
                run.evaluate()
                run.train()
            return [p.detach().clone() for p in run.policy.parameters()]


@pytest.mark.parametrize(
    ("env_name", "options"),
    [("cartpole", {}), ("hybrid", {}), ("multiagent", {}), ("cartpole", {"norm_obs": True})],
)
def test_results_do_not_depend_on_threads(env_name: str, options: dict[str, Any]) -> None:
    sizes = {"batch_size": 48 * 32, "minibatch_size": 700, **options}
    first = trained(1, env_name, **sizes)
    for threads in (1, 2, 3):
        again = trained(threads, env_name, **sizes)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True)), threads


def test_results_do_not_depend_on_threads_where_python_steps() -> None:
    # C acts on halves of 300 rows, which are enough for several threads
    runs = []
    for threads in (1, 1, 2, 3):
        torch.set_num_threads(1)
        with pufferlib.make("cartpole", 600, vec={"double_buffer": True}) as env:
            options = {"batch_size": 600 * 8, "num_steps": 8, "norm_obs": True}
            run = native_run(env, {"recurrent": "gru"}, torch_threads=threads, **options)
            with run:
                for _ in range(3):
                    run.evaluate()
                    run.train()
                runs.append([p.detach().clone() for p in run.policy.parameters()])
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


@pytest.mark.parametrize("options", [{}, {"norm_obs": True}])
@pytest.mark.parametrize("other", ["native", "torch"])
def test_a_run_goes_on_bit_for_bit_after_another_engine_saved_it(
    tmp_path: Any, other: str, options: dict[str, Any]
) -> None:
    assert_resumes(NETWORKS["separate"], other, tmp_path / "run.pt", **options)


def test_weights_set_from_outside_count_from_the_next_call() -> None:
    with pufferlib.make("cartpole", 32) as env, native_run(env) as run:
        run.evaluate()
        run.train()
        with torch.no_grad():
            for parameter in run.policy.parameters():
                parameter.zero_()
        run.evaluate()
        assert (run.engine.rollout.values == 0).all()
        torch.testing.assert_close(
            run.engine.rollout.logprobs, torch.full_like(run.engine.rollout.logprobs, -np.log(2))
        )


def test_a_nan_leaves_weights_and_moments_as_they_were() -> None:
    with pufferlib.make("cartpole", 32) as env, native_run(env, on_nan="skip") as run:
        run.evaluate()
        run.train()
        before = [p.detach().clone() for p in run.policy.parameters()]
        run.evaluate()
        run.engine.rollout.observations[3, 1, 0] = torch.nan
        with pytest.warns(RuntimeWarning, match="finite"):
            log = run.train()
        assert log["skipped_updates"] > 0
        assert all(p.isfinite().all() for p in run.policy.parameters())
        assert any(not torch.equal(a, b) for a, b in zip(before, run.policy.parameters()))


# ---- Which engine --------------------------------------------------------------------------------


def test_auto_takes_the_native_engine_and_names_take_their_own() -> None:
    for wanted, got in (("auto", "native"), ("native", "native"), ("torch", "torch")):
        with pufferlib.make("cartpole", 32) as env, PuffeRL(env, **SMALL, engine=wanted) as run:
            assert (run.engine.name, run.engine.fallback) == (got, "")


@pytest.mark.parametrize(
    ("policy", "options", "reason"),
    [
        ({"recurrent": "transformer"}, {}, "native: core Transformer"),
        ({}, {"precision": "bfloat16"}, "native: precision bfloat16"),
        ({}, {"compile": "on"}, "native: torch.compile"),
    ],
)
def test_an_unsupported_run_falls_back_with_the_reason_or_is_refused(
    policy: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    with pufferlib.make("cartpole", 32) as env:
        with pytest.raises(UsageError, match=reason):
            PuffeRL(env, make_policy(env, **policy), **{**SMALL, **options}, engine="native")
        with PuffeRL(env, make_policy(env, **policy), **{**SMALL, **options}) as run:
            assert (run.engine.name, run.engine.fallback) == ("torch", reason)


def test_a_policy_of_the_users_own_is_refused() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Linear(4, 3)

        def forward(self, observations: torch.Tensor) -> Any:
            outputs = self.both(observations)
            return outputs[:, :2], outputs[:, 2]

    with (
        pufferlib.make("cartpole", 32) as env,
        pytest.raises(UsageError, match="native: policy Mine"),
    ):
        PuffeRL(env, Mine(), **SMALL, engine="native")


# ---- Kernels: every set that this CPU runs -------------------------------------------------------

every_kernel_set = pytest.mark.parametrize("kernels", native.kernel_sets())


@every_kernel_set
@pytest.mark.parametrize("network", NETWORKS)
def test_every_set_of_kernels_trains_as_torch(
    kernels: str, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUFFER_KERNELS", kernels)
    runs = pair(ENVS["both kinds"], {**NETWORKS[network], "squash": True})
    assert runs[1].engine._core.kernels() == kernels
    assert_trains_alike(runs)


@every_kernel_set
def test_every_set_of_kernels_learns_cartpole(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUFFER_KERNELS", kernels)
    # random play lasts 20 steps; 25 iterations of 8192 steps reach 100 with room to spare
    with pufferlib.make("cartpole", 128) as env:
        sizes = {"batch_size": 8192, "minibatch_size": 2048, "n_epochs": 4}
        with native_run(env, {"hidden_size": 32}, **sizes, total_timesteps=25 * 8192) as run:
            while not run.done:
                stats = run.evaluate()
                run.train()
        assert stats["mean_reward"] > 100


def test_the_fastest_set_of_kernels_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUFFER_KERNELS", raising=False)
    with pufferlib.make("cartpole", 4) as env, native_run(env) as run:
        assert run.engine._core.kernels() == native.kernel_sets()[0]


def test_an_unknown_set_of_kernels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUFFER_KERNELS", "sse9")
    env = pufferlib.make("cartpole", 4)
    with env, pytest.raises(UsageError, match="PUFFER_KERNELS must be"):
        PuffeRL(env, **SMALL, engine="native")


@pytest.mark.parametrize("double_buffer", [False, True])
def test_envs_in_python_and_halves_use_the_native_policy(double_buffer: bool) -> None:
    if double_buffer:
        env: Any = pufferlib.make("cartpole", 32, vec={"double_buffer": True})
    else:
        env = emulated(box(3), gymnasium.spaces.Discrete(3))
    with env, native_run(env) as run:
        for _ in range(3):
            run.evaluate()
            run.train()
        assert run.engine.rollout.logprobs.min() < 0
