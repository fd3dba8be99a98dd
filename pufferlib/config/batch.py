"""How the steps of a run are cut into batches and minibatches, and sizes that suit the env.

`complete_options` fills in the options that the user left unset, from the number of slots and the
budget. Few slots mean slow envs, where each step counts: small batches, many passes. Many slots
mean fast envs, where time counts: large batches, few passes. Where an iteration would take far too
long or too much memory (`StepCost`), unset sizes are halved until it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from pufferlib.config.schema import TrainConfig
from pufferlib.errors import UsageError

STEPS_PER_SLOT = 128  # in a batch, within BATCH_SIZES
LEAST_STEPS_PER_SLOT = 16  # in a batch: advantages look ahead
BATCH_SIZES = (2048, 32768)
BATCHES_PER_BUDGET = 20  # at least: fresh data matters more than large batches
MINIBATCHES_PER_BATCH = 16
MINIBATCH_SIZES = (64, 8192)
EPOCHS = ((64, 10), (512, 4))  # (most slots, passes); beyond, 2
MANY_SLOTS = 256  # from here on segments mix well enough, and are faster to cut
RECURRENT_STEPS = 64  # in a segment: how far gradients flow back
LEAST_SEGMENTS = 4  # in a minibatch
MOST_SECONDS = 15.0  # of an iteration; beyond, sizes are reduced until it takes
GOOD_SECONDS = 10.0
LEAST_EPOCHS = 2  # where the passes take most of the time
MEMORY_SHARE = 0.25  # of free memory, for the observations of a rollout


class BatchShape(NamedTuple):
    """How `batch_size` steps lie in a rollout of [segments, horizon], and how they are drawn.

    Each slot contributes segments / slots segments, which follow one another in time. One pass over
    the rollout is cut into `minibatches` parts, as equal as possible, of whole segments or of
    single steps.
    """

    segments: int
    horizon: int
    minibatches: int
    by_step: bool = False

    @property
    def units(self) -> int:
        """Segments or steps that minibatches are drawn from."""
        return self.segments * self.horizon if self.by_step else self.segments


class StepCost(NamedTuple):
    """What a step of one slot costs, as measured: seconds, 0 where unknown, and bytes."""

    env: float  # seconds, of which several workers take a part each
    act: float  # seconds of the policy
    learn: float  # seconds of each pass over the step
    row_bytes: int  # of its observation
    free_bytes: float  # of memory
    world_size: int = 1  # processes that share the steps

    def seconds(self, batch_size: int, n_epochs: int) -> float:
        """Return how long an iteration takes."""
        return batch_size / self.world_size * (self.env + self.act + n_epochs * self.learn)

    def fits(self, batch_size: int) -> bool:
        """Return whether a rollout leaves most of the memory free."""
        return batch_size / self.world_size * self.row_bytes <= MEMORY_SHARE * self.free_bytes


class CompletedOptions(NamedTuple):
    """All options of a run, and how they differ from what the user gave."""

    config: TrainConfig
    shape: BatchShape
    adjusted: tuple[str, ...]  # "key value" of unset options that differ from the default
    warning: str | None  # a given `batch_size` was rounded
    remark: str = ""  # one line about sizes that were reduced, or are hopeless and were given


def complete_options(
    given: Mapping[str, Any], num_slots: int, is_recurrent: bool, cost: StepCost | None = None
) -> CompletedOptions:
    """Fill in the options of a run on `num_slots` slots; `given` are those that were set.

    The `cost` of a step makes a difference where the usual sizes are hopeless only.
    Raises UsageError for options that contradict each other.
    """
    config = TrainConfig.from_dict(given)
    shuffle = _minibatch_unit(config, num_slots, is_recurrent)
    values: dict[str, Any] = {"shuffle": shuffle}
    if config.anneal_lr is None:  # a loop without a budget has no end to decay towards
        values["anneal_lr"] = not {"total_timesteps", "num_iterations"}.isdisjoint(given)
    batch_size = config.batch_size if "batch_size" in given else _batch_size(config, num_slots)
    n_epochs = config.n_epochs
    has_epochs = "n_epochs" in given or config.replay_ratio is not None
    if not has_epochs:
        n_epochs = next((epochs for most, epochs in EPOCHS if num_slots <= most), 2)
    usual = batch_size, n_epochs
    if cost is not None and "batch_size" not in given:
        batch_size, n_epochs = _affordable(batch_size, n_epochs, has_epochs, num_slots, cost)
    remark = "" if cost is None else _remark_on(usual, (batch_size, n_epochs), cost)
    unit = num_slots * (config.num_steps or 1)
    values["batch_size"] = max(1, round(batch_size / unit)) * unit
    warning = None
    if "batch_size" in given and values["batch_size"] != batch_size:
        what = "slots" if config.num_steps is None else "slots * num_steps"
        warning = (
            f"`batch_size` is rounded from {batch_size} to {values['batch_size']}, a multiple of "
            f"the {unit} {what}."
        )
    steps_per_slot = values["batch_size"] // num_slots
    horizon = config.num_steps or steps_per_slot
    if is_recurrent and config.num_steps is None:
        lengths = range(min(RECURRENT_STEPS, steps_per_slot), 0, -1)
        horizon = next(length for length in lengths if steps_per_slot % length == 0)
        values["num_steps"] = horizon
    if config.minibatch_size is None:
        size = _clamped(values["batch_size"] // MINIBATCHES_PER_BATCH, MINIBATCH_SIZES)
        if shuffle == "segments":
            size = max(size, LEAST_SEGMENTS * horizon)
        values["minibatch_size"] = min(size, values["batch_size"])
    if not has_epochs:
        values["n_epochs"] = n_epochs
    defaults = vars(config)
    adjusted = tuple(
        f"{key} {values[key]}"
        for key in ("batch_size", "minibatch_size", "n_epochs")
        if key in values and key not in given and values[key] != defaults[key]
    )
    config = replace(config, **values)
    return CompletedOptions(config, batch_shape(config, num_slots), adjusted, warning, remark)


def batch_shape(config: TrainConfig, num_slots: int) -> BatchShape:
    """Return how a batch of a complete config is cut for `num_slots` slots.

    Raises UsageError, with numbers that work, if it does not divide.
    """
    horizon = config.num_steps or config.batch_size // num_slots
    if config.batch_size < num_slots or config.batch_size % (num_slots * horizon):
        raise UsageError(
            f"`batch_size` must be a multiple of slots * `num_steps` = {num_slots} * {horizon}, "
            f"but got {config.batch_size}. Try {_multiples_near(config.batch_size, num_slots)}."
        )
    by_step = config.shuffle == "steps"
    segments = config.batch_size // horizon
    whole = BatchShape(segments, horizon, 1, by_step)
    size = config.minibatch_size or config.batch_size
    minibatches = min(whole.units, max(1, round(config.batch_size / size)))
    if config.gradient_accumulation > whole.units // minibatches:
        noun = "steps" if by_step else "segments"
        raise UsageError(
            f"`gradient_accumulation` must be at most the number of {noun} in a minibatch, "
            f"{whole.units // minibatches}, but got {config.gradient_accumulation}. "
            "Try a larger `minibatch_size`."
        )
    return whole._replace(minibatches=minibatches)


def _minibatch_unit(
    config: TrainConfig, num_slots: int, is_recurrent: bool
) -> Literal["steps", "segments"]:
    """Return what minibatches are drawn from."""
    if config.shuffle == "auto":
        return "segments" if is_recurrent or num_slots >= MANY_SLOTS else "steps"
    if config.shuffle == "steps" and is_recurrent:
        raise UsageError(
            "`shuffle` must be segments for a recurrent policy, which learns from sequences, but "
            "got steps. Try shuffle='auto'."
        )
    return config.shuffle


def _batch_size(config: TrainConfig, num_slots: int) -> int:
    size = _clamped(num_slots * STEPS_PER_SLOT, BATCH_SIZES)
    if config.num_iterations is None:
        size = min(size, config.total_timesteps // BATCHES_PER_BUDGET)
    return max(size, num_slots * LEAST_STEPS_PER_SLOT)


def _affordable(
    batch_size: int, n_epochs: int, has_epochs: bool, num_slots: int, cost: StepCost
) -> tuple[int, int]:
    """Return sizes for which an iteration takes seconds and its rollout fits into memory."""
    if cost.seconds(batch_size, n_epochs) > MOST_SECONDS:
        if not has_epochs and n_epochs * cost.learn > cost.env + cost.act:
            n_epochs = min(n_epochs, LEAST_EPOCHS)
        while cost.seconds(batch_size, n_epochs) > GOOD_SECONDS:
            batch_size //= 2
    while not cost.fits(batch_size):
        batch_size //= 2
    return max(batch_size, num_slots * LEAST_STEPS_PER_SLOT), n_epochs


def _remark_on(usual: tuple[int, int], now: tuple[int, int], cost: StepCost) -> str:
    """Return one line about sizes with which an iteration is hopeless, "" for all others."""
    seconds, size = cost.seconds(*usual), usual[0] * cost.row_bytes / 1e9
    if seconds > MOST_SECONDS:
        needs = f"{seconds:,.0f} s"
    elif not cost.fits(usual[0]):
        needs = f"{size:,.1f} GB of memory"
    else:
        return ""
    changes = [
        f"{name} {value:,} instead of {before:,}"
        for name, before, value in zip(("batch_size", "n_epochs"), usual, now, strict=True)
        if value < before
    ]
    if changes:
        return f"{' and '.join(changes)}: an iteration would take {needs}"
    return f"batch_size {usual[0]:,} is large for this env: an iteration takes about {needs}"


def _clamped(value: int, limits: tuple[int, int]) -> int:
    return min(max(value, limits[0]), limits[1])


def _multiples_near(value: int, base: int) -> str:
    below = value // base * base
    return " or ".join(str(multiple) for multiple in (below, below + base) if multiple)
