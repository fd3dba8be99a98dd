"""`puffer` that gets a signal in an iteration of its choice: no speed of a machine changes when.

    python tests/rigs/signalled_run.py SIGNAL ITERATION FILE train cartpole ...

The signal comes after the rollout, before its updates. FILE is made then; where it exists nothing
happens, so that a run that is started again goes on. Of several ranks the second gets it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pufferlib
from pufferlib.cli import main


def signalled(signum: int, iteration: int, once: Path) -> list[str]:
    """Return the words that start such a run, to stand behind the name of the interpreter."""
    return [__file__, str(int(signum)), str(iteration), str(once)]


def _run(signum: int, iteration: int, once: Path, words: list[str]) -> int:
    train = pufferlib.PuffeRL.train

    def signal_and_train(self: pufferlib.PuffeRL) -> None:
        is_due = self.iteration + 1 == iteration and os.environ.get("RANK", "1") == "1"
        if is_due and not once.exists():
            once.touch()
            os.kill(os.getpid(), signum)
        train(self)

    pufferlib.PuffeRL.train = signal_and_train  # type: ignore[method-assign]
    return main(words)


if __name__ == "__main__":
    sys.exit(_run(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
