"""Environments to start from: copy the one that is most like yours, then change it.

| class                  | observations     | actions        | agents                           |
|------------------------|------------------|----------------|----------------------------------|
| GridWorld              | vector           | discrete       | 1                                |
| ImageGridWorld         | image            | discrete       | 1                                |
| DictGridWorld          | dict of arrays   | discrete       | 1                                |
| StridingGridWorld      | vector           | multi-discrete | 1                                |
| Reacher                | vector           | continuous     | 1                                |
| CooperativeNavigation  | dict of arrays   | discrete       | several, in dicts by agent id    |
| ManyGridWorlds         | vector           | discrete       | several, in place: the fast form |

`python scripts/env_template.py` checks all of them and trains on each for a moment; the exit code
is 1 if one fails. With names of classes it does so for these only.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pufferlib
from pufferlib import PufferEnv

Array = NDArray[Any]

MOVES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])  # x and y of right, left, down, up


# ---- One agent -----------------------------------------------------------------------------------


class GridWorld(PufferEnv):
    """Walk to the goal: +1 there, and a small cost for each step on the way."""

    def __init__(self, size: int = 5, max_steps: int = 50, buf: Any = None) -> None:
        super().__init__(buf)  # first of all; `buf` is for the library
        self.observation_space = self.make_space((4,), low=0.0, high=1.0)  # float32
        self.action_space = self.make_discrete(4)
        self.size = size
        self.max_steps = max_steps
        self.rng = np.random.default_rng()

    def reset(self, seed: int | None = None) -> Any:
        """Start an episode and return the first observation."""
        if seed is not None:  # without a seed the generator continues: every episode differs
            self.rng = np.random.default_rng(seed)
        cells = self.rng.choice(self.size**2, size=2, replace=False)
        self.agent, self.goal = (np.array(divmod(int(cell), self.size)) for cell in cells)
        self.ticks = 0
        return self.observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return observation, reward, terminated, truncated and info."""
        self.move(MOVES[action])
        self.ticks += 1
        reached = bool((self.agent == self.goal).all())
        # Terminated: the task is over. Truncated: only the time is up, and there was more reward to
        # get. Learning treats them differently, so keep them apart.
        truncated = not reached and self.ticks >= self.max_steps
        reward = 1.0 if reached else -0.01
        # numbers in the last info of an episode are averaged and logged, here as env/success
        return self.observe(), reward, reached, truncated, {"success": float(reached)}

    def move(self, by: Array) -> None:
        self.agent = np.clip(self.agent + by, 0, self.size - 1)

    def observe(self) -> Any:
        """Return a new array each time: the caller may keep it."""
        cells = np.concatenate([self.agent, self.goal])
        return (cells / (self.size - 1)).astype(np.float32)

    def render(self) -> Array:
        """Return [height, width, 3] bytes: the agent is white, the goal green. Optional."""
        picture = np.zeros((self.size, self.size, 3), np.uint8)
        picture[self.goal[1], self.goal[0]] = (0, 255, 0)
        picture[self.agent[1], self.agent[0]] = 255
        return picture.repeat(4, axis=0).repeat(4, axis=1)


class ImageGridWorld(GridWorld):
    """The same task with image observations."""

    def __init__(self, size: int = 5, max_steps: int = 50, buf: Any = None) -> None:
        super().__init__(size, max_steps, buf)
        # (height, width, 1 | 3 | 4) is an image of bytes; the default policy is then a CNN
        self.observation_space = self.make_space((4 * size, 4 * size, 3))

    def observe(self) -> Any:
        return self.render()


class DictGridWorld(GridWorld):
    """The same task with a dict of observations, which the policy gets as a dict of tensors."""

    def __init__(self, size: int = 5, max_steps: int = 50, buf: Any = None) -> None:
        super().__init__(size, max_steps, buf)
        self.observation_space = self.make_space(
            {
                "map": (4 * size, 4 * size, 3),
                "to_goal": (2,),
                "blocked": self.make_multi_discrete([2, 2, 2, 2]),  # is there a wall on this side?
            }
        )

    def observe(self) -> Any:
        beyond = self.agent + MOVES
        return {
            "map": self.render(),
            "to_goal": (self.goal - self.agent).astype(np.float32),
            "blocked": ((beyond < 0) | (beyond >= self.size)).any(axis=1).astype(np.int64),
        }


class StridingGridWorld(GridWorld):
    """The same task with two choices per action: the direction, and how far."""

    def __init__(self, size: int = 5, max_steps: int = 50, buf: Any = None) -> None:
        super().__init__(size, max_steps, buf)
        self.action_space = self.make_multi_discrete([4, 2])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        direction, stride = action  # an array of two integers
        if stride == 1:
            self.move(MOVES[direction])  # one cell more than usual
        return super().step(direction)


class Reacher(PufferEnv):
    """Push a point to the centre, with continuous actions."""

    def __init__(self, max_steps: int = 50, buf: Any = None) -> None:
        super().__init__(buf)
        self.observation_space = self.make_space((4,))  # position and speed
        self.action_space = self.make_space((2,), low=-1.0, high=1.0)  # force along x and y
        self.max_steps = max_steps
        self.rng = np.random.default_rng()

    def reset(self, seed: int | None = None) -> Array:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.state = self.rng.uniform(-1, 1, size=4).astype(np.float32)
        self.ticks = 0
        return self.state.copy()  # `state` changes in the next step, the observation must not

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.state[2:] += 0.1 * action  # a vector env has clipped it to the bounds of the space
        self.state[:2] += 0.1 * self.state[2:]
        self.ticks += 1
        distance = float(np.linalg.norm(self.state[:2]))
        truncated = self.ticks >= self.max_steps
        return self.state.copy(), -distance, False, truncated, {"distance": distance}


# ---- Several agents, by id -----------------------------------------------------------------------


class CooperativeNavigation(PufferEnv):
    """Cover all landmarks together: all agents share one reward.

    What goes in and out are dicts by agent id. An agent that is absent from them sits out; one that
    ends before the others is named in `terminated`.
    """

    def __init__(self, num_agents: int = 3, max_steps: int = 25, buf: Any = None) -> None:
        super().__init__(buf)
        self.num_agents = num_agents
        self.possible_agents = [f"agent_{i}" for i in range(num_agents)]
        # the spaces of ONE agent; all have the same
        self.single_observation_space = self.make_space(
            {"position": (2,), "others": (num_agents - 1, 2), "landmarks": (num_agents, 2)}
        )
        self.single_action_space = self.make_discrete(5)  # stay, or one of four moves
        self.max_steps = max_steps
        self.rng = np.random.default_rng()

    def reset(self, seed: int | None = None) -> dict[str, Any]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.positions = self.rng.uniform(-1, 1, (self.num_agents, 2)).astype(np.float32)
        self.landmarks = self.rng.uniform(-1, 1, (self.num_agents, 2)).astype(np.float32)
        self.ticks = 0
        return self.observe()

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        for index, id in enumerate(self.possible_agents):
            if actions[id] > 0:
                self.positions[index] += 0.1 * MOVES[actions[id] - 1]
        self.ticks += 1
        gaps = np.linalg.norm(self.landmarks[:, None] - self.positions[None], axis=-1)
        uncovered = float(gaps.min(axis=1).mean())  # from each landmark to the nearest agent
        rewards = dict.fromkeys(self.possible_agents, -uncovered)
        terminated = {"__all__": False}
        truncated = {"__all__": self.ticks >= self.max_steps}  # ends the episode for all agents
        infos = {id: {"uncovered": uncovered} for id in self.possible_agents}
        return self.observe(), rewards, terminated, truncated, infos

    def observe(self) -> dict[str, Any]:
        return {
            id: {
                "position": self.positions[index].copy(),
                "others": np.delete(self.positions, index, axis=0) - self.positions[index],
                "landmarks": self.landmarks - self.positions[index],
            }
            for index, id in enumerate(self.possible_agents)
        }


# ---- Several agents, in place --------------------------------------------------------------------


class ManyGridWorlds(PufferEnv):
    """GridWorld for many agents at once, each with a goal of its own, in a few NumPy calls.

    Nothing is returned that would have to be copied: `step` reads `self.actions` and writes the
    rows of `self.observations`, `rewards`, `terminals` and `truncations`, which the library owns.
    The env also starts new episodes itself. For more speed yet, write it in C: CONTRIBUTING.md.
    """

    def __init__(
        self, num_agents: int = 16, size: int = 5, max_steps: int = 50, buf: Any = None
    ) -> None:
        # set spaces and `num_agents` first: `super().__init__` allocates the arrays from them
        self.num_agents = num_agents
        self.single_observation_space = self.make_space((4,), low=0.0, high=1.0)
        self.single_action_space = self.make_discrete(4)
        super().__init__(buf)
        self.size = size
        self.max_steps = max_steps
        self.rng = np.random.default_rng()
        self.agents_at = np.zeros((num_agents, 2), np.int64)
        self.goals_at = np.zeros((num_agents, 2), np.int64)
        self.ticks = np.zeros(num_agents, np.int64)

    def reset(self, seed: int | None = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.place(np.ones(self.num_agents, bool))
        self.observe(self.observations)
        return self.observations, []

    def step(self, actions: Array) -> Any:
        self.agents_at = np.clip(self.agents_at + MOVES[self.actions], 0, self.size - 1)
        self.ticks += 1
        self.terminals[:] = (self.agents_at == self.goals_at).all(axis=1)
        self.truncations[:] = ~self.terminals & (self.ticks >= self.max_steps)
        self.rewards[:] = np.where(self.terminals, 1.0, -0.01)
        ended = self.terminals | self.truncations
        infos = [{"success": float(success)} for success in self.terminals]
        if ended.any():
            # the last observation goes to `final_observations`; the slot shows the next episode
            self.observe(self.final_observations)
            self.place(ended)
        self.observe(self.observations)
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def place(self, chosen: Array) -> None:
        """Start an episode for some of the agents."""
        count = int(chosen.sum())
        start = self.rng.integers(self.size**2, size=count)
        goal = (start + self.rng.integers(1, self.size**2, size=count)) % self.size**2  # elsewhere
        self.agents_at[chosen] = np.stack(np.divmod(start, self.size), axis=1)
        self.goals_at[chosen] = np.stack(np.divmod(goal, self.size), axis=1)
        self.ticks[chosen] = 0

    def observe(self, rows: Array) -> None:
        rows[:, :2] = self.agents_at / (self.size - 1)
        rows[:, 2:] = self.goals_at / (self.size - 1)


# ---- Self-test -----------------------------------------------------------------------------------

TEMPLATES: list[type[PufferEnv]] = [
    GridWorld,
    ImageGridWorld,
    DictGridWorld,
    StridingGridWorld,
    Reacher,
    CooperativeNavigation,
    ManyGridWorlds,
]


def check(template: type[PufferEnv]) -> list[str]:
    """Raise if `template` breaks the contract, is not reproducible under a seed, or cannot train.

    Returns warnings.
    """
    report = pufferlib.check_env(template, steps=200)  # plays it and checks the contract
    report.raise_for_errors()

    with pufferlib.emulate(template, num_envs=4) as env:
        np.testing.assert_equal(play(env, seed=7), play(env, seed=7))

    with pufferlib.emulate(template, num_envs=4, seed=0) as env:
        batch_size = 32 * env.num_agents  # 32 steps of every agent
        trainer = pufferlib.PuffeRL(env, batch_size=batch_size, num_iterations=2, dashboard="off")
        while not trainer.done:
            trainer.evaluate()
            losses = trainer.train()
        trainer.close()
    if not all(np.isfinite(loss) for loss in losses.values()):
        raise RuntimeError(f"a loss is not finite: {losses}")
    return report.of("warning")


def play(env: Any, seed: int, steps: int = 20) -> list[Any]:
    """Step with fixed random actions, and return copies of all results."""
    env.reset(seed=seed)
    env.action_space.seed(seed)
    seen = [env.observations.copy()]
    for _ in range(steps):
        env.step(np.array([env.action_space.sample() for _ in range(env.num_agents)]))
        seen += [env.observations.copy(), env.rewards.copy(), env.terminals | env.truncations]
    return seen


def main(names: list[str]) -> int:
    """Check the templates of these names, or all; return the exit code."""
    known = {template.__name__: template for template in TEMPLATES}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"`{unknown[0]}` must be one of {', '.join(known)}.", file=sys.stderr)
        return 2
    failed = 0
    for name in names or known:
        start = time.perf_counter()
        try:
            doubts = check(known[name])
        except Exception as error:
            failed += 1
            print(f"{name:<22} FAILED  {type(error).__name__}: {error}", flush=True)
        else:
            seconds = time.perf_counter() - start
            print("\n    ".join([f"{name:<22} ok  {seconds:.1f} s", *doubts]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
