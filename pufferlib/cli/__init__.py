"""`puffer train | resume | eval | envs | check | bench | autotune`: what joins everything.

Each command is a file with a function `main`. Files are loaded when their command is given, and
heavy imports happen inside of functions: `puffer --help` and a mistyped name must answer at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from pufferlib.cli.commands import COMMANDS, usage
from pufferlib.errors import PufferError, unknown_name

__all__ = ["COMMANDS", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    0 is fine, 1 a broken env (`check`), 2 the user's mistake, 128 + n stopped by signal n: 130 for
    Ctrl-C, 143 for SIGTERM.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except PufferError as error:
        print(f"puffer: {error}", file=sys.stderr)
        return 2
    except SystemExit as done:  # argparse has shown a help text
        return int(done.code or 0)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `puffer envs | head`: nobody reads what is still in the buffer
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0
    if words[0] == "--version":
        from pufferlib import __version__

        print(f"pufferlib {__version__}")
        return 0
    command, *rest = words
    if command not in COMMANDS:
        raise unknown_name("command", command, COMMANDS)
    code: int = import_module(f"pufferlib.cli.{command}").main(rest)
    return code
