"""Examples of docs/integrations.md that need a package run where it is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pufferlib
from pufferlib import registry

PAGE = Path(__file__).resolve().parents[2] / "docs" / "integrations.md"
BLOCKS = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: re.findall(r'make\("(.*?)"', block)[0])
def test_examples_run(block: str) -> None:
    for name in re.findall(r'make\("(.*?)"', block):
        try:
            registry.find(name)
        except pufferlib.errors.MissingExtraError as error:
            pytest.skip(str(error))
    exec(compile(block, str(PAGE), "exec"), {})
