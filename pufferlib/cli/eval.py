"""`puffer eval`: play a trained policy and report its scores."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pufferlib import config as configs
from pufferlib import runs
from pufferlib.cli.arguments import (
    Parser,
    check_counts,
    check_output,
    check_seed,
    env_id,
    env_params,
    make_vecenv,
)
from pufferlib.cli.pictures import Film
from pufferlib.cli.printing import announce_loading, format_values, print_table
from pufferlib.config import Config
from pufferlib.errors import UsageError, quoted

if TYPE_CHECKING:
    from pufferlib.runs.checkpoint import Checkpoint
    from pufferlib.runs.loading import LoadedPolicy
    from pufferlib.vectorization import VectorEnv


def main(words: list[str]) -> int:
    parser = Parser("eval")
    parser.add_argument("name", help="environment, or your own as `module:Env`")
    add_policy_options(parser, "default: the newest run of NAME")
    parser.add_argument(
        "--episodes", type=int, default=100, metavar="N", help="episodes to play (100)"
    )
    parser.add_argument(
        "--num-envs", type=int, metavar="N", help="environments to play in (64 at most)"
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="take the most likely action instead of sampling",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of envs and sampling (0)")
    parser.add_argument(
        *("--video", "--gif"),
        metavar="FILE",
        help="save the play of one env as an animation, .gif or .mp4",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    options, overrides = parser.parse(words)
    name = env_id(options.name)
    check_counts(options, "episodes", "num_envs")
    check_seed(options)
    check_output(options, "video")
    film = Film(options.video) if options.video else None
    run, chosen = find_policy(name, options)
    config = config_of(run, name)
    config = replace(config, env={**config.env, **env_params(name, overrides)})
    if film:
        config = replace(config, env=with_pictures(config))
    if not options.json:
        announce_loading(name)
    slots = options.num_envs or min(options.episodes, 64)
    sizes = {"num_envs": slots, "num_workers": None, "envs_per_worker": None}
    whole = {"mode": "sync", "surplus_envs": 0, "double_buffer": False}  # all envs in every step
    with make_vecenv(config, **sizes, **whole) as vecenv:
        from pufferlib.runs import checkpoint
        from pufferlib.runs.evaluation import evaluate_policy

        saved = checkpoint.load(chosen)
        loaded = restore_policy(saved, chosen, config, vecenv)
        played: VectorEnv = vecenv
        if "self_play" in saved.values and vecenv.agents_per_env % 2 == 0:
            from pufferlib.selfplay import against_past

            norm = loaded.observation_norm
            played = against_past(vecenv, loaded.policy, saved, norm, options.seed)
        scores = evaluate_policy(
            played,
            loaded,
            options.episodes,
            deterministic=options.deterministic,
            seed=options.seed,
            on_frame=film.add if film else None,
        )
    if film:
        film.save()
    if options.json:
        print(json.dumps({"env": name, "run": str(run.folder), **scores}))
    else:
        print_table(f"{name}, {chosen}", ["metric", "value"], _lines(scores))
    return 0


def add_policy_options(parser: Parser, default: str) -> None:
    """Add the options that name a trained policy."""
    parser.add_argument(
        *("--checkpoint", "--run"),
        metavar="FILE|RUN",
        help=f"checkpoint or folder of a run; {default}",
    )
    parser.add_argument(
        "--pretrained", action="store_true", help="the policy that comes with this package"
    )
    parser.add_argument(
        "--run-dir", default="runs", metavar="FOLDER", help="folder that holds the runs"
    )


def find_policy(name: str, options: argparse.Namespace) -> tuple[runs.Run, Path]:
    """Return the run and the checkpoint that `--checkpoint` or `--pretrained` name."""
    base = Path(options.run_dir)
    if options.pretrained:
        if options.checkpoint:
            raise UsageError("`--pretrained` must be used without `--checkpoint`.")
        path = runs.pretrained_path(name)
        return runs.Run(path.parent), path
    if options.checkpoint:
        return runs.find_checkpoint(options.checkpoint, base, "--checkpoint")
    run = runs.newest(base, name)
    return run, run.latest


def _lines(scores: dict[str, float]) -> list[list[str]]:
    """Return the lines of the table, with the interval behind the mean."""
    lines = format_values({key: scores[key] for key in scores if key != "ci95_reward"})
    for line in lines:
        if line[0] == "mean_reward" and "ci95_reward" in scores:
            line[1] += f" +- {scores['ci95_reward']:.3g} (95 %)"
    return lines


def config_of(run: runs.Run, name: str) -> Config:
    """Return the config of a run, or of the env for a checkpoint that was saved in Python."""
    if not (run.folder / runs.CONFIG).exists():
        return configs.load(name)
    config = run.read_config()
    if config.name != name:
        raise UsageError(
            f"`--checkpoint` must be of {name}, but {quoted(run.folder)} is a run of "
            f"{quoted(config.name)}."
        )
    return config


def restore_policy(
    saved: Checkpoint, path: Path, config: Config, vecenv: VectorEnv
) -> LoadedPolicy:
    """Return the policy of a checkpoint that was read from `path`."""
    from pufferlib.models import make_policy
    from pufferlib.policies.observations import policy_spaces
    from pufferlib.runs.loading import restored

    if "spaces" in saved.values:
        return restored(saved, path)
    # a file of an older version has no description of the policy
    policy = make_policy(vecenv, **config.to_dict()["policy"])
    return restored(saved, path, policy, spaces=policy_spaces(vecenv))


def with_pictures(config: Config) -> dict[str, Any]:
    """Return the params of the env, with a `render_mode` if it takes one and has none yet."""
    from pufferlib.registry import find

    with contextlib.suppress(ValueError):  # a class in C may have no signature
        spec = find(config.name)
        params = inspect.signature(spec.entry_point).parameters
        if "render_mode" in params and spec.kwargs.get("render_mode") is None:
            return {"render_mode": "rgb_array", **config.env}
    return dict(config.env)
