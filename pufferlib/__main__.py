"""`python -m pufferlib ...` is `puffer ...`, so that torchrun can start it."""

import os
import sys

try:
    if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]  # `python -m` adds the working folder, whose modules are not ours to import
except OSError:  # there is no working folder any more
    pass

from pufferlib.cli import main

if __name__ == "__main__":
    sys.exit(main())
