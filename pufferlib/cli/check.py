"""`puffer check`: play an environment and report what is wrong with it."""

from __future__ import annotations

import sys

from pufferlib.cli.arguments import Parser, check_counts, check_seed, env_params, see_working_folder


def main(words: list[str]) -> int:
    parser = Parser("check")
    parser.add_argument(
        "name", metavar="NAME|module:Object", help="environment, or your own class or factory"
    )
    parser.add_argument(
        "--steps", type=int, default=1000, metavar="N", help="steps of each of two runs (1000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of envs and actions (0)")
    options, overrides = parser.parse(words)
    check_counts(options, "steps")
    check_seed(options)
    from pufferlib.checks import check_env

    see_working_folder(options.name)
    params = env_params(options.name, overrides)
    report = check_env(options.name, kwargs=params, steps=options.steps, seed=options.seed)
    print(report)
    if options.traceback:
        print(*report.tracebacks, sep="\n", file=sys.stderr)
    return 0 if report.ok else 1
