"""The commands by name, each a file of this package, and the help text that lists them."""

from __future__ import annotations

COMMANDS = {
    "train": "train a policy on an environment",
    "resume": "go on with a run that was interrupted",
    "eval": "play a trained policy and report its scores",
    "envs": "list the environments, or show one",
    "check": "play an environment and tell what is wrong with it",
    "bench": "measure steps per second",
    "autotune": "find how many envs, where, run fastest",
}


def usage() -> str:
    """Return what `puffer --help` prints."""
    rows = "\n".join(f"  {name:<10}{about}" for name, about in COMMANDS.items())
    return (
        "usage: puffer COMMAND NAME [--section.key value ...]\n\n"
        f"{rows}\n\n"
        "examples:\n"
        "  puffer train breakout\n"
        "  puffer train cartpole --train.learning-rate 1e-3 --vec.num-envs 512\n"
        "  puffer resume breakout --train.total-timesteps 50_000_000\n"
        "  puffer eval breakout\n"
        "  puffer envs snake\n"
        "  puffer check my_package.worlds:Maze --env.size 8\n"
        "  puffer bench cartpole --mode sim --json\n"
        "  puffer autotune gym-LunarLander-v3 --write tuned.ini\n\n"
        "`puffer COMMAND --help` shows every option of a command."
    )
