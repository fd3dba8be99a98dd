"""`puffer bench`: steps per second of an env, of training, of emulation and of worker processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pufferlib import config as configs
from pufferlib.cli.arguments import Parser, check_counts, env_id
from pufferlib.cli.printing import format_values, print_table, progress
from pufferlib.config import ENGINES
from pufferlib.errors import unknown_choice


def main(words: list[str]) -> int:
    parser = Parser("bench", with_config=True)
    parser.add_argument(
        "name",
        help="environment; `ocean`: all C environments; `emulation`: its cost; `vec`: worker "
        "processes beside Gymnasium's",
    )
    parser.add_argument(
        "--mode",
        choices=("sim", "train"),
        default="sim",
        help="sim: only step the env; train: collect and learn",
    )
    parser.add_argument("--num-envs", type=int, metavar="N", help="number of environments")
    parser.add_argument(
        "--threads", type=int, metavar="K", help="threads or workers; default: all cores"
    )
    parser.add_argument(
        "--engine",
        default="auto",
        metavar="NAME,...",
        help=f"implementation that trains: {', '.join(('auto', *ENGINES))}; one or several",
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="about how long to measure")
    parser.add_argument("--json", action="store_true", help="print each result as a JSON object")
    options, overrides = parser.parse(words)
    check_counts(options, "num_envs", "threads")
    timed: dict[str, Any] = {} if options.seconds is None else {"seconds": options.seconds}
    if options.name == "emulation":
        from pufferlib.bench import bench_emulation

        costs = bench_emulation(num_envs=options.num_envs, **timed)
        return _report("emulation", costs._asdict(), options.json)
    if options.name == "vec":
        return _bench_vec(options.threads or 2, timed, options.json)
    if options.name == "ocean":
        return _bench_ocean(options.threads or 1, timed, options.json)
    is_packaged = options.mode == "train"
    config = configs.load(env_id(options.name), overrides, options.config, is_packaged)
    from pufferlib.bench import bench_sim, bench_train

    if options.mode == "sim":
        result = bench_sim(config, num_envs=options.num_envs, threads=options.threads, **timed)
        return _report(f"{result.env}, sim", result._asdict(), options.json)
    if options.num_envs is not None:
        config = replace(config, vec=replace(config.vec, num_envs=options.num_envs))
    engines = _engines(options.engine)
    for result in bench_train(config, engines, threads=options.threads, **timed):
        _report(f"{result.env}, train, {result.engine}", result._asdict(), options.json)
    return 0


def _bench_ocean(threads: int, timed: dict[str, Any], as_json: bool) -> int:
    """Measure the simulation of every C environment, one after another."""
    from pufferlib.bench import bench_sim
    from pufferlib.dashboard import format_count
    from pufferlib.native import infos

    results = []
    with progress("puffer bench ocean") as show:
        for name in infos():
            show(name)
            results.append(bench_sim(configs.load(name, [], [], False), threads=threads, **timed))
    if as_json:
        for result in results:
            print(json.dumps(result._asdict()))
        return 0
    lines = [[result.env, format_count(result.sps)] for result in results]
    print_table(f"SPS of simulation, threads: {threads}", ["env", "SPS"], lines)
    return 0


def _engines(words: str) -> list[str]:
    """Return the engines that `--engine` names."""
    known = ("auto", *ENGINES)
    names = words.split(",")
    for name in names:
        if name not in known:
            raise unknown_choice("`--engine`", name, known)
    return names


def _bench_vec(workers: int, timed: dict[str, Any], as_json: bool) -> int:
    from pufferlib.bench import bench_vec
    from pufferlib.dashboard import format_count

    with progress("puffer bench vec") as show:
        result = bench_vec(workers=workers, on_progress=show, **timed)
    if as_json:
        print(json.dumps(result.to_dict()))
        return 0
    lines = [
        [
            str(each.cost_us),
            format_count(each.ideal_sps),
            format_count(each.serial_sps),
            f"{format_count(each.multiprocessing_sps)} ({result.workers} x {each.envs_per_worker})",
            f"{each.multiprocessing_share:.1%}",
            "" if each.gymnasium_sps is None else format_count(each.gymnasium_sps),
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
    rest = {
        "async over sync, envs of 1 to 10 ms": result.uneven.ratio,
        "cores that a waiting worker uses": result.idle_cpu,
        "load of the machine": result.load,
    }
    print_table("others", ["", ""], format_values(rest))
    return 0


def _report(title: str, values: Mapping[str, object], as_json: bool) -> int:
    if as_json:
        print(json.dumps(values))
    else:
        print_table(title, ["", ""], format_values(values))
    return 0
