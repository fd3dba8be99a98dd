"""Names of other packages' envs: `gym-`, `pettingzoo-`, and what installed packages offer."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

import pufferlib
from pufferlib import config, registry
from pufferlib.errors import MissingExtraError, UnknownNameError, UsageError
from pufferlib.integrations import procgen
from pufferlib.vectorization.batched import Sizes


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every test registries of its own, and no packages with offers."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_offered", {})
    offer(monkeypatch)
    yield
    registry._load_entry_points.cache_clear()


def offer(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Let packages be installed whose entry points are these."""
    ours = registry.ENTRY_POINT_GROUP
    points = [EntryPoint(name.replace("_", "-"), value, ours) for name, value in values.items()]
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: points if group == ours else []
    )
    registry._load_entry_points.cache_clear()


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let packages be missing."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in packages else found(name)
    )


class Endless(gymnasium.Env[Any, Any]):
    """Observes its size."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size: int = 1, **others: Any) -> None:
        self.size = size
        if others:
            raise TypeError(f"__init__() got an unexpected keyword argument '{min(others)}'")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.array([self.size], np.float32), {}

    def step(self, action: Any) -> Any:
        return np.array([self.size], np.float32), 0.0, False, False, {}


# ---- Families that are a single name -------------------------------------------------------------


def test_a_family_may_be_a_single_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("lonely")
    module.find = lambda name: registry.EnvSpec(f"lonely{name}", Endless)  # type: ignore[attr-defined]
    module.names = lambda: ["lonely"]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lonely", module)
    families = {
        "lonely": registry.Family("one env", "lonely", single=True),
        "social": registry.Family("many envs", "lonely"),
    }
    monkeypatch.setattr(registry, "FAMILIES", families)
    assert registry.find(" Lonely ").id == "lonely"
    assert registry.find("lonely-hard").id == "lonelyhard"
    with pytest.raises(UnknownNameError):
        registry.find("social")


# ---- Gymnasium -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("gym-CartPole-v1", "gym-CartPole-v1"),
        ("gym-cartpole", "gym-CartPole-v1"),
        (" GYM_cartpole_V0 ", "gym-CartPole-v0"),
        ("gym-mountaincarcontinuous", "gym-MountainCarContinuous-v0"),
        ("gym-gymnasium:CartPole", "gym-gymnasium:CartPole-v1"),
    ],
)
def test_an_id_has_many_spellings(name: str, id: str) -> None:
    spec = registry.find(name)
    assert (spec.id, spec.family) == (id, "gym")
    assert registry.find(spec.id).id == id
    assert registry.find_or_load(name).id == id


def test_rows_are_gymnasiums_own_numbers() -> None:
    original = gymnasium.make("CartPole-v1")
    actions = np.random.default_rng(0).integers(2, size=1000)
    with pufferlib.make("gym-CartPole-v1", num_envs=2, seed=7) as vecenv:
        assert (vecenv.reset()[0] == original.reset(seed=7)[0]).all()
        ends = 0
        for action in actions:
            observations, rewards, dones, _ = vecenv.step([action, 0])
            observation, reward, terminated, truncated, _ = original.step(action)
            assert (vecenv.terminals[0], vecenv.truncations[0]) == (terminated, truncated)
            assert rewards[0] == reward
            if terminated or truncated:
                assert dones[0]
                assert (vecenv.final_observations[0] == observation).all()
                observation, _ = original.reset()
                ends += 1
            assert (observations[0] == observation).all()
    assert ends > 20  # a random game lasts some 20 steps


@pytest.mark.slow
def test_cartpole_of_gymnasium_learns() -> None:
    # rewards of 0.05 and short horizons: 6,144 steps took seeds 1 to 5 to between 188 and 278
    with pufferlib.make("gym-CartPole-v1", num_envs=8) as vecenv:
        trainer = pufferlib.PuffeRL(
            vecenv,
            batch_size=512,
            minibatch_size=128,
            num_iterations=40,
            learning_rate=3e-3,
            anneal_lr=False,
            gamma=0.98,
            gae_lambda=0.9,
            ent_coef=0.0,
            dashboard="off",
            seed=2,
        )
        returns = []
        while not trainer.done:
            returns.append(trainer.evaluate()["mean_reward"])
            trainer.train()
        trainer.close()
    assert returns[0] < 40  # random play: some 22
    assert max(returns[-4:]) > 100


def test_params_are_those_of_the_env_and_of_gymnasiums_make() -> None:
    with pufferlib.make("gym-FrozenLake", num_envs=2, map_name="8x8") as vecenv:
        assert vecenv.observation_space.n == 64  # type: ignore[attr-defined]
    with pufferlib.make("gym-CartPole", num_envs=1, max_episode_steps=3) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(3):
            vecenv.step(0)
        assert vecenv.truncations.all()


@pytest.mark.parametrize(
    ("param", "said"),
    [
        ("max_episode_step", r"param of `gym-FrozenLake-v1` `max_episode_step`.*`max_episode_st"),
        ("map_nmae", r"`map_nmae`\. Did you mean `map_name`"),
    ],
)
def test_a_mistyped_param_suggests_the_nearest(param: str, said: str) -> None:
    params: Any = {param: 1}
    with pytest.raises(UnknownNameError, match=said):
        pufferlib.make("gym-FrozenLake", num_envs=1, **params)


def test_a_param_that_only_the_constructor_rejects_raises_one_line() -> None:
    gymnasium.register("Endless-v0", Endless)
    try:
        with pufferlib.make("gym-endless", num_envs=2, size=3) as vecenv:
            assert vecenv.reset().tolist() == [[3], [3]]
        with pytest.raises(UnknownNameError, match=r"^Unknown param of `gym-Endless-v0` `sise`\.$"):
            pufferlib.make("gym-endless", num_envs=1, sise=3)
    finally:
        del gymnasium.registry["Endless-v0"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gym-cartpol", r"Did you mean `gym-CartPole-v1`, `gym-CartPole-v0` or `gym-phys2d"),
        ("gym-CartPole-v7", "`gym-CartPole-v1`"),
        ("CartPole-v1", r"Did you mean `gym-CartPole-v1`"),
        ("lunarlander", r"Did you mean `gym-LunarLander-v3`\?$"),
        ("gym-", "environment `gym-`"),
    ],
)
def test_an_unknown_id_suggests_the_nearest_of_its_family(name: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match=said) as caught:
        pufferlib.make(name)
    assert "\n" not in str(caught.value)


def test_a_module_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(UsageError, match="`no_such_module` raised ModuleNotFoundError"):
        pufferlib.make("gym-no_such_module:Env-v0")


@pytest.mark.parametrize(("id", "extra"), [("LunarLander-v3", "box2d"), ("Ant-v5", "mujoco")])
def test_a_missing_simulator_names_its_extra(
    id: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the env's own module: loaded by an earlier test, it is found without its package
    module = str(gymnasium.spec(id).entry_point).partition(":")[0]
    monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    with pytest.raises(MissingExtraError) as caught:
        pufferlib.make(f"gym-{id}")
    assert str(caught.value).endswith(
        f"needs {extra}, which is not installed: pip install 'pufferlib[{extra}]'"
    )


def test_the_list_of_a_family_has_the_newest_versions() -> None:
    names = pufferlib.list_envs("gym")
    assert "gym-CartPole-v1" in names
    assert "gym-CartPole-v0" not in names
    assert not [name for name in names if "GymV21" in name or "ocean/" in name]
    assert not set(names) & set(pufferlib.list_envs())  # those need no prefix
    with pytest.raises(UnknownNameError, match=r"family `gymm`.*`gym`"):
        pufferlib.list_envs("gymm")


def test_families_have_a_description() -> None:
    assert list(registry.families())[:2] == ["ocean", "registered"]
    assert {"gym", "pettingzoo"} <= registry.families().keys()


# ---- Batched simulators --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "packages", "extra"),
    [
        ("atari-pong", ["ale_py"], "atari"),
        ("procgen-coinrun", ["envpool", "procgen"], "procgen"),
        ("envpool-CartPole-v1", ["envpool"], "envpool"),
        ("craftax", ["craftax"], "craftax"),
        ("gymnax-cartpole", ["gymnax"], "gymnax"),
        ("brax-ant", ["brax"], "brax"),
        ("pgx-chess", ["pgx"], "pgx"),
    ],
)
def test_a_missing_simulator_is_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, packages: list[str], extra: str
) -> None:
    hide(monkeypatch, *packages)
    with pytest.raises(MissingExtraError, match=rf"pip install 'pufferlib\[{extra}\]'") as caught:
        pufferlib.make(name)
    assert "\n" not in str(caught.value)
    assert pufferlib.list_envs(extra) == []
    assert config.family_vec(name)["num_envs"] >= 16


def test_procgen_without_qt_is_procgen2_or_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_qt(*_: Any, **params: Any) -> None:
        raise MissingExtraError("EnvPool Procgen requires the system Qt 5 runtime")

    sizes = Sizes(num_envs=2, batch_envs=2, num_threads=1)
    monkeypatch.setattr(procgen.envpool, "make_simulator", no_qt)
    monkeypatch.setattr(procgen, "is_installed", lambda package: False)
    with pytest.raises(MissingExtraError, match=r"needs Qt 5.* libqt5gui5, or without it pip"):
        procgen.make_simulator("coinrun", sizes)
    monkeypatch.setattr(procgen, "is_installed", lambda package: package == "procgen")
    assert isinstance(procgen.make_simulator("coinrun", sizes), procgen.Gym3Simulator)


# ---- Sizes ---------------------------------------------------------------------------------------


def test_the_ini_of_a_family_decides_how_many_envs_are_made() -> None:
    wanted = config.family_vec("gym-CartPole-v1").get("num_envs")
    assert wanted is not None
    with pufferlib.make("gym-CartPole-v1") as vecenv:
        assert vecenv.num_envs == wanted
    with pufferlib.make("gym-CartPole-v1", num_envs=3) as vecenv:
        assert vecenv.num_envs == 3


def test_the_ini_of_a_family_may_decide_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    vec = {"num_envs": 4, "num_workers": 2, "backend": "multiprocessing"}
    monkeypatch.setattr(config, "family_vec", lambda name: vec)
    with pufferlib.make("gym-CartPole-v1") as vecenv:
        assert (vecenv.num_envs, vecenv.num_workers) == (4, 2)
    with pufferlib.make("gym-CartPole-v1", num_envs=1) as vecenv:
        assert vecenv.num_workers == 1  # a size of the caller's own: not those of the ini


def test_runs_start_from_the_ini_of_their_family() -> None:
    loaded = config.load("gym-MountainCar-v0", [("vec", "num_workers", "2")])
    assert loaded.vec.num_envs == config.family_vec("gym-MountainCar-v0")["num_envs"]
    assert loaded.train.total_timesteps != config.TrainConfig().total_timesteps
    assert config.load("gym").vec.num_envs == loaded.vec.num_envs
    own = config.load("gym-Hopper-v5")  # has an ini of its own on top
    assert own.train.norm_obs
    assert own.train.total_timesteps == loaded.train.total_timesteps
    assert config.load("gymnastics").vec.num_envs is None
    assert config.family_vec("breakout") == {}


# ---- PettingZoo ----------------------------------------------------------------------------------


def test_a_missing_pettingzoo_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pettingzoo", "mpe2")
    with pytest.raises(MissingExtraError) as caught:
        pufferlib.make("pettingzoo-rps")
    assert str(caught.value) == (
        "`pettingzoo-rps` needs PettingZoo: pip install 'pufferlib[pettingzoo]'"
    )
    assert pufferlib.list_envs("pettingzoo") == []


@pytest.fixture
def zoo() -> None:
    for package in ("pettingzoo", "mpe2", "pygame", "chess"):
        pytest.importorskip(package)


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize(
    ("name", "agents"),
    [
        ("knights-archers-zombies", 4),
        ("tictactoe", 2),
        ("rps", 2),
        ("simple-spread", 3),
        ("chess", 2),
        ("Connect_Four", 2),
    ],
)
def test_a_bare_name_is_the_newest_version_present(name: str, agents: int) -> None:
    assert f"pettingzoo-{registry.plain(name)}" in pufferlib.list_envs("pettingzoo")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        vecenv = pufferlib.make(f"pettingzoo-{name}", num_envs=2)
    with vecenv:
        assert vecenv.name.startswith(f"pettingzoo-{registry.plain(name)}-v")
        assert vecenv.agents_per_env == agents
        observations = vecenv.reset(seed=0)
        assert len(observations) == agents
        for rows in observations.values():
            assert len(rows) == 2


@pytest.mark.usefixtures("zoo")
def test_the_newest_of_several_versions_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    from pufferlib.integrations import pettingzoo

    modules = [pettingzoo.Found("a", "walk", 9), pettingzoo.Found("b", "walk", 10)]
    monkeypatch.setattr(pettingzoo, "_present", lambda: modules)
    monkeypatch.setattr(pettingzoo, "Creator", lambda found: found)
    assert registry.find("pettingzoo-walk").id == "pettingzoo-walk-v10"
    assert registry.find("pettingzoo-walk_v9").id == "pettingzoo-walk-v9"
    with pytest.raises(UnknownNameError, match="`pettingzoo-walk-v9` or `pettingzoo-walk-v10`"):
        registry.find("pettingzoo-walk-v8")


@pytest.mark.usefixtures("zoo")
def test_num_agents_sets_the_agents_of_pistonball() -> None:
    with pufferlib.make("pettingzoo-pistonball", num_envs=1, num_agents=3) as vecenv:
        assert vecenv.agents_per_env == 3
        assert list(vecenv.reset(seed=0)) == ["piston_0", "piston_1", "piston_2"]


@pytest.mark.usefixtures("zoo")
def test_a_fixed_number_of_agents_is_checked() -> None:
    with pufferlib.make("pettingzoo-rps", num_envs=1, num_agents=2) as vecenv:
        assert vecenv.agents_per_env == 2
    with pytest.raises(UsageError, match=r"of `pettingzoo-rps-v2` must be 2, but got 3\.$"):
        pufferlib.make("pettingzoo-rps", num_envs=1, num_agents=3)
    with pytest.raises(UsageError, match=r"4, but got 7\. Try `num_archers` and `num_knights`"):
        pufferlib.make("pettingzoo-knights-archers-zombies", num_envs=1, num_agents=7)


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pettingzoo-simpl-spread", "`pettingzoo-simple-spread`"),
        ("pettingzoo-simple-spread-v1", r"Did you mean `pettingzoo-simple-spread-v\d+`\?$"),
        ("pistonball", r"Did you mean `pettingzoo-pistonball`\?$"),
    ],
)
def test_an_unknown_env_suggests_the_nearest(name: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match=said):
        pufferlib.make(name)


@pytest.mark.usefixtures("zoo")
def test_envs_moved_to_mpe2_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "mpe2")
    with pytest.raises(MissingExtraError, match=r"needs mpe2: pip install 'pufferlib\[pettingz"):
        pufferlib.make("pettingzoo-simple-spread")


@pytest.mark.usefixtures("zoo")
def test_a_mistyped_pettingzoo_param_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"`max_cycle`\. Did you mean `max_cycles`"):
        pufferlib.make("pettingzoo-rps", num_envs=1, max_cycle=3)


@pytest.mark.usefixtures("zoo")
def test_rock_paper_scissors_trains() -> None:
    with pufferlib.make("pettingzoo-rps", num_envs=4, max_cycles=8) as vecenv:
        trainer = pufferlib.PuffeRL(vecenv, batch_size=256, num_iterations=1, dashboard="off")
        # 8 slots of 32 steps: 4 games of 8 in each
        assert trainer.evaluate()["episode_length"] == 8
        assert np.isfinite(trainer.train()["policy_loss"])
        trainer.close()


# ---- What installed packages offer ---------------------------------------------------------------


def test_an_entry_point_is_one_env(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("their_envs")
    module.Endless = Endless  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_envs", module)
    offer(monkeypatch, their_env="their_envs:Endless", late="not_yet_there:Env")
    assert pufferlib.list_envs()[-2:] == ["their-env", "late"]
    with pufferlib.make("Their_Env", num_envs=2, size=4) as vecenv:
        assert vecenv.reset().tolist() == [[4], [4]]
    with pytest.raises(UsageError, match=r"must name an importable object.*not_yet_there"):
        pufferlib.make("late")


def test_an_entry_point_without_an_object_is_a_module_that_registers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "their_suite.py").write_text(
        "import pufferlib\n"
        "for size in (2, 3):\n"
        "    pufferlib.register(f'size-{size}', 'tests_of_theirs:Endless', {'size': size})\n"
        "pufferlib.register('mine', 'theirs:Env')\n"
        "pufferlib.register('breakout', 'theirs:Env')\n"
    )
    module = ModuleType("tests_of_theirs")
    module.Endless = Endless  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tests_of_theirs", module)
    monkeypatch.syspath_prepend(tmp_path)
    pufferlib.register("mine", Endless, {"size": 7})
    offer(monkeypatch, suite="their_suite")
    with pufferlib.make("size-3", num_envs=1) as vecenv:
        assert vecenv.reset().tolist() == [[3]]
    # what the user registered, and Ocean, keep their meaning
    with pufferlib.make("mine", num_envs=1) as vecenv:
        assert vecenv.reset().tolist() == [[7]]
    with pufferlib.make("breakout", num_envs=1) as vecenv:
        assert vecenv.num_envs == 1
    assert pufferlib.list_envs("registered") == ["mine", "size-2", "size-3", "breakout"]
    sys.modules.pop("their_suite")


def test_an_entry_point_may_have_the_prefix_of_a_family(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("their_envs")
    module.Endless = Endless  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_envs", module)
    offer(monkeypatch, gym_endless="their_envs:Endless")
    with pufferlib.make("gym-endless", num_envs=1) as vecenv:
        assert vecenv.name == "gym-endless"


def test_a_broken_package_warns_once_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "their_broken.py").write_text("raise RuntimeError('two\\nlines')\n")
    monkeypatch.syspath_prepend(tmp_path)
    offer(monkeypatch, broken="their_broken", sound="their_envs:Endless")
    with pytest.warns(UserWarning, match=r"`their_broken`.*is skipped.*RuntimeError: two lines$"):
        assert pufferlib.list_envs()[-1] == "sound"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UnknownNameError):
            pufferlib.make("no-such-env")
        with pufferlib.make("cartpole", num_envs=1) as vecenv:
            assert vecenv.num_envs == 1


def test_entry_points_are_not_loaded_for_known_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(group: str) -> Any:
        raise AssertionError(group)

    monkeypatch.setattr(importlib.metadata, "entry_points", refuse)
    for name in ("cartpole", "ocean-breakout", "gym-CartPole-v1"):
        assert registry.find(name)
