"""Batch shapes, and values of unset options: each follows from the slots and the budget."""

from __future__ import annotations

from typing import Any

import pytest

from pufferlib.config import BatchShape, StepCost, TrainConfig, batch_shape, complete_options
from pufferlib.errors import UsageError


def sizes_for(slots: int, is_recurrent: bool = False, **given: Any) -> tuple[int, int | None, int]:
    config = complete_options(given, slots, is_recurrent).config
    return config.batch_size, config.minibatch_size, config.n_epochs


@pytest.mark.parametrize(
    ("slots", "sizes"),
    [
        (1, (2048, 128, 10)),  # 128 steps of one slot are too few: the least batch
        (8, (2048, 128, 10)),
        (16, (2048, 128, 10)),
        (64, (8192, 512, 10)),  # 64 * 128 = 8192; a sixteenth of that
        (65, (8320, 520, 4)),
        (256, (32768, 2048, 4)),  # what the signature shows
        (512, (32768, 2048, 4)),
        (1024, (32768, 2048, 2)),
        (4096, (65536, 4096, 2)),  # at least 16 steps of every slot
        (40000, (640000, 8192, 2)),  # no minibatch is larger than this
    ],
)
def test_sizes_follow_from_the_slots(slots: int, sizes: tuple[int, int, int]) -> None:
    assert sizes_for(slots) == sizes


def test_a_batch_is_at_most_a_twentieth_of_the_budget() -> None:
    assert sizes_for(256, total_timesteps=200_000)[0] == 256 * 39  # 10,000 in whole steps of all
    assert sizes_for(8, total_timesteps=1000)[0] == 8 * 16  # but at least 16 steps of every slot
    assert sizes_for(256, num_iterations=3)[0] == 32768


def test_given_options_are_kept() -> None:
    assert sizes_for(8, batch_size=4096, minibatch_size=100, n_epochs=3) == (4096, 100, 3)
    assert complete_options({"num_steps": 5}, 8, False).config.num_steps == 5
    assert (
        complete_options({"replay_ratio": 0.5}, 8, False).config.n_epochs == TrainConfig().n_epochs
    )


def test_adjusted_options_are_named() -> None:
    assert complete_options({}, 8, False).adjusted == (
        "batch_size 2048",
        "minibatch_size 128",
        "n_epochs 10",
    )
    assert complete_options({"batch_size": 4096}, 8, False).adjusted == (
        "minibatch_size 256",
        "n_epochs 10",
    )
    assert complete_options({"minibatch_size": 8192}, 256, False).adjusted == ()


@pytest.mark.parametrize(
    ("slots", "given", "batch_size"),
    [
        (8, {"batch_size": 100}, 96),  # 12.5 steps of each: the even neighbour
        (48, {"batch_size": 32768}, 32784),  # 682.7
        (1000, {"batch_size": 10}, 1000),  # at least one step of each
        (7, {"batch_size": 32768, "num_steps": 100}, 32900),  # 46.8 stretches of 100
    ],
)
def test_a_batch_size_that_does_not_divide_is_rounded_with_a_warning(
    slots: int, given: dict[str, Any], batch_size: int
) -> None:
    result = complete_options(given, slots, False)
    assert result.config.batch_size == batch_size
    assert result.shape.segments * result.shape.horizon == batch_size
    assert result.warning is not None
    assert f"from {given['batch_size']} to {batch_size}" in result.warning
    assert "\n" not in result.warning
    assert complete_options({**given, "batch_size": batch_size}, slots, False).warning is None


@pytest.mark.parametrize(
    ("slots", "given", "shape"),
    [
        # SB3's numbers: one env, 2048 steps, minibatches of 64
        (1, {"batch_size": 2048, "minibatch_size": 64}, BatchShape(1, 2048, 32, by_step=True)),
        (8, {}, BatchShape(8, 256, 16, by_step=True)),
        (8, {"minibatch_size": 100}, BatchShape(8, 256, 20, by_step=True)),  # of 102 or 103
        (8, {"minibatch_size": 4096}, BatchShape(8, 256, 1, by_step=True)),  # all there is
        (255, {}, BatchShape(255, 128, 16, by_step=True)),
        (256, {}, BatchShape(256, 128, 16, by_step=False)),
        (256, {"shuffle": "steps"}, BatchShape(256, 128, 16, by_step=True)),
        (8, {"shuffle": "segments", "num_steps": 64}, BatchShape(32, 64, 8, by_step=False)),
        # 5 segments in at most 5 parts
        (
            5,
            {"batch_size": 500, "minibatch_size": 10, "shuffle": "segments"},
            BatchShape(5, 100, 5),
        ),
    ],
)
def test_feed_forward_policies_train_on_steps_below_256_slots(
    slots: int, given: dict[str, Any], shape: BatchShape
) -> None:
    assert complete_options(given, slots, False).shape == shape


@pytest.mark.parametrize(
    ("slots", "given", "shape"),
    [
        # 256 steps of each: segments of at most 64, four of them to a minibatch
        (8, {}, BatchShape(32, 64, 8)),
        (1, {}, BatchShape(32, 64, 8)),
        (8, {"batch_size": 8 * 97}, BatchShape(8 * 97, 1, 12)),  # 97 is prime
        (256, {}, BatchShape(512, 64, 16)),
        (256, {"num_steps": 128}, BatchShape(256, 128, 16)),
    ],
)
def test_recurrent_policies_train_on_segments(
    slots: int, given: dict[str, Any], shape: BatchShape
) -> None:
    assert complete_options(given, slots, True).shape == shape


@pytest.mark.parametrize(
    ("slots", "is_recurrent", "given", "message"),
    [
        (8, True, {"shuffle": "steps"}, "`shuffle` must be segments for a recurrent policy"),
        (
            8,
            False,
            {"minibatch_size": 64, "gradient_accumulation": 65},
            "`gradient_accumulation` must be at most the number of steps in a minibatch, 64",
        ),
        (8, False, {"shuffle": "pages"}, "`shuffle` must be one of auto, steps, segments"),
    ],
)
def test_contradictions_are_errors(
    slots: int, is_recurrent: bool, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        complete_options(given, slots, is_recurrent)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_complete_config_for_other_slots_raises_with_sizes_that_work() -> None:
    config = complete_options({"batch_size": 1000}, 8, False).config
    with pytest.raises(UsageError, match=r"but got 1000. Try 996 or 1008."):
        batch_shape(config, 12)


def test_the_learning_rate_anneals_if_a_budget_is_set() -> None:
    assert complete_options({}, 8, False).config.anneal_lr is False
    assert complete_options({"total_timesteps": 10**6}, 8, False).config.anneal_lr is True
    assert complete_options({"num_iterations": 10}, 8, False).config.anneal_lr is True
    assert (
        complete_options({"num_iterations": 10, "anneal_lr": False}, 8, False).config.anneal_lr
        is False
    )


# ---- Sizes for the measured cost of a step -------------------------------------------------------


def cost(**changes: float) -> StepCost:
    usual = {"env": 1e-5, "act": 1e-5, "learn": 1e-5, "row_bytes": 100, "free_bytes": 1e9}
    return StepCost(**{**usual, **changes})  # type: ignore[arg-type]


def test_the_usual_sizes_do_not_depend_on_the_machine() -> None:
    usual = complete_options({}, 8, False)
    for part in ("env", "act", "learn"):  # 2048 steps, 10 passes: from 0.2 s to 14.5 s
        assert complete_options({}, 8, False, cost(**{part: 7e-4})) == usual
    assert complete_options({}, 8, False, cost(row_bytes=120_000)) == usual  # 246 of 250 MB


def test_hopeless_sizes_are_halved() -> None:
    # 2048 * (0.02 + 11e-5) = 41.2 s; halved until 10 s are enough: 10.3 s are not, 5.15 s are
    slow = complete_options({}, 8, False, cost(env=0.02))
    assert (slow.config.batch_size, slow.config.n_epochs) == (256, 10)
    assert slow.remark == "batch_size 256 instead of 2,048: an iteration would take 41 s"
    # 2048 * 200 kB = 410 MB, of which 250 are free for it
    large = complete_options({}, 8, False, cost(row_bytes=200_000))
    assert large.config.batch_size == 1024
    assert (
        large.remark
        == "batch_size 1,024 instead of 2,048: an iteration would take 0.4 GB of memory"
    )


def test_slow_passes_are_fewer_first() -> None:
    # 2048 * (2e-5 + 10 * 1e-3) = 20.5 s; two passes take 4.1 s
    slow = complete_options({}, 8, False, cost(learn=1e-3))
    assert (slow.config.batch_size, slow.config.n_epochs) == (2048, 2)
    assert slow.remark == "n_epochs 2 instead of 10: an iteration would take 21 s"
    kept = complete_options({"n_epochs": 10}, 8, False, cost(learn=1e-3))
    assert (kept.config.batch_size, kept.config.n_epochs) == (512, 10)


def test_a_batch_keeps_some_steps_of_every_slot() -> None:
    slow = complete_options({}, 256, False, cost(env=10.0))
    assert slow.config.batch_size == 256 * 16
    assert slow.shape.horizon == 16


def test_a_given_batch_size_is_kept_with_a_remark() -> None:
    given = complete_options({"batch_size": 2048}, 8, False, cost(env=0.02))
    assert (given.config.batch_size, given.config.n_epochs) == (2048, 10)
    assert given.remark == ("batch_size 2,048 is large for this env: an iteration takes about 41 s")


def test_processes_share_the_cost() -> None:
    shared = cost(env=0.01)._replace(world_size=2)  # 2048 / 2 * 0.01 = 10.2 s
    assert complete_options({}, 8, False, shared).remark == ""
