"""Engines: implementations of the two halves of an iteration, collecting and training.

PuffeRL knows no other difference between engines than this interface. All of them work on the same
tensors: the parameters of the policy, the moments of the optimizer and the rollout.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pufferlib.config import ENGINES, load_choice
from pufferlib.errors import UsageError
from pufferlib.policies.acting import Actor
from pufferlib.policies.normalisation import ObservationNorm, RewardNorm
from pufferlib.policies.observations import PolicySpaces
from pufferlib.training.ppo import PpoLoss
from pufferlib.training.rollout import Carry, Rollout

if TYPE_CHECKING:
    from pufferlib.config import BatchShape, TrainConfig
    from pufferlib.distributed.world import World
    from pufferlib.training.profiling import Profiler
    from pufferlib.vectorization import VectorEnv


LOSSES = PpoLoss._fields[1:]
NUMBERS = (*LOSSES, "grad_norm")  # of one update


class Schedule(NamedTuple):
    """The coefficients of one iteration, which may change over a run."""

    learning_rate: float
    clip_coef: float
    ent_coef: float
    prio_beta: float


class Parts(NamedTuple):
    """The parts of a run that an engine uses; the trainer owns them."""

    policy: nn.Module
    spaces: PolicySpaces
    config: TrainConfig
    device: torch.device
    world: World
    profiler: Profiler
    observation_norm: ObservationNorm | None
    order_rng: torch.Generator
    sample_rng: torch.Generator


class Engine(ABC):
    """Collects rollouts and trains on them. `fallback` says why a faster engine was not chosen."""

    name: str
    fallback: str = ""
    is_native = False  # whether C made the last updates
    rollout: Rollout
    optimizer: torch.optim.Optimizer
    actor: Actor  # how the policy acts outside of rollouts

    @abstractmethod
    def __init__(self, parts: Parts) -> None: ...

    @staticmethod
    def unsupported(parts: Parts) -> str:
        """Return in a few words why this engine cannot run these parts; "" if it can."""
        return ""

    @abstractmethod
    def begin_on(self, env: VectorEnv, spaces: PolicySpaces, shape: BatchShape) -> None:
        """Prepare for an env: the first one, or another one between two iterations."""

    @abstractmethod
    def collect(self, env: VectorEnv, carry: Carry) -> Carry:
        """Fill `rollout` with the next steps of `env`; return what the next call begins with."""

    @abstractmethod
    def normalise_rewards(self, norm: RewardNorm) -> None:
        """Add the rewards of `rollout` to the statistics of `norm`, and scale them in place."""

    @abstractmethod
    def train(self, shape: BatchShape, now: Schedule) -> tuple[NDArray[np.float32], float]:
        """Train on `rollout`; return [updates, NUMBERS] and the explained variance.

        A non-finite update shows in its numbers, and leaves the weights unchanged.
        """


def make_engine(wanted: str, parts: Parts) -> Engine:
    """Return the engine that was asked for, or with "auto" the fastest that can run the parts."""
    reasons: list[str] = []
    for name, location in ENGINES.items():
        if wanted not in ("auto", name):
            continue
        kind: type[Engine] = load_choice(location)
        reason = kind.unsupported(parts)
        if not reason:
            engine = kind(parts)
            engine.fallback = "; ".join(reasons)
            return engine
        reasons.append(f"{name}: {reason}")
    raise UsageError(f"`engine` must be one that supports this run, but got {reasons[0]}.")
