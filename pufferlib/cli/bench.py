"""`puffer bench`: steps per second of an env, of training, of emulation and of worker processes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pufferlib.cli.arguments import Parser, check_counts, load_config
from pufferlib.cli.printing import format_values, print_table, progress
from pufferlib.config import ENGINES


def main(words: list[str]) -> int:
    parser = Parser("bench", with_config=True)
    parser.add_argument(
        "name",
        help="environment; `emulation`: cost of emulation; `vec`: worker processes and Gymnasium's",
    )
    parser.add_argument(
        "--mode", choices=("sim", "train"), default="sim", help="env alone, or training"
    )
    parser.add_argument("--num-envs", type=int, metavar="N", help="number of environments")
    parser.add_argument(
        "--threads", type=int, metavar="K", help="threads or workers; default: all cores"
    )
    parser.add_argument(
        "--engine", choices=("auto", *ENGINES), default="auto", help="implementation that trains"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="about how long to measure")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    options, overrides = parser.parse(words)
    check_counts(options, "num_envs", "threads")
    if options.name == "emulation":
        from pufferlib.bench import bench_emulation

        seconds = 3 if options.seconds is None else options.seconds
        costs = bench_emulation(num_envs=options.num_envs, seconds=seconds)
        return _report("emulation", costs._asdict(), options.json)
    if options.name == "vec":
        return _bench_vec(options.threads, options.seconds, options.json)
    config = load_config(options.name, overrides, options.config, packaged=options.mode == "train")
    from pufferlib.bench import bench_sim, bench_train

    if options.mode == "sim":
        result = bench_sim(
            config,
            num_envs=options.num_envs,
            threads=options.threads,
            seconds=3 if options.seconds is None else options.seconds,
        )
    else:
        if options.num_envs is not None:
            config = replace(config, vec=replace(config.vec, num_envs=options.num_envs))
        config = replace(
            config,
            train=replace(config.train, engine=options.engine),
            chosen=frozenset({*config.chosen_train(), "engine"}),
        )
        seconds = 10 if options.seconds is None else options.seconds
        result = bench_train(config, threads=options.threads, seconds=seconds)
    return _report(f"{result.env}, {result.mode}", result._asdict(), options.json)


def _bench_vec(workers: int | None, seconds: float | None, as_json: bool) -> int:
    from pufferlib.bench import bench_vec

    with progress("puffer bench vec") as show:
        result = bench_vec(
            workers=workers or 2, seconds=30 if seconds is None else seconds, on_progress=show
        )
    if as_json:
        print(json.dumps(result.to_dict()))
        return 0
    lines = [
        [
            str(each.cost_us),
            _short(each.ideal_sps),
            _short(each.serial_sps),
            f"{_short(each.multiprocessing_sps)} ({result.workers} x {each.envs_per_worker})",
            f"{each.multiprocessing_share:.1%}",
            "" if each.gymnasium_sps is None else _short(each.gymnasium_sps),
            "" if each.ratio is None else f"{each.ratio:.1f}x",
        ]
        for each in result.costs
    ]
    headings = ["us", "ideal", "Serial", "Multiprocessing", "of ideal", "Gymnasium", "ratio"]
    title = f"SPS of Python envs, {result.workers} workers, best of {result.rounds} rounds"
    print_table(title, headings, lines)
    turns = [
        [str(each.num_envs), str(each.cost_us), *(f"{us:.0f}" for us in each[2:])]
        for each in result.turns
    ]
    headings = ["envs", "us", "turn", "work of a worker", "turn cost", "bare futex", "over it"]
    print_table("us of a turn, beside bare processes that wake each other", headings, turns)
    bars = [
        [bar.what, f"{bar.value:.3g}", f"{bar.wanted:g}", "yes" if bar.is_met else "no"]
        for bar in result.bars
    ]
    print_table(f"bars; load {result.load:.1f}", ["what", "measured", "wanted", "met"], bars)
    return 0


def _short(rate: float) -> str:
    """Return a rate in a few characters: `963`, `12.3k`, `1.2M`."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if rate >= factor:
            return f"{rate / factor:.3g}{unit}"
    return f"{rate:.3g}"


def _report(title: str, values: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps(values))
    else:
        print_table(title, ["", ""], format_values(values))
    return 0
