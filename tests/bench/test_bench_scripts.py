"""The scripts in benchmarks/ read logs and output of programs; nothing here measures speed."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("bars")


@pytest.fixture
def learning(bars: ModuleType) -> ModuleType:
    return importlib.import_module("learning")


@pytest.fixture
def learning_gym(learning: ModuleType) -> ModuleType:
    return importlib.import_module("learning_gym")


@pytest.fixture
def learning_defaults(learning: ModuleType) -> ModuleType:
    return importlib.import_module("learning_defaults")


def program(folder: Path, text: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def line(steps: int, value: float, episodes: float) -> dict[str, Any]:
    return {"steps": steps, "mean_reward": value, "episodes": episodes, "episode_length": value}


def test_a_mark_counts_once_a_hundred_episodes_have_ended(learning: ModuleType) -> None:
    mark = learning.Mark("mean_reward", 475)
    rows = [line(1, 500, 60), line(2, 465, 60), line(3, 465, 0), line(4, 495, 60)]

    assert learning.first_reached(rows, mark)["steps"] == 4
    assert learning.first_reached(rows[:3], mark) is None


def test_lines_without_episodes_are_skipped(learning: ModuleType) -> None:
    empty = {"steps": 1, "mean_reward": None, "episodes": None}

    assert learning.first_reached([empty, line(2, 480, 100)], learning.MARKS["cartpole"])


def test_a_summary_has_the_slowest_seed_and_the_final_mean(learning: ModuleType) -> None:
    seeds = [
        {"seed": 2, "steps": 300, "seconds": 3.0, "perf": 0.9},
        {"seed": 1, "steps": 500, "seconds": 2.0, "perf": 1.0},
    ]
    summary = learning.summarised(seeds, 1e6)

    assert (summary["steps"], summary["seconds"], summary["seeds"]) == (500, 3.0, 2)
    assert summary["perf"] == pytest.approx(0.95)
    assert [row["seed"] for row in summary["rows"]] == [1, 2]
    seeds[0]["steps"] = None  # one seed that misses is a mark that was missed
    assert learning.summarised(seeds, 1e6)["steps"] is None


def test_without_a_recurrent_layer_the_mark_must_be_missed(learning: ModuleType) -> None:
    reached, missed = {"steps": 100}, {"steps": None}

    assert learning.is_as_expected("tmaze/gru", reached)
    assert learning.is_as_expected("tmaze/none", missed)
    assert not learning.is_as_expected("tmaze/none", reached)
    assert not learning.is_as_expected("tmaze", missed)
    assert {env for env, _ in learning.VARIANTS.values()} == {"memory", "tmaze"}


def test_the_cost_of_a_run_is_the_cpu_time_of_its_process(learning: ModuleType) -> None:
    before = learning.cpu_seconds_of_children()
    code = "import time\nwhile time.process_time() < 0.2: pass\ntime.sleep(0.1)"
    subprocess.run([sys.executable, "-c", code], check=True)

    assert 0.2 <= learning.cpu_seconds_of_children() - before < 5


def test_a_growing_log_is_read_up_to_its_last_whole_line(
    learning: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')

    assert learning.read_log(path) == [{"step": 1}, {"step": 2}]
    assert learning.read_log(tmp_path / "none") == []


def test_a_run_is_finished_when_its_budget_is_spent(
    learning_gym: ModuleType, tmp_path: Path
) -> None:
    log = tmp_path / "run" / "metrics.jsonl"
    assert not learning_gym.is_finished(tmp_path)
    log.parent.mkdir()
    log.write_text('{"steps": 1, "total_steps": 2}\n')
    assert not learning_gym.is_finished(tmp_path)
    log.write_text('{"steps": 1, "total_steps": 2}\n{"steps": 2, "total_steps": 2}\n')
    assert learning_gym.is_finished(tmp_path)


def test_a_result_of_other_code_or_another_engine_does_not_count(
    learning_defaults: ModuleType,
) -> None:
    ours = {"who": "ours", "code": "abc", "engine": "native"}

    assert learning_defaults.is_current(ours, "abc", "native")
    assert not learning_defaults.is_current(ours, "abc", "torch")
    assert not learning_defaults.is_current(ours, "def", "native")
    assert not learning_defaults.is_current({"who": "ours"}, "abc", "native")
    assert learning_defaults.is_current({**ours, "who": "sb3", "engine": "torch"}, "abc", "native")


def test_code_is_named_by_all_that_decides_how_well_we_learn(
    learning_defaults: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = learning_defaults.ROOT
    for pattern in learning_defaults.LEARNING_CODE:
        sources = list(root.glob(pattern))
        assert sources
        for source in sources:
            copy = tmp_path / source.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    before = learning_defaults.code_of("ours")
    monkeypatch.setattr(learning_defaults, "ROOT", tmp_path)
    assert learning_defaults.code_of("ours") == learning_defaults.code_of("puffer") == before
    with (tmp_path / "pufferlib/configs/families/gym.ini").open("a") as family:
        family.write("\n; another comment")
    assert learning_defaults.code_of("ours") != before


def test_an_entry_of_the_gym_table_has_mean_and_deviation(learning_gym: ModuleType) -> None:
    seeds = [{"seed": 2, "return": 490.0, "eval": 500.0}, {"seed": 1, "return": 500.0, "eval": 500}]
    entry = learning_gym.summarised("gym-Hopper-v5", seeds)

    assert (entry["return"], entry["return_std"], entry["eval_std"]) == (495, 5, 0)
    assert (entry["seeds"], entry["bar"]) == (2, 2382.86)
    assert [row["seed"] for row in entry["rows"]] == [1, 2]


def test_a_loop_is_stopped_after_the_line_that_is_wanted(bars: ModuleType, tmp_path: Path) -> None:
    path = program(
        tmp_path,
        "import time\n"
        "print('cartpole-c,AoS libm sinf,n=4096,threads=1,7')\n"
        "print('cartpole-c,AoS libm sinf,n=4096,threads=2,123456789')\n"
        "time.sleep(3600)\n",
    )
    start = time.monotonic()

    assert bars.loop_rate(path, 0.1) == 123456789
    assert time.monotonic() - start < 1800  # it did not wait for the end of the program


@pytest.mark.slow
def test_the_fused_trainer_counts_by_its_total_or_else_by_its_progress(
    bars: ModuleType, tmp_path: Path
) -> None:
    progress = "print('it 20 steps 0.66M ret 30.0  t=2.00s')\n"
    total = "print('H=64 NT=2 EPOCHS=4: rollout 7.30M/s  train-phase 0.8M/s  total 0.671M SPS')\n"

    assert bars.fused_rate(program(tmp_path, progress + total), 30) == pytest.approx(0.671e6)
    # 0.66 million steps in 2 seconds, then silence until the limit
    slow = program(tmp_path, f"import time\n{progress}time.sleep(3600)\n")
    assert bars.fused_rate(slow, 5) == pytest.approx(0.33e6)
    assert bars.fused_rate(program(tmp_path, "pass\n"), 30) is None


def test_a_yardstick_is_compiled_as_its_first_lines_say(
    bars: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    monkeypatch.setenv("CC", compiler)
    source = tmp_path / "answer.c"
    source.write_text(
        "// Prints a number.\n"
        "//   gcc -O1 -DANSWER=42 answer.c -o answer -lm && ./answer 0.2   (seconds)\n"
        "#include <stdio.h>\n"
        'int main(void) { printf("%d\\n", ANSWER); return 0; }\n'
    )
    built = bars.compile_yardstick(source, tmp_path)

    assert list(bars.lines_of([str(built)], 30)) == ["42"]
    source.write_text("int main(void) { return 0; }\n")
    with pytest.raises(SystemExit, match="must say `gcc"):
        bars.compile_yardstick(source, tmp_path)


def test_ours_runs_right_after_its_yardstick(bars: ModuleType) -> None:
    order: list[str] = []

    def run(name: str, rate: float | None) -> Callable[[], float | None]:
        return lambda: order.append(name) or rate  # type: ignore[func-returns-value]

    pairs = bars.alternate(2, {"a": run("a", 3.0), "b": run("b", 8.0)}, run("other", 2.0), "other")

    assert order == ["other", "a", "other", "b"] * 2
    assert pairs == {"a": [(3.0, 2.0)] * 2, "b": [(8.0, 2.0)] * 2}
    assert bars.alternate(1, {"a": run("a", 3.0)}, None, "other") == {"a": [(3.0, None)]}


def test_a_bar_has_the_ratio_of_the_best_and_that_of_the_median_turn(bars: ModuleType) -> None:
    # the machine was slow in turn 2, and the yardstick gave no figure in turn 3
    pairs = [bars.Pair(12.0, 10.0), bars.Pair(3.0, 2.0), bars.Pair(13.0, None)]
    line = bars.row("what", pairs, 1.3)

    assert (line.sps, line.yardstick, line.ratio) == (13.0, 10.0, pytest.approx(1.3))
    assert line.median_ratio == pytest.approx((1.2 + 1.5) / 2)
    assert bars.row("what", [bars.Pair(2.0, None)], 1.3)[1:5] == (2.0, None, None, None)


def test_both_engines_train_in_turns(bars: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("NUM_ENVS", 8), ("BATCH_SIZE", 256), ("MINIBATCH_SIZE", 64)):
        monkeypatch.setattr(bars, name, size)
    for engine in ("native", "torch"):
        with bars.training(engine, 1, 1e-6) as turn:
            assert turn() > 0
            assert turn() > 0


def test_double_buffering_is_measured_with_both_policies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = importlib.import_module("double_buffer")
    words = ["--num-envs", "8", "--workers", "1", "--rounds", "1", "--round-seconds", "0.001"]
    monkeypatch.setattr(sys, "argv", ["double_buffer.py", *words])
    script.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("breakout, 8 envs on 1 threads: ")
    assert [line.split()[1] for line in lines[1:]] == ["computes", "waits"]


def test_recurrent_layers_are_measured_beside_those_of_torch(
    bars: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recurrent = importlib.import_module("recurrent")
    out = tmp_path / "recurrent.json"
    sizes = ["--width", "8", "--batches", "2", "--segments", "2", "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", ["recurrent.py", *sizes, "--json", str(out)])

    recurrent.main()

    step, segments = json.loads(out.read_text())
    assert {"nn.LSTM", "nn.LSTMCell", *recurrent.OURS} == step["seconds"].keys()
    assert segments["rows"] == 2 * recurrent.HORIZON
    assert {*recurrent.OURS} < segments["seconds"].keys()


def test_processes_are_compared_by_their_median_iteration(
    bars: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = importlib.import_module("ranks")
    rates = {1: [1, 1, 1, 90, 100, 500], 2: [1, 1, 1, 190, 200, 800]}
    commands: list[list[str]] = []

    def run(command: list[str], threads: int) -> str:
        commands.append(command)
        if "--exchange" in command:
            return 'a warning\n{"64 x 64": {"flat": 1e-4, "DDP": 2e-4}}\n'
        folder = Path(command[command.index("--checkpoint-dir") + 1]) / "squared"
        folder.mkdir()
        rows = rates[2 if "--nproc_per_node=2" in command else 1]
        (folder / "metrics.jsonl").write_text("".join(f'{{"sps": {row}}}\n' for row in rows))
        return ""

    monkeypatch.setattr(ranks, "run", run)
    monkeypatch.setattr(sys, "argv", ["ranks.py", "--env", "squared", "--rounds", "1"])
    ranks.main()

    reported = capsys.readouterr().out
    assert "squared: 2 processes are 2.00 times as fast as one" in reported
    assert "64 x 64: flat 100 us, DDP 200 us" in reported
    assert [word.endswith("train_template.py") for word in commands[0]].count(True) == 1


# ---- Environments of other packages --------------------------------------------------------------


def test_a_ratio_is_the_median_over_rounds(bars: ModuleType) -> None:
    batched = importlib.import_module("batched")
    ours, other = (batched.Loop(None, 1, 2) for _ in range(2))
    # the machine was slow in rounds 2 and 3: the ratio of the median rates would be 1.5 / 1
    ours.rates, other.rates = [9.0, 1.5, 0.8], [10.0, 1.0, 1.0]

    assert batched.ratio(ours, other) == pytest.approx(0.9)


class Turns:
    """Two agents in turns, one of which ends after each action: AEC steps it with None."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    agent_iter = None

    def reset(self, seed: int | None = None) -> None:
        self.agents, self.tick = ["a", "b"], 0

    def last(self) -> Any:
        mask = np.array([0, 1, 1], dtype=np.int8)
        return {"action_mask": mask}, 0.0, self.tick == 2, False, {}

    def step(self, action: Any) -> None:
        self.taken.append(action)
        self.tick += 1
        if action is None:
            self.agents = []


def test_a_plain_loop_follows_the_api_of_its_env(
    learning: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    families = importlib.import_module("families")
    spec = SimpleNamespace(entry_point=Turns, kwargs={})
    monkeypatch.setattr("pufferlib.registry.find", lambda name: spec)
    loop = families.PlainLoop("turns", seed=0)
    for _ in range(4):
        loop.step()

    # legal actions are 1 and 2; after two actions the agent is removed and a new game begins
    assert loop.env.taken == [2, 1, None, 2, 1]


def test_a_plain_loop_resets_an_env_that_ended(learning: ModuleType) -> None:
    families = importlib.import_module("families")
    loop = families.PlainLoop("gym-CartPole-v1", seed=0)
    for _ in range(300):  # random actions keep the pole up for some 20 steps
        loop.step()
    assert loop.env.unwrapped.state is not None
    assert loop.run(0.01).steps > 0
    assert loop.count > 300


def test_known_results_of_families_are_not_measured_again(
    learning: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    families = importlib.import_module("learning_families")
    asked: list[int] = []

    def train(name: str, seed: int, bar: Any, extra: Any) -> dict[str, Any]:
        asked.append(seed)
        return {"seed": seed, "mark": bar.mark, "best": 4.0, "steps": 1, "seconds": 2.0}

    def random_return(name: str) -> float:
        raise AssertionError("the result is known")

    monkeypatch.setattr(families, "train", train)
    monkeypatch.setattr(families, "random_return", random_return)
    results = tmp_path / "results.json"
    row = {"seed": 1, "mark": 3.0, "best": 3.5, "steps": 1, "seconds": 1.0}
    results.write_text(json.dumps({"crafter": {"random": 2.0, "rows": [row]}}))
    monkeypatch.setattr(sys, "argv", ["learning.py", "crafter", "--results", str(results)])

    assert families.main() == 0
    assert asked == [2]
    assert [each["seed"] for each in json.loads(results.read_text())["crafter"]["rows"]] == [1, 2]
