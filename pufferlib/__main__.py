"""`python -m pufferlib ...` is `puffer ...`, so that torchrun can start it."""

import sys

from pufferlib.cli import main

if __name__ == "__main__":
    sys.exit(main())
