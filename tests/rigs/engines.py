"""Runs of the torch and the native engine side by side, on envs and options of every kind."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import pufferlib
from pufferlib.models import make_policy
from pufferlib.policies.recurrent import map_state, tensors_of
from pufferlib.training.trainer import PuffeRL

SMALL: dict[str, Any] = {
    "batch_size": 1024,
    "minibatch_size": 512,
    "n_epochs": 2,
    "learning_rate": 0.003,
    # Adam divides a gradient by its size + eps. With the default, one that is nothing but rounding
    # moves its weight as far as any other, and two ways to round differ by more than 1e-5.
    "adam_eps": 1e-3,
    "dashboard": "off",
    "total_timesteps": 100_000,
}


class Toy(gymnasium.Env[Any, Any]):
    """Any spaces: random observations, a reward for even sums, episodes of 7 steps."""

    def __init__(self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.tick = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.tick += 1
        leaves = action if isinstance(action, tuple) else (action,)
        reward = float(sum(np.sum(np.asarray(leaf, np.float64)) for leaf in leaves) % 2)
        is_cut = self.tick % 14 == 7
        is_over = self.tick >= 14
        return self.observation_space.sample(), reward, is_over, is_cut and not is_over, {}


class MaskedToy(Toy):
    """Forbids some choices, by the tick: at least one of each component is legal."""

    def action_masks(self) -> Any:
        parts = self.action_space
        if isinstance(parts, gymnasium.spaces.MultiDiscrete):
            counts = parts.nvec.tolist()
        else:
            counts = [int(part.n) for part in parts if isinstance(part, gymnasium.spaces.Discrete)]
        rows = [[(i + self.tick) % count != 0 for i in range(count)] for count in counts]
        return np.array([flag for row in rows for flag in row])


def emulated(
    observation: gymnasium.Space[Any], action: gymnasium.Space[Any], kind: type[Toy] = Toy
) -> Any:
    return pufferlib.emulate(lambda: kind(observation, action), num_envs=8, backend="serial")


def box(*shape: int, low: float = -1, high: float = 1, dtype: Any = np.float32) -> Any:
    return gymnasium.spaces.Box(low, high, shape, dtype)


def pair(make_env: Any, policy: dict[str, Any], **options: Any) -> tuple[PuffeRL, PuffeRL]:
    """Return a torch and a native run with equal weights and equal rollouts."""
    runs = []
    first_policy: nn.Module | None = None
    for engine in ("torch", "native"):
        env = make_env()
        if first_policy is None:
            torch.manual_seed(3)
            first_policy = make_policy(env, **policy)
            with torch.no_grad():  # the small start of heads would hide what logits do
                for parameter in first_policy.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
        own = copy.deepcopy(first_policy)
        runs.append(PuffeRL(env, own, **{**SMALL, **options}, engine=engine))
    torch_run, native_run = runs
    torch_run.evaluate()
    native_run.evaluate()  # takes what stands in for a rollout; its contents are replaced
    for name, part in vars(torch_run.engine.rollout).items():
        if isinstance(part, torch.Tensor):
            getattr(native_run.engine.rollout, name).copy_(part)
    native_run.engine.rollout.all_present = torch_run.engine.rollout.all_present
    states = torch_run.engine.rollout.states
    native_run.engine.rollout.states = [map_state(torch.clone, state) for state in states]
    return torch_run, native_run


def let_agents_leave(runs: tuple[PuffeRL, PuffeRL]) -> tuple[PuffeRL, PuffeRL]:
    """Take a fifth of the steps and one whole segment out of the rollout of both runs."""
    generator = torch.Generator().manual_seed(6)
    masks = torch.rand(runs[0].engine.rollout.masks.shape, generator=generator) > 0.2
    masks[1] = False
    for run in runs:
        rollout = run.engine.rollout
        rollout.masks.copy_(masks)
        rollout.all_present = False
        # a stretch is followed by the value of the next one's first step, or by no agent
        rollout.bootstrap[: -rollout.num_slots][~masks[rollout.num_slots :, 0]] = 0.0
    return runs


def assert_trains_alike(runs: tuple[PuffeRL, PuffeRL], tolerance: float = 1e-5) -> None:
    torch_run, native_run = runs
    assert (torch_run.engine.name, native_run.engine.name) == ("torch", "native")
    expected, got = torch_run.train(), native_run.train()
    for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "grad_norm"):
        assert got[name] == pytest.approx(expected[name], rel=2e-4, abs=2e-5), name
    # A count: after the first update rounding decides about a step at the edge of the range.
    one_step = 1 / torch_run.config.batch_size
    assert got["clipfrac"] == pytest.approx(expected["clipfrac"], abs=one_step)
    assert got["updates"] == expected["updates"]
    pairs = zip(torch_run.policy.named_parameters(), native_run.policy.parameters(), strict=True)
    for (name, theirs), ours in pairs:
        error = (theirs - ours).abs().max() / theirs.abs().max()
        assert error < tolerance, f"{name}: {error}"
    for run in runs:
        run.close()
        run.env.close()


ENVS = {
    "cartpole": lambda: pufferlib.make("cartpole", 32),
    "action masks": lambda: pufferlib.make("masked", 32),
    "agents": lambda: pufferlib.make("multiagent", 32),
    "Box": lambda: pufferlib.make("continuous", 32),
    "both kinds": lambda: pufferlib.make("hybrid", 32),
    "uint8": lambda: pufferlib.make("snake", 4),
    "MultiDiscrete": lambda: emulated(box(3), gymnasium.spaces.MultiDiscrete([2, 5, 3])),
    "MultiBinary": lambda: emulated(box(3), gymnasium.spaces.MultiBinary(4)),
    "categories": lambda: emulated(
        gymnasium.spaces.MultiDiscrete([3, 9]), gymnasium.spaces.Discrete(4, start=2)
    ),
    "one category": lambda: emulated(gymnasium.spaces.Discrete(11), box(2, low=-3, high=5)),
    "own bounds": lambda: emulated(
        gymnasium.spaces.Box(
            np.array([0, -20], np.int32), np.array([9, 300], np.int32), dtype=np.int32
        ),
        gymnasium.spaces.Discrete(3),
    ),
    "bits": lambda: emulated(gymnasium.spaces.MultiBinary(9), gymnasium.spaces.Discrete(3)),
    "int16": lambda: emulated(
        box(3, low=-300, high=900, dtype=np.int16), gymnasium.spaces.Discrete(3)
    ),
    "doubles": lambda: emulated(box(2, 3, dtype=np.float64), gymnasium.spaces.Discrete(2)),
    "masks of components": lambda: emulated(
        box(3), gymnasium.spaces.MultiDiscrete([2, 5, 3]), MaskedToy
    ),
    "masks of both kinds": lambda: emulated(
        box(3),
        gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(4, start=2), box(2, low=-3, high=5))),
        MaskedToy,
    ),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "value clipping": {"vf_clip_coef": 0.1},
    "no normalisation": {"norm_adv": False, "norm_reward": False},
    "no gradient clipping": {"max_grad_norm": None},
    "entropy and clip": {"ent_coef": 0.3, "clip_coef": 0.02},
    "steps": {"shuffle": "steps"},
    "segments": {"shuffle": "segments", "num_steps": 16},
    "gradient accumulation": {"gradient_accumulation": 4},
    "priorities": {"prio_alpha": 0.7},
    "V-trace": {"vtrace": True},
    "V-trace of stretches": {"vtrace": True, "num_steps": 8},
    "replay ratio": {"replay_ratio": 1.5, "minibatch_size": 256},
    "target KL": {"target_kl": 1e-6, "n_epochs": 4},
    "Muon": {"optimizer": "muon"},
    "epsilon": {"adam_eps": 1e-5},
    "schedules": {"clip_coef_final": 0.0, "ent_coef_final": 0.1},
    "normalised observations": {"norm_obs": True},
}


def go_on(run: PuffeRL, iterations: int) -> None:
    for _ in range(iterations):
        run.evaluate()
        run.train()


def assert_resumes(policy: dict[str, Any], saved_by: str, path: Path, **options: Any) -> None:
    """Check that runs go on natively, bit for bit, from a checkpoint of the engine `saved_by`."""

    def run_of(engine: str) -> PuffeRL:
        env = pufferlib.make("cartpole", 32)
        torch.manual_seed(9)
        return PuffeRL(env, make_policy(env, **policy), **SMALL, **options, engine=engine)

    saved = run_of(saved_by)
    go_on(saved, 3)
    saved.save_checkpoint(path)
    state = tensors_of(saved.state.carry.state)
    resumed = []
    for _ in range(2):
        run = run_of("native")
        run.load_checkpoint(path)
        pairs = zip(state, tensors_of(run.state.carry.state), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        go_on(run, 3)
        resumed.append(run)
    if saved_by == "native":
        go_on(saved, 3)
        resumed.append(saved)
    first, *rest = resumed
    for run in rest:
        for a, b in zip(first.policy.parameters(), run.policy.parameters(), strict=True):
            assert torch.equal(a, b)
    back = run_of("torch")  # and what the native engine saved, torch loads
    first.save_checkpoint(path)
    back.load_checkpoint(path)
    go_on(back, 1)
