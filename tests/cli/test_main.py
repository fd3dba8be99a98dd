"""`puffer`: its help, its error messages, and that both load little."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import pufferlib
from pufferlib import config as configs
from pufferlib.cli import COMMANDS, main


def puffer(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pufferlib", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


# ---- Help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {command} " in out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"usage: puffer {command}")
    assert not captured.err


def test_help_shows_every_key_with_type_default_and_meaning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["train", "--help"])
    out = capsys.readouterr().out
    for section in ("train", "vec", "policy"):
        for option in configs.describe(section):
            flag = f"--{section}.{option.key.replace('_', '-')} "
            (line,) = (line for line in out.splitlines() if line.strip().startswith(flag))
            assert option.help in line
            assert option.type in line


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pufferlib {pufferlib.__version__}\n"


# ---- Mistakes ------------------------------------------------------------------------------------


@pytest.fixture
def torch_is_loaded() -> None:
    """Load torch first, or a line announces it before the errors that need torch."""
    import_module("torch")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "braekout"], "environment `braekout`. Did you mean `breakout`?"),
        (["trian", "breakout"], "command `trian`. Did you mean `train`?"),
        (["train"], "required: name"),
        (["train", "cartpole", "more"], "unexpected argument `more`"),
        (["train", "cartpole", "--train.lr=1"], "`lr` (--train.lr). Did you mean `learning_rate`?"),
        (["train", "cartpole", "--lr", "1"], "`--lr`. Did you mean `--train.learning-rate`?"),
        (["train", "cartpole", "--svgg=x"], "`--svgg`. Did you mean `--svg`?"),
        (["train", "cartpole", "--trane.gamma=1"], "section `trane`"),
        (["train", "cartpole", "--train.gamma=2"], "`--train.gamma` must be a number between 0"),
        (["train", "cartpole", "--train.gamma=x"], "`--train.gamma` must be a number"),
        (["train", "cartpole", "--train.gamma"], "`--train.gamma` must have a value (float)"),
        (["train", "cartpole", "--env.gravty=1"], "`gravty`. Did you mean `gravity`?"),
        (["train", "cartpole", "--env.gravity=1e9"], "`--env.gravity` must be in [0, 100]"),
        (["train", "cartpole", "--config", "no.ini"], "`--config` must name a readable ini file"),
        (["train", "cartpole", "--config"], "--config: expected one argument"),
        (["train", "cartpole", "--vec.num-envs=0"], "`--vec.num-envs` must be an integer of at"),
        (["train", "cartpole", "--train.device=gpu"], "`--train.device` must be auto, cpu, cuda"),
        (["train", "cartpole", "--train.run-dir=/proc/x"], "`--train.run-dir` must be a folder"),
        (["eval", "cartpole"], "must hold a run of cartpole, but has none. Try `puffer train"),
        (
            ["eval", "cartpole", "--checkpoint", "nowhere"],
            "`--checkpoint` must be a checkpoint, the folder of a run or a run in runs, but got "
            "`nowhere`",
        ),
        (["eval", "cartpole", "--episodes", "0"], "`--episodes` must be at least 1, but got 0"),
        (["eval", "cartpole", "--num-envs", "0"], "`--num-envs` must be at least 1, but got 0"),
        (["eval", "cartpole", "--seed", "x"], "--seed: invalid int value: 'x'"),
        (["envs", "nope"], "environment `nope`"),
        (["envs", "cartpole", "--train.gamma=1"], "only --env params can be set here"),
        (["envs", "cartpole", "--picture", "no/a.png"], "its folder does not exist"),
        (["train", "cartpole", "--svg", "no/a.svg"], "`--svg` must be a file that can be written"),
        (["train", "cartpole", "--svg", "."], "but got `.`: it is a folder"),
        (["resume", "cartpole", "--svg", "no/a.svg"], "`--svg` must be a file that can be"),
        (["eval", "cartpole", "--gif", "no/a.gif"], "`--video` must be a file that can be written"),
        (["autotune", "cartpole", "--write", "no/a.ini"], "`--write` must be a file that can be"),
        (["train", "cartpole", "--config", "/dev/zero"], "but got `/dev/zero`: it is not a file"),
        (["train", "cartpole", "--config", "."], "but got `.`: it is not a file"),
        (["eval", "cartpole", f"--episodes={10**30}"], "`--episodes` must be at most 2147483647"),
        (["eval", "cartpole", f"--num-envs={10**30}"], "`--num-envs` must be at most 2147483647"),
        (["eval", "cartpole", f"--seed={10**30}"], "`--seed` must be at most 9223372036854775807"),
        (["eval", "cartpole", "--seed=-1"], "`--seed` must be at least 0, but got -1"),
        (["check", "cartpole", f"--steps={10**30}"], "`--steps` must be at most 2147483647"),
        (["check", "cartpole", f"--seed={10**30}"], "`--seed` must be at most 9223372036854775807"),
        (["train", "cartpole", f"--env.gravity={10**400}"], "`--env.gravity` must be in [0, 100]"),
        (["train", "cartpole", f"--vec.num-envs={10**30}"], "Try a smaller `--vec.num-envs`"),
        (["bench", "cartpol"], "Did you mean `cartpole`"),
        (["bench", "cartpole", "--seconds", "0"], "`--seconds` must be above 0, but got 0"),
        (["bench", "cartpole", "--seconds", "nan"], "`--seconds` must be above 0, but got nan"),
        (["bench", "cartpole", "--threads", "0"], "`--threads` must be at least 1, but got 0"),
        (["bench", "cartpole", "--mode", "fly"], "invalid choice: 'fly'"),
    ],
)
@pytest.mark.usefixtures("torch_is_loaded")
def test_a_mistake_is_reported_in_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("puffer: ")
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def cpu_seconds(*words: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Return the CPU time of `python words`, and how it ended."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, result


def test_a_mistyped_name_answers_from_the_shell_before_torch_could_be_loaded() -> None:
    taken, result = cpu_seconds("-m", "pufferlib", "train", "braekout")
    assert result.returncode == 2
    assert result.stderr == "puffer: Unknown environment `braekout`. Did you mean `breakout`?\n"
    assert result.stdout == ""
    of_torch, _ = cpu_seconds("-c", "import torch")
    assert taken < 0.6 * of_torch


def test_a_closed_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m pufferlib train --help | head -1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert result.stderr == ""
    assert result.returncode in (0, 141)


def test_a_pipe_as_config_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.ini")
    assert main(["train", "cartpole", "--config", "pipe.ini"]) == 2
    assert "`--config` must name a readable ini file, but got `pipe.ini`: it is not a file." in (
        capsys.readouterr().err
    )


# ---- Light imports -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "import pufferlib; pufferlib.__version__; dir(pufferlib)",
        "import pufferlib; pufferlib.make('cartpole', num_envs=2).reset()",
        "from pufferlib.cli import main; main(['--help']); main(['train', '--help'])",
        "from pufferlib.cli import main; main(['train', 'braekout'])",
        "from pufferlib.cli import main; main(['train', 'cartpole', '--train.device=gpu'])",
        "from pufferlib.cli import main; main(['envs', 'cartpole'])",
    ],
)
def test_torch_is_only_loaded_for_training(code: str) -> None:
    program = f"import sys\n{code}\nassert 'torch' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_importing_the_package_loads_no_heavy_module() -> None:
    program = (
        "import sys; before = set(sys.modules); import pufferlib\n"
        "heavy = {'numpy', 'gymnasium', 'torch', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
