"""check_env finds in a C env what it finds in a Python env: CONTRIBUTING's example, broken."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pufferlib import check_env
from pufferlib.native import NativeEnv

ROOT = Path(__file__).resolve().parents[2]

# break -> (what is replaced in the example, by what, the findings of `puffer check`)
BREAKS: dict[str, tuple[str, str, list[str]]] = {
    "sound": ("", "", []),
    "nan_reward": (
        "caught ? 1.0f : -1.0f",
        "NAN",
        ["error: NAME, `step`: `reward` must be finite, but got nan."],
    ),
    "inf_reward": (
        "caught ? 1.0f : -1.0f",
        "INFINITY",
        ["error: NAME, `step`: `reward` must be finite, but got inf."],
    ),
    "nan_observation": (
        "obs[2] = (float)env->row / (float)(env->height - 1);",
        "obs[2] = NAN;",
        [
            "error: NAME, `reset`: `observation` must be finite, but got array([0.5 , 0.75, nan], "
            "dtype=float32) (ndarray)."
        ],
    ),
    "outside": (
        "obs[2] = (float)",
        "obs[2] = 700.0f + (float)",
        [
            "error: NAME, `reset`: `observation` is outside of Box(0.0, 1.0, (3,), float32): it "
            "has 700.0 at [2]."
        ],
    ),
    "nan_final": (  # only the observation that a truncated episode ends with
        "return PUF_TERMINATED;\n}\n\nstatic void observe(const Apples* env) {\n"
        "    float* obs = puf_obs_f32(&env->slots, 0);\n",
        "return PUF_TRUNCATED;\n}\n\nstatic void observe(const Apples* env) {\n"
        "    float* obs = puf_obs_f32(&env->slots, 0);\n"
        "    obs[0] = obs[1] = obs[2] = NAN;\n"
        "    if (env->row == env->height - 1) return;\n",
        [
            "error: NAME, `step`: `final_observation` must be finite, but got array([nan, nan, "
            "nan], dtype=float32) (ndarray)."
        ],
    ),
    "perf": (
        "env->score = env->perf = caught;",
        "env->score = env->perf = 300;",
        ["error: NAME, `step`: metric `perf` must be from 0 to 1, but got 300."],
    ),
    "nan_metric": (
        "env->score = env->perf = caught;",
        "env->perf = caught, env->score = NAN;",
        ["error: NAME, `step`: metric `score` must be finite, but got nan."],
    ),
    "endless": (
        "return PUF_TERMINATED;",
        "return env->row = 0, PUF_RUNNING;",
        ["note: NAME, `step`: no episode ended within 1000 random steps."],
    ),
    "past_its_row": (
        "obs[2] = ",
        "obs[3] = 1, obs[2] = ",
        [
            "error: NAME, `reset`: must write only the 12 bytes of agent 0's row of "
            "`observations`, but wrote 4 bytes past it."
        ],
    ),
    "seedless": (
        "puf_rand_int(&env->slots.rng, env->width);",
        "resets++ ? 0 : 1;",
        [
            "warning: NAME, `reset`: the same seed and actions gave different `observations` in "
            "`reset`."
        ],
    ),
    "greedy": (
        "int32_t basket = ",
        "*(int32_t*)env->slots.batch->actions = 7;\n    int32_t basket = ",
        ["warning: NAME, `step`: must not change its `action`, but does."],
    ),
    "no_choice": (
        "obs[2] = ",
        "memset(puf_action_mask(&env->slots, 0), 0, 3);\n    obs[2] = ",
        [
            "error: NAME, `reset`: `action_mask` must allow at least one choice of component 0, "
            "but allows none."
        ],
    ),
    "odd_mask": (
        "obs[2] = ",
        "memset(puf_action_mask(&env->slots, 0), 7, 3);\n    obs[2] = ",
        ["error: NAME, `reset`: `action_mask` must be 0 or 1 for each choice, but got 7."],
    ),
    "several": (
        "puf_reward(&env->slots, 0, caught ? 1.0f : -1.0f);\n    env->score = env->perf = caught;",
        "puf_reward(&env->slots, 0, NAN);\n    env->score = env->perf = -1;",
        [
            "error: NAME, `step`: metric `perf` must be from 0 to 1, but got -1.",
            "error: NAME, `step`: `reward` must be finite, but got nan.",
        ],
    ),
}

CHECK = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("pufferlib._core", sys.argv[1])
sys.modules["pufferlib._core"] = core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
from pufferlib import check_env
from pufferlib.native import infos
print(json.dumps({name: [str(each) for each in check_env(name).findings] for name in infos()}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Build the core with all broken examples as its envs, and check each of them."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    folder = tmp_path_factory.mktemp("broken")
    shutil.copytree(ROOT / "csrc", folder / "csrc")
    shutil.copy(ROOT / "CMakeLists.txt", folder)
    shutil.rmtree(folder / "csrc/envs")
    (folder / "csrc/envs").mkdir()
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```c\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for name, (before, after, _) in BREAKS.items():
        assert not before or example.count(before) == 1, name
        text = example.replace(before, after).replace("PUF_ENV(apples,", f"PUF_ENV(apples_{name},")
        if name == "seedless":
            text = text.replace("static void reset", "static int32_t resets;\nstatic void reset")
        if "mask(" in after:
            text = text.replace(".agents = 1,", ".agents = 1, .action_masks = true,")
        (folder / f"csrc/envs/apples_{name}.c").write_text(text)
    names = "".join(f"ENV(apples_{name})\n" for name in BREAKS)
    (folder / "csrc/envs.def").write_text(names)
    configure = [
        "cmake",
        "-S",
        folder,
        "-B",
        folder / "build",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    for command in (configure, ["cmake", "--build", folder / "build", "-j2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    [core] = (folder / "build").glob("_core*.so")
    command = [sys.executable, "-c", CHECK, core]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    reports: dict[str, list[str]] = json.loads(done.stdout)
    return reports


@pytest.mark.slow  # builds the core
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_c_env_is_found_out(name: str, found: dict[str, list[str]]) -> None:
    assert found[f"apples_{name}"] == [
        line.replace("NAME", f"apples_{name}") for line in BREAKS[name][2]
    ]


class Spoiled(NativeEnv):
    """Snakes of which agent 2 gets `reward`, sees `seen`, and ends with `perf`."""

    reward, seen, perf = 0.0, 0, 0.5

    def __init__(self) -> None:
        super().__init__("snake", num_agents=3)

    def step(self, actions: Any) -> tuple[Any, ...]:
        *rows, infos = super().step(actions)
        self.observations[2].flat[-1] = self.seen
        self.rewards[2] = self.reward
        for info in infos:
            info.update({"perf": self.perf} if info else {})
        return *rows, infos


class NanReward(Spoiled):
    reward = float("nan")


class Beyond(Spoiled):
    seen = 99


class TooGood(Spoiled):
    perf = 300.0


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (Spoiled, None),
        (NanReward, r"error: snake \(agent 2\), `step`: `reward` must be finite, but got nan\."),
        (
            Beyond,
            r"error: snake \(agent 2\), `step`: `observation` is outside of .*: it has 99 at ",
        ),
        (
            TooGood,
            r"error: snake \(agent \d\), `step`: metric `perf` must be from 0 to 1, but got ",
        ),
    ],
)
def test_a_fault_names_its_agent_and_is_one_line(env: type[Spoiled], said: str | None) -> None:
    report = check_env(env, steps=200)
    lines = [str(each) for each in report.findings]
    assert len(lines) == (said is not None), lines
    assert said is None or re.match(said, lines[0]), lines
    assert report.ok == (said is None)


def test_a_nan_far_into_an_observation_is_shown() -> None:
    class Far(NativeEnv):
        def __init__(self) -> None:
            super().__init__("breakout")

        def step(self, actions: Any) -> tuple[Any, ...]:
            result = super().step(actions)
            self.observations[0, 100] = np.inf
            return result

    [line] = map(str, check_env(Far, steps=20).of("error"))
    assert line == "breakout, `step`: `observation` must be finite, but got inf at [100]."
