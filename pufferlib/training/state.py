"""TrainState: what changes from one iteration to the next, besides weights and statistics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from pufferlib.distributed.world import SlotGenerator
from pufferlib.episodes import EpisodeWindow
from pufferlib.training.rollout import Carry


@dataclass
class TrainState:
    """Counters, random generators and the envs' side of a run: saved and restored as one."""

    learning_rate: float  # before annealing
    order_rng: torch.Generator  # of minibatches; on the CPU, so that no order depends on the device
    sample_rng: SlotGenerator  # of actions
    carry: Carry  # the last batches and the recurrent state
    episodes: EpisodeWindow  # the last episodes
    iteration: int = 0
    steps: int = 0
    has_rollout: bool = False  # one that `train` may use
    earlier_uptime: float = 0.0  # seconds before this process took over
    started: float = field(default_factory=time.perf_counter)
