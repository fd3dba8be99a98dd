"""Resuming: all that a run is, as tensors and facts in a file, and back.

A part of the trainer in a file of its own, where both ways stand side by side: what is saved here
must be put back there, or a resumed run is another one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pufferlib.episodes import EpisodeWindow
from pufferlib.errors import CheckpointError, NonFiniteError, UsageError, one_line, quoted
from pufferlib.policies.calling import unwrapped
from pufferlib.policies.recurrent import map_state
from pufferlib.runs import checkpoint, loading
from pufferlib.runs.checkpoint import Form
from pufferlib.selfplay import SelfPlay
from pufferlib.training.rollout import Carry, take_batches

if TYPE_CHECKING:
    from pufferlib.training.trainer import PuffeRL


def save(run: PuffeRL, path: str | Path, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a run to one file; all processes must call this.

    What `load` would refuse since it is not finite is not saved: a NonFiniteError where the run is
    to stop for that, else a CheckpointError.
    """
    tensors, facts = tensors_of(run), facts_of(run)  # all processes have a part in them
    for name in _finite_names(run, tensors):
        if not tensors[name].isfinite().all():
            kind = NonFiniteError if run.config.on_nan == "stop" else CheckpointError
            raise kind(
                f"`{name}` must be finite to be saved, but is not after iteration {run.iteration}. "
                "Try a lower learning_rate, or a larger adam_eps"
            )
    if run.world.is_first:
        checkpoint.save(path, tensors, facts, metadata)


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
    """Return by name all that a checkpoint holds the parameters and buffers of."""
    parts = {
        "policy": unwrapped(run.policy),
        "observation_norm": run.observation_norm,
        "reward_norm": run.reward_norm,
    }
    return {name: part for name, part in parts.items() if part is not None}


def _finite_names(run: PuffeRL, tensors: Iterable[str]) -> list[str]:
    """Return the names of a checkpoint's tensors that must be finite."""
    parts = {f"{name}/": checkpoint.finite_names(part) for name, part in _modules(run).items()}
    learnt = {prefix + key for prefix, keys in parts.items() for key in keys}
    return [name for name in tensors if name in learnt or name.startswith("optimizer/")]


def facts_of(run: PuffeRL) -> dict[str, Any]:
    """Return all else of a run, as JSON values; all processes must call this."""
    own = {} if run.self_play is None else {"self_play": run.self_play.facts()}
    return {
        **own,
        "iteration": run.iteration,
        "steps": run.steps,
        "uptime": run.uptime,
        "learning_rate": run.learning_rate,
        "episodes": run.state.episodes.rollouts,
        "state": checkpoint.pack(run.state.carry.state, "state/")[0],
        "train": asdict(run.config),
        **loading.facts_of(run.policy, run.spaces),
    }


def load(run: PuffeRL, path: str | Path, weights_only: bool = False) -> Any:
    """Put a run, or only its policy, back to what the file says; return the file's metadata.

    A file that does not fit changes nothing.
    """
    before = {  # past policies never change, and may be large
        name: part if name.startswith("self_play/pool/") else part.clone()
        for name, part in tensors_of(run).items()
    }
    facts, had_rollout = facts_of(run), run.state.has_rollout
    most = _most_bytes(run, before)
    saved = checkpoint.load(
        path,
        None if weights_only else most,
        lambda forms: _check_forms(run, forms, weights_only),
    )
    try:
        if weights_only:
            _restore_modules(run, saved.tensors, ("policy", "observation_norm"))
        else:
            _resume(run, saved.tensors, saved.facts)
    except Exception as error:
        _resume(run, before, facts)
        run.state.has_rollout = had_rollout
        if isinstance(error, CheckpointError):
            raise
        kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
        reason = one_line(f"{kind}{error}")
        raise CheckpointError(f"{one_line(path)} does not fit this run: {reason}") from error
    return saved.metadata


def _most_bytes(run: PuffeRL, tensors: Mapping[str, Tensor]) -> int:
    """Return how large a checkpoint that fits this run can be."""
    most = 4 * sum(part.nbytes for part in tensors.values()) + (64 << 20)
    if run.self_play is not None:  # its pool may be fuller there than here
        one = sum(part.nbytes for part in run.policy.state_dict().values())
        most += 2 * run.self_play.pool.size * one
    return most


def _resume(run: PuffeRL, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    iteration, steps = (checkpoint.counter(facts, name) for name in ("iteration", "steps"))
    for name in ("rng/order", "rng/torch", *(["rng/sample"] * (run.device.type == "cpu"))):
        checkpoint.check_rng(tensors[name])
    if run.self_play is not None:
        tensors = _resume_pool(run, run.self_play, tensors, facts)
    if "env/state" in tensors:
        _resume_env(run, tensors, facts)
    _restore_modules(run, tensors, _modules(run))
    kind = facts["train"]["optimizer"]
    if kind != run.config.optimizer:
        raise CheckpointError(
            f"`optimizer` must be {quoted(kind)} to go on from this checkpoint, but is "
            f"`{run.config.optimizer}`. Try weights_only=True."
        )
    checkpoint.restore_optimizer(run.optimizer, tensors)
    run.state.order_rng.set_state(tensors["rng/order"])
    run.state.sample_rng.set_state(tensors["rng/sample"])
    torch.set_rng_state(tensors["rng/torch"])
    run.state.iteration, run.state.steps = iteration, steps
    run.learning_rate = checkpoint.number(facts, "learning_rate")
    run.state.episodes = _window(run, tensors, facts)
    run.state.has_rollout = False
    run.rollout.forget()  # incomplete segments belong to the run before
    run.state.earlier_uptime = checkpoint.number(facts, "uptime")
    run.state.started = time.perf_counter()
    run.restart_clock()


def _window(run: PuffeRL, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> EpisodeWindow:
    """Return the last episodes; envs that begin new ones must end them before scores count."""
    window = EpisodeWindow(run.env.num_agents)
    rollouts = facts.get("episodes", [])  # files of older versions have none
    if not isinstance(rollouts, list) or len(rollouts) > window.size:
        raise CheckpointError(f"`episodes` must be a list of at most {window.size} rollouts.")
    for rollout in rollouts:
        if checkpoint.number(rollout, "episodes") < 1:
            raise CheckpointError("`episodes` of a rollout must be at least 1.")
        window.add({str(name): float(value) for name, value in rollout.items()})
    if "env/state" in tensors and "carry/has_ended" in tensors:
        window.has_ended[:] = run.world.own_rows(tensors["carry/has_ended"]).numpy()
    return window


def _resume_env(run: PuffeRL, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Put the envs, and the policy's memory of them, back to where they were."""
    resets = run.world.own_rows(tensors["carry/resets"]).to(run.device)
    if resets.shape != run.state.carry.resets.shape or resets.dtype != torch.bool:
        raise CheckpointError(
            f"the checkpoint must be of {len(run.state.carry.resets)} slots, but has "
            f"{resets.numel()}. Try the number of envs that it was saved with, or "
            "weights_only=True."
        )
    state = checkpoint.unpack(facts["state"], tensors, "state/")
    state = map_state(lambda part: run.world.own_rows(part).to(run.device), state)
    if run.env.snapshot() is None:
        raise CheckpointError(
            "the checkpoint must be of envs like these, but it has their state, which "
            f"{type(run.env).__name__} cannot take. Try weights_only=True."
        )
    run.env.restore(run.world.own_rows(tensors["env/state"]).numpy())
    if run.self_play is not None:
        own = checkpoint.under(tensors, "self_play/")
        run.self_play.load_memory(own, facts["self_play"], run.policy)
    batches = take_batches(run.env)
    run.state.carry = Carry(batches, state, resets)
    shown = map_state(lambda part: part[batches[0].slots], state)
    # whether the policy can go on from it
    _, after = run.predict(batches[0].observations, shown)
    whole = all(part.shape[:1] == resets.shape for part in checkpoint.pack(state, "")[1].values())
    if state is not None and not (whole and checkpoint.is_alike(shown, after)):
        raise CheckpointError("the checkpoint must hold a state of the policy, but does not.")


def _resume_pool(
    run: PuffeRL, self_play: SelfPlay, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> Mapping[str, Tensor]:
    """Put the past policies back; return the tensors of which the rest is to be restored.

    A checkpoint that has none is of a run without self-play, whose games have other slots.
    """
    if "self_play" in facts:
        own = checkpoint.under(tensors, "self_play/")
        self_play.load_pool(own, facts["self_play"], run.policy, run.observation_norm)
        return tensors
    self_play.begin_anew()
    message = "the checkpoint has no pool of past policies: self-play begins a new one."
    warnings.warn(message, RuntimeWarning, stacklevel=5)
    kept = {name: part for name, part in tensors.items() if name != "env/state"}
    if run.reward_norm is not None:
        slots = run.env.num_agents * run.world.size
        kept["reward_norm/returns"] = run.reward_norm.returns.new_zeros(slots)
    return kept


def _check_forms(run: PuffeRL, forms: Mapping[str, Form], weights_only: bool) -> None:
    """Raise unless a file claims to have the parameters and statistics of this run, no others."""
    own = _modules(run)
    for option, name in (("norm_obs", "observation_norm"), ("norm_reward", "reward_norm")):
        is_there = any(key.startswith(f"{name}/") for key in forms)
        if is_there != (name in own) and not (weights_only and option == "norm_reward"):
            raise CheckpointError(
                f"`{option}` must be {str(is_there).lower()} to go on from this checkpoint, "
                f"but is {str(name in own).lower()}."
            )
    for name in ("policy", "observation_norm"):
        if name in own:
            checkpoint.check_form(own[name], forms, f"{name}/")


def _restore_modules(run: PuffeRL, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    modules = _modules(run)
    if "reward_norm/returns" in tensors:
        returns = run.world.own_rows(tensors["reward_norm/returns"])
        tensors = {**tensors, "reward_norm/returns": returns}
    for name in names:
        if name in modules:
            checkpoint.restore_module(modules[name], tensors, f"{name}/")
