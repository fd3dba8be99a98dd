"""`puffer autotune`: measure layouts of an environment and print the fastest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pufferlib import config as configs
from pufferlib.cli.arguments import (
    Parser,
    check_counts,
    check_output,
    see_working_folder,
    spell_flag,
)
from pufferlib.cli.printing import print_table, progress
from pufferlib.errors import UsageError

if TYPE_CHECKING:
    from pufferlib.bench.autotune import Report


def main(words: list[str]) -> int:
    parser = Parser("autotune")
    parser.add_argument(
        "name", metavar="NAME|module:Object", help="environment, or your own class or factory"
    )
    parser.add_config_files()
    parser.add_argument("--num-envs", type=int, metavar="N", help="only try layouts of N envs")
    parser.add_argument("--seconds", type=float, metavar="S", help="about how long to measure (60)")
    parser.add_argument(
        "--write", metavar="FILE.ini", help="write the best layout into section [vec] of this file"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    options, overrides = parser.parse(words)
    check_output(options, "write")
    check_counts(options, "num_envs")
    from pufferlib.bench.autotune import DEFAULT_SECONDS, autotune, write_settings
    from pufferlib.registry import find_or_load

    see_working_folder(options.name)
    for section, key, _ in overrides:
        if section not in ("env", "train", "policy"):
            flag = spell_flag(section, key)
            raise UsageError(f"only --env, --train and --policy can be set here, but got {flag}.")
    config = configs.load(find_or_load(options.name).id, overrides, options.config)
    with progress(f"puffer autotune {options.name}") as show:
        report = autotune(
            options.name,
            config=config,
            num_envs=options.num_envs,
            seconds=DEFAULT_SECONDS if options.seconds is None else options.seconds,
            on_progress=show,
        )
    if options.write:
        write_settings(Path(options.write), report)
    if options.json:
        print(json.dumps(report.to_dict()))
    else:
        _print_tuning(report, options.write)
    return 0


def _print_tuning(report: Report, path: str | None) -> None:
    from pufferlib.bench.autotune import format_bytes, format_seconds

    cost, memory = report.cost, report.memory
    costs = {
        "step": f"{format_seconds(cost.step)} (deviation {format_seconds(cost.spread)})",
        "reset": f"{format_seconds(cost.reset)}, {cost.reset_share:.1%} of the time",
        "waits": f"{cost.wait_share:.0%} of a step",
        "memory": f"{format_bytes(memory.env)}; a worker {format_bytes(memory.worker)}",
    }
    print_table(f"one env of {report.env}", ["", ""], [list(line) for line in costs.items()])
    lines = [
        [
            trial.layout.backend,
            str(trial.layout.total_envs),
            str(trial.layout.total_workers),
            str(trial.layout.num_envs) if trial.layout.surplus_envs else "all",
            f"{trial.sps:,.0f}" if trial.sps else "failed",
            str(trial.horizon) if trial.sps else "",
            format_bytes(trial.memory),
        ]
        for trial in report.trials
    ]
    finalists = sum(trial.is_finalist for trial in report.trials)
    title = f"training on {report.cores} cores; the first {finalists} trained again, alternately"
    headings = ["backend", "envs", "workers", "per batch", "SPS", "horizon", "memory"]
    print_table(title, headings, lines)
    for trial in report.trials:
        if trial.failure:
            print(f"{trial.layout} failed: {trial.failure}")
    best = report.best
    print(f"\nbest: {best.layout}: {report.why}.")
    batch = f"batches of {best.batch_size} steps, horizon {best.horizon}"
    print(f"It trains at {best.sps:,.0f} SPS with {batch}.\n")
    print("[vec]" if path is None else f"[vec] of {path}")
    for key, value in report.best.layout.settings().items():
        print(f"{key} = {value}")
