"""`puffer train | resume | eval | envs | check | bench`: the only file that joins everything.

Heavy imports happen inside the commands: `puffer --help` and a mistyped name must answer at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from pufferlib import config as configs
from pufferlib import runs
from pufferlib.errors import (
    CheckpointError,
    PufferError,
    UnknownNameError,
    UsageError,
    nearest,
    unknown_name,
)
from pufferlib.runs import LOG

if TYPE_CHECKING:
    from pufferlib.autotune import Report as TuningReport
    from pufferlib.config import Config
    from pufferlib.loggers import Logger
    from pufferlib.registry import EnvSpec
    from pufferlib.spaces import ActionLayout
    from pufferlib.trainer import PuffeRL
    from pufferlib.vectorization import VectorEnv

_SECTIONS = ("train", "vec", "policy", "log")  # besides `env`, whose params only the env knows

# What a run may have anew when it goes on: its budget, and where and how it is shown and kept.
_MAY_CHANGE = {
    "train": {
        *("total_timesteps", "num_iterations", "device", "torch_threads", "dashboard"),
        *("checkpoint_interval", "keep_checkpoints", "best_metric", "log_interval"),
    },
    "vec": {"num_workers", "timeout", "restart", "worker_threads"},
    "log": {option.key for option in configs.describe("log")},
}
_STOPS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

COMMANDS = {
    "train": "train a policy on an environment",
    "resume": "go on with a run that was interrupted",
    "eval": "play a trained policy and report its scores",
    "envs": "list the environments, or show one",
    "check": "play an environment and tell what is wrong with it",
    "bench": "measure steps per second",
    "autotune": "find how many envs, where, run fastest",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    0 is fine, 1 a broken env (`check`), 2 the user's mistake, 128 + n stopped by signal n: 130 for
    Ctrl-C, 143 for SIGTERM.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except PufferError as error:
        print(f"puffer: {error}", file=sys.stderr)
        return 2
    except SystemExit as done:  # argparse has shown a help text
        return int(done.code or 0)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `puffer envs | head`: nobody reads what is still in the buffer
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    run: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "resume": _resume,
        "eval": _eval,
        "envs": _envs,
        "check": _check,
        "bench": _bench,
        "autotune": _autotune,
    }
    return run[command](rest)


def _usage() -> str:
    rows = "\n".join(f"  {name:<10}{about}" for name, about in COMMANDS.items())
    return (
        "usage: puffer COMMAND NAME [--section.key value ...]\n\n"
        f"{rows}\n\n"
        "examples:\n"
        "  puffer train breakout\n"
        "  puffer train cartpole --train.learning-rate 1e-3 --vec.num-envs 512\n"
        "  puffer resume breakout --train.total-timesteps 50_000_000\n"
        "  puffer eval breakout\n"
        "  puffer envs snake\n"
        "  puffer check my_package.worlds:Maze --env.size 8\n"
        "  puffer bench cartpole --mode sim --json\n"
        "  puffer autotune gym-LunarLander-v3 --write tuned.ini\n\n"
        "`puffer COMMAND --help` shows every option of a command."
    )


class _Parser(argparse.ArgumentParser):
    """Reports mistakes as UsageError, in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See `{self.prog} --help`.")


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
    for section in _SECTIONS:
        lines.append("")
        for option in configs.describe(section):
            flag = f"--{section}.{option.key.replace('_', '-')}"
            default = "none" if option.default is None else option.default
            lines.append(f"  {flag:<32} {option.help} ({option.type}; {default})")
    lines += ["", "  --env.<param> VALUE              see `puffer envs NAME`"]
    return "\n".join(lines)


def _parse(parser: _Parser, words: list[str]) -> tuple[argparse.Namespace, list[Any]]:
    overrides, rest = configs.parse_overrides(words)
    options, unknown = parser.parse_known_args(rest)
    if unknown:
        if not unknown[0].startswith("-"):
            parser.error(f"unexpected argument `{unknown[0]}`")
        raise _unknown_option(parser, unknown[0].partition("=")[0])
    return options, overrides


def _unknown_option(parser: _Parser, word: str) -> UnknownNameError:
    """Build the error for a flag that does not exist; its key may only lack the section."""
    flags = {flag.lstrip("-"): flag for each in parser._actions for flag in each.option_strings}
    for section in _SECTIONS:
        for option in configs.describe(section):
            flags[option.key] = f"--{section}.{option.key.replace('_', '-')}"
    suggestions = [flags[key] for key in nearest(word.lstrip("-"), flags)]
    hint = f" Did you mean `{suggestions[0]}`?" if suggestions else f" See `{parser.prog} --help`."
    return UnknownNameError(f"Unknown option `{word}`.{hint}", suggestions)


def _env_params(name: str, overrides: list[Any]) -> dict[str, Any]:
    """Return the params of the env among `overrides`; other sections have no place here."""
    for section, key, _ in overrides:
        if section != "env":
            raise UsageError(f"only --env params can be set here, but got --{section}.{key}.")
    loaded = configs.load(name, overrides).env
    return {key: loaded[key] for _, key, _ in overrides}


def _load(name: str, overrides: list[Any], files: list[str], packaged: bool = True) -> Config:
    """Read the config; the name is checked first, so that a wrong one is what gets reported."""
    from pufferlib.registry import find

    return configs.load(find(name).id, overrides, files, packaged)


def _make(config: Config, **changes: Any) -> VectorEnv:
    from pufferlib.registry import make

    vec = replace(config.vec, **changes)
    return make(
        config.name,
        vec.num_envs,
        vec.num_workers,
        vec.envs_per_worker,
        vec.backend,
        vec=vec.options(),
        **config.env,
    )


# ---- train ---------------------------------------------------------------------------------------


def _train(words: list[str]) -> int:
    parser = _parser("train", about=COMMANDS["train"], with_config=True)
    parser.add_argument("name", help="environment, see `puffer envs`")
    parser.add_argument("--svg", metavar="FILE", help="save the last dashboard as a picture")
    parser.add_argument(
        "--from", dest="source", metavar="RUN", help="begin with the weights of a run or checkpoint"
    )
    options, overrides = _parse(parser, words)
    config = _load(options.name, overrides, options.config)
    weights = _checkpoint_of(options.source, config) if options.source else None
    with _make(config) as vecenv:  # wrong params are told before torch is loaded
        slots = _num_slots(vecenv, config)
        if ("train", "batch_size") not in {(section, key) for section, key, _ in overrides}:
            config = _fitted(config, slots)
        configs.check_train(config.train, slots)
        run, path = _new_or_restarted(config)

        def begin(trainer: PuffeRL) -> None:
            if path is not None:
                run.note_resume(path, trainer.load_checkpoint(path))
            elif weights is not None:
                trainer.load_checkpoint(weights, weights_only=True)

        try:
            return _fit(config, vecenv, run, begin, options.svg)
        except PufferError:
            if not (run.folder / LOG).exists() or not (run.folder / LOG).stat().st_size:
                shutil.rmtree(run.folder, ignore_errors=True)  # nothing ran
            raise


def _num_slots(vecenv: VectorEnv, config: Config) -> int:
    """Return the slots that learn, over all processes; torchrun says how many those are."""
    own = vecenv.num_agents
    if config.train.self_play:
        from pufferlib.selfplay import check_sides

        check_sides(vecenv)
        own //= 2
    return own * int(os.environ.get("WORLD_SIZE", "1"))


def _new_or_restarted(config: Config) -> tuple[runs.Run, Path | None]:
    """Create the folder of a run, the same for all processes; None: there is no checkpoint yet.

    A run that torchrun has started again, since a process died, goes on in its old folder.
    """
    launch = runs.launch_id()
    if launch is None:
        return runs.create(config), None
    from pufferlib.distributed import join_world

    world = join_world(config.train.device)
    run: runs.Run | None = None
    if world.is_first:
        run = runs.of_launch(config, launch) or runs.create(config, launch)
    found = world.from_first(run)
    assert found is not None
    found.is_first = world.is_first
    return found, next(iter(found.candidates()), None)


def _checkpoint_of(word: str, config: Config) -> Path:
    """Return the checkpoint that `word` names: a file, the latest of a folder."""
    found = runs.find(word, Path(config.train.run_dir))
    if found is None:
        raise UsageError(f"`--from` must be a run or a checkpoint, but got `{word}`.")
    return found.checkpoint or found.run.latest


def _fit(
    config: Config,
    vecenv: VectorEnv,
    run: runs.Run,
    begin: Callable[[PuffeRL], None],
    svg: str | None,
) -> int:
    """Train as `config` says, after `begin` has had the trainer; return the exit code."""
    from pufferlib.models import make_policy
    from pufferlib.trainer import PuffeRL

    settings = config.to_dict()
    _seed_torch(config.train.seed)
    policy = make_policy(vecenv, **settings["policy"])
    with run:
        loggers = _loggers(config, run.folder) if run.is_first else {}
        with PuffeRL(vecenv, policy, logger=loggers.values(), **settings["train"]) as trainer:
            begin(trainer)
            stopped_by = _loop(trainer, run)
            if svg:
                trainer.dashboard.export_svg(svg)
            places = {name: getattr(logger, "url", None) for name, logger in loggers.items()}
            paths = {"checkpoint": str(run.latest), "log": str(run.folder / LOG)}
            trainer.finish(paths | {name: url for name, url in places.items() if url})
    return 128 + stopped_by if stopped_by else 0


def _loggers(config: Config, folder: Path) -> dict[str, Logger]:
    """Make the loggers of a run by name; a log of JSON lines is always among them."""
    from pufferlib import loggers

    project, name = config.log.project, config.log.name or folder.name
    makers: dict[str, Callable[[], Logger]] = {
        "jsonl": lambda: loggers.JsonlLogger(folder / LOG),
        "tensorboard": lambda: loggers.TensorboardLogger(folder / "tensorboard"),
        "wandb": lambda: loggers.WandbLogger(
            project, config.log.entity, name, config.to_dict(), loggers.kept_id(folder / "wandb.id")
        ),
        "neptune": lambda: loggers.NeptuneLogger(project, name),
    }
    return {each: makers[each]() for each in ("jsonl", *config.log.loggers)}


def _fitted(config: Config, num_slots: int) -> Config:
    """Round a batch size that the command line did not name to the slots that it implies."""
    unit = num_slots * (config.train.num_steps or 1)
    rounded = max(1, config.train.batch_size // unit) * unit
    return replace(config, train=replace(config.train, batch_size=rounded))


def _loop(trainer: PuffeRL, run: runs.Run) -> int:
    """Train to the end of the budget and save; return the signal that came first, or 0."""
    interval = trainer.config.checkpoint_interval
    log: Mapping[str, float] = {}
    saved: int | None = None  # at which iteration
    with _stop_requests() as asked:
        while not trainer.done and not trainer.world.most(asked()):
            trainer.evaluate()
            trainer.train()
            log = trainer.mean_and_log()
            if interval and trainer.iteration % interval == 0:
                try:
                    run.save(trainer, log)
                    saved = trainer.iteration
                except CheckpointError as error:
                    warnings.warn(f"{error}. The run goes on.", RuntimeWarning, stacklevel=1)
        if trainer.world.most(saved != trainer.iteration):  # all have a part in it, or none
            run.save(trainer, log)
        return trainer.world.most(asked())


@contextmanager
def _stop_requests() -> Iterator[Callable[[], int]]:
    """Turn the first Ctrl-C or SIGTERM into a wish, which the yielded function tells as its number.

    The second stops at once. A run must end between two iterations to be resumed bit for bit.
    Signals that are ignored, as Ctrl-C is in background jobs, or not ours to handle, stay so.
    """
    wishes: list[int] = []

    def ask(signum: int, frame: FrameType | None) -> None:
        wishes.append(signum)
        if len(wishes) > 1:
            raise KeyboardInterrupt if signum == signal.SIGINT else SystemExit(128 + signum)

    ours = {
        signum: default
        for signum, default in _STOPS.items()
        if signal.getsignal(signum) is default
        and threading.current_thread() is threading.main_thread()
    }
    for signum in ours:
        signal.signal(signum, ask)
    try:
        yield lambda: wishes[0] if wishes else 0
    finally:
        for signum, default in ours.items():
            signal.signal(signum, default)


def _seed_torch(seed: int) -> None:
    import torch

    torch.manual_seed(seed)


# ---- resume --------------------------------------------------------------------------------------


def _resume(words: list[str]) -> int:
    parser = _parser("resume", about=COMMANDS["resume"], with_config=False)
    parser.add_argument("run", metavar="RUN", help="its folder, a checkpoint in it, or the env")
    parser.add_argument("--run-dir", default="runs", metavar="FOLDER", help="where runs are")
    parser.add_argument("--svg", metavar="FILE", help="save the last dashboard as a picture")
    options, overrides = _parse(parser, words)
    run, chosen = _run_to_resume(options.run, Path(options.run_dir))
    before = run.read_config()
    config = _extended(before, overrides)
    run.keep, run.metric = config.train.keep_checkpoints, config.train.best_metric
    run.is_first = os.environ.get("RANK", "0") == "0"
    run.check_own()
    path = _first_sound([chosen] if chosen else run.candidates(), config)
    with _make(config) as vecenv:
        configs.check_train(config.train, _num_slots(vecenv, config))

        def begin(trainer: PuffeRL) -> None:
            if path is not None:  # a run without any begins anew, as it did then
                run.note_resume(path, trainer.load_checkpoint(path))
            if config != before:
                run.write_config(config)

        return _fit(config, vecenv, run, begin, options.svg)


def _run_to_resume(word: str, base: Path) -> tuple[runs.Run, Path | None]:
    """Return the run that `word` names, and the checkpoint in it if it names one."""
    found = runs.find(word, base)
    if found is not None:
        return found
    from pufferlib.registry import find

    try:
        name = find(word).id
    except UnknownNameError as error:
        raise UsageError(f"`{word}` must be a run or an environment. {error}") from None
    return runs.newest(base, name, with_checkpoint=False), None


def _extended(config: Config, overrides: list[Any]) -> Config:
    """Return the config of a run with what may change when it goes on."""
    given = configs.load(config.name, overrides, packaged=False)
    if ("train", "total_timesteps") in {(section, key) for section, key, _ in overrides}:
        config = replace(config, train=replace(config.train, num_iterations=None))
    for section, key, _ in overrides:
        if key not in _MAY_CHANGE.get(section, ()):
            raise UsageError(
                f"`--{section}.{key.replace('_', '-')}` must stay what it was when the run began. "
                f"Try `puffer train {config.name} --from RUN` for a new run with its weights."
            )
        value = getattr(getattr(given, section), key)
        part: Any = replace(getattr(config, section), **{key: value})
        config = replace(config, **{section: part})
    return config


def _first_sound(candidates: list[Path], config: Config) -> Path | None:
    """Return the first checkpoint that can be read, if there is any; its run must not be over."""
    from pufferlib import checkpoint

    for number, path in enumerate(candidates, start=1):
        try:
            facts = checkpoint.load(path).facts
            iteration, steps = (checkpoint.counter(facts, key) for key in ("iteration", "steps"))
        except CheckpointError as error:
            if number == len(candidates):
                raise
            print(f"puffer: {error}; trying {candidates[number].name}", file=sys.stderr)
            continue
        if iteration >= config.train.iterations:
            raise UsageError(
                f"`{path.parent}` must have some of its budget left, but has trained all of its "
                f"{steps} steps. Try --train.total-timesteps {2 * steps}."
            )
        return path
    return None


# ---- eval ----------------------------------------------------------------------------------------


def _eval(words: list[str]) -> int:
    parser = _parser("eval", about=COMMANDS["eval"], with_config=False)
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
    options, overrides = _parse(parser, words)
    from pufferlib.registry import find

    name = find(options.name).id
    if options.episodes < 1:
        raise UsageError(f"`--episodes` must be at least 1, but got {options.episodes}.")
    if options.num_envs is not None and options.num_envs < 1:
        raise UsageError(f"`--num-envs` must be at least 1, but got {options.num_envs}.")
    run, chosen = _run_to_play(options.run, Path(options.run_dir), name)
    folder, config = run.folder, run.read_config()
    config = replace(config, env={**config.env, **_env_params(config.name, overrides)})
    if config.name != name:
        raise UsageError(f"`--run` must be a run of {name}, but {folder} is one of {config.name}.")
    slots = options.num_envs or min(options.episodes, 64)
    sizes = {"num_envs": slots, "num_workers": None, "envs_per_worker": None}
    whole = {"mode": "sync", "surplus_envs": 0, "double_buffer": False}  # each env in its turn
    with _make(config, **sizes, **whole) as vecenv:
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
        film = _Film(options.gif) if options.gif else None
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
        _print_table(f"{name}, {folder}", ["metric", "value"], _formatted(scores))
    return 0


def _run_to_play(word: str | None, base: Path, name: str) -> tuple[runs.Run, Path]:
    """Return a run and the checkpoint to play, the newest of env `name` where none is named."""
    found = runs.find(word, base) if word else runs.Found(runs.newest(base, name), None)
    if found is None:
        raise UsageError(f"`--run` must be a run or a checkpoint, but got `{word}`.")
    return found.run, found.checkpoint or found.run.latest


class _Film:
    """Collects pictures and saves them as a GIF."""

    def __init__(self, path: str) -> None:
        from pufferlib.errors import MissingExtraError

        try:
            from PIL import Image
        except ImportError:
            raise MissingExtraError("`--gif` needs pillow: pip install 'pufferlib[plot]'") from None
        self._path, self._image = path, Image
        self._frames: list[Any] = []

    def add(self, picture: Any) -> None:
        if len(self._frames) < 600:
            self._frames.append(self._image.fromarray(picture))

    def save(self) -> None:
        if not self._frames:
            raise UsageError("`--gif` needs an environment that has pictures.")
        first, *rest = self._frames
        try:
            first.save(self._path, save_all=True, append_images=rest, duration=33, loop=0)
        except (OSError, ValueError) as error:
            raise UsageError(f"`--gif` must be a file that can be written, but {error}.") from None


# ---- envs ----------------------------------------------------------------------------------------


def _envs(words: list[str]) -> int:
    parser = _parser("envs", about=COMMANDS["envs"], with_config=False)
    parser.add_argument("name", nargs="?", help="show this one, or the names of this family")
    parser.add_argument("--picture", metavar="FILE.png", help="save a picture of it")
    options, overrides = _parse(parser, words)
    if options.name is None:
        return _list_envs()
    from pufferlib.registry import FAMILIES, list_envs, plain

    if plain(options.name) in FAMILIES:
        print("\n".join(list_envs(options.name)))
        return 0
    from pufferlib.native import infos
    from pufferlib.registry import emulate, find_or_load, make

    _see_working_folder()
    spec = find_or_load(options.name)
    params = _env_params(spec.id, overrides)
    if ":" in spec.id:
        vecenv = emulate(spec.entry_point, **{**spec.kwargs, **params})
    else:
        vecenv = make(spec.id, num_envs=1, **params)
    with vecenv:
        if options.picture:
            _take_picture(vecenv, Path(options.picture))
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
        else:
            _print_python_env(spec)
        if options.picture:
            print(f"picture: {options.picture}")
    return 0


def _see_working_folder() -> None:
    """Let "module:Object" find modules where the user stands, as `python -m` does."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _print_python_env(spec: EnvSpec) -> None:
    """Print what a Python env says of itself: its first line, and its params by signature."""
    import inspect

    if inspect.isclass(spec.entry_point) or inspect.isfunction(spec.entry_point):
        doc = (inspect.getdoc(spec.entry_point) or "").partition("\n")[0]
        print(f"\n{doc}\n" if doc else "")
    try:
        params = inspect.signature(spec.entry_point).parameters
    except (TypeError, ValueError):  # C code may not tell
        return
    rows = []
    for name, param in params.items():
        if name == "buf" or param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
            continue
        default = spec.kwargs.get(name, param.default)
        is_typed = param.annotation is not param.empty
        rows.append(
            [
                f"--env.{name.replace('_', '-')}",
                "must be given" if default is param.empty else repr(default),
                inspect.formatannotation(param.annotation) if is_typed else "",
            ]
        )
    if rows:
        _print_table("params", ["param", "default", "type"], rows)


def _take_picture(vecenv: VectorEnv, path: Path) -> None:
    """Save a picture of the env after some random play, always the same."""
    from pufferlib.vectorization.measuring import random_actions

    vecenv.reset(seed=0)
    for actions in random_actions(vecenv, count=50):
        vecenv.step(actions)
    picture = vecenv.render(0)
    if picture is None:
        raise UsageError(f"`--picture` needs an env that can be drawn, but {vecenv.name} cannot.")
    _write_png(path, picture)


def _list_envs() -> int:
    from pufferlib.native import infos
    from pufferlib.registry import FAMILIES, list_envs, make
    from pufferlib.spaces import action_layout

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
                    _choices(action_layout(vecenv.action_space)),
                    str(vecenv.agents_per_env),
                    info.doc,
                ]
            )
    _print_table("environments", ["family", "name", "obs", "actions", "agents", "what"], rows)
    print("\nfamilies:")
    forms = {
        "ocean": ("NAME", "as above, in C; also ocean-NAME and puffer_NAME"),
        "registered": ("NAME", "what `pufferlib.register` and installed packages add"),
        **{name: (f"{name}-NAME", family.about) for name, family in FAMILIES.items()},
    }
    for name, (form, about) in forms.items():
        known = f"; `puffer envs {name}` lists them" if name in FAMILIES else ""
        print(f"  {name:<12}{form:<18}{about}{known}")
    print("  module:Object                 any other: your class or factory, for `puffer check`")
    return 0


def _choices(layout: ActionLayout) -> str:
    """Spell what there is to choose: `9`, `3x2x2`, `Box(2)`, `4 + Box(1)`."""
    indices = "x".join(map(str, layout.nvec))
    reals = f"Box({layout.num_continuous})" if layout.num_continuous else ""
    return " + ".join(filter(None, (indices, reals)))


def _write_png(path: Path, picture: Any) -> None:
    """Write [height, width, 3] bytes as a PNG: filter 0, one compressed block."""
    import struct
    import zlib

    height, width, _ = picture.shape
    raw = b"".join(b"\0" + row.tobytes() for row in picture)

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(raw)), chunk(b"IEND", b"")]
    try:
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    except OSError as error:
        raise UsageError(f"`--picture` must be writable, but {error}.") from None


# ---- check ---------------------------------------------------------------------------------------


def _check(words: list[str]) -> int:
    parser = _parser("check", about=COMMANDS["check"], with_config=False)
    parser.add_argument("name", metavar="NAME|module:Object", help="environment, class or factory")
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="of each of two runs")
    parser.add_argument("--seed", type=int, default=0)
    options, overrides = _parse(parser, words)
    from pufferlib.checking import check_env

    _see_working_folder()
    params = _env_params(options.name, overrides)
    report = check_env(options.name, kwargs=params, steps=options.steps, seed=options.seed)
    print(report)
    return 0 if report.ok else 1


# ---- bench ---------------------------------------------------------------------------------------


def _bench(words: list[str]) -> int:
    parser = _parser("bench", about=COMMANDS["bench"], with_config=True)
    parser.add_argument(
        "name", help="environment; `emulation`: its cost; `vec`: worker processes beside a peer's"
    )
    parser.add_argument("--mode", choices=("sim", "train"), default="sim")
    parser.add_argument("--num-envs", type=int, metavar="N")
    parser.add_argument("--threads", type=int, metavar="K", help="all cores if not given")
    parser.add_argument("--engine", choices=("auto", "torch"), default="auto", help="of training")
    parser.add_argument("--seconds", type=float, default=None, metavar="S")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options, overrides = _parse(parser, words)
    for flag in ("num_envs", "threads"):
        value = getattr(options, flag)
        if value is not None and value < 1:
            raise UsageError(f"`--{flag.replace('_', '-')}` must be at least 1, but got {value}.")
    if options.name == "emulation":
        from pufferlib.benchmark import bench_emulation

        seconds = 3 if options.seconds is None else options.seconds
        costs = bench_emulation(num_envs=options.num_envs, seconds=seconds)
        return _report("emulation", costs._asdict(), options.json)
    if options.name == "vec":
        return _bench_vec(options.threads, options.seconds, options.json)
    config = _load(options.name, overrides, options.config, packaged=options.mode == "train")
    from pufferlib.benchmark import bench_sim, bench_train

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
        config = replace(config, train=replace(config.train, engine=options.engine))
        seconds = 10 if options.seconds is None else options.seconds
        result = bench_train(config, threads=options.threads, seconds=seconds)
    return _report(f"{result.env}, {result.mode}", result._asdict(), options.json)


def _bench_vec(workers: int | None, seconds: float | None, as_json: bool) -> int:
    from pufferlib.benchmark import bench_vec

    with _progress("puffer bench vec") as tell:
        result = bench_vec(
            workers=workers or 2, seconds=30 if seconds is None else seconds, on_progress=tell
        )
    if as_json:
        print(json.dumps(result.to_dict()))
        return 0
    rows = [
        [
            str(row.cost_us),
            _short(row.ideal_sps),
            _short(row.serial_sps),
            f"{_short(row.multiprocessing_sps)} ({result.workers} x {row.envs_per_worker})",
            f"{row.multiprocessing_share:.1%}",
            "" if row.gymnasium_sps is None else _short(row.gymnasium_sps),
            "" if row.ratio is None else f"{row.ratio:.1f}x",
        ]
        for row in result.costs
    ]
    headings = ["us", "ideal", "Serial", "Multiprocessing", "of ideal", "Gymnasium", "ratio"]
    title = f"steps/s of Python envs, {result.workers} workers, best of {result.rounds} rounds"
    _print_table(title, headings, rows)
    bars = [
        [bar.what, f"{bar.value:.3g}", f"{bar.wanted:g}", "yes" if bar.is_met else "no"]
        for bar in result.bars
    ]
    _print_table(f"bars; load {result.load:.1f}", ["what", "measured", "wanted", "met"], bars)
    return 0


def _short(rate: float) -> str:
    """Spell a rate in a few characters: `963`, `12.3k`, `1.2M`."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if rate >= factor:
            return f"{rate / factor:.3g}{unit}"
    return f"{rate:.3g}"


def _report(title: str, values: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps(values))
    else:
        _print_table(title, ["", ""], _formatted(values))
    return 0


# ---- autotune ------------------------------------------------------------------------------------


def _autotune(words: list[str]) -> int:
    parser = _parser("autotune", about=COMMANDS["autotune"], with_config=False)
    parser.add_argument("name", metavar="NAME|module:Object", help="environment, class or factory")
    parser.add_argument("--num-envs", type=int, metavar="N", help="only layouts of N envs")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long, about (30)")
    parser.add_argument("--write", metavar="FILE.ini", help="put the best into its section [vec]")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options, overrides = _parse(parser, words)
    from pufferlib.autotune import DEFAULT_SECONDS, autotune, write_settings

    _see_working_folder()
    params = _env_params(options.name, overrides)
    with _progress(f"puffer autotune {options.name}") as tell:
        report = autotune(
            options.name,
            params=params,
            num_envs=options.num_envs,
            seconds=DEFAULT_SECONDS if options.seconds is None else options.seconds,
            on_progress=tell,
        )
    if options.write:
        write_settings(Path(options.write), report)
    if options.json:
        print(json.dumps(report.to_dict()))
    else:
        _print_tuning(report, options.write)
    return 0


def _print_tuning(report: TuningReport, path: str | None) -> None:
    from pufferlib.autotune import spell_bytes, spell_seconds

    cost = report.cost
    facts = {
        "step": f"{spell_seconds(cost.step)} (deviation {spell_seconds(cost.spread)})",
        "reset": f"{spell_seconds(cost.reset)}, {cost.reset_share:.1%} of the time",
        "waits": f"{cost.wait_share:.0%} of a step",
        "memory": f"{spell_bytes(report.memory.env)}; a worker {spell_bytes(report.memory.worker)}",
    }
    _print_table(f"one env of {report.env}", ["", ""], [list(row) for row in facts.items()])
    rows = [
        [
            trial.layout.backend,
            str(trial.layout.total_envs),
            str(trial.layout.total_workers),
            str(trial.layout.num_envs) if trial.layout.surplus_envs else "all",
            f"{trial.sps:,.0f}" if trial.sps else "failed",
            spell_seconds(trial.batch_seconds) if trial.sps else "",
            spell_bytes(trial.memory),
        ]
        for trial in report.trials
    ]
    finalists = sum(trial.is_finalist for trial in report.trials)
    title = f"layouts on {report.cores} cores; the first {finalists} ran again, in turns"
    headings = ["backend", "envs", "workers", "at once", "steps/s", "a batch", "memory"]
    _print_table(title, headings, rows)
    for trial in report.trials:
        if trial.failure:
            print(f"{trial.layout} failed: {trial.failure}")
    print(f"\nbest: {report.best.layout}: {report.why}.\n")
    print("[vec]" if path is None else f"[vec] of {path}")
    for key, value in report.best.layout.settings().items():
        print(f"{key} = {value}")


# ---- printing ------------------------------------------------------------------------------------


@contextmanager
def _progress(title: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is going on: in place on a terminal, else line by line.

    It goes to stderr, so that stdout holds nothing but the result.
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, soft_wrap=True)
    if not console.is_terminal:
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    with console.status(title) as status:
        yield lambda text: status.update(f"{title}: {escape(text)}")


def _formatted(values: dict[str, Any]) -> list[list[str]]:
    def spelled(value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"

    return [[key, spelled(value)] for key, value in values.items()]


def _print_table(title: str, headings: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=any(headings))
    *short, prose = headings
    for heading in short:
        table.add_column(heading, no_wrap=True)  # names and ranges are to be copied whole
    table.add_column(prose)
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
