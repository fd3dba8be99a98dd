"""`puffer play`: play an environment with the keyboard, alone or against a trained policy."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pufferlib import config as configs
from pufferlib.cli.arguments import Parser, check_seed, env_id, env_params, make_vecenv
from pufferlib.cli.eval import (
    add_policy_options,
    config_of,
    find_policy,
    restore_policy,
    with_pictures,
)
from pufferlib.cli.screens import Screen, Terminal, Window
from pufferlib.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pufferlib.config import Config
    from pufferlib.policies.acting import Actor
    from pufferlib.policies.recurrent import RecurrentState
    from pufferlib.spaces import ActionLayout
    from pufferlib.vectorization import Batch, VectorEnv

_ARROWS = {  # by the name of a choice
    **dict.fromkeys(("left", "west"), "left"),
    **dict.fromkeys(("right", "east"), "right"),
    **dict.fromkeys(("up", "north", "forward"), "up"),
    **dict.fromkeys(("down", "south", "back"), "down"),
}
_IDLE = ("stay", "none", "wait", "rest", "coast", "glide", "straight", "ground", "float", "run")
_SPACE = ("fire", "shoot", "flap", "jump", "thrust", "main", "kick", "use", "work", "load")
_AXES = (("left", "right"), ("down", "up"), ("a", "d"), ("s", "w"))  # of continuous components
_SHOWN = {"left": "←", "right": "→", "up": "↑", "down": "↓"}
_LETTERS, _DIGITS = "abcdefghijklmnoprstuvwxyz", "0123456789"  # q ends the game


def main(words: list[str]) -> int:
    parser = Parser("play")
    parser.add_argument("name", help="environment, or your own as `module:Env`")
    add_policy_options(parser, "it plays the other agents; default: the env's own opponent")
    parser.add_argument("--seed", type=int, default=0, help="seed of the env (0)")
    parser.add_argument("--fps", type=float, default=15, help="steps per second (15)")
    parser.add_argument("--window", action="store_true", help="play in a window, not in a terminal")
    options, overrides = parser.parse(words)
    name = env_id(options.name)
    check_seed(options)
    if not 0.1 <= options.fps <= 1000:
        raise UsageError(f"`--fps` must be from 0.1 to 1000, but got {options.fps:g}.")
    screen: Screen = Window(f"puffer play {name}") if options.window else Terminal()
    has_policy = options.checkpoint or options.pretrained
    run, path = find_policy(name, options) if has_policy else (None, None)
    config = configs.load(name) if run is None else config_of(run, name)
    params = env_params(name, overrides)
    if path is not None and _has_self_play(name) and "opponent" not in params:
        params["opponent"] = "self"
    config = replace(config, env={**config.env, **params})
    config = replace(config, env=with_pictures(config))
    sizes = {"num_envs": 1, "num_workers": 1, "envs_per_worker": None}
    whole = {"mode": "sync", "surplus_envs": 0, "double_buffer": False}
    with make_vecenv(config, **sizes, **whole) as vecenv:
        others = None if path is None else _Others(path, config, vecenv)
        game = _Game(vecenv, _controls(name, vecenv), others, options.seed)
        with screen:
            game.play(screen, 1 / options.fps)
    print(game.text)
    return 0


def _has_self_play(name: str) -> bool:
    """Return whether another agent can play the other side of a C env."""
    from pufferlib.native import infos

    info = infos().get(name)
    params = () if info is None else info.params
    return any(param.name == "opponent" and "self" in param.choices for param in params)


# ---- Keys ----------------------------------------------------------------------------------------


@dataclass
class Controls:
    """Which keys make which action.

    `keys` has a map from key to choice for each discrete component, `idle` the choice without any
    key, or None if the game waits for one. With `types_numbers` a choice is typed as a number.
    """

    layout: ActionLayout
    keys: list[dict[str, int]] = field(default_factory=list)
    idle: list[int | None] = field(default_factory=list)
    help: str = ""
    types_numbers: bool = False
    _typed: str = ""

    @property
    def waits(self) -> bool:
        """Whether the game waits for a key before each step."""
        return None in self.idle

    def choose(self, pressed: Sequence[str], held: set[str]) -> list[int] | None:
        """Return the choice of each discrete component; None if one is still missing."""
        if self.types_numbers:
            return self._type(pressed)
        down = [*pressed, *held]  # what was pressed now counts first
        found = [
            next((keys[key] for key in down if key in keys), idle)
            for keys, idle in zip(self.keys, self.idle, strict=True)
        ]
        if any(choice is None for choice in found):
            return None
        return [choice for choice in found if choice is not None]

    def _type(self, pressed: Sequence[str]) -> list[int] | None:
        """Add digits to the number that is being typed; return it after Enter."""
        for key in pressed:
            if key.isdigit():
                self._typed = (self._typed + key)[-4:]
            elif key == "backspace":
                self._typed = self._typed[:-1]
            elif key == "enter" and self._typed:
                number, self._typed = int(self._typed), ""
                if number < self.layout.nvec[0]:
                    return [number]
        return None

    def reals(self, held: set[str]) -> NDArray[np.float32]:
        """Return the continuous components: a bound where its key is down, else 0."""
        low, high = np.maximum(self.layout.low, -1), np.minimum(self.layout.high, 1)
        values = np.clip(np.zeros(self.layout.num_continuous, np.float32), low, high)
        for at, (less, more) in enumerate(_AXES[: len(values)]):
            if less in held:
                values[at] = low[at]
            elif more in held:
                values[at] = high[at]
        return values

    @property
    def typed(self) -> str:
        """The number that is being typed."""
        return f" > {self._typed}" if self.types_numbers else ""


def _controls(name: str, vecenv: VectorEnv) -> Controls:
    from pufferlib.native import infos
    from pufferlib.spaces import action_layout

    layout = action_layout(vecenv.action_space)
    info = infos().get(name)
    names = () if info is None else info.action_names
    fits = len(names) == layout.num_discrete + layout.num_continuous and all(
        len(part) == count for part, count in zip(names, layout.nvec, strict=False)
    )
    return make_controls(layout, names if fits else ())


def make_controls(layout: ActionLayout, names: Sequence[Sequence[str]]) -> Controls:
    """Give every choice a key: arrows and space by its name, else a letter of it, else a digit."""
    controls = Controls(layout)
    if not names and layout.num_discrete == 1 and layout.nvec[0] > 10:
        controls.types_numbers, controls.idle = True, [None]
        controls.help = f"type a number below {layout.nvec[0]}, then Enter"
        return controls
    shown: list[str] = []
    taken: set[str] = set()
    for component, count in enumerate(layout.nvec):
        choices = names[component] if names else [str(i) for i in range(count)]
        keys: dict[str, int] = {}
        idle: int | None = None
        for choice, word in enumerate(choices):
            if word in _IDLE and idle is None:
                idle = choice
                continue
            key = _key_of(word, taken)
            if not key:
                raise UsageError("there must be a key for each choice, but there are too many.")
            taken.add(key)
            keys[key] = choice
            shown.append(f"{_SHOWN.get(key, key)} {word}" if names else key)
        controls.keys.append(keys)
        controls.idle.append(idle)
    for at, (less, more) in enumerate(_AXES[: layout.num_continuous]):
        word = names[layout.num_discrete + at][0] if names else f"number {at}"
        shown.append(f"{_SHOWN.get(less, less)}{_SHOWN.get(more, more)} {word}")
    controls.help = "  ".join(shown)
    return controls


def _key_of(word: str, taken: set[str]) -> str:
    """Return a free key for a choice; empty if none is left."""
    named = (_ARROWS.get(word, ""), "space" if word in _SPACE else "")
    letters = [letter for letter in word.lower() if letter in _LETTERS + _DIGITS]
    wanted = [key for key in (*named, *letters, *_LETTERS, *_DIGITS) if key]
    return next((key for key in wanted if key not in taken), "")


# ---- The game ------------------------------------------------------------------------------------


class _Others:
    """A policy that acts for all agents; the player's action then replaces that of agent 0."""

    def __init__(self, path: Path, config: Config, vecenv: VectorEnv) -> None:
        import torch

        from pufferlib.policies.acting import Actor
        from pufferlib.runs import checkpoint

        loaded = restore_policy(checkpoint.load(path), path, config, vecenv)
        norm = loaded.observation_norm
        device = torch.device("cpu")
        self._actor: Actor = Actor(loaded.policy, loaded.spaces, device, normalise=norm)
        self._state: RecurrentState = None

    def rows(self, vecenv: VectorEnv, batch: Batch) -> NDArray[np.generic]:
        from pufferlib.policies.acting import on_device

        actor = self._actor
        masks = vecenv.action_masks
        with actor.acting():
            seen = actor.observe(batch.observations)
            legal = None if masks is None else on_device(masks, actor.device)
            decision = actor.act(seen, self._state, action_masks=legal)
        self._state = decision.state
        return decision.env_actions.cpu().numpy()

    def forget(self, ended: NDArray[np.bool_]) -> None:
        """Clear the recurrent state where an episode ended."""
        import torch

        from pufferlib.policies.recurrent import reset_state

        if self._state is not None and ended.any():
            self._state = reset_state(self._state, torch.from_numpy(ended))


class _Game:
    """One env, played by agent 0."""

    def __init__(
        self, vecenv: VectorEnv, controls: Controls, others: _Others | None, seed: int
    ) -> None:
        self._vecenv, self._controls, self._others = vecenv, controls, others
        self._rng = np.random.default_rng(seed)
        self._reward, self._episodes, self._last = 0.0, 0, ""
        vecenv.reset(seed=seed)

    @property
    def text(self) -> str:
        """The state of the game in a line."""
        return f"reward {self._reward:g}{self._last}"

    def play(self, screen: Screen, seconds: float) -> None:
        """Step until the player ends the game; every `seconds`, or after each key."""
        batch, due = self._vecenv.recv(), time.monotonic()
        while True:
            due = max(due + seconds, time.monotonic())
            choices = self._forced()
            if choices is None:
                choices = self._read(screen, due)
            else:
                self._show(screen)
                screen.pressed(max(0.0, due - time.monotonic()))
            if choices is None:
                return
            batch = self._step(batch, choices, screen.held())

    def _show(self, screen: Screen) -> None:
        picture = self._vecenv.render(0)
        if picture is None:
            raise UsageError("`puffer play` needs an environment that renders.")
        screen.show(picture, f"{self.text}   {self._controls.help}  q quit{self._controls.typed}")

    def _read(self, screen: Screen, due: float) -> list[int] | None:
        """Return the choices of the player, at the time `due` or after a key; None at the end."""
        controls, pressed = self._controls, list[str]()
        self._show(screen)
        while True:
            left = 0.25 if controls.waits else max(0.0, due - time.monotonic())
            pressed += screen.pressed(left)
            if "q" in pressed:
                return None
            if not controls.waits and time.monotonic() >= due:
                return controls.choose(pressed, screen.held())
            if controls.waits and pressed:
                choices = controls.choose(pressed, set())
                if choices is not None and self._is_legal(choices):
                    return choices
                pressed = []
                self._show(screen)

    def _forced(self) -> list[int] | None:
        """Return the only legal choice: that of an agent that waits for the other side."""
        masks, nvec = self._vecenv.action_masks, self._controls.layout.nvec
        if masks is None or self._others is None or masks[0].sum() != len(nvec) or not nvec:
            return None
        parts = np.split(masks[0][: sum(nvec)], self._controls.layout.firsts[1:])
        return [int(part.argmax()) for part in parts]

    def _step(self, batch: Batch, choices: list[int], held: set[str]) -> Batch:
        from pufferlib.vectorization.measuring import random_rows

        vecenv, layout = self._vecenv, self._controls.layout
        if self._others is None:
            rows = random_rows(layout, vecenv.num_agents, self._rng, vecenv.action_masks)
        else:
            rows = self._others.rows(vecenv, batch).copy()
        indices, reals = layout.split(rows)
        indices[0], reals[0] = choices, self._controls.reals(held)
        vecenv.send(rows)
        batch = vecenv.recv()
        self._reward += float(batch.rewards[0])
        ended = batch.terminals | batch.truncations
        if ended[0]:
            self._episodes += 1
            self._last = f" (episode {self._episodes} ended with {self._reward:g})"
            self._reward = 0.0
        if self._others is not None:
            self._others.forget(ended)
        return batch

    def _is_legal(self, choices: list[int]) -> bool:
        masks = self._vecenv.action_masks
        if masks is None:
            return True
        firsts = self._controls.layout.firsts
        return all(masks[0][first + choice] for first, choice in zip(firsts, choices, strict=True))
