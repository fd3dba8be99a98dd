"""password against strings compared in Python."""

from __future__ import annotations

import numpy as np
import pytest

import pufferlib


@pytest.mark.parametrize(("length", "password"), [(8, 178), (1, 0), (3, 5), (4, 0x7FFFFFFF)])
def test_random_play_follows_the_rules(length: int, password: int) -> None:
    right = [password >> i & 1 for i in range(length)]
    rng = np.random.default_rng(2)
    num_envs, found = 64, 0
    with pufferlib.make(
        "password", num_envs=num_envs, num_workers=1, length=length, password=password
    ) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(20):
            strings = rng.integers(2, size=(num_envs, length))
            for i in range(length):
                seen = np.where(np.arange(length) < i, 2 * strings - 1, 0)
                np.testing.assert_array_equal(vecenv.observations, seen)
                vecenv.step(strings[:, i])
                assert vecenv.terminals.all() == vecenv.terminals.any() == (i == length - 1)
                if i < length - 1:
                    assert not vecenv.rewards.any()
            opened = (strings == right).all(axis=1)
            np.testing.assert_array_equal(vecenv.rewards, opened)
            metrics = vecenv.drain_metrics()
            assert metrics["perf"] == pytest.approx(opened.mean())
            assert metrics["score"] == pytest.approx((strings == right).sum(1).mean())
            found += int(opened.sum())
        assert found > 0
