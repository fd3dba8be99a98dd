"""The registry of commands, and the help text that lists them.

A new command is a file of this folder with a function `main(words) -> int`, and a line here.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """One command as `puffer --help` and the README show it."""

    target: str  # the argument after its name
    about: str
    examples: tuple[str, ...]


COMMANDS = {
    "train": Command(
        "NAME",
        "train a policy on an environment",
        ("breakout", "cartpole --train.learning-rate 1e-3 --vec.num-envs 512"),
    ),
    "resume": Command(
        "RUN",
        "continue an interrupted run, or extend a finished one",
        ("breakout --train.total-timesteps 50_000_000",),
    ),
    "eval": Command("NAME", "play a trained policy and report its scores", ("breakout",)),
    "sweep": Command(
        "NAME",
        "search for the best options by score and cost",
        ("breakout --sweep.max-cost 600",),
    ),
    "play": Command("NAME", "play with the keyboard, in the terminal", ("pong",)),
    "envs": Command("[NAME]", "list the environments, or describe one", ("snake",)),
    "check": Command(
        "NAME", "check an environment for errors", ("my_package.worlds:Maze --env.size 8",)
    ),
    "bench": Command("NAME", "measure steps per second", ("cartpole --mode sim --json",)),
    "autotune": Command(
        "NAME",
        "find the number of envs and workers that trains fastest",
        ("gym-LunarLander-v3 --write tuned.ini",),
    ),
}


def usage() -> str:
    """Return the text of `puffer --help`."""
    commands = "\n".join(f"  {name:<10}{command.about}" for name, command in COMMANDS.items())
    examples = "\n".join(
        f"  puffer {name} {words}"
        for name, command in COMMANDS.items()
        for words in command.examples
    )
    return (
        "usage: puffer COMMAND NAME [--section.key value ...]\n\n"
        f"{commands}\n\n"
        f"examples:\n{examples}\n\n"
        "`puffer COMMAND --help` shows every option of a command.\n"
        "With `--traceback`, an error shows all calls that led to it."
    )
