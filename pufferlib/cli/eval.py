"""`puffer eval`: play a trained policy and report its scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pufferlib import runs
from pufferlib.cli.arguments import Parser, check_counts, env_params, make_vecenv
from pufferlib.cli.pictures import Film
from pufferlib.cli.printing import print_table, spelled_rows
from pufferlib.errors import UsageError

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv


def main(words: list[str]) -> int:
    parser = Parser("eval")
    parser.add_argument("name", help="environment")
    parser.add_argument(
        "--run", metavar="RUN", help="folder or checkpoint; else the newest of NAME"
    )
    parser.add_argument("--run-dir", default="runs", metavar="FOLDER", help="where runs are")
    parser.add_argument("--episodes", type=int, default=100, metavar="N")
    parser.add_argument("--num-envs", type=int, default=None, metavar="N")
    parser.add_argument("--deterministic", action="store_true", help="take the likeliest action")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gif", metavar="FILE", help="save one env's play as a moving picture")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options, overrides = parser.parse(words)
    from pufferlib.registry import find

    name = find(options.name).id
    check_counts(options, "episodes", "num_envs")
    run, chosen = _run_to_play(options.run, Path(options.run_dir), name)
    folder, config = run.folder, run.read_config()
    config = replace(config, env={**config.env, **env_params(config.name, overrides)})
    if config.name != name:
        raise UsageError(f"`--run` must be a run of {name}, but {folder} is one of {config.name}.")
    slots = options.num_envs or min(options.episodes, 64)
    sizes = {"num_envs": slots, "num_workers": None, "envs_per_worker": None}
    whole = {"mode": "sync", "surplus_envs": 0, "double_buffer": False}  # each env in its turn
    with make_vecenv(config, **sizes, **whole) as vecenv:
        from pufferlib import checkpoint
        from pufferlib.evaluation import evaluate_policy
        from pufferlib.models import make_policy

        policy = make_policy(vecenv, **config.to_dict()["policy"])
        saved = checkpoint.load(chosen)
        checkpoint.restore_module(policy, saved.tensors, "policy/")
        norm = None
        if config.train.norm_obs:
            from pufferlib.normalisation import ObservationNorm
            from pufferlib.pytorch import policy_spaces

            norm = ObservationNorm(policy_spaces(vecenv).observation)
            checkpoint.restore_module(norm, saved.tensors, "observation_norm/")
        played: VectorEnv = vecenv
        if config.train.self_play and vecenv.agents_per_env % 2 == 0:
            from pufferlib.selfplay import against_past

            played = against_past(vecenv, policy, saved, norm, options.seed)
        film = Film(options.gif) if options.gif else None
        scores = evaluate_policy(
            played,
            policy,
            options.episodes,
            deterministic=options.deterministic,
            seed=options.seed,
            normalise=norm,
            on_frame=film.add if film else None,
        )
    if film:
        film.save()
    if options.json:
        print(json.dumps({"env": name, "run": str(folder), **scores}))
    else:
        print_table(f"{name}, {folder}", ["metric", "value"], spelled_rows(scores))
    return 0


def _run_to_play(word: str | None, base: Path, name: str) -> tuple[runs.Run, Path]:
    """Return a run and the checkpoint to play, the newest of env `name` where none is named."""
    found = runs.find(word, base) if word else runs.Found(runs.newest(base, name), None)
    if found is None:
        raise UsageError(f"`--run` must be a run or a checkpoint, but got `{word}`.")
    return found.run, found.checkpoint or found.run.latest
