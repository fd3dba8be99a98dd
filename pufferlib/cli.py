"""`puffer train | eval | envs | bench`: the only file that joins everything.

Heavy imports happen inside the commands: `puffer --help` and a mistyped name must answer at once.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pufferlib import config as configs
from pufferlib.errors import PufferError, UsageError, unknown_name

if TYPE_CHECKING:
    from pufferlib.config import Config
    from pufferlib.trainer import PuffeRL
    from pufferlib.vectorization import VectorEnv

CHECKPOINT = "latest.safetensors"

COMMANDS = {
    "train": "train a policy on an environment",
    "eval": "play a trained policy and report its scores",
    "envs": "list the environments, or show one",
    "bench": "measure steps per second",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 0 fine, 2 the user's mistake, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except PufferError as error:
        print(f"puffer: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `puffer envs | head`
        sys.stderr.close()
        return 141


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if words[0] == "--version":
        from pufferlib import __version__

        print(f"pufferlib {__version__}")
        return 0
    command, *rest = words
    if command not in COMMANDS:
        raise unknown_name("command", command, COMMANDS)
    return {"train": _train, "eval": _eval, "envs": _envs, "bench": _bench}[command](rest)


def _usage() -> str:
    rows = "\n".join(f"  {name:<7}{about}" for name, about in COMMANDS.items())
    return (
        "usage: puffer COMMAND NAME [--section.key value ...]\n\n"
        f"{rows}\n\n"
        "examples:\n"
        "  puffer train breakout\n"
        "  puffer train cartpole --train.learning-rate 1e-3 --vec.num-envs 512\n"
        "  puffer eval breakout\n"
        "  puffer envs snake\n"
        "  puffer bench cartpole --mode sim --json\n\n"
        "`puffer COMMAND --help` shows every option of a command."
    )


class _Parser(argparse.ArgumentParser):
    """Reports mistakes as UsageError, in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}. See `{self.prog} --help`.")


def _parser(command: str, *, about: str, with_config: bool) -> _Parser:
    parser = _Parser(
        prog=f"puffer {command}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_options_text() if with_config else None,
        allow_abbrev=False,
    )
    if with_config:
        parser.add_argument("--config", action="append", default=[], metavar="FILE", help="an ini")
    return parser


def _options_text() -> str:
    """Return a line for every key of every section, with type, default and meaning."""
    lines = ["options of a run, also keys of an ini file:"]
    for section in ("train", "vec", "policy"):
        lines.append("")
        for option in configs.describe(section):
            flag = f"--{section}.{option.key.replace('_', '-')}"
            default = "none" if option.default is None else option.default
            lines.append(f"  {flag:<32} {option.help} ({option.type}; {default})")
    lines += ["", "  --env.<param> VALUE              see `puffer envs NAME`"]
    return "\n".join(lines)


def _parse(parser: _Parser, words: list[str]) -> tuple[argparse.Namespace, list[Any]]:
    overrides, rest = configs.parse_overrides(words)
    return parser.parse_args(rest), overrides


def _load(name: str, overrides: list[Any], files: list[str]) -> Config:
    """Read the config; the name is checked first, so that a wrong one is what gets reported."""
    from pufferlib.registry import find

    return configs.load(find(name).id, overrides, files)


def _make(config: Config, **changes: Any) -> VectorEnv:
    from pufferlib.registry import make

    vec = replace(config.vec, **changes)
    return make(
        config.name,
        vec.num_envs,
        vec.num_workers,
        vec.envs_per_worker,
        vec.backend,
        **config.env,
    )


# ---- train ---------------------------------------------------------------------------------------


def _train(words: list[str]) -> int:
    parser = _parser("train", about=COMMANDS["train"], with_config=True)
    parser.add_argument("name", help="environment, see `puffer envs`")
    parser.add_argument("--svg", metavar="FILE", help="save the last dashboard as a picture")
    options, overrides = _parse(parser, words)
    config = _load(options.name, overrides, options.config)
    with _make(config) as vecenv:  # wrong params are told before torch is loaded
        configs.check_train(config.train, vecenv.num_agents)
        from pufferlib.loggers import JsonlLogger
        from pufferlib.models import make_policy
        from pufferlib.trainer import PuffeRL

        settings = config.to_dict()
        _seed_torch(config.train.seed)
        policy = make_policy(vecenv, **settings["policy"])
        folder = _new_run(config)
        log_path = folder / "metrics.jsonl"
        with PuffeRL(
            vecenv, policy, logger=JsonlLogger(log_path), **settings["train"]
        ) as trainer:
            interrupted = _loop(trainer, folder / CHECKPOINT)
            if options.svg:
                trainer.dashboard.export_svg(options.svg)
            paths = {"checkpoint": str(folder / CHECKPOINT), "log": str(log_path)}
            trainer.finish(paths)
    return 130 if interrupted else 0


def _loop(trainer: PuffeRL, path: Path) -> bool:
    """Train to the end of the budget; return whether Ctrl-C came first. Saves either way."""
    interval = trainer.config.checkpoint_interval
    interrupted = False
    try:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            trainer.mean_and_log()
            if interval and trainer.iteration % interval == 0:
                trainer.save_checkpoint(path)
    except KeyboardInterrupt:
        interrupted = True
    trainer.save_checkpoint(path)
    return interrupted


def _new_run(config: Config) -> Path:
    """Create a folder for this run and put its config there."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    base = Path(config.train.run_dir)
    try:
        for attempt in range(1000):
            folder = base / f"{config.name}-{stamp}{f'-{attempt}' if attempt else ''}"
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            (folder / "config.json").write_text(json.dumps(config.to_dict(), indent=2) + "\n")
            return folder
    except OSError as error:
        raise UsageError(
            f"`--train.run-dir` must be a folder that can be written, but got `{base}`: "
            f"{error.strerror}."
        ) from error
    raise UsageError(f"`{base}` holds too many runs of this second.")


def _seed_torch(seed: int) -> None:
    import torch

    torch.manual_seed(seed)


# ---- eval ----------------------------------------------------------------------------------------


def _eval(words: list[str]) -> int:
    parser = _parser("eval", about=COMMANDS["eval"], with_config=False)
    parser.add_argument("name", help="environment")
    parser.add_argument("--run", metavar="FOLDER", help="of a run; the newest of NAME if not given")
    parser.add_argument("--run-dir", default="runs", metavar="FOLDER", help="where runs are")
    parser.add_argument("--episodes", type=int, default=100, metavar="N")
    parser.add_argument("--num-envs", type=int, default=None, metavar="N")
    parser.add_argument("--deterministic", action="store_true", help="take the likeliest action")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gif", metavar="FILE", help="save one env's play as a moving picture")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options, overrides = _parse(parser, words)
    from pufferlib.registry import find

    name = find(options.name).id
    folder = Path(options.run) if options.run else _newest_run(Path(options.run_dir), name)
    config = _run_config(folder, overrides)
    if config.name != name:
        raise UsageError(f"`--run` must be a run of {name}, but {folder} is one of {config.name}.")
    slots = options.num_envs or min(options.episodes, 64)
    with _make(config, num_envs=slots, num_workers=None, envs_per_worker=None) as vecenv:
        from pufferlib import checkpoint
        from pufferlib.evaluation import evaluate_policy
        from pufferlib.models import make_policy

        policy = make_policy(vecenv, **config.to_dict()["policy"])
        saved = checkpoint.load(folder / CHECKPOINT)
        checkpoint.restore_module(policy, saved.tensors, "policy/")
        film = _Film(options.gif) if options.gif else None
        scores = evaluate_policy(
            vecenv,
            policy,
            options.episodes,
            deterministic=options.deterministic,
            seed=options.seed,
            on_frame=film.add if film else None,
        )
    if film:
        film.save()
    if options.json:
        print(json.dumps({"env": name, "run": str(folder), **scores}))
    else:
        _print_table(f"{name}, {folder}", ["metric", "value"], _formatted(scores))
    return 0


def _newest_run(base: Path, name: str) -> Path:
    runs = [path.parent for path in base.glob(f"{name}-*/{CHECKPOINT}")]
    if not runs:
        raise UsageError(
            f"`{base}` must hold a run of {name}, but has none. Try `puffer train {name}` first."
        )
    return max(runs, key=lambda folder: (folder / CHECKPOINT).stat().st_mtime)


def _run_config(folder: Path, overrides: list[Any]) -> Config:
    """Read the config of a run; only params of the env may be changed."""
    try:
        config = configs.Config.from_dict(json.loads((folder / "config.json").read_text()))
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"`{folder}` must be the folder of a run, but {error}.") from None
    changes = {}
    for section, key, text in overrides:
        if section != "env":
            raise UsageError(f"only --env params can be changed here, but got --{section}.{key}.")
        changes[key] = text
    return replace(config, env={**config.env, **changes})


class _Film:
    """Collects pictures and saves them as a GIF."""

    def __init__(self, path: str) -> None:
        from pufferlib.errors import MissingExtraError

        try:
            from PIL import Image
        except ImportError:
            raise MissingExtraError(
                "`--gif` needs pillow: pip install 'pufferlib[plot]'"
            ) from None
        self._path, self._image = path, Image
        self._frames: list[Any] = []

    def add(self, picture: Any) -> None:
        if len(self._frames) < 600:
            self._frames.append(self._image.fromarray(picture))

    def save(self) -> None:
        first, *rest = self._frames
        first.save(self._path, save_all=True, append_images=rest, duration=33, loop=0)


# ---- envs ----------------------------------------------------------------------------------------


def _envs(words: list[str]) -> int:
    parser = _parser("envs", about=COMMANDS["envs"], with_config=False)
    parser.add_argument("name", nargs="?", help="show this one")
    parser.add_argument("--picture", metavar="FILE.png", help="save a picture of it")
    options, overrides = _parse(parser, words)
    if options.name is None:
        return _list_envs()
    from pufferlib.native import infos
    from pufferlib.registry import find, make

    params = {key: text for section, key, text in overrides if section == "env"}
    spec = find(options.name)
    with make(options.name, num_envs=1, **params) as vecenv:
        facts = {
            "observations": vecenv.observation_space,
            "actions": vecenv.action_space,
            "agents": vecenv.agents_per_env,
            "action masks": "yes" if vecenv.action_masks is not None else "no",
        }
        _print_table(spec.id, ["", ""], [[key, str(value)] for key, value in facts.items()])
        info = infos().get(spec.id)
        if info is not None:
            print(f"\n{info.doc}\n")
            rows = [
                [
                    f"--env.{param.name.replace('_', '-')}",
                    str(param.spell(param.default)),
                    "|".join(param.choices) or f"{param.low:g} to {param.high:g}",
                    param.doc,
                ]
                for param in info.params
            ]
            _print_table("params", ["param", "default", "range", "meaning"], rows)
            _print_table("metrics", ["metric", "meaning"], [[m.name, m.doc] for m in info.metrics])
        if options.picture:
            vecenv.reset(seed=0)
            for _ in range(50):
                vecenv.step(vecenv.action_space.sample())
            picture = vecenv.render(0)
            if picture is None:
                raise UsageError(f"{spec.id} has no picture.")
            _write_png(Path(options.picture), picture)
            print(f"picture: {options.picture}")
    return 0


def _list_envs() -> int:
    from pufferlib.native import infos
    from pufferlib.registry import list_envs, make

    rows = []
    for name in list_envs():
        info = infos().get(name)
        if info is None:
            rows.append(["registered", name, "", "", "", ""])
            continue
        with make(name, num_envs=1, num_workers=1) as vecenv:
            space = vecenv.observation_space
            rows.append(
                [
                    info.family,
                    name,
                    f"{space.dtype} {'x'.join(map(str, space.shape or ()))}",
                    str(vecenv.action_space),
                    str(vecenv.agents_per_env),
                    info.doc,
                ]
            )
    _print_table("environments", ["family", "name", "obs", "actions", "agents", "what"], rows)
    return 0


def _write_png(path: Path, picture: Any) -> None:
    """Write [height, width, 3] bytes as a PNG: filter 0, one compressed block."""
    import struct
    import zlib

    height, width, _ = picture.shape
    raw = b"".join(b"\0" + row.tobytes() for row in picture)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(raw)), chunk(b"IEND", b"")]
    try:
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    except OSError as error:
        raise UsageError(f"`--picture` must be writable, but {error}.") from None


# ---- bench ---------------------------------------------------------------------------------------


def _bench(words: list[str]) -> int:
    parser = _parser("bench", about=COMMANDS["bench"], with_config=True)
    parser.add_argument("name", help="environment")
    parser.add_argument("--mode", choices=("sim", "train"), default="sim")
    parser.add_argument("--num-envs", type=int, default=None, metavar="N")
    parser.add_argument("--threads", type=int, default=None, metavar="K", help="all cores if not given")
    parser.add_argument("--engine", choices=("auto", "torch"), default="auto", help="of training")
    parser.add_argument("--seconds", type=float, default=None, metavar="S")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options, overrides = _parse(parser, words)
    config = _load(options.name, overrides, options.config)
    from pufferlib.benchmark import bench_sim, bench_train

    if options.mode == "sim":
        result = bench_sim(
            config,
            num_envs=options.num_envs,
            threads=options.threads,
            seconds=options.seconds or 3,
        )
    else:
        if options.num_envs is not None:
            config = replace(config, vec=replace(config.vec, num_envs=options.num_envs))
        config = replace(config, train=replace(config.train, engine=options.engine))
        result = bench_train(config, threads=options.threads, seconds=options.seconds or 10)
    if options.json:
        print(json.dumps(result._asdict()))
    else:
        _print_table(f"{result.env}, {result.mode}", ["", ""], _formatted(result._asdict()))
    return 0


# ---- printing ------------------------------------------------------------------------------------


def _formatted(values: dict[str, Any]) -> list[list[str]]:
    rows = []
    for key, value in values.items():
        is_real = isinstance(value, float)
        rows.append([key, f"{value:,.0f}" if is_real and abs(value) >= 1e4 else f"{value:,.4g}" if is_real else str(value)])
    return rows


def _print_table(title: str, headings: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=any(headings))
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
