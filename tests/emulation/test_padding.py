"""PadAgents: agents with different spaces share one, and nothing of their own is lost."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

import pufferlib
from pufferlib.emulation import PadAgents
from pufferlib.errors import UsageError


class Hunt:
    """A wolf with 3 senses and 4 moves, a hare with 2 senses and 2 moves; 5 steps."""

    metadata: ClassVar[dict[str, Any]] = {}
    possible_agents: ClassVar = ["wolf", "hare"]
    sizes: ClassVar = {"wolf": (3, 4), "hare": (2, 2)}

    def __init__(self) -> None:
        self.agents: list[str] = []
        self.taken: list[dict[str, int]] = []

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Box(1, 9, (self.sizes[agent][0],), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(self.sizes[agent][1])

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents, self.tick = list(self.possible_agents), 0
        return self._seen(), {"wolf": {"howl": 1}, "hare": {}}

    def _seen(self) -> dict[str, Any]:
        return {id: np.full(n, 1 + self.tick, np.float32) for id, (n, _) in self.sizes.items()}

    def step(self, actions: dict[str, int]) -> tuple[Any, ...]:
        self.taken.append(dict(actions))
        self.tick += 1
        over = self.tick == 5
        rewards = {id: float(actions[id] == self.sizes[id][1] - 1) for id in self.agents}
        flags = dict.fromkeys(self.agents, over)
        never = dict.fromkeys(self.agents, False)
        infos: dict[str, dict[str, Any]] = {id: {} for id in self.agents}
        if over:
            self.agents = []
        return self._seen(), rewards, flags, never, infos

    def render(self) -> None: ...

    def close(self) -> None: ...


def test_agents_share_the_largest_spaces_padded_with_zeros() -> None:
    env = PadAgents(Hunt())
    observations, infos = env.reset(seed=1)

    assert env.observation_space("hare") == env.observation_space("wolf")
    assert env.observation_space("hare").shape == (3,)
    assert env.action_space("hare") == gymnasium.spaces.Discrete(4)
    np.testing.assert_array_equal(observations["wolf"], [1, 1, 1])
    np.testing.assert_array_equal(observations["hare"], [1, 1, 0])
    assert all(env.observation_space(id).contains(observations[id]) for id in observations)
    assert infos["wolf"]["howl"] == 1
    np.testing.assert_array_equal(infos["hare"]["action_mask"], [1, 1, 0, 0])


def test_a_choice_that_an_agent_lacks_becomes_choice_0() -> None:
    inner = Hunt()
    env = PadAgents(inner)
    env.reset()
    env.step({"wolf": 3, "hare": 3})

    assert inner.taken == [{"wolf": 3, "hare": 0}]


@pytest.mark.slow
def test_padded_agents_train_and_never_sample_a_masked_choice() -> None:
    made: list[Hunt] = []

    def create() -> PadAgents:
        made.append(Hunt())
        return PadAgents(made[-1])

    with pufferlib.emulate(create, num_envs=4, backend="serial") as env:
        assert env.action_masks is not None
        trainer = pufferlib.PuffeRL(env, batch_size=1024, dashboard="off", seed=1)
        for _ in range(20):  # 8 of 8 seeds end above 4.9
            trainer.evaluate()
            trainer.train()
            log = trainer.mean_and_log()
    taken = [actions["hare"] for hunt in made for actions in hunt.taken]
    assert len(taken) > 4000
    assert set(taken) == {0, 1}
    assert log["mean_reward"] > 4  # of 5: both learn that their last move pays


def test_spaces_that_cannot_be_padded_raise_one_line() -> None:
    class Mixed(Hunt):
        def action_space(self, agent: str) -> gymnasium.Space[Any]:
            wolf = agent == "wolf"
            return gymnasium.spaces.Discrete(2) if wolf else gymnasium.spaces.Box(0, 1, (2,))

    with pytest.raises(UsageError, match="`action_space` of padded agents must be Discrete from 0"):
        PadAgents(Mixed())
    with pytest.raises(UsageError, match="must be a PettingZoo parallel env, but got object"):
        PadAgents(object())


def test_the_error_for_different_spaces_suggests_pad_agents() -> None:
    with pytest.raises(UsageError, match=r"pufferlib\.emulation\.PadAgents"):
        pufferlib.emulate(Hunt, num_envs=1)
