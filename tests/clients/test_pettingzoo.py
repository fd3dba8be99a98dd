"""PettingZoo's own tests, which come with the package, on our envs."""

from __future__ import annotations

from typing import Any

import pytest

import pufferlib

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.utils.conversions import parallel_to_aec

ENVS: list[tuple[str, dict[str, Any]]] = [
    ("connect4", {"opponent": "self"}),
    ("snake", {"num_agents": 3}),
    ("soccer", {}),
    ("battle", {}),
]
every_env = pytest.mark.parametrize(("name", "params"), ENVS, ids=[name for name, _ in ENVS])


@every_env
def test_as_a_parallel_env(name: str, params: dict[str, Any]) -> None:
    parallel_api_test(pufferlib.to_pettingzoo(name, **params), num_cycles=300)
    parallel_seed_test(lambda: pufferlib.to_pettingzoo(name, **params), num_cycles=50)


# what PettingZoo finds unusual, and allows
@pytest.mark.filterwarnings("ignore:Action space for each agent probably should be:UserWarning")
@pytest.mark.filterwarnings("ignore:Observation numpy array is all zeros:UserWarning")
@every_env
def test_in_turns(name: str, params: dict[str, Any]) -> None:
    def make() -> Any:
        return parallel_to_aec(pufferlib.to_pettingzoo(name, **params))

    api_test(make(), num_cycles=300)
    seed_test(make, num_cycles=20)
