"""Random legal play in a vector env, recorded step by step so that two plays can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.native import infos
from pufferlib.spaces import action_layout
from pufferlib.vectorization import VectorEnv


def short_episodes(name: str, steps: int) -> dict[str, int]:
    """Return settings that truncate after `steps`, none where the env has no such param."""
    can_truncate = "max_steps" in {param.name for param in infos()[name].params}
    return {"max_steps": steps} if can_truncate else {}


class Player:
    """Draws random legal actions, the same for the same seed."""

    def __init__(self, vecenv: VectorEnv, seed: int = 0) -> None:
        self.layout = action_layout(vecenv.action_space)
        self.vecenv, self.rng = vecenv, np.random.default_rng(seed)

    def __call__(self) -> NDArray[Any]:
        slots, masks = self.vecenv.num_agents, self.vecenv.action_masks
        words: list[NDArray[Any]] = []
        first = 0
        for n in self.layout.nvec:
            odds = self.rng.random((slots, n))
            if masks is not None:
                odds = np.where(masks[:, first : first + n], odds, -1)
            words.append(odds.argmax(1).astype(np.int32))
            first += n
        for low, high in zip(self.layout.low, self.layout.high, strict=True):
            words.append(self.rng.uniform(low, high, slots).astype(np.float32))
        rows = np.stack([word.view(self.layout.dtype) for word in words], 1)
        return rows.reshape(slots, *self.layout.shape)


def rows(vecenv: VectorEnv) -> dict[str, NDArray[Any]]:
    """Copy all that a step leaves behind."""
    names = ["observations", "rewards", "terminals", "truncations", "masks"]
    if vecenv.action_masks is not None:
        names.append("action_masks")
    copies = {name: getattr(vecenv, name).copy() for name in names}
    # valid where truncated only
    copies["final_observations"] = vecenv.final_observations[vecenv.truncations].copy()
    return copies


def play(vecenv: VectorEnv, steps: int, seed: int = 0) -> list[dict[str, Any]]:
    """Play on with random actions; return a copy of everything after every step."""
    player, story = Player(vecenv, seed), []
    for _ in range(steps):
        *_, infos = vecenv.step(player())
        story.append({**rows(vecenv), "infos": [_without_time(info) for info in infos]})
    return story


def _without_time(info: dict[str, Any]) -> dict[str, Any]:
    return {"r": info["episode"]["r"], "l": info["episode"]["l"]} if info else {}


def assert_same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other)
    for step, (left, right) in enumerate(zip(one, other, strict=True)):
        for name in left:
            if name == "infos":
                assert left[name] == right[name], f"{name} differ in step {step}"
            else:
                same = left[name].tobytes() == right[name].tobytes()
                assert same, f"{name} differ in step {step}"


def total_ends(story: list[dict[str, Any]]) -> int:
    return sum(int((step["terminals"] | step["truncations"]).sum()) for step in story)
