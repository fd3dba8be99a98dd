"""`puffer`: what it prints, what it writes, and how it answers mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import pufferlib
from pufferlib import cli, registry
from pufferlib.cli import main
from pufferlib.errors import CheckpointError

TINY = [
    "--train.num-iterations=3",
    "--train.batch-size=256",
    "--train.n-epochs=1",
    "--train.device=cpu",
    "--train.dashboard=off",
    "--vec.num-envs=8",
    "--vec.num-workers=1",
    "--policy.hidden-size=8",
]
BENCH_KEYS = ["env", "mode", "sps", "steps", "seconds", "num_envs", "threads", "engine"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def puffer(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pufferlib", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def only_run(folder: str = "runs") -> Path:
    (run,) = Path(folder).iterdir()
    return run


# ---- Help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {command} " in out for command in ("train", "eval", "envs", "bench"))


@pytest.mark.parametrize("command", ["train", "eval", "envs", "bench"])
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
        for option in cli.configs.describe(section):
            flag = f"--{section}.{option.key.replace('_', '-')} "
            (line,) = (line for line in out.splitlines() if line.strip().startswith(flag))
            assert option.help in line
            assert option.type in line


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pufferlib {pufferlib.__version__}\n"


# ---- Mistakes ------------------------------------------------------------------------------------


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
        (["train", "cartpole", "--env.gravity=1e9"], "`gravity` must be in [0, 100]"),
        (["train", "cartpole", "--config", "no.ini"], "`--config` must name a readable ini file"),
        (["train", "cartpole", "--config"], "--config: expected one argument"),
        (["train", "cartpole", "--vec.num-envs=0"], "`--vec.num-envs` must be an integer of at"),
        (["train", "cartpole", "--train.batch-size=77"], "`batch_size` must be a multiple of the"),
        (["train", "cartpole", "--train.device=gpu"], "`device` must be auto, cpu, cuda"),
        (["train", "cartpole", "--train.run-dir=/proc/x"], "`--train.run-dir` must be a folder"),
        (["eval", "cartpole"], "must hold a run of cartpole, but has none. Try `puffer train"),
        (
            ["eval", "cartpole", "--run", "nowhere"],
            "`--run` must be a run or a checkpoint, but got `nowhere`",
        ),
        (["eval", "cartpole", "--episodes", "0"], "`--episodes` must be at least 1, but got 0"),
        (["eval", "cartpole", "--num-envs", "0"], "`--num-envs` must be at least 1, but got 0"),
        (["eval", "cartpole", "--seed", "x"], "--seed: invalid int value: 'x'"),
        (["envs", "nope"], "environment `nope`"),
        (["envs", "cartpole", "--train.gamma=1"], "only --env params can be set here"),
        (["envs", "cartpole", "--picture", "no/folder.png"], "`--picture` must be writable"),
        (["bench", "cartpol"], "Did you mean `cartpole`"),
        (["bench", "cartpole", "--seconds", "0"], "`seconds` must be above 0, but got 0"),
        (["bench", "cartpole", "--seconds", "nan"], "`seconds` must be above 0, but got nan"),
        (["bench", "cartpole", "--threads", "0"], "`--threads` must be at least 1, but got 0"),
        (["bench", "cartpole", "--mode", "fly"], "invalid choice: 'fly'"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("puffer: ")
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_a_mistyped_name_answers_from_the_shell_within_a_second() -> None:
    start = time.perf_counter()
    result = puffer("train", "braekout")
    taken = time.perf_counter() - start
    assert result.returncode == 2
    assert result.stderr == "puffer: Unknown environment `braekout`. Did you mean `breakout`?\n"
    assert result.stdout == ""
    assert taken < 5  # under a second on an idle machine


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m pufferlib train --help | head -1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.stderr == ""
    assert result.returncode in (0, 141)


# ---- Light imports -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "import pufferlib; pufferlib.__version__; dir(pufferlib)",
        "import pufferlib; pufferlib.make('cartpole', num_envs=2).reset()",
        "from pufferlib.cli import main; main(['--help']); main(['train', '--help'])",
        "from pufferlib.cli import main; main(['train', 'braekout'])",
        "from pufferlib.cli import main; main(['envs', 'cartpole'])",
    ],
)
def test_torch_is_not_loaded_where_nothing_is_learnt(code: str) -> None:
    program = f"import sys\n{code}\nassert 'torch' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_importing_the_package_loads_next_to_nothing() -> None:
    program = (
        "import sys; before = set(sys.modules); import pufferlib\n"
        "heavy = {'numpy', 'gymnasium', 'torch', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


# ---- train and eval ------------------------------------------------------------------------------


def test_a_run_leaves_config_log_and_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "cartpole", *TINY, "--env.max-steps", "20"]) == 0
    run = only_run()
    assert run.name.startswith("cartpole-")
    assert {path.name for path in run.iterdir()} == {
        "best.safetensors",
        "config.json",
        "iteration-000003.safetensors",
        "latest.safetensors",
        "metrics.jsonl",
    }
    config = json.loads((run / "config.json").read_text())
    assert config["name"] == "cartpole"
    assert config["env"] == {"max_steps": 20}
    assert config["train"]["num_iterations"] == 3
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [256, 512, 768]
    assert [row["iteration"] for row in rows] == [1, 2, 3]
    assert "env/score" in rows[-1]

    capsys.readouterr()
    assert main(["eval", "cartpole", "--episodes", "5", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert scores["env"] == "cartpole"
    assert scores["run"] == str(run)
    assert scores["episodes"] == 5
    assert 1 <= scores["mean_reward"] <= 20
    assert scores["mean_reward"] == scores["score"]

    assert main(["eval", "cartpole", "--run", str(run), "--episodes", "3", "--deterministic"]) == 0
    assert "mean_reward" in capsys.readouterr().out
    assert main(["eval", "cartpole", "--episodes", "2", "--env.max-steps", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episode_length"] == 4
    assert main(["eval", "cartpole", "--episodes", "1", "--gif", "play.gif"]) == 0
    assert Path("play.gif").read_bytes()[:6] in (b"GIF87a", b"GIF89a")


def test_equal_commands_give_equal_runs() -> None:
    for folder in ("one", "two"):
        command = ["train", "connect4", *TINY, f"--train.run-dir={folder}"]
        command.append("--train.minibatch-size=none")  # connect4 has one for larger batches
        assert main([*command, "--policy.recurrent=gru", "--train.seed=5"]) == 0
    logs = []
    for folder in ("one", "two"):
        lines = (only_run(folder) / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        logs.append([{key: row[key] for key in ("policy_loss", "mean_reward")} for row in rows])
    assert logs[0] == logs[1]


def test_eval_wants_a_run_of_that_env(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "cartpole", *TINY, "--train.num-iterations=1"]) == 0
    run = only_run()
    capsys.readouterr()
    assert main(["eval", "squared", "--run", str(run)]) == 2
    assert "`--run` must be a run of squared" in capsys.readouterr().err
    (run / "latest.safetensors").write_bytes(b"garbage")
    assert main(["eval", "cartpole"]) == 2
    assert "is not a checkpoint" in capsys.readouterr().err
    (run / "config.json").write_text("[]")
    assert main(["eval", "cartpole", "--run", str(run)]) == 2
    assert "must be the folder of a run" in capsys.readouterr().err


def test_a_batch_size_that_nobody_chose_fits_odd_numbers_of_envs() -> None:
    words = [word for word in TINY if not word.startswith(("--train.batch", "--vec.num-envs"))]
    words += ["--vec.num-envs=1001", "--train.num-iterations=1"]
    assert main(["train", "squared", *words]) == 0
    config = json.loads((only_run() / "config.json").read_text())
    assert config["train"]["batch_size"] % 1001 == 0


def test_an_ini_file_sets_what_the_command_line_does_not() -> None:
    Path("my.ini").write_text("[train]\nnum_iterations = 2\ngamma = 0.5\n[env]\nmax_steps = 9\n")
    words = [word for word in TINY if "iterations" not in word]
    assert main(["train", "cartpole", "--config", "my.ini", *words, "--train.gamma=0.75"]) == 0
    config = json.loads((only_run() / "config.json").read_text())
    assert config["train"]["num_iterations"] == 2
    assert config["train"]["gamma"] == 0.75
    assert config["env"] == {"max_steps": 9}


def test_a_save_that_fails_on_the_way_does_not_stop_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pufferlib.trainer import PuffeRL

    save, saves = PuffeRL.save_checkpoint, []

    def failing(self: PuffeRL, path: Path, metadata: Any = None) -> None:
        saves.append(self.iteration)
        if self.iteration == 1:
            raise CheckpointError("cannot write x: No space left on device")
        save(self, path, metadata)

    monkeypatch.setattr(PuffeRL, "save_checkpoint", failing)
    with pytest.warns(RuntimeWarning, match=r"No space left on device\. The run goes on"):
        assert main(["train", "cartpole", *TINY, "--train.checkpoint-interval=1"]) == 0
    assert saves == [1, 2, 3]


def test_a_run_that_diverges_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TINY, "--train.learning-rate=1e30", "--train.max-grad-norm=none"]
    assert main(["train", "continuous", *words, "--train.num-iterations=20"]) == 2
    err = capsys.readouterr().err
    assert "must be finite" in err
    assert err.count("\n") == 1


def test_the_dashboard_can_be_saved_as_a_picture() -> None:
    assert main(["train", "cartpole", *TINY, "--svg", "board.svg"]) == 0
    assert "<svg" in Path("board.svg").read_text()


def start_training(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pufferlib", "train", "cartpole", *TINY, *words]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # a background job of a shell ignores Ctrl-C; a program in the foreground does not
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for_rows(process: subprocess.Popen[str], rows: int) -> None:
    for _ in range(600):
        assert process.poll() is None, process.communicate()
        logs = list(Path("runs").glob("*/metrics.jsonl")) if Path("runs").exists() else []
        if logs and logs[0].read_text().count("\n") >= rows:
            return
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the run wrote no log")


def test_ctrl_c_saves_a_whole_iteration_and_exits_with_130(
    capsys: pytest.CaptureFixture[str],
) -> None:
    process = start_training("--train.num-iterations=1000000")
    wait_for_rows(process, 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    run = only_run()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

    from pufferlib import checkpoint

    saved = checkpoint.load(run / "latest.safetensors")
    assert saved.facts["iteration"] == len(rows)
    assert main(["eval", "cartpole", "--episodes", "1", "--json"]) == 0


class Interrupted:
    """Stands in for a trainer that gets a signal `times` times while it collects."""

    config = SimpleNamespace(checkpoint_interval=0)
    world = SimpleNamespace(most=lambda value: value)  # this process is all there is
    done = False
    iteration = 0

    def __init__(self, times: int, signum: int = signal.SIGINT) -> None:
        self.times, self.signum = times, signum
        self.calls: list[str] = []

    def evaluate(self) -> None:
        for _ in range(self.times):
            signal.raise_signal(self.signum)
        self.calls.append("evaluate")

    def train(self) -> None:
        self.calls.append("train")

    def mean_and_log(self) -> dict[str, float]:
        self.calls.append("mean_and_log")
        self.iteration += 1
        return {}


class Saved:
    """Stands in for a run: notes what is saved."""

    def save(self, trainer: Any, log: dict[str, float]) -> None:
        trainer.calls.append("save")


@pytest.fixture
def foreground() -> Iterator[None]:
    """Handle Ctrl-C as a program in the foreground does; a shell's background job ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("foreground")
def test_ctrl_c_ends_a_run_between_two_iterations() -> None:
    trainer, run = Interrupted(times=1), Saved()
    assert cli._loop(cast(Any, trainer), cast(Any, run)) == signal.SIGINT
    assert trainer.calls == ["evaluate", "train", "mean_and_log", "save"]


@pytest.mark.usefixtures("foreground")
def test_sigterm_ends_a_run_between_two_iterations_too() -> None:
    trainer, run = Interrupted(times=1, signum=signal.SIGTERM), Saved()
    assert cli._loop(cast(Any, trainer), cast(Any, run)) == signal.SIGTERM
    assert trainer.calls == ["evaluate", "train", "mean_and_log", "save"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with pytest.raises(SystemExit, match="143"):
        cli._loop(cast(Any, Interrupted(times=2, signum=signal.SIGTERM)), cast(Any, run))


@pytest.mark.usefixtures("foreground")
def test_ctrl_c_twice_ends_it_at_once_and_saves_nothing_half_done() -> None:
    trainer = Interrupted(times=2)
    with pytest.raises(KeyboardInterrupt):
        cli._loop(cast(Any, trainer), cast(Any, Saved()))
    assert trainer.calls == []


# ---- envs ----------------------------------------------------------------------------------------


def test_envs_lists_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in pufferlib.list_envs())


def test_a_registered_env_is_listed_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    pufferlib.register("my-own", lambda: None)
    assert main(["envs"]) == 0
    assert "my-own" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["connect4", "ocean-connect4"])
def test_one_env_is_shown_with_params_metrics_and_a_picture(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["envs", name, "--picture", "board.png", "--env.opponent", "self"]) == 0
    out = capsys.readouterr().out
    for text in ("Discrete(7)", "opponent-random", "scripted|self|random", "moves", "picture:"):
        assert text in out

    image = pytest.importorskip("PIL.Image")
    picture = np.asarray(image.open("board.png"))
    assert picture.ndim == 3
    assert picture.std() > 10


def test_pictures_repeat_themselves() -> None:
    for name in ("a.png", "b.png"):
        assert main(["envs", "snake", "--picture", name]) == 0
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


def test_a_flag_of_the_env_needs_no_value() -> None:
    assert main(["envs", "snake", "--env.leave-corpse"]) == 0


# ---- bench ---------------------------------------------------------------------------------------


def test_bench_prints_one_object_as_its_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "cartpole", "--num-envs", "16", "--threads", "1", "--seconds", "0.1"]
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(result) == BENCH_KEYS
    assert (result["env"], result["mode"], result["engine"]) == ("cartpole", "sim", "native")
    assert (result["num_envs"], result["threads"]) == (16, 1)
    assert result["steps"] % 16 == 0
    assert result["sps"] == pytest.approx(result["steps"] / result["seconds"])

    assert main(words) == 0
    assert "sps" in capsys.readouterr().out


def test_bench_train_runs_whole_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "cartpole", "--mode", "train", "--engine", "torch", "--threads", "1"]
    words += ["--num-envs", "16", "--seconds", "0.2", "--train.batch-size", "512", "--json"]
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(result) == BENCH_KEYS
    assert (result["mode"], result["engine"], result["num_envs"]) == ("train", "torch", 16)
    assert result["steps"] % 512 == 0
    assert not Path("runs").exists()
