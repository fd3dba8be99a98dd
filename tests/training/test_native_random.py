"""One update of the native engine equals that of torch for random spaces, networks and options.

test_native_engine.py and test_native_recurrent.py have the cases that were thought of; these are
the others. More of them: `EXAMPLES=500 pytest tests/training/test_native_random.py`.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from engines import MaskedToy, Toy, emulated, let_agents_leave, pair
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pufferlib.training import rollout
from pufferlib.training.native_engine import NativeEngine
from pufferlib.training.torch_engine import TorchEngine
from pufferlib.training.trainer import PuffeRL

pytestmark = pytest.mark.slow
EXAMPLES = int(os.environ.get("EXAMPLES", "40"))
TOLERANCE = 1e-5  # of a weight, relative to the largest of its tensor
ULP = 6e-8  # relative
TRIALS = 3


# ---- Cases ---------------------------------------------------------------------------------------


@st.composite
def boxes(draw: Any) -> Box:
    count = draw(st.sampled_from([1, 2, 3, 5, 17, 33]))
    if draw(st.booleans()):
        return Box(-np.inf, np.inf, (count,), np.float32)
    low = np.array(draw(st.lists(st.floats(-3, 1, width=32), min_size=count, max_size=count)))
    width = draw(st.sampled_from([0.5, 1.0, 4.0, 10.0]))
    return Box(low.astype(np.float32), (low + width).astype(np.float32))


def counts(most: int, *choices: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(choices), min_size=1, max_size=most)


observations: st.SearchStrategy[gymnasium.Space[Any]] = st.one_of(
    boxes(),
    st.sampled_from([(3,), (4, 5), (130,)]).map(lambda shape: Box(0, 255, shape, np.uint8)),
    st.builds(Discrete, st.sampled_from([1, 2, 7, 200]), start=st.sampled_from([0, -3, 5])),
    counts(5, 1, 2, 3, 9, 40).map(MultiDiscrete),
    st.sampled_from([1, 4, 9]).map(MultiBinary),
    st.builds(
        lambda size, dtype: Box(-5, 7, (size,), dtype),
        st.sampled_from([1, 4, 19]),
        st.sampled_from([np.float64, np.int32, np.int64, np.float32]),
    ),
)
choices = st.builds(
    Discrete, st.sampled_from([1, 2, 3, 5, 8, 9, 16, 17, 70]), start=st.sampled_from([0, 2])
)
actions: st.SearchStrategy[gymnasium.Space[Any]] = st.one_of(
    choices,
    counts(7, 1, 2, 3, 4, 9).map(MultiDiscrete),
    st.sampled_from([1, 3, 8]).map(MultiBinary),
    boxes(),
    st.builds(lambda choice, reals: Tuple((choice, reals)), choices, boxes()),
)


@st.composite
def policies(draw: Any) -> dict[str, Any]:
    core = draw(st.sampled_from(["none", "none", "lstm", "gru", "mingru"]))
    return {
        "recurrent": core,
        "separate": core == "none" and draw(st.booleans()),
        "activation": draw(st.sampled_from(["relu", "tanh"])),
        "num_layers": draw(st.sampled_from([1, 2, 3, 5])),
        "hidden_size": draw(st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 48, 64, 65, 130])),
        "squash": draw(st.booleans()),
    }


# Not 0 for a clip range: there rounding alone decides what is clipped.
options: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"batch_size": st.sampled_from([640, 960, 1024, 1600, 2048])},
    optional={
        "vf_clip_coef": st.sampled_from([0.05, 0.3]),
        "clip_coef": st.sampled_from([0.02, 1.0]),
        "vf_coef": st.sampled_from([0.0, 2.0]),
        "ent_coef": st.sampled_from([0.0, 0.3]),
        "norm_adv": st.just(False),
        "norm_reward": st.just(False),
        "norm_obs": st.just(True),
        "max_grad_norm": st.sampled_from([None, 0.01, 10.0]),
        "optimizer": st.just("muon"),
        "num_steps": st.sampled_from([1, 2, 5, 8, 16]),
        "prio_alpha": st.sampled_from([0.5, 1.0]),
        "reward_scale": st.sampled_from([0.1, 5.0]),
        "reward_clip": st.just(0.5),
        "gamma": st.sampled_from([0.0, 0.9, 1.0]),
        "gae_lambda": st.sampled_from([0.0, 1.0]),
        "torch_threads": st.sampled_from([1, 3]),
    },
)


class Case(NamedTuple):
    """What two runs have in common."""

    observation: gymnasium.Space[Any]
    action: gymnasium.Space[Any]
    has_masks: bool
    policy: dict[str, Any]
    options: dict[str, Any]
    agents_leave: bool

    def runs(self) -> tuple[PuffeRL, PuffeRL]:
        """Return a run of torch and a native one, with equal weights and rollouts."""
        kind = MaskedToy if self.has_masks and _is_maskable(self.action) else Toy
        chosen = {**self.options, "n_epochs": 1, "minibatch_size": self.options["batch_size"]}
        if self.observation.dtype != np.float32:
            chosen["norm_obs"] = False  # there is nothing to normalise
        runs = pair(lambda: emulated(self.observation, self.action, kind), self.policy, **chosen)
        return let_agents_leave(runs) if self.agents_leave else runs


cases = st.builds(
    Case, observations, actions, st.booleans(), policies(), options, st.sampled_from([False, True])
)


def _is_maskable(action: gymnasium.Space[Any]) -> bool:
    """Return whether MaskedToy leaves a legal choice in each component."""
    if isinstance(action, MultiDiscrete):
        return bool((action.nvec > 1).all())
    return isinstance(action, Tuple) and bool(action.spaces[0].n > 1)


# ---- The claim -----------------------------------------------------------------------------------


def _trained(run: PuffeRL, trial: int) -> list[Tensor]:
    """Return the weights after one update, from weights that a trial above 0 moved by an ulp."""
    generator = torch.Generator().manual_seed(trial)
    with torch.no_grad():
        for parameter in run.policy.parameters() if trial else ():
            signs = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
            parameter.mul_(1 + ULP * signs)
    assert run.train()["updates"] == 1
    return [parameter.detach() for parameter in run.policy.parameters()]


def _drawn(run: PuffeRL) -> Tensor:
    """Return the units that the run will draw by their advantages."""
    engine = run.engine
    assert isinstance(engine, TorchEngine)
    advantages = engine.targets(engine.rollout).advantages
    if isinstance(engine, NativeEngine):
        engine._set_targets()
        torch.testing.assert_close(engine._targets.advantages, advantages, rtol=1e-5, atol=1e-5)
        advantages = engine._targets.advantages
    rng = torch.Generator().set_state(engine._rng.get_state())
    priority = rollout.Priority(run.config.prio_alpha, 1.0)
    return rollout.draw(engine.rollout, advantages, run.shape, rng, run.world, priority).units


def _distance(some: list[Tensor], others: list[Tensor]) -> float:
    pairs = zip(some, others, strict=True)
    return max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)


@pytest.mark.filterwarnings("ignore:`batch_size` is rounded:UserWarning")
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # to shrink a case takes minutes
    suppress_health_check=list(HealthCheck),
)
@given(cases)
def test_one_update_equals_that_of_torch(case: Case) -> None:
    errors, plain = [], None
    for trial in range(TRIALS):
        runs = case.runs()
        assert [run.engine.name for run in runs] == ["torch", "native"]
        # An advantage that differs by an ulp may move the border between two units across a random
        # number: then the runs train on other units, and there is nothing to compare.
        assume(torch.equal(*map(_drawn, runs)))
        theirs, ours = (_trained(run, trial) for run in runs)
        plain = theirs if plain is None else plain
        # A network may be so deep that an ulp moves torch's own weights further than the tolerance,
        # or rounding may switch a ReLU; but it does not do so from every start.
        allowed = max(TOLERANCE, 4 * _distance(plain, theirs))
        errors.append(_distance(theirs, ours))
        for run in runs:
            run.close()
            run.env.close()
        if errors[-1] <= allowed:
            return
    pytest.fail(f"the weights differ by {errors}")
