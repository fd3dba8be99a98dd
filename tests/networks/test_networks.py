"""Networks for particular observations: which inputs matter, which spaces they reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from pufferlib import config
from pufferlib.errors import UnknownNameError, UsageError
from pufferlib.models import CNN, make_policy
from pufferlib.networks.nethack import NetHack
from pufferlib.networks.symbolic import Symbolic

MINIGRID = Dict(
    {
        "direction": Discrete(4),
        "image": Box(0, 255, (7, 7, 3), np.uint8),
        "mission": MultiDiscrete([20] * 6),
    }
)
NETHACK = Dict(
    {
        "blstats": Box(-(2**31), 2**31 - 1, (27,), np.int64),
        "glyphs": Box(0, 5976, (21, 79), np.int16),
        "message": Box(0, 255, (256,), np.uint8),
    }
)


class Spaces:
    """The attributes of an env that `make_policy` reads."""

    def __init__(self, observation_space: Any) -> None:
        self.observation_space = observation_space
        self.action_space = Discrete(5)


def batch(space: Dict, count: int = 3) -> dict[str, torch.Tensor]:
    """Return tensors of zeros, and the hero of NetHack in a corner of the map."""
    shapes = {key: (part.shape or (), part.dtype) for key, part in space.items()}
    return {
        key: torch.from_numpy(np.zeros((count, *shape), dtype))
        for key, (shape, dtype) in shapes.items()
    }


def values(policy: Any, observations: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        _, value = policy(observations)
    return value


@pytest.mark.parametrize(("name", "space"), [("symbolic", MINIGRID), ("nethack", NETHACK)])
def test_a_network_is_selected_by_its_name(name: str, space: Dict) -> None:
    policy: Any = make_policy(Spaces(space), network=name, hidden_size=32)
    assert type(policy).__module__ == f"pufferlib.networks.{name}"
    logits, value = policy(batch(space))
    assert (logits.shape, value.shape) == ((3, 5), (3,))
    assert policy.made_with["network"] == name


def test_a_network_can_be_recurrent() -> None:
    policy: Any = make_policy(Spaces(MINIGRID), network="symbolic", recurrent="gru")
    logits, _, state = policy(batch(MINIGRID), None)
    assert logits.shape == (3, 5)
    assert state is not None


def test_an_unknown_network_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"network `symbolik`\. Did you mean `symbolic`"):
        make_policy(Spaces(MINIGRID), network="symbolik")
    assert config.load("x", [("policy", "network", "symbolic")]).policy.network == "symbolic"


def test_categories_are_not_brightness() -> None:
    # one object, colour and state in one cell: the features differ by channel and by cell
    torch.manual_seed(0)
    policy = Symbolic(MINIGRID, Discrete(5))
    seen = []
    for place in [(0, 0, 0), (0, 0, 1), (0, 0, 2), (3, 3, 0)]:
        observations = batch(MINIGRID, 1)
        observations["image"][(0, *place)] = 5
        seen.append(float(values(policy, observations)))
    assert len(set(seen)) == 4
    assert float(values(policy, batch(MINIGRID, 1))) not in seen


def test_direction_and_mission_are_read() -> None:
    torch.manual_seed(0)
    policy = Symbolic(MINIGRID, Discrete(5))
    observations = batch(MINIGRID)
    observations["direction"][1] = 2
    observations["mission"][2, 3] = 7
    assert len(set(values(policy, observations).tolist())) == 3


def test_the_surroundings_follow_the_hero() -> None:
    torch.manual_seed(0)
    parts = NetHack(NETHACK, Discrete(5)).layers[0]  # type: ignore[index]
    glyphs = torch.arange(21 * 79).reshape(1, 21, 79).expand(2, -1, -1)
    stats = torch.zeros(2, 27, dtype=torch.int64)
    stats[1, :2] = torch.tensor([70, 12])  # x, y
    around = parts._around_hero(glyphs, stats)
    assert around.shape == (2, 9, 9)
    assert around[:, 4, 4].tolist() == [0, 12 * 79 + 70]
    assert around[1, 3, 5] == 11 * 79 + 71
    assert (around[0, :4] == 5976).all()  # above the map
    assert (around[0, :, :4] == 5976).all()  # left of it


def test_glyphs_statistics_and_message_are_read() -> None:
    torch.manual_seed(0)
    policy = NetHack(NETHACK, Discrete(5))
    observations = batch(NETHACK, 4)
    observations["glyphs"][1, 20, 78] = 2378
    observations["blstats"][2, 9] = 1000
    observations["message"][3, :2] = torch.tensor([72, 105])
    assert len(set(values(policy, observations).tolist())) == 4
    assert torch.isfinite(values(policy, observations)).all()


@pytest.mark.parametrize(
    ("network", "said"),
    [(Symbolic, r"must have a Box of uint8 of shape \(H, W, C\)"), (NetHack, "must have glyphs")],
)
def test_a_space_that_does_not_fit_is_one_line(network: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        network(Box(0, 1, (4,)), Discrete(2))
    assert "\n" not in str(caught.value)


def test_auto_stays_the_choice_by_space() -> None:
    assert type(make_policy(Spaces(Box(0, 255, (84, 84, 3), np.uint8)))) is CNN
