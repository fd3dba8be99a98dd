"""`puffer COMMAND ...`: the command line, which uses all other parts of the package.

Each command is a file with a function `main`. A file is loaded when its command is given, and heavy
imports are inside of functions: `puffer --help` and a mistyped name must answer at once.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module

from pufferlib.cli.commands import COMMANDS, usage
from pufferlib.cli.messages import complain, report, warnings_in_one_line
from pufferlib.cli.printing import flush_output, open_closed_streams
from pufferlib.cli.stopping import second_signal_ends
from pufferlib.errors import unknown_name

__all__ = ["COMMANDS", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    0: success; 1: a broken env (`check`), an exception of the user's code, or output that cannot be
    written; 2: a mistake in the command; 128 + n: stopped by signal n (129 for SIGHUP, 130 for
    Ctrl-C, 143 for SIGTERM).
    """
    open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    # a sweep has trials to end, which may take longer
    ending = (
        second_signal_ends(until_exit=argv is None) if words[:1] != ["sweep"] else nullcontext()
    )
    try:
        with ending, warnings_in_one_line(words):
            code = _run(words)
    except SystemExit as done:  # argparse has printed a help text
        code = done.code if isinstance(done.code, int) else int(bool(done.code))
        if isinstance(done.code, str):
            complain(done.code, code)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 141
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO):
            code = report(error, words)
        else:
            code = complain(f"cannot write to stdout: {error.strerror}", 1)
    except Exception as error:
        code = report(error, words)
    try:
        flush_output()
    except BrokenPipeError:  # `puffer envs | head`: the reader has closed the pipe
        return code or 141
    except OSError as error:
        return code or complain(f"cannot write to stdout: {error.strerror or error}", 1)
    return code


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
