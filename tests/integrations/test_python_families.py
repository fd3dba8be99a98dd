"""Every family of Python envs: plays where its package is installed, else says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import pufferlib
from pufferlib import config, registry
from pufferlib.errors import MissingExtraError, UnknownNameError
from pufferlib.integrations.packages import is_installed
from pufferlib.vectorization.measuring import legal_actions


class Known(NamedTuple):
    """A name that users type, and what it needs."""

    name: str
    module: str
    command: str
    agents: int = 1
    is_seeded: bool = True


ALL = [
    Known("minigrid-empty-8x8", "minigrid", "pufferlib[minigrid]"),
    Known("minigrid-doorkey-8x8", "minigrid", "pufferlib[minigrid]"),
    Known("minigrid-doorkey-5x5", "minigrid", "pufferlib[minigrid]"),
    Known("minigrid-multiroom", "minigrid", "pufferlib[minigrid]"),
    Known("nethack", "nle", "pufferlib[nethack]"),
    Known("minihack-corridor", "minihack", "pufferlib[minihack]"),
    Known("minihack-room", "minihack", "pufferlib[minihack]"),
    Known("minihack-room-5x5", "minihack", "pufferlib[minihack]"),
    Known("crafter", "crafter", "pufferlib[crafter]"),
    Known("griddly-clusters", "griddly", "pufferlib[griddly]"),
    Known("griddly-sokoban", "griddly", "pufferlib[griddly]"),
    Known("magent-battle", "magent2", "pufferlib[magent]", agents=162),
    Known("mujoco-hopper", "mujoco", "pufferlib[mujoco]"),
    Known("dmc-cartpole-swingup", "dm_control", "pufferlib[dmc]"),
    Known("highway-merge", "highway_env", "pufferlib[highway]"),
    Known("vizdoom-basic", "vizdoom", "pufferlib[vizdoom]"),
    Known("bsuite-catch", "bsuite", "pufferlib[bsuite]", is_seeded=False),
    Known("openspiel-tic-tac-toe", "pyspiel", "pufferlib[openspiel]", agents=2),
    Known("retro-airstriker-genesis", "stable_retro", "pufferlib[retro]"),
    Known("pokemon-red", "pyboy", "pufferlib[pokemon]"),
    Known("microrts", "gym_microrts", "gym-microrts==0.6.0", is_seeded=False),
    Known("neuralmmo", "nmmo", "nmmo==2.1.2", agents=128),
]
each = pytest.mark.parametrize("known", ALL, ids=[known.name for known in ALL])


@each
def test_a_missing_package_is_one_line_with_the_command(
    known: Known, hide: Callable[..., None]
) -> None:
    hide(known.module)
    with pytest.raises(MissingExtraError) as caught:
        pufferlib.make(known.name)
    message = str(caught.value)
    assert message.startswith(f"`{known.name}` needs {known.module}, which is not installed: pip")
    assert known.command in message
    assert "\n" not in message
    assert pufferlib.list_envs(known.name.partition("-")[0]) == []


@pytest.mark.parametrize("family", ["crafter", "microrts", "neuralmmo", "gpudrive", "pokemon"])
def test_a_family_of_one_env_suggests_it(family: str) -> None:
    only = "pokemon-red" if family == "pokemon" else family
    with pytest.raises(UnknownNameError, match=rf"`{family}-x`\. (Did you mean|Known:) `?{only}"):
        pufferlib.make(f"{family}-x")


@each
def test_a_family_has_an_ini(known: Known) -> None:
    assert registry.FAMILIES[known.name.partition("-")[0]]
    num_envs = config.family_vec(known.name)["num_envs"]
    assert 1 <= num_envs <= 64  # 256 of them would be too many
    assert config.load(known.name).vec.num_envs == num_envs


@each
def test_it_plays(known: Known) -> None:
    if not is_installed(known.module):
        pytest.skip(f"{known.module} is not installed")
    if known.name == "pokemon-red":
        pytest.skip("see test_pokemon.py: it needs a ROM")
    runs = []
    for _ in range(2 if known.is_seeded else 1):
        with pufferlib.make(known.name, num_envs=1, backend="serial", seed=3) as vecenv:
            assert vecenv.agents_per_env == known.agents
            vecenv.reset()
            rng = np.random.default_rng(0)
            for _ in range(8):
                vecenv.step(legal_actions(vecenv, rng))
            runs.append(vecenv.observations.copy())
            assert known.name in pufferlib.list_envs(known.name.partition("-")[0]) or (
                vecenv.name.startswith(known.name)  # a name without its size
            )
    assert (runs[0] == runs[-1]).all()


@pytest.mark.parametrize(
    ("name", "module", "nearest"),
    [
        ("minigrid-dorkey-5x5", "minigrid", "minigrid-doorkey-5x5"),
        ("minihack-rom-5x5", "minihack", "minihack-room-5x5"),
        ("griddly-sokban", "griddly", "griddly-sokoban"),
        ("magent-batle", "magent2", "magent-battle"),
        ("mujoco-hoper", "mujoco", "mujoco-hopper"),
        ("nethack-scor", "nle", "nethack-score"),
        ("openspiel-tictac-toe", "pyspiel", "openspiel-tic-tac-toe"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name: str, module: str, nearest: str) -> None:
    if not is_installed(module):
        pytest.skip(f"{module} is not installed")
    with pytest.raises(UnknownNameError, match=f"`{nearest}`"):
        pufferlib.make(name)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("nethack", "nle"),
        ("minihack-room-5x5", "minihack"),
        ("minigrid-empty-8x8", "minigrid"),
        ("highway-merge", "highway_env"),
        ("vizdoom-basic", "vizdoom"),
        ("griddly-sokoban", "griddly"),
        ("retro-airstriker-genesis", "stable_retro"),
    ],
)
def test_it_draws_without_a_render_mode(name: str, module: str) -> None:
    if not is_installed(module):
        pytest.skip(f"{module} is not installed")
    # in a process of its own: NetHack crashes where MicroRTS has started Java
    with pufferlib.make(name, num_envs=1, backend="multiprocessing", seed=3) as vecenv:
        vecenv.reset()
        picture = vecenv.render()
    assert picture is not None
    assert picture.shape[2] == 3
    assert picture.dtype == np.uint8
    assert picture.min() < picture.max()


def test_openspiel_makes_its_spaces_once() -> None:
    if not is_installed("pyspiel"):
        pytest.skip("pyspiel is not installed")
    env = registry.find("openspiel-tic-tac-toe").entry_point()
    env.reset(seed=0)
    player = env.agent_selection
    before = env.observation_space(player), env.action_space(player)
    env.step(4)
    assert env.observation_space(player) is before[0]
    assert env.action_space(player) is before[1]
    assert before[0].contains(env.observe(player))


def test_a_vizdoom_game_leaves_no_file_of_a_sound_server(tmp_path: Path) -> None:
    if not is_installed("vizdoom"):
        pytest.skip("vizdoom is not installed")
    code = "import pufferlib; env = pufferlib.make('vizdoom-basic', num_envs=1, num_workers=1)"
    home = {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    (tmp_path / "home").mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
    subprocess.run(
        [sys.executable, "-c", f"{code}; env.reset(seed=0); env.close()"],
        env={**environment, **home},
        cwd=tmp_path,
        check=True,
    )
    assert [path.name for path in tmp_path.rglob("*")] == ["home"]
