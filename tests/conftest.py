"""Tests share few cores: torch computes on one thread unless a test asks for more.

`--package DIST` names the folder of the wheel that the tests run on: `make test` installs it first.
Without it they run on what `import pufferlib` gives, the sources of an editable install.
"""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

# Some virtual machines announce AMX and do not run it: a product in bfloat16 would end the process.
# Read when torch is loaded, here and in the processes that tests start.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

import pufferlib

torch.set_num_threads(1)
SCRIPTS = str(Path(__file__).resolve().parent.parent / "scripts")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--package", type=Path, help="the folder of the sdist and wheel to test")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--package"):
        imported = Path(pufferlib.__file__).resolve()
        if not imported.is_relative_to(Path(sys.prefix).resolve()):
            raise pytest.UsageError(f"--package needs an installed wheel, but imports {imported}")


@pytest.fixture(scope="session")
def integrations_script() -> ModuleType:
    """Return scripts/test_integrations.py as a module."""
    return _script("test_integrations")


@pytest.fixture(scope="session")
def try_integration() -> ModuleType:
    """Return scripts/try_integration.py as a module."""
    return _script("try_integration")


def _script(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        return importlib.import_module(name)
