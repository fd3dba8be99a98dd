"""What a clone installs, and what the author of a C env meets: errors of build and check.

Tests of envs build a copy of the core whose only envs are those of the test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def commands(verb: str) -> str:
    """Return what `make verb` would do in a fresh clone."""
    command = ["make", "-n", "--no-print-directory", verb, "VENV=no-such-venv"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_training_installs_only_what_it_needs_and_tests_the_rest() -> None:
    for verb in ("train", "build"):
        wanted = commands(verb)
        assert re.search(r"pip .*install .* torch$", wanted, re.MULTILINE)
        assert re.search(r"pip .*install .* -e \. ", wanted, re.MULTILINE)
        assert not re.search(r"\bray\b|wandb|neptune|pytest", wanted)
    assert commands("train").rstrip().endswith("puffer train breakout")
    for verb in ("test", "check", "format", "bench"):
        wanted = commands(verb)
        assert re.search(r'-e "\.\[dev,.*wandb.*ray.*\]"$', wanted, re.MULTILINE)
    for verb, marked in (("test", '"not slow"'), ("test-slow", "slow")):
        wanted = commands(verb)
        assert re.search(r"--python build/venv/\S+ install .*\.whl$", wanted, re.MULTILINE)
        assert re.search(
            rf"^cd build && venv/bin/python .*-m {marked} \.\./tests$", wanted, re.MULTILINE
        )


# What pip prints where a file does not compile, but for the words of Ninja and the command.
FAILED = """
  error: subprocess-exited-with-error
      csrc/envs/typo.c: In function 'step':
      csrc/envs/typo.c:19:5: error: implicit declaration of function 'puf_rewrad'
         19 |     puf_rewrad(&env->slots, 0, 1);
            |     ^~~~~~~~~~
            |     puf_reward
      cc1: some warnings being treated as errors
      ninja: build stopped: subcommand failed.
  note: This error originates from a subprocess, and is likely not a problem with pip.
ERROR: Failed building editable for pufferlib
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_a_failed_build_ends_with_the_compilers_line(tmp_path: Path) -> None:
    (tmp_path / ".installed").touch()
    (tmp_path / "said").write_text(FAILED)
    command = ["make", "--no-print-directory", "-C", str(ROOT), "build", f"VENV={tmp_path}"]
    command.append(f"EDITABLE=cat {tmp_path}/said")  # fails: its other argument is a folder
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ran.returncode != 0
    assert ran.stdout.splitlines()[-4:] == [
        "      csrc/envs/typo.c:19:5: error: implicit declaration of function 'puf_rewrad'",
        "         19 |     puf_rewrad(&env->slots, 0, 1);",
        "            |     ^~~~~~~~~~",
        "            |     puf_reward",
    ]
    assert not (tmp_path / ".built").exists()


# One agent per row of `agents`; REWARD, OBSERVE and MORE are what a test gets wrong.
ENV = """
#include "puf_env.h"

typedef struct {
    PufSlots slots;
    float score, perf;
    int32_t agents;
} NAME;

static const PufField params[] = {PUF_PARAM_I32(NAME, agents, 2, 1, 8, "agents")};
static const PufField metrics[] = {PUF_METRIC(NAME, score, "none"), PUF_METRIC(NAME, perf, "none")};

static void shape(const void* env, PufLayout* layout) {
    layout->agents = ((const NAME*)env)->agents;
}
static void reset(NAME* env) { env->score = 0; }
MORE
static PufStatus step(NAME* env) {
    REWARD;
    return env->slots.tick < 5 ? PUF_RUNNING : PUF_TERMINATED;
}
static void observe(const NAME* env) {
    for (int32_t agent = 0; agent < env->slots.num_agents; agent++) {
        float* obs = puf_obs_f32(&env->slots, agent);
        for (int32_t i = 0; i < 3; i++) obs[i] = (float)i;
        OBSERVE;
    }
}
static void render(const NAME* env, PufCanvas* canvas) {
    (void)env;
    puf_clear(canvas, PUF_INK);
}
PUF_ANY_STATE(NAME)
PUF_ENV(NAME, NAME, .doc = "nothing", .group = "probes", .shape = shape,
        .layout = {.agents = 2, .obs = PUF_BOX_F32(3), .actions = PUF_DISCRETE(2), .width = 8,
                   .height = 8});
"""


def write_env(
    folder: Path,
    name: str,
    reward: str = "puf_reward(&env->slots, 0, 1)",
    observe: str = "",
    more: str = "",
) -> Path:
    """Write an env into the copy of the core in `folder`; the words say what its author wrote."""
    text = ENV.replace("NAME", name).replace("MORE", more)
    path = folder / "csrc" / "envs" / f"{name}.c"
    path.write_text(text.replace("REWARD", reward).replace("OBSERVE", observe))
    return path


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the core. The tests of group `core` share a worker, so they compile it once."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    folder = tmp_path_factory.mktemp("core")
    ignored = shutil.ignore_patterns("envs", "tests")
    shutil.copytree(ROOT / "csrc", folder / "csrc", ignore=ignored)
    shutil.copy(ROOT / "CMakeLists.txt", folder)
    return folder


@pytest.fixture
def core(copied: Path) -> Path:
    """A copy of the core without an env."""
    envs = copied / "csrc" / "envs"
    shutil.rmtree(envs, ignore_errors=True)
    envs.mkdir()
    return copied


def build(core: Path, names: list[str], target: str = "puffer_linked") -> tuple[int, str]:
    """Build the core with the envs `names`, or one of its objects; return exit code and output."""
    (core / "csrc" / "envs.def").write_text("".join(f"ENV({name})\n" for name in names))
    made = core / "build"
    configure = ["cmake", "-G", "Unix Makefiles", f"-DPython_EXECUTABLE={sys.executable}"]
    configure += ["-S", str(core), "-B", str(made)]
    subprocess.run(configure, capture_output=True, check=True)
    command = ["cmake", "--build", made, "--target", target]
    plain = {**os.environ, "LC_ALL": "C"}  # quotes in ASCII
    built = subprocess.run(command, capture_output=True, text=True, env=plain, check=False)
    return built.returncode, built.stdout + built.stderr


def test_a_misspelt_function_fails_the_build_with_its_line(core: Path) -> None:
    source = write_env(core, "typo", reward="puf_rewrad(&env->slots, 0, 1)")
    line = 1 + source.read_text().split("puf_rewrad")[0].count("\n")

    code, said = build(core, ["typo"], target="csrc/envs/typo.o")

    assert code != 0
    assert re.search(rf"envs/typo\.c:{line}:\d+: error: .*'puf_rewrad'", said), said


def test_a_missing_function_fails_the_build_with_the_line_that_wants_it(core: Path) -> None:
    source = write_env(core, "blind")
    text = source.read_text()
    source.write_text(text.replace("PUF_ANY_STATE(blind)\n", ""))

    code, said = build(core, ["blind"], target="csrc/envs/blind.o")

    assert code != 0
    assert re.search(r"envs/blind\.c:\d+:\d+: .*PUF_ENV", said), said
    assert re.search(r"error: .*'valid'", said), said


@pytest.mark.slow
@pytest.mark.xdist_group("core")
@pytest.mark.parametrize("mistake", ["declared", "listed"])
def test_no_symbol_is_left_undefined_for_the_import_to_find(core: Path, mistake: str) -> None:
    more = "extern void puf_nowhere(void);" if mistake == "declared" else ""
    reward = "puf_nowhere()" if mistake == "declared" else "puf_reward(&env->slots, 0, 1)"
    write_env(core, "lost", reward, more=more)
    missing = "puf_nowhere" if mistake == "declared" else "puf_env_lots"

    code, said = build(core, ["lost" if mistake == "declared" else "lots"])

    assert code != 0
    assert re.search(rf"undefined (reference|symbol).*{missing}", said), said


# Runs `puffer` with the core at the path in front of its words.
WITH_CORE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("pufferlib._core", sys.argv[1])
core = importlib.util.module_from_spec(spec)
sys.modules["pufferlib._core"] = core
spec.loader.exec_module(core)
from pufferlib.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.xdist_group("core")
def test_the_check_finds_writes_past_a_row_of_a_compiled_env(core: Path) -> None:
    write_env(core, "sound")
    write_env(core, "wide", observe="obs[3] = 1")  # into the row of the next agent, of the next env
    write_env(core, "crowd", reward="puf_reward(&env->slots, env->agents, 1)")

    code, said = build(core, ["sound", "wide", "crowd"], target="_core")
    assert code == 0, said
    (module,) = (core / "build").glob("_core*.so")
    reported = {}
    for name in ("sound", "wide", "crowd"):
        command = [sys.executable, "-c", WITH_CORE, str(module), "check", name, "--env.agents", "3"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        reported[name] = (ran.returncode, ran.stdout.splitlines()[0])

    assert reported["sound"] == (0, "sound: ok, 0 errors, 0 warnings, 0 notes")
    assert reported["wide"] == (
        1,
        "error: wide, `reset`: must write only the 12 bytes of agent 0's row of `observations`, "
        "but wrote 4 bytes past it.",
    )
    assert reported["crowd"] == (
        1,
        "error: crowd, `step`: must write only the 4 bytes of agent 2's row of `rewards`, "
        "but wrote 4 bytes past it.",
    )
