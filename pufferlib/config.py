"""What a run can be told: a typed schema, and the layers that fill it.

The dataclasses below are the one place where an option has its name, type, default, range and
meaning. `load` fills them from, later ones winning: the defaults, the inis of the env's family and
of the env in this package, the user's ini files, the command line. Section `env` holds the env's
params, which only the env knows.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from pufferlib.errors import UsageError, did_you_mean, one_line, quoted, unknown_name
from pufferlib.files import read_regular

Override: TypeAlias = tuple[str, str, str]  # section, key, text

LOGGERS = ("wandb", "tensorboard", "neptune")
_MAX_INI = 1 << 20  # bytes
_DEVICES = ("auto", "cpu", "cuda", "mps", "xpu", "xla", "hpu", "npu", "mtia")

_BOOLS = {"true": True, "yes": True, "on": True, "1": True}
_BOOLS |= {"false": False, "no": False, "off": False, "0": False}


def option(default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    """Declare a field of a section; `low` and `high` are inclusive."""
    return field(default=default, metadata={"help": help, "low": low, "high": high})


@dataclass(frozen=True, kw_only=True)
class _Section:
    """A group of options; every instance has been checked, however it was made."""

    def __post_init__(self) -> None:
        for key, known in _options(type(self)).items():
            checked = known.check(getattr(self, key), key)
            object.__setattr__(self, key, checked)  # frozen: only here, before anyone sees it

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """Build the section from plain values; absent keys take their defaults."""
        known = _options(cls)
        for key in values:
            if key not in known:
                raise unknown_name("option", key, known)
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class VecConfig(_Section):
    """How many environments run, and where."""

    num_envs: int | None = option(None, "environments; none: 256", low=1)
    num_workers: int | None = option(None, "threads or processes; none: all cores", low=1)
    envs_per_worker: int | None = option(None, "none: num_envs / num_workers", low=1)
    backend: Literal["auto", "serial", "threads", "multiprocessing", "ray"] = option(
        "auto", "auto: the best for the env"
    )
    mode: Literal["sync", "async"] = option("sync", "async: batches of the envs that are ready")
    surplus_envs: int = option(0, "more envs that step meanwhile, in mode async", low=0)
    timeout: float | None = option(120.0, "seconds that one call of an env may take", low=0.001)
    restart: int = option(0, "how many lost workers are replaced before it is an error", low=0)
    start_method: Literal["forkserver", "spawn", "fork"] = option(
        "forkserver", "how worker processes begin"
    )
    worker_threads: int = option(1, "threads of numeric libraries in each worker", low=1)
    double_buffer: bool = option(False, "half of the slots step on threads, the others are seen")

    def options(self) -> dict[str, Any]:
        """Return the options of a backend that differ from their defaults."""
        sizes = ("num_envs", "num_workers", "envs_per_worker", "backend")
        rules = _options(type(self))
        given = {key: getattr(self, key) for key in rules if key not in sizes}
        return {key: value for key, value in given.items() if value != rules[key].default}


@dataclass(frozen=True, kw_only=True)
class PolicyConfig(_Section):
    """The default policy; a policy passed in Python takes its place."""

    hidden_size: int | None = option(
        None,
        "width of each layer; none: 64 for vectors, 128 for images and Dicts",
        low=1,
        high=65536,
    )
    num_layers: int | None = option(
        None, "layers of the encoder; none: 2 for vectors, 1 after convolutions", low=1, high=1024
    )
    recurrent: Literal["none", "lstm", "gru", "mingru", "transformer"] = option(
        "none", "memory of the policy"
    )
    context: int = option(32, "steps that a transformer sees", low=1, high=4096)
    activation: Literal["relu", "tanh"] | None = option(
        None, "between the layers of the encoder; none: tanh for vectors, else relu"
    )
    separate: bool | None = option(
        None, "actor and critic have an encoder each; none: for vectors, without memory"
    )
    squash: bool = option(False, "Box actions go through tanh into their bounds")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(_Section):
    """The PPO loop: budget, loss, optimizer, and what is kept of a run."""

    total_timesteps: int = option(
        10_000_000, "steps of all slots that end the run; rounded up to whole batches", low=1
    )
    num_iterations: int | None = option(
        None, "iterations that end the run, instead of total_timesteps", low=1
    )
    seed: int = option(42, "of envs, policy and sampling", low=0, high=2**63 - 1)
    device: str = option("auto", "auto, cpu, cuda, cuda:1, mps")

    batch_size: int = option(32768, "steps per iteration, over all slots", low=1)
    num_steps: int | None = option(
        None, "horizon: steps per segment; none: batch_size / slots", low=1
    )
    minibatch_size: int | None = option(
        None, "steps per update; none: a sixteenth of the batch, 64 to 8192", low=1
    )
    shuffle: Literal["auto", "steps", "segments"] = option(
        "auto",
        "what minibatches are drawn from; auto: segments for recurrent policies and many slots",
    )
    n_epochs: int = option(4, "passes over each batch", low=1)
    replay_ratio: float | None = option(
        None, "passes over each batch, fractions too, instead of n_epochs", low=0
    )
    gradient_accumulation: int = option(
        1, "parts of a minibatch that go through the policy one by one, to save memory", low=1
    )

    gamma: float = option(0.99, "discount per step", low=0, high=1)
    gae_lambda: float = option(0.95, "0: one-step advantage, 1: full returns", low=0, high=1)
    reward_scale: float = option(1.0, "rewards are multiplied by this")
    norm_reward: bool = option(
        True, "then divided by the running deviation of returns and cut to +-10"
    )
    reward_clip: float | None = option(None, "then cut to +-this", low=0)
    norm_obs: bool = option(False, "the policy sees observations of mean 0 and deviation 1")

    vtrace: bool = option(False, "from the second epoch on, correct advantages for the new policy")
    vtrace_rho_clip: float = option(1.0, "limit of the ratio of a step's own error", low=0)
    vtrace_c_clip: float = option(1.0, "limit of the ratio of what follows a step", low=0)
    prio_alpha: float = option(0.0, "prefer segments of large advantages; 0: all alike", low=0)
    prio_beta0: float = option(
        0.4, "how far weights make up for that; rises to 1 over the run", low=0, high=1
    )

    clip_coef: float = option(0.2, "how far the policy's ratio may leave 1", low=0)
    clip_coef_final: float | None = option(None, "what it moves to over the run", low=0)
    vf_coef: float = option(0.5, "weight of the value loss", low=0)
    vf_clip_coef: float | None = option(None, "how far values may move per batch", low=0)
    ent_coef: float = option(0.01, "weight of the entropy bonus", low=0)
    ent_coef_final: float | None = option(None, "what it moves to over the run", low=0)
    norm_adv: bool = option(True, "advantages of a minibatch get mean 0 and deviation 1")
    target_kl: float | None = option(None, "epochs stop early beyond this approx_kl", low=0)

    optimizer: Literal["adam", "muon"] = option(
        "adam", "update rule; muon: orthogonal steps for hidden matrices, Adam for the rest"
    )
    learning_rate: float = option(3e-4, "step size at the first update", low=0)
    anneal_lr: bool | None = option(
        None, "the learning rate falls linearly to 0 over the run; none: where a budget is set"
    )
    adam_beta1: float = option(0.9, "decay of the gradient's mean", low=0, high=0.999999)
    adam_beta2: float = option(0.999, "decay of the gradient's square", low=0, high=0.999999)
    adam_eps: float = option(1e-5, "keeps Adam's division finite", low=0)
    muon_momentum: float = option(0.95, "decay of the gradient's mean in Muon", low=0, high=0.9999)
    max_grad_norm: float | None = option(0.5, "longer gradients are shortened to this", low=0)
    on_nan: Literal["stop", "skip"] = option(
        "stop", "what an update does that is not finite: end the run, or leave the weights alone"
    )

    self_play: bool = option(False, "one side of a two-sided env is the policy's own past")
    self_play_pool: int = option(8, "past policies that are kept as opponents", low=1)
    self_play_interval: int = option(20, "iterations between two of them", low=1)

    engine: Literal["auto", "torch"] = option("auto", "who computes; auto: the fastest that can")
    compile: Literal["auto", "on", "off"] = option("auto", "torch.compile; auto: on CUDA only")
    precision: Literal["float32", "bfloat16"] = option(
        "float32", "of the policy's products; the loss is float32 always"
    )
    torch_threads: int | None = option(
        None, "CPU threads of torch; none: 1 for small policies, else all cores", low=1
    )

    run_dir: str = option("runs", "folder that gets one folder for each run")
    checkpoint_interval: int = option(
        50, "iterations between checkpoints; 0: only at the end", low=0
    )
    keep_checkpoints: int = option(3, "numbered checkpoints besides latest and best", low=0)
    best_metric: str = option(
        "auto",
        "number of the log that makes a checkpoint the best; auto: elo, perf or mean_reward",
    )
    log_interval: int = option(1, "iterations between two rows of the log", low=1)
    dashboard: Literal["auto", "on", "off"] = option("auto", "auto: if the output is a terminal")

    def __post_init__(self) -> None:
        super().__post_init__()
        kind, _, number = self.device.partition(":")  # torch would need seconds to refuse it
        if kind not in _DEVICES or not re.fullmatch(r"|\d{1,4}", number):
            raise UsageError(
                f"`device` must be auto, cpu, cuda, cuda:N or mps, but got {quoted(self.device)}."
            )

    @property
    def rounded_budget(self) -> str:
        """One line about how `total_timesteps` was rounded to whole batches, "" if it was not."""
        steps = self.iterations * self.batch_size
        if self.num_iterations is not None or steps == self.total_timesteps:
            return ""
        return (
            f"total_timesteps {self.total_timesteps:,} is rounded up to {steps:,}: "
            f"{self.iterations:,} iterations of {self.batch_size:,} steps"
        )

    @property
    def iterations(self) -> int:
        """Iterations in the run's budget."""
        if self.num_iterations is not None:
            return self.num_iterations
        return -(-self.total_timesteps // self.batch_size)  # the budget is met, never missed


@dataclass(frozen=True, kw_only=True)
class LogConfig(_Section):
    """Where the numbers of a run go besides its metrics.jsonl."""

    logger: str = option("none", "wandb, tensorboard, neptune; several with commas")
    project: str = option("pufferlib", "of W&B and Neptune")
    entity: str | None = option(None, "user or team of W&B; none: your own")
    name: str | None = option(None, "of the run in W&B and Neptune; none: that of its folder")

    def __post_init__(self) -> None:
        super().__post_init__()
        for word in self.loggers:
            if word not in LOGGERS:
                raise unknown_name("logger", word, [*LOGGERS, "none"], "log.logger")

    @property
    def loggers(self) -> tuple[str, ...]:
        """The words of `logger`, each once."""
        words = [word.strip().lower() for word in self.logger.split(",")]
        return tuple(dict.fromkeys(word for word in words if word not in ("", "none")))


@dataclass(frozen=True, kw_only=True)
class Config:
    """All that describes a run of one environment. `env` is checked where the env is made.

    `chosen` names the options of `train` that were set by any layer; a run may adjust the others.
    None: those that differ from their defaults.
    """

    name: str
    vec: VecConfig = field(default_factory=VecConfig)
    env: Mapping[str, Any] = field(default_factory=dict)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    log: LogConfig = field(default_factory=LogConfig)
    chosen: frozenset[str] | None = field(default=None, compare=False)

    def chosen_train(self) -> dict[str, Any]:
        """Return the options of `train` that were set."""
        values = dataclasses.asdict(self.train)
        if self.chosen is not None:
            return {key: values[key] for key in sorted(self.chosen)}
        return {key: value for key, value in values.items() if value != getattr(TrainConfig, key)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold; `from_dict` reads them back."""
        values = dataclasses.asdict(self)
        del values["chosen"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Build a config from `to_dict`'s values; absent sections and keys take their defaults."""
        for key in values:
            if key not in ("name", "env", *_SECTIONS):
                raise unknown_name("section", key, ["name", "env", *_SECTIONS])
        sections: dict[str, Any] = {
            name: section.from_dict(values.get(name, {})) for name, section in _SECTIONS.items()
        }
        chosen = frozenset(values.get("train", {}))
        return cls(name=values["name"], env=dict(values.get("env", {})), chosen=chosen, **sections)


_SECTIONS: dict[str, type[_Section]] = {
    "vec": VecConfig,
    "policy": PolicyConfig,
    "train": TrainConfig,
    "log": LogConfig,
}


class Option(NamedTuple):
    """One key of a section, as `--help` and the docs show it."""

    key: str
    type: str  # "int", "float or none", "auto | on | off"
    default: Any
    help: str


def load(
    env_name: str,
    overrides: Iterable[Override] = (),
    files: Iterable[Path | str] = (),
    packaged: bool = True,
) -> Config:
    """Read the layers for `env_name` and return the checked config.

    Without `packaged` the env's own ini is left out, so that the env is what `make` gives.
    `overrides` come from `parse_overrides`, `files` are the user's. Raises UnknownNameError for a
    section or key that does not exist, and UsageError for a value that does not fit; both say where
    it was written.
    """
    values = _read(_packaged_settings(env_name) if packaged else ())
    own = _read(_own_settings(overrides, files))
    train = layered(values["train"], own["train"])
    joined = {name: values[name] | own[name] for name in values} | {"train": train}
    return Config.from_dict({"name": env_name, **joined})


def _read(settings: Iterable[_Setting]) -> dict[str, dict[str, Any]]:
    """Return the checked values of settings by section, later ones winning."""
    values: dict[str, dict[str, Any]] = {"env": {}, **{name: {} for name in _SECTIONS}}
    for setting in settings:
        key = setting.key.replace("-", "_")
        if setting.section == "env":
            values["env"][key] = _guess(setting.text)
        else:
            known = _known_option(setting)
            values[setting.section][key] = known.check(known.parse(setting.text), setting.label)
    return values


def layered(packaged: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `train` of this package, overridden by the user's own.

    A batch of the user's own leaves out the packaged sizes that were made for another one.
    """
    sizes = {"minibatch_size", "num_steps"} if "batch_size" in own else set()
    return {key: packaged[key] for key in packaged.keys() - sizes} | dict(own)


def family_num_envs(env_name: str) -> int | None:
    """Return how many envs the ini of the env's family asks for; None where there is none."""
    for setting in _family_settings(env_name):
        if (setting.section, setting.key) == ("vec", "num_envs"):
            rule = _known_option(setting)
            return typing.cast(int, rule.check(rule.parse(setting.text), setting.label))
    return None


def parse_overrides(argv: Sequence[str]) -> tuple[list[Override], list[str]]:
    """Take `--section.key value` and `--section.key=value` out of `argv`; return them and the rest.

    A flag that can be true or false needs no value; a param of the env always does, since only
    the env knows its type. What follows a bare `--` is left alone.
    """
    overrides: list[Override] = []
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            return overrides, [*rest, word, *words]
        match = re.fullmatch(r"--([A-Za-z]\w*)\.([A-Za-z][\w-]*)(?:=(.*))?", word, re.DOTALL)
        if match is None:
            rest.append(word)
            continue
        section, key, text = match[1].lower(), match[2].replace("-", "_"), match[3]
        if text is None:
            text = _next_value(_Setting(section, key, "", f"--{match[1]}.{match[2]}"), words)
        overrides.append((section, key, text))
    return overrides, rest


def describe(section: str) -> list[Option]:
    """Return the options of `section` in the order of their declaration, none for `env`."""
    if section == "env":
        return []
    if section not in _SECTIONS:
        raise unknown_name("section", section, ["env", *_SECTIONS])
    known = _options(_SECTIONS[section])
    return [Option(key, rule.type_text(), rule.default, rule.help) for key, rule in known.items()]


class _Rule(NamedTuple):
    """What a value of one option must be."""

    base: type  # int, float, bool or str
    optional: bool
    choices: tuple[str, ...]
    low: float | None
    high: float | None
    default: Any
    help: str

    @property
    def is_flag(self) -> bool:
        return self.base is bool or {"on", "off"} <= set(self.choices)

    def parse(self, text: str) -> object:
        """Return the value that `text` spells, or `text` itself if it spells none of this type."""
        word = text.strip().lower()
        if self.optional and word == "none":
            return None
        if self.is_flag and word in _BOOLS:
            return _BOOLS[word]
        if self.base in (int, float):
            number = _number(word)
            return text if number is None else number
        return word if self.choices else text.strip()

    def check(self, value: object, label: str) -> object:
        """Return `value` in the option's type, or raise UsageError naming `label`."""
        fitted = self._fitted(value)
        if fitted is None and not (value is None and self.optional):
            hint = did_you_mean(str(value), self.choices)
            wanted = self._requirement()
            raise UsageError(f"`{label}` must be {wanted}, but got {quoted(value)}.{hint}")
        return fitted

    def _fitted(self, value: object) -> object:
        if self.choices:
            word = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
            return word if word in self.choices else None
        if self.base in (bool, str):
            return value if isinstance(value, self.base) else None
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return None
        try:
            number = self.base(value)  # an infinity is no int, a huge int no float
        except (OverflowError, ValueError):
            return None
        low, high = self.low, self.high
        within = (low is None or number >= low) and (high is None or number <= high)
        is_exact = number == value if self.base is int else math.isfinite(number)
        return number if within and is_exact else None

    def _requirement(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        text = {int: "an integer", float: "a number", bool: "true or false", str: "text"}[self.base]
        if self.low is not None and self.high is not None:
            text += f" between {self.low} and {self.high}"
        elif self.low is not None:
            text += f" of at least {self.low}"
        return f"{text}, or none" if self.optional else text

    def type_text(self) -> str:
        if self.choices:
            return " | ".join(self.choices)
        return f"{self.base.__name__} or none" if self.optional else self.base.__name__


def _options(section: type[_Section]) -> dict[str, _Rule]:
    """Read the rules of a section off its fields: type and choices from the annotation."""
    hints = typing.get_type_hints(section)
    rules = {}
    for declared in dataclasses.fields(section):
        hint, optional, choices = hints[declared.name], False, ()
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            hint, _ = typing.get_args(hint)
            optional = True
        if typing.get_origin(hint) is Literal:
            hint, choices = str, typing.get_args(hint)
        rules[declared.name] = _Rule(
            hint, optional, choices, default=declared.default, **declared.metadata
        )
    return rules


class _Setting(NamedTuple):
    """One line of an ini file, or one option of the command line."""

    section: str
    key: str
    text: str
    where: str  # "--train.gamma" or "my.ini:3"

    @property
    def label(self) -> str:
        if self.where.startswith("--"):
            return self.where
        return f"{self.where}: {self.section}.{self.key}"


def _own_settings(overrides: Iterable[Override], files: Iterable[Path | str]) -> Iterator[_Setting]:
    """Yield the layers of the user, the weakest first."""
    for path in files:
        try:
            text = read_regular(Path(path), _MAX_INI).decode("utf-8-sig")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or one_line(error)
            if isinstance(error, UnicodeDecodeError):
                reason = "it is not UTF-8 text"
            raise UsageError(
                f"`--config` must name a readable ini file, but got {quoted(Path(path))}: {reason}."
            ) from error
        yield from _read_ini(text, one_line(path))
    for section, key, text in overrides:
        yield _Setting(section, key, text, f"--{section}.{key.replace('_', '-')}")


def _packaged_settings(env_name: str) -> Iterator[_Setting]:
    """Yield the ini of the env's family, then its own, where this package has one."""
    yield from _family_settings(env_name)
    yield from _packaged_ini(f"{_file_name(env_name)}.ini")


def _family_settings(env_name: str) -> Iterator[_Setting]:
    """Yield the ini of all envs whose names begin with the same word, or that of Ocean's.

    Those are the envs that have an ini of their own and no family in their names. A "module:Object"
    of the user's gets what Gymnasium's envs get: it is Python too.
    """
    family, _, rest = _file_name(env_name).partition("_")
    if not rest and any(_packaged_ini(f"{family}.ini")):
        family = "ocean"
    elif ":" in env_name and not any(_packaged_ini(f"families/{family}.ini")):
        family = "gym"
    yield from _packaged_ini(f"families/{family}.ini")


def _file_name(env_name: str) -> str:
    return env_name.lower().replace("-", "_")


def _packaged_ini(path: str) -> Iterator[_Setting]:
    from importlib.resources import files  # slow to import, and `puffer --help` needs none of it

    if not re.fullmatch(r"(families/)?\w+\.ini", path):
        return
    resource = files("pufferlib").joinpath("configs", *path.split("/"))
    if resource.is_file():
        yield from _read_ini(resource.read_text(encoding="utf-8"), f"configs/{path}")


def _read_ini(text: str, source: str) -> Iterator[_Setting]:
    """Yield the settings in order. Comments are lines with `;` or `#`, and what follows ` ;`."""
    section = ""
    first_line: dict[tuple[str, str], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = re.split(r"(?:^|\s);", line, maxsplit=1)[0].strip()
        where = f"{source}:{number}"
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip().lower()
            if section != "env" and section not in _SECTIONS:
                raise unknown_name("section", section, ["env", *_SECTIONS], where)
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        key = key.replace("-", "_")
        if not (section and equals and key and value):
            raise UsageError(
                f"{where} must be `[section]` or `key = value`, but got {quoted(line)}."
            )
        if (section, key) in first_line:
            earlier = first_line[section, key]
            raise UsageError(
                f"{where} must not set {quoted(key)} again: line {earlier} already does."
            )
        first_line[section, key] = number
        yield _Setting(section, key, value, where)


def _known_option(setting: _Setting) -> _Rule:
    """Return the rule of the option that `setting` names, or raise the name nearest to it."""
    if setting.section not in _SECTIONS:
        raise unknown_name("section", setting.section, ["env", *_SECTIONS], setting.where)
    known = _options(_SECTIONS[setting.section])
    key = setting.key.replace("-", "_")
    if key in known:
        return known[key]
    kind = f"key of [{setting.section}]"
    for name, section in _SECTIONS.items():
        if key in _options(section):  # nearer than any likeness: the right key of another section
            raise unknown_name(kind, f"{setting.section}.{key}", [f"{name}.{key}"], setting.where)
    raise unknown_name(kind, setting.key, known, setting.where)


def _next_value(setting: _Setting, words: list[str]) -> str:
    """Take the value of an option off `words`, or give a flag its "true"."""
    rule = None if setting.section == "env" else _known_option(setting)
    has_value = bool(words) and not words[0].startswith("--")
    if (
        rule is not None
        and rule.is_flag
        and not (has_value and words[0].lower() in {*_BOOLS, *rule.choices})
    ):
        return "true"
    if not has_value:
        where = quoted(setting.where)
        if rule is None:
            raise UsageError(f"{where} must have a value, but got none. Try a number, or true.")
        raise UsageError(f"{where} must have a value ({rule.type_text()}), but got none.")
    return words.pop(0)


def _guess(text: str) -> int | float | bool | str | None:
    """Return the plainest value that `text` spells; the env's own table decides if it fits."""
    word = text.strip().lower()
    if word == "none":
        return None
    number = _number(word)
    if number is not None:
        return number
    return _BOOLS.get(word, text.strip())


def _number(word: str) -> int | float | None:
    """Read `10_000`, `-3`, `1e6` or `0.5`; without fraction and exponent it is an int."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return None
