"""Playing a policy: from observations to actions, with or without a trainer; and `load`.

A checkpoint says which spaces a policy is for and how the default policy was made, so that `load`
can build it again. Nothing that a file names is imported: the user passes a policy of their own.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import nn

from pufferlib import runs
from pufferlib.config import PolicyConfig
from pufferlib.errors import CheckpointError, UsageError, one_line, quoted
from pufferlib.models import make_policy
from pufferlib.policies.acting import Actor
from pufferlib.policies.calling import prepare_policy, unwrapped
from pufferlib.policies.normalisation import ObservationNorm
from pufferlib.policies.observations import PolicySpaces, policy_spaces
from pufferlib.policies.recurrent import RecurrentState
from pufferlib.runs import checkpoint
from pufferlib.runs.checkpoint import Checkpoint
from pufferlib.spaces import Space, space_from_json, space_to_json

_norms: weakref.WeakKeyDictionary[nn.Module, ObservationNorm] = weakref.WeakKeyDictionary()


def note_norm(policy: nn.Module, norm: ObservationNorm | None) -> None:
    """Note the statistics through which `policy` sees observations, None where it sees them raw."""
    _norms.pop(unwrapped(policy), None)
    if norm is not None:
        _norms[unwrapped(policy)] = norm


def norm_of(policy: nn.Module) -> ObservationNorm | None:
    """Return the statistics that a trainer or `load` noted for `policy`, if it has any."""
    return _norms.get(unwrapped(policy))


def check_spaces(env: PolicySpaces, wanted: PolicySpaces, whose: str) -> None:
    """Raise unless `env` has rows like `wanted`; `whose` says for the message what that is."""
    for noun in ("observation", "action"):
        own, given = getattr(wanted, noun), getattr(env, noun)
        if _rows_of(own) != _rows_of(given):
            raise UsageError(
                f"`env` must have the {noun} space {whose}, {own.space}, but has {given.space}."
            )


def _rows_of(layout: Any) -> tuple[Any, ...]:
    """Return what a policy depends on in a layout; bounds of observations are no part of it."""
    leaves = [(leaf.path, leaf.kind, leaf.shape, leaf.dtype, leaf.nvec) for leaf in layout.leaves]
    bounds = [
        part.tolist()
        for part in (getattr(layout, "low", None), getattr(layout, "high", None))
        if part is not None
    ]
    return layout.shape, layout.dtype, leaves, bounds


class LoadedPolicy(nn.Module):
    """A policy from a checkpoint, ready to play: what `load` returns.

    `predict` needs neither trainer nor env. `policy` is the module itself, in eval mode; `metadata`
    is what was saved with it. `forward` is that of `policy`, on observations as it sees them.
    """

    def __init__(
        self,
        policy: nn.Module,
        spaces: PolicySpaces,
        observation_norm: ObservationNorm | None = None,
        metadata: Any = None,
    ) -> None:
        super().__init__()
        self.policy, self.spaces, self.metadata = policy, spaces, metadata
        self.observation_norm = observation_norm

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.policy(*args, **kwargs)

    def predict(
        self,
        observations: Any,
        state: RecurrentState = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[NDArray[Any], RecurrentState]:
        """Return actions and the next state, as `PuffeRL.predict` does for the same arguments.

        Without `deterministic`, actions are drawn by torch's global generator.
        """

        device = next(self.policy.parameters()).device
        actor = Actor(self.policy, self.spaces, device, normalise=self.observation_norm)
        return actor.predict(observations, state, deterministic, action_masks)


# ---- What a checkpoint says of its policy, and back ----------------------------------------------


def facts_of(policy: nn.Module, spaces: PolicySpaces) -> dict[str, Any]:
    """Return as JSON values what `load` must know of a policy besides its weights."""
    kind = type(unwrapped(policy))
    return {
        "policy": {
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "options": getattr(unwrapped(policy), "made_with", None),
        },
        "spaces": {
            "observation": space_to_json(spaces.observation.space),
            "action": space_to_json(spaces.action.space),
            "num_agents": spaces.num_agents,
        },
    }


def load(
    path_or_run: str | Path,
    policy: nn.Module | None = None,
    *,
    device: str | torch.device = "cpu",
    run_dir: str | Path = "runs",
) -> LoadedPolicy:
    """Return the policy of a checkpoint, a run's folder or a run in `run_dir`, ready to play.

    A folder means its latest checkpoint. The default policies are built again as they were; where
    a run has trained a policy of your own, pass one like it as `policy`: nothing that the file
    names is imported or executed. A CheckpointError says what does not fit.
    """
    path = _checkpoint_path(path_or_run, Path(run_dir))
    return restored(checkpoint.load(path), path, policy, device)


def _checkpoint_path(path_or_run: str | Path, base: Path) -> Path:
    found = runs.find(str(path_or_run), base)
    if found is None:
        raise UsageError(
            f"`path_or_run` must be a checkpoint, the folder of a run or a run in {base}, but got "
            f"{quoted(Path(path_or_run))}."
        )
    return found.checkpoint or found.run.latest


def restored(
    saved: Checkpoint,
    path: Path,
    policy: nn.Module | None = None,
    device: str | torch.device = "cpu",
    spaces: PolicySpaces | None = None,
) -> LoadedPolicy:
    """Return the policy of a checkpoint that was read from `path`; see `load`.

    `spaces` take the place of those in the file, which has none if it is of an older version.
    """
    try:
        spaces = _spaces(saved.facts) if spaces is None else spaces
        if policy is None:
            policy = _built(saved, spaces)
        policy = policy.to(device)
        prepare_policy(policy, spaces)
        checkpoint.restore_module(unwrapped(policy), saved.tensors, "policy/")
        norm = None
        if checkpoint.under(saved.tensors, "observation_norm/"):
            norm = ObservationNorm(spaces.observation, torch.device(device))
            checkpoint.restore_module(norm, saved.tensors, "observation_norm/")
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        raise CheckpointError(
            f"{one_line(path)} must describe a policy, but does not: {type(error).__name__}: "
            f"{one_line(error)}"
        ) from error
    except CheckpointError as error:
        raise CheckpointError(f"{one_line(path)}: {error}") from error
    note_norm(policy, norm)
    return LoadedPolicy(policy, spaces, norm, saved.metadata).eval()


class _Spaces(NamedTuple):
    """In place of an env: what `make_policy` asks of one."""

    single_observation_space: Space
    single_action_space: Space
    agents_per_env: int


def _spaces(facts: Mapping[str, Any]) -> PolicySpaces:
    if "spaces" not in facts:
        raise CheckpointError(
            "the checkpoint must hold the spaces of its policy, but older versions saved none. "
            "Try `PuffeRL(env, policy).load_checkpoint(path, weights_only=True)`."
        )
    given = facts["spaces"]
    observation, action = (space_from_json(given[noun]) for noun in ("observation", "action"))
    num_agents = checkpoint.counter(given, "num_agents")
    return policy_spaces(_Spaces(observation, action, num_agents))


def _built(saved: Checkpoint, spaces: PolicySpaces) -> nn.Module:
    """Return a default policy as the file describes it, with weights of its own."""
    options = saved.facts["policy"]["options"]
    if options is None:
        raise CheckpointError(
            f"the policy must be a default one to be built again, but is of class "
            f"{quoted(saved.facts['policy']['class'])}, which a file cannot import. "
            "Try `pufferlib.load(path, policy=...)` with one like it."
        )
    options = {name: option for name, option in options.items() if option is not None}
    PolicyConfig.from_dict(options)
    env = _Spaces(spaces.observation.space, spaces.action.space, spaces.num_agents)
    # a forged file may describe any size: what it does not hold is never allocated
    numbers = sum(part.numel() for part in checkpoint.under(saved.tensors, "policy/").values())
    with torch.device("meta"):
        like = make_policy(env, **{**options, "recurrent": "none"})
    size = sum(part.numel() for part in like.parameters())
    width = 0 if options.get("recurrent", "none") == "none" else options.get("hidden_size", 0)
    if max(size, width * width) > 4 * numbers:
        raise CheckpointError(
            f"the checkpoint must hold the policy that it describes, but has {numbers} numbers."
        )
    return make_policy(env, **options)
