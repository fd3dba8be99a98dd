"""Saving and resuming a run: its tensors and values in a checkpoint, and back.

Both directions are in this file: all that `tensors_of` and `values_of` save, `_resume` restores.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pufferlib.distributed.world import SlotGenerator, World, on_first
from pufferlib.episodes import EpisodeWindow
from pufferlib.errors import CheckpointError, NonFiniteError, UsageError, one_line, quoted
from pufferlib.policies.acting import unwrapped
from pufferlib.policies.recurrent import map_state
from pufferlib.runs import checkpoint, loading
from pufferlib.runs.checkpoint import Form
from pufferlib.selfplay import SelfPlay
from pufferlib.training.rollout import Carry, take_batches

if TYPE_CHECKING:
    from pufferlib.training.trainer import PuffeRL


@dataclass
class TrainState:
    """What changes from one iteration to the next, besides weights and statistics."""

    learning_rate: float  # before annealing
    order_rng: torch.Generator  # of minibatches; on the CPU, so that no order depends on the device
    sample_rng: SlotGenerator  # of actions
    carry: Carry  # the last batches and the recurrent state
    episodes: EpisodeWindow  # the last episodes
    iteration: int = 0
    spent: int = 0  # of the budget, in iterations; not `iteration` if the batch size has changed
    steps: int = 0
    has_rollout: bool = False  # one that `train` may use
    earlier_uptime: float = 0.0  # seconds before this process took over
    started: float = field(default_factory=time.perf_counter)


def save(run: PuffeRL, path: str | Path, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a run to one file; all processes must call this.

    Raises for numbers that `load` would refuse because they are not finite: a NonFiniteError with
    `on_nan = stop`, else a CheckpointError.
    """
    tensors, values = tensors_of(run), values_of(run)  # needs all processes
    names = [name for name in tensors if name.startswith("optimizer/")]
    for prefix, module in _modules(run).items():
        names += [f"{prefix}/{key}" for key in sorted(checkpoint.finite_names(module))]
    for name in names:
        if not tensors[name].isfinite().all():
            kind = NonFiniteError if run.config.on_nan == "stop" else CheckpointError
            raise kind(
                f"`{name}` must be finite to be saved, but is not after iteration {run.iteration}. "
                "Try a lower learning_rate or a larger adam_eps."
            )
    if run.world.is_first:
        checkpoint.save(path, tensors, values, metadata)


def tensors_of(run: PuffeRL) -> dict[str, Tensor]:
    """Return all arrays of a run by name; all processes must call this."""
    tensors = checkpoint.optimizer_tensors(run.optimizer)
    for name, module in _modules(run).items():
        tensors |= {f"{name}/{key}": part for key, part in module.state_dict().items()}
    tensors["rng/order"] = run.state.order_rng.get_state()
    tensors["rng/sample"] = run.state.sample_rng.get_state()
    tensors["rng/torch"] = torch.get_rng_state()
    env_state = run.env.snapshot()
    if env_state is not None:
        join = run.world.join_rows
        tensors["env/state"] = join(torch.from_numpy(env_state))
        tensors["carry/resets"] = join(run.state.carry.resets)
        tensors["carry/has_ended"] = join(torch.from_numpy(run.state.episodes.has_ended))
        tensors |= checkpoint.pack(map_state(join, run.state.carry.state), "state/")[1]
    if "reward_norm/returns" in tensors:
        tensors["reward_norm/returns"] = run.world.join_rows(tensors["reward_norm/returns"])
    if run.self_play is not None:
        own = run.self_play.tensors()
        tensors |= {f"self_play/{name}": part for name, part in own.items()}
    return tensors


def _modules(run: PuffeRL) -> dict[str, nn.Module]:
    """Return by name the modules whose parameters and buffers a checkpoint holds."""
    parts = {
        "policy": unwrapped(run.policy),
        "observation_norm": run.observation_norm,
        "reward_norm": run.reward_norm,
    }
    return {name: part for name, part in parts.items() if part is not None}


def values_of(run: PuffeRL) -> dict[str, Any]:
    """Return the JSON values of a run; all processes must call this."""
    own = {} if run.self_play is None else {"self_play": run.self_play.values()}
    return {
        **own,
        "iteration": run.iteration,
        "spent": run.state.spent,
        "steps": run.steps,
        "uptime": run.uptime,
        "learning_rate": run.learning_rate,
        "episodes": run.state.episodes.rollouts,
        "state": checkpoint.pack(run.state.carry.state, "state/")[0],
        "train": asdict(run.config),
        **loading.values_of(run.policy, run.spaces),
    }


def load(run: PuffeRL, path: str | Path, weights_only: bool = False) -> Any:
    """Restore a run, or only its policy, from a file; return the file's metadata.

    If the file does not fit, the run stays unchanged.
    """
    before = {  # past policies never change, and may be large
        name: part if name.startswith("self_play/pool/") else part.clone()
        for name, part in tensors_of(run).items()
    }
    values, had_rollout = values_of(run), run.state.has_rollout
    most = None if weights_only else _most_bytes(run, before)

    def read() -> checkpoint.Checkpoint:
        return checkpoint.load(path, None, partial(_check_forms, run, most))

    saved = read() if run.world.is_one_machine else _read_on_first(run.world, read)
    misfit = None
    try:
        if weights_only:
            _restore_modules(run, saved.tensors, ("policy", "observation_norm"))
        else:
            misfit = _resume(run, saved.tensors, saved.values)
    except Exception as error:
        _resume(run, before, values)
        run.state.has_rollout = had_rollout
        if isinstance(error, CheckpointError):
            raise
        kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
        reason = one_line(f"{kind}{error}")
        raise CheckpointError(f"{one_line(path)} does not fit this run: {reason}") from error
    if misfit is not None and run.world.is_first:
        warnings.warn(f"{misfit}: new episodes begin.", RuntimeWarning, stacklevel=3)
    return saved.metadata


def _read_on_first(
    world: World, read: Callable[[], checkpoint.Checkpoint]
) -> checkpoint.Checkpoint:
    """Read a checkpoint on rank 0, and send it to the other machines, which may not have it."""
    tensors: dict[str, Tensor] = {}

    def rest() -> tuple[dict[str, Any], Any]:
        saved = read()
        tensors.update(saved.tensors)
        return saved.values, saved.metadata

    values, metadata = on_first(rest)
    return checkpoint.Checkpoint(world.send_from_first(tensors), values, metadata)


def _most_bytes(run: PuffeRL, tensors: Mapping[str, Tensor]) -> int:
    """Return the largest size of a checkpoint with as many slots that fits this run."""
    most = 4 * sum(part.nbytes for part in tensors.values()) + (64 << 20)
    if run.self_play is not None:  # the pool in the file may have more members
        one = sum(part.nbytes for part in run.policy.state_dict().values())
        most += 2 * run.self_play.pool.size * one
    return most


def _resume(run: PuffeRL, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> str | None:
    """Restore a run; return why its episodes could not be, None if they were."""
    iteration, steps = (checkpoint.counter(values, name) for name in ("iteration", "steps"))
    spent = checkpoint.spent(values, run.config)
    for name in ("rng/order", "rng/torch"):
        checkpoint.check_rng(tensors[name])
    if run.self_play is not None:
        tensors = _resume_pool(run, run.self_play, tensors, values)
    misfit = _misfit(run, tensors) if "env/state" in tensors else None
    returns = tensors.get("reward_norm/returns")
    if misfit is not None:
        tensors = _without_episodes(run, tensors)
    elif "env/state" in tensors:
        _resume_env(run, tensors, values)
    elif returns is not None and len(returns) != _num_slots(run):
        tensors = _without_episodes(run, tensors)
    _restore_modules(run, tensors, _modules(run))
    kind = values["train"]["optimizer"]
    if kind != run.config.optimizer:
        raise CheckpointError(
            f"`optimizer` must be {quoted(kind)} to resume from this checkpoint, but is "
            f"`{run.config.optimizer}`. Try weights_only=True."
        )
    checkpoint.restore_optimizer(run.optimizer, tensors)
    run.state.order_rng.set_state(tensors["rng/order"])
    checkpoint.restore_rng(run.state.sample_rng, tensors["rng/sample"])
    torch.set_rng_state(tensors["rng/torch"])
    run.state.iteration, run.state.spent, run.state.steps = iteration, spent, steps
    run.learning_rate = checkpoint.number(values, "learning_rate")
    run.state.episodes = _window(run, tensors, values)
    run.state.has_rollout = False
    run.rollout.forget()  # incomplete segments belong to the old run
    run.state.earlier_uptime = checkpoint.number(values, "uptime")
    run.state.started = time.perf_counter()
    run.restart_clock()
    if misfit is not None:  # last: the episodes of envs without snapshots cannot be brought back
        run.state.carry = run.restart_episodes()
    return misfit


def _num_slots(run: PuffeRL) -> int:
    """Return the number of slots of all processes."""
    return run.env.num_agents * run.world.size


def _without_episodes(run: PuffeRL, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors of a checkpoint without the episodes under way."""
    kept = {name: part for name, part in tensors.items() if name != "env/state"}
    if run.reward_norm is not None:
        kept["reward_norm/returns"] = run.reward_norm.returns.new_zeros(_num_slots(run))
    return kept


def _misfit(run: PuffeRL, tensors: Mapping[str, Tensor]) -> str | None:
    """Return why the snapshots of a checkpoint do not fit the envs of this run; None if they do.

    Raises if they are of another env, or contradict each other.
    """
    env, state, resets = run.env, tensors["env/state"], tensors["carry/resets"]
    is_whole = state.dtype == torch.uint8 and state.dim() == 2 and len(state) > 0
    if not is_whole or resets.dtype != torch.bool or resets.dim() != 1:
        raise CheckpointError("the checkpoint must have a snapshot of each env, but has none.")
    if len(resets) != len(state) * env.agents_per_env:
        raise CheckpointError(
            f"the checkpoint must have {env.agents_per_env} slots for each env, but has "
            f"{len(resets)} slots for {len(state)} envs."
        )
    if env.snapshot() is None:
        return f"the checkpoint has snapshots, which {type(env).__name__} cannot restore"
    if len(resets) == _num_slots(run):
        return None
    env.restore(state[:1].numpy(), env=0)  # raises unless env and params are the same
    return f"the checkpoint has {len(resets)} slots, but this run has {_num_slots(run)}"


def _window(
    run: PuffeRL, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
) -> EpisodeWindow:
    """Return the last episodes; where the envs restart, only finished new ones are added."""
    window = EpisodeWindow(run.env.num_agents)
    rollouts = values.get("episodes", [])  # missing in files of older versions
    if not isinstance(rollouts, list) or len(rollouts) > window.size:
        raise CheckpointError(f"`episodes` must be a list of at most {window.size} rollouts.")
    for rollout in rollouts:
        if checkpoint.number(rollout, "episodes") < 1:
            raise CheckpointError("`episodes` of a rollout must be at least 1.")
        window.add({str(name): float(value) for name, value in rollout.items()})
    if "env/state" in tensors and "carry/has_ended" in tensors:
        window.has_ended[:] = run.world.own_rows(tensors["carry/has_ended"]).numpy()
    return window


def _resume_env(run: PuffeRL, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Restore the snapshots of the envs and the recurrent state of every slot."""
    resets = run.world.own_rows(tensors["carry/resets"]).to(run.device)
    state = checkpoint.unpack(values["state"], tensors, "state/")
    state = map_state(lambda part: run.world.own_rows(part).to(run.device), state)
    run.env.restore(run.world.own_rows(tensors["env/state"]).numpy())
    if run.self_play is not None:
        own = checkpoint.under(tensors, "self_play/")
        run.self_play.load_recurrent_state(own, values["self_play"], run.policy)
    batches = take_batches(run.env)
    run.state.carry = Carry(batches, state, resets)
    shown = map_state(lambda part: part[batches[0].slots], state)
    # the policy must accept the state and return one like it
    _, after = run.predict(batches[0].observations, shown)
    whole = all(part.shape[:1] == resets.shape for part in checkpoint.pack(state, "")[1].values())
    if state is not None and not (whole and checkpoint.is_alike(shown, after)):
        raise CheckpointError("the checkpoint has a recurrent state that does not fit the policy.")


def _resume_pool(
    run: PuffeRL, self_play: SelfPlay, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
) -> Mapping[str, Tensor]:
    """Restore the past policies; return the tensors from which the rest is to be restored.

    A checkpoint without a pool is from a run without self-play, which has other slots.
    """
    if "self_play" in values:
        own = checkpoint.under(tensors, "self_play/")
        self_play.load_pool(own, values["self_play"], run.policy, run.observation_norm)
        return tensors
    self_play.reset_pool()
    message = "the checkpoint has no pool of past policies: self-play starts a new one."
    warnings.warn(message, RuntimeWarning, stacklevel=5)
    return _without_episodes(run, tensors)


def _check_forms(
    run: PuffeRL, most: int | None, forms: Mapping[str, Form], values: Mapping[str, Any]
) -> None:
    """Raise unless a file has exactly the parameters and statistics of this run.

    Without `most` only those of the policy count. With it, the file may have that many bytes, and
    more where it has more slots.
    """
    own, weights_only = _modules(run), most is None
    if most is not None and "carry/resets" in forms:
        num_slots = math.prod(forms["carry/resets"].shape)
        most *= max(1, -(-num_slots // _num_slots(run)))
    size = sum(math.prod(form.shape) * form.dtype.itemsize for form in forms.values())
    if most is not None and size > most:
        raise CheckpointError(f"the checkpoint must have at most {most:,} bytes, but has {size:,}.")
    for option, name in (("norm_obs", "observation_norm"), ("norm_reward", "reward_norm")):
        is_there = any(key.startswith(f"{name}/") for key in forms)
        if is_there != (name in own) and not (weights_only and option == "norm_reward"):
            raise CheckpointError(
                f"`{option}` must be {str(is_there).lower()} to resume from this checkpoint, "
                f"but is {str(name in own).lower()}."
            )
    for name in ("policy", "observation_norm"):
        if name in own:
            try:
                checkpoint.check_form(own[name], forms, f"{name}/")
            except CheckpointError:
                loading.check_saved_spaces(run.spaces, values)  # which says more, if it raises
                raise


def _restore_modules(run: PuffeRL, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    modules = _modules(run)
    if "reward_norm/returns" in tensors:
        returns = run.world.own_rows(tensors["reward_norm/returns"])
        tensors = {**tensors, "reward_norm/returns": returns}
    for name in names:
        if name in modules:
            checkpoint.restore_module(modules[name], tensors, f"{name}/")
