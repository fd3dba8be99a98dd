"""`puffer train` and `puffer eval`: the files of a run, and playing its policy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY, only_run
from waiting import wait_until

import pufferlib
from pufferlib.cli import main
from pufferlib.errors import CheckpointError, UsageError
from pufferlib.runs import keep_policy, pretrained_path


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
    assert main(["eval", "cartpole", "--episodes", "1", "--video", "play.mp4"]) == 0
    assert Path("play.mp4").read_bytes()[4:8] == b"ftyp"


def test_pretrained_policies_play(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--pretrained", "--episodes", "32", "--num-envs", "32", "--json"]
    for name in ("cartpole", "pong"):
        assert main(["eval", name, *words]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["perf"] > 0.9


def test_a_pretrained_policy_is_kept_if_it_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pufferlib.runs.pretrained.FOLDER", tmp_path / "kept")
    assert main(["train", "cartpole", *TINY]) == 0
    source = only_run() / "latest.safetensors"
    assert keep_policy(source, "cartpole", {"perf": 0.5})
    assert not keep_policy(source, "cartpole", {"perf": 0.4})
    assert keep_policy(source, "cartpole", {"perf": 0.6})
    kept = pufferlib.load(pretrained_path("cartpole"))
    assert kept.metadata == {"perf": 0.6}
    whole = pufferlib.load(source)
    for name, part in whole.policy.state_dict().items():
        assert kept.policy.state_dict()[name].equal(part)
    assert pretrained_path("cartpole").stat().st_size < source.stat().st_size / 2
    with pytest.raises(UsageError, match="needs a policy of breakout, but none comes with this"):
        pretrained_path("breakout")


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


def test_eval_needs_a_run_of_that_env(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "cartpole", *TINY, "--train.num-iterations=1"]) == 0
    run = only_run()
    capsys.readouterr()
    assert main(["eval", "squared", "--run", str(run)]) == 2
    assert "`--run` must be of squared, but" in capsys.readouterr().err
    (run / "latest.safetensors").write_bytes(b"garbage")
    assert main(["eval", "cartpole"]) == 2
    assert "is not a checkpoint" in capsys.readouterr().err
    (run / "config.json").write_text("[]")
    assert main(["eval", "cartpole", "--run", str(run)]) == 2
    assert "must be the folder of a run" in capsys.readouterr().err


def test_an_unset_batch_size_suits_any_number_of_envs() -> None:
    words = [word for word in TINY if not word.startswith(("--train.batch", "--vec.num-envs"))]
    words += ["--vec.num-envs=1001", "--train.num-iterations=1"]
    with pytest.warns(UserWarning, match="`batch_size` is rounded from 16384 to 16016"):
        assert main(["train", "squared", *words]) == 0
    config = json.loads((only_run() / "config.json").read_text())
    assert config["train"]["batch_size"] == 16016


def test_the_command_line_overrides_an_ini_file() -> None:
    Path("my.ini").write_text("[train]\nnum_iterations = 2\ngamma = 0.5\n[env]\nmax_steps = 9\n")
    words = [word for word in TINY if "iterations" not in word]
    assert main(["train", "cartpole", "--config", "my.ini", *words, "--train.gamma=0.75"]) == 0
    config = json.loads((only_run() / "config.json").read_text())
    assert config["train"]["num_iterations"] == 2
    assert config["train"]["gamma"] == 0.75
    assert config["env"] == {"max_steps": 9}


def test_a_failed_save_does_not_stop_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pufferlib.training.trainer import PuffeRL

    save, saves = PuffeRL.save_checkpoint, []

    def failing(self: PuffeRL, path: Path, metadata: Any = None) -> None:
        saves.append(self.iteration)
        if self.iteration == 1:
            raise CheckpointError("cannot write x: No space left on device")
        save(self, path, metadata)

    monkeypatch.setattr(PuffeRL, "save_checkpoint", failing)
    with pytest.warns(RuntimeWarning, match=r"No space left on device\. The run continues"):
        assert main(["train", "cartpole", *TINY, "--train.checkpoint-interval=1"]) == 0
    assert saves == [1, 2, 3]


def test_a_diverging_run_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TINY, "--train.learning-rate=1e30", "--train.max-grad-norm=none"]
    assert main(["train", "continuous", *words, "--train.num-iterations=20"]) == 2
    err = capsys.readouterr().err
    assert "must be finite" in err
    assert err.count("\n") == 1


def test_the_dashboard_can_be_saved_as_a_picture() -> None:
    assert main(["train", "cartpole", *TINY, "--svg", "board.svg"]) == 0
    assert "<svg" in Path("board.svg").read_text()


def test_the_summary_ends_with_the_commands_to_type_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [word for word in TINY if "dashboard" not in word]
    assert main(["train", "cartpole", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    run = only_run()
    assert [line.strip() for line in lines[-2:]] == [
        f"puffer eval cartpole --checkpoint {run}",
        f"puffer resume {run} --train.total-timesteps 1536",  # 3 iterations of 256, twice
    ]
    assert main([*lines[-1].split()[1:], "--train.dashboard=off"]) == 0


# Says on stderr which of two came first: a line on stdout, or the import of torch.
FIRST = """
import sys


class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("torch", file=sys.stderr, flush=True)
            raise KeyboardInterrupt


sys.meta_path.insert(0, Watch())
write = sys.stdout.write
sys.stdout.write = lambda text: (print(text.strip(), file=sys.stderr, flush=True), write(text))[1]
from pufferlib.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", ["train --vec.num-envs=2", "eval --checkpoint=a.safetensors"])
@pytest.mark.parametrize("name", ["cartpole", "gym-CartPole-v1"])
def test_a_line_is_printed_before_torch_is_loaded(name: str, words: str) -> None:
    Path("a.safetensors").touch()
    command = [sys.executable, "-c", FIRST, *words.split(), name]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 130, ran.stderr
    said = [line for line in ran.stderr.splitlines() if line]
    assert said == [f"puffer: loading torch and {name} ...", "torch"]
    assert ran.stdout == f"puffer: loading torch and {name} ...\n"


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
    def logged() -> int:
        return sum(log.read_text().count("\n") for log in Path().glob("runs/*/metrics.jsonl"))

    wait_until(lambda: logged() >= rows, process)


def test_ctrl_c_saves_a_whole_iteration_and_exits_with_130(
    capsys: pytest.CaptureFixture[str],
) -> None:
    process = start_training("--train.num-iterations=1000000")
    wait_for_rows(process, 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert err == (
        "puffer: stopping after this iteration, then saving; Ctrl-C again stops at once\n"
    )
    run = only_run()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

    from pufferlib.runs import checkpoint

    saved = checkpoint.load(run / "latest.safetensors")
    assert saved.values["iteration"] == len(rows)
    assert main(["eval", "cartpole", "--episodes", "1", "--json"]) == 0
