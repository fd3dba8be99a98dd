"""Search spaces: configs as points, and as params of Optuna."""

from __future__ import annotations

import numpy as np
import pytest

from pufferlib.config import check_range
from pufferlib.errors import UsageError
from pufferlib.sweep.distributions import from_params, to_distributions, to_params
from pufferlib.sweep.search_space import SearchSpace

TEXTS = {
    "train.learning_rate": "log_uniform 1e-5 1e-1",
    "train.gamma": "logit 0.8 0.999",
    "train.ent_coef": "0 or log_uniform 1e-4 0.1",
    "train.n_epochs": "int 1 8",
    "train.batch_size": "1024, 2048, 8192",
    "train.total_timesteps": "log_uniform 1e5 1e7",
    "train.norm_obs": "yes, no",
    "policy.recurrent": "none, lstm, gru",
    "vec.num_envs": "pow2 16 1024",
    "env.gravity": "uniform 5 15",
}
SPACE = SearchSpace(
    {key: check_range(key, text, key) for key, text in TEXTS.items()}, "train.total_timesteps"
)


def random_configs(count: int) -> list[dict[str, object]]:
    units = np.random.default_rng(0).random((count, SPACE.width))
    return [SPACE.decode(unit) for unit in units]


def test_configs_survive_encoding() -> None:
    for config in random_configs(50):
        again = SPACE.decode(SPACE.encode(config))

        assert SPACE.contains(config)
        assert again == {key: pytest.approx(value) for key, value in config.items()}


def test_snapping_many_equals_encoding_what_each_stands_for() -> None:
    units = np.random.default_rng(1).random((200, SPACE.width))
    expected = [SPACE.encode(SPACE.decode(unit)) for unit in units]

    snapped = SPACE.snap(units)

    axis = SPACE.budget_axis  # a long range of whole numbers counts as continuous
    assert axis is not None
    np.testing.assert_allclose(snapped, expected, atol=1e-5)


def test_optuna_sees_the_same_configs() -> None:
    distributions = to_distributions(SPACE)
    for config in random_configs(50):
        params = to_params(SPACE, config)

        assert params.keys() == distributions.keys()
        for name, value in params.items():
            assert distributions[name]._contains(distributions[name].to_internal_repr(value)), name
        assert from_params(SPACE, params) == {k: pytest.approx(v) for k, v in config.items()}


def test_an_empty_space_is_refused() -> None:
    with pytest.raises(UsageError, match="must have a key"):
        SearchSpace({})
