"""`load`: a policy from a checkpoint that plays without a trainer.

A checkpoint holds the spaces of its policy and the options of a default policy, so that `load` can
build it. Nothing that a file names is imported: users pass policies of their own classes.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from numpy.typing import ArrayLike
from torch import nn

from pufferlib import runs
from pufferlib.config import PolicyConfig
from pufferlib.errors import CheckpointError, UsageError, one_line, quoted
from pufferlib.models import make_policy
from pufferlib.policies.acting import Actor, prepare_policy, unwrapped
from pufferlib.policies.normalisation import ObservationNorm
from pufferlib.policies.observations import PolicySpaces, policy_spaces
from pufferlib.policies.recurrent import RecurrentState
from pufferlib.runs import checkpoint
from pufferlib.runs.checkpoint import Checkpoint
from pufferlib.spaces import (
    ActionLayout,
    Array,
    ObservationLayout,
    Space,
    space_from_json,
    space_to_json,
)

Layout: TypeAlias = ObservationLayout | ActionLayout
_norms: weakref.WeakKeyDictionary[nn.Module, ObservationNorm] = weakref.WeakKeyDictionary()


def note_norm(policy: nn.Module, norm: ObservationNorm | None) -> None:
    """Record the normalisation of the observations of `policy`, None for none."""
    _norms.pop(unwrapped(policy), None)
    if norm is not None:
        _norms[unwrapped(policy)] = norm


def norm_of(policy: nn.Module) -> ObservationNorm | None:
    """Return the normalisation that a trainer or `load` recorded for `policy`, if any."""
    return _norms.get(unwrapped(policy))


def check_spaces(env: PolicySpaces, wanted: PolicySpaces, whose: str) -> None:
    """Raise unless `env` has rows like `wanted`; `whose` completes the message."""
    pairs: list[tuple[str, Layout, Layout]] = [
        ("observation", wanted.observation, env.observation),
        ("action", wanted.action, env.action),
    ]
    for noun, own, given in pairs:
        if _rows_of(own) != _rows_of(given):
            raise UsageError(
                f"`env` must have the {noun} space {whose}, {own.space}, but has {given.space}."
            )


def check_saved_spaces(env: PolicySpaces, values: Mapping[str, Any]) -> None:
    """Raise unless `env` has rows like the env of a checkpoint with these values, if it has one."""
    try:
        wanted = _spaces(values)
    except (CheckpointError, *checkpoint.MALFORMED):  # a file of an older version
        return
    try:
        check_spaces(env, wanted, "of the checkpoint")
    except UsageError as error:
        raise CheckpointError(str(error)) from None


def _rows_of(layout: Layout) -> tuple[object, ...]:
    """Return the parts of a layout that a policy depends on: without the bounds of observations."""
    leaves = [(leaf.path, leaf.kind, leaf.shape, leaf.dtype, leaf.nvec) for leaf in layout.leaves]
    if isinstance(layout, ActionLayout):
        return layout.shape, layout.dtype, leaves, layout.low.tolist(), layout.high.tolist()
    return layout.shape, layout.dtype, leaves


class LoadedPolicy(nn.Module):
    """A policy from a checkpoint, ready to play: what `load` returns.

    `predict` needs neither trainer nor env. `policy` is the module itself, in eval mode; `metadata`
    was saved with it. `forward` is that of `policy`, and does not normalise observations.
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
        action_masks: ArrayLike | None = None,
    ) -> tuple[Array, RecurrentState]:
        """Return actions and the next state, as `PuffeRL.predict` does for the same arguments.

        With `deterministic=False`, actions are drawn by torch's global generator.
        """
        device = next(self.policy.parameters()).device
        actor = Actor(self.policy, self.spaces, device, normalise=self.observation_norm)
        return actor.predict(observations, state, deterministic, action_masks)


# ---- The values of a policy in a checkpoint ------------------------------------------------------


def values_of(policy: nn.Module, spaces: PolicySpaces) -> dict[str, Any]:
    """Return the JSON values that `load` needs besides the weights of a policy."""
    kind = type(unwrapped(policy))
    return {
        "policy": {
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "options": getattr(unwrapped(policy), "made_with", None),  # of make_policy only
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

    A folder means its latest checkpoint. Default policies are built from their saved options; for
    a policy of your own, pass an instance of its class as `policy`: nothing that the file names is
    imported or executed. A CheckpointError describes what does not fit.
    """
    _, path = runs.find_checkpoint(str(path_or_run), Path(run_dir), "path_or_run")
    return restored(checkpoint.load(path), path, policy, device)


def restored(
    saved: Checkpoint,
    path: Path,
    policy: nn.Module | None = None,
    device: str | torch.device = "cpu",
    spaces: PolicySpaces | None = None,
) -> LoadedPolicy:
    """Return the policy of a checkpoint that was read from `path`; see `load`.

    `spaces` replace those in the file; files of older versions have none.
    """
    try:
        spaces = _spaces(saved.values) if spaces is None else spaces
        if policy is None:
            policy = _built(saved, spaces)
        policy = policy.to(device)
        prepare_policy(policy, spaces)
        checkpoint.restore_module(unwrapped(policy), saved.tensors, "policy/")
        norm = None
        if checkpoint.under(saved.tensors, "observation_norm/"):
            norm = ObservationNorm(spaces.observation, torch.device(device))
            checkpoint.restore_module(norm, saved.tensors, "observation_norm/")
    except checkpoint.MALFORMED as error:
        raise CheckpointError(
            f"{one_line(path)} must describe a policy, but does not: {type(error).__name__}: "
            f"{one_line(error)}"
        ) from error
    except CheckpointError as error:
        raise CheckpointError(f"{one_line(path)}: {error}") from error
    note_norm(policy, norm)
    return LoadedPolicy(policy, spaces, norm, saved.metadata).eval()


class _Spaces(NamedTuple):
    """The attributes of an env that `make_policy` reads."""

    single_observation_space: Space
    single_action_space: Space
    agents_per_env: int


def _spaces(values: Mapping[str, Any]) -> PolicySpaces:
    if "spaces" not in values:
        raise CheckpointError(
            "the checkpoint must have the spaces of its policy, but older versions saved none. "
            "Try `PuffeRL(env, policy).load_checkpoint(path, weights_only=True)`."
        )
    given = values["spaces"]
    observation, action = (space_from_json(given[noun]) for noun in ("observation", "action"))
    num_agents = checkpoint.counter(given, "num_agents")
    return policy_spaces(_Spaces(observation, action, num_agents))


def _built(saved: Checkpoint, spaces: PolicySpaces) -> nn.Module:
    """Return a new default policy with the options in the file."""
    options = saved.values["policy"]["options"]
    if options is None:
        raise CheckpointError(
            "only default policies can be built from a file, but this one is of class "
            f"{quoted(saved.values['policy']['class'])}. "
            "Try `pufferlib.load(path, policy=...)` with an instance of it."
        )
    options = {name: option for name, option in options.items() if option is not None}
    PolicyConfig.from_dict(options)
    env = _Spaces(spaces.observation.space, spaces.action.space, spaces.num_agents)
    # a forged file may describe any size: never allocate more than it holds
    numbers = sum(part.numel() for part in checkpoint.under(saved.tensors, "policy/").values())
    with torch.device("meta"):
        like = make_policy(env, **{**options, "recurrent": "none"})
    size = sum(part.numel() for part in like.parameters())
    width = 0 if options.get("recurrent", "none") == "none" else options.get("hidden_size", 0)
    if max(size, width * width) > 4 * numbers:
        raise CheckpointError(
            f"the checkpoint must hold the policy it describes, but has only {numbers} numbers."
        )
    return make_policy(env, **options)
