"""The examples of docs/integrations_python.md run where their packages are installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pufferlib.errors import MissingExtraError
from pufferlib.registry import FAMILIES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "integrations_python.md"
EXAMPLES = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.M)
NAMES = [re.search(r'make\("([\w-]+)"', example)[1] for example in EXAMPLES]  # type: ignore[index]


def test_there_is_an_example_for_most_families() -> None:
    shown = {name.partition("-")[0] for name in NAMES}
    assert shown <= FAMILIES.keys()
    assert len(shown) > 9


@pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
def test_an_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = re.sub(r"total_timesteps=[\d_]+", 'num_iterations=1, dashboard="off"', example)
    try:
        exec(compile(tiny, PAGE.name, "exec"), {"__name__": "docs"})
    except MissingExtraError as error:
        pytest.skip(str(error))


def test_every_family_of_python_envs_is_in_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    elsewhere = {"gym", "pettingzoo", "atari", "procgen", "envpool", "craftax", "gymnax"}
    elsewhere |= {"brax", "pgx"}  # docs/emulation.md, docs/integrations.md
    missing = [family for family in FAMILIES.keys() - elsewhere if f"`{family}" not in text]
    assert missing == []
