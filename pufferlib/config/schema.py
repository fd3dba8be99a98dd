"""The schema of a run: every option with its name, type, default, range and meaning.

An option is declared here and nowhere else. Section `env` holds the env's params, which only the
env knows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pufferlib.config.choices import BACKENDS, ENGINES, LOGGERS, NETWORKS, OPTIMIZERS
from pufferlib.config.options import Section, option, rules_of
from pufferlib.errors import UsageError, quoted, unknown_name

_DEVICES = ("auto", "cpu", "cuda", "mps", "xpu", "xla", "hpu", "npu", "mtia")


@dataclass(frozen=True, kw_only=True)
class VecConfig(Section):
    """How many environments run, and where."""

    num_envs: int | None = option(None, "number of environments; none: 256", low=1)
    num_workers: int | None = option(None, "threads or processes; none: all cores", low=1)
    envs_per_worker: int | None = option(
        None, "envs of each worker; none: num_envs / num_workers", low=1
    )
    backend: str = option(
        "auto", "where envs step; auto: the best for the env", choices=("auto", *BACKENDS)
    )
    mode: Literal["sync", "async"] = option(
        "sync", "sync: all envs in each batch; async: those that finish first"
    )
    surplus_envs: int = option(0, "envs that step in the background in mode async", low=0)
    timeout: float | None = option(120.0, "seconds that one call of an env may take", low=0.001)
    restart: int = option(0, "dead or hanging workers to replace before raising an error", low=0)
    start_method: Literal["forkserver", "spawn", "fork"] = option(
        "forkserver", "how worker processes start"
    )
    worker_threads: int = option(1, "threads of numeric libraries in each worker", low=1)
    double_buffer: bool = option(
        False, "step one half of the envs while the policy acts on the other"
    )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `make`; `vec` are options that differ from their defaults."""
        sizes = ("num_envs", "num_workers", "envs_per_worker", "backend")
        options = {key: value for key, value in self.changed().items() if key not in sizes}
        return {**{key: vars(self)[key] for key in sizes}, "vec": options}


@dataclass(frozen=True, kw_only=True)
class PolicyConfig(Section):
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
        "none", "recurrent layer after the encoder"
    )
    context: int = option(32, "steps that a transformer attends to", low=1, high=4096)
    activation: Literal["relu", "tanh"] | None = option(
        None, "activation between the layers of the encoder; none: tanh for vectors, else relu"
    )
    separate: bool | None = option(
        None, "separate encoders for actor and critic; none: for vectors, if not recurrent"
    )
    squash: bool = option(False, "map Box actions into their bounds with tanh")
    network: str = option(
        "auto",
        "class of the policy; auto: multi_input for Dicts, cnn for images, else mlp",
        choices=("auto", *NETWORKS),
    )


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Section):
    """The PPO loop: budget, loss, optimizer, engine, checkpoints and display."""

    total_timesteps: int = option(
        10_000_000, "steps of all slots in the run; rounded up to whole batches", low=1
    )
    num_iterations: int | None = option(
        None, "iterations in the run, instead of total_timesteps", low=1
    )
    seed: int = option(42, "seed of envs, policy and sampling", low=0, high=2**63 - 1)
    device: str = option("auto", "where the policy runs: auto, cpu, cuda, cuda:1, mps")

    batch_size: int = option(32768, "steps per iteration, over all slots", low=1)
    num_steps: int | None = option(
        None, "horizon: steps per segment; none: batch_size / slots", low=1
    )
    minibatch_size: int | None = option(
        None, "steps per update; none: a sixteenth of the batch, 64 to 8192", low=1
    )
    shuffle: Literal["auto", "steps", "segments"] = option(
        "auto",
        "draw minibatches from single steps or whole segments; auto: segments for recurrent "
        "policies and many slots",
    )
    n_epochs: int = option(4, "passes over each batch", low=1)
    replay_ratio: float | None = option(
        None, "passes over each batch as a fraction, instead of n_epochs", low=0
    )
    gradient_accumulation: int = option(
        1, "split each minibatch into this many parts, to save memory", low=1
    )

    gamma: float = option(0.99, "discount per step", low=0, high=1)
    gae_lambda: float = option(
        0.95, "decay of advantages over later steps; 0: one step, 1: full returns", low=0, high=1
    )
    reward_scale: float = option(1.0, "factor on rewards")
    norm_reward: bool = option(
        True, "divide rewards by the running deviation of returns, then clip them to +-10"
    )
    reward_clip: float | None = option(
        None, "clip rewards to +-this, after scaling and normalisation", low=0
    )
    norm_obs: bool = option(False, "normalise observations to mean 0 and deviation 1")

    vtrace: bool = option(False, "from the second epoch on, correct advantages for the new policy")
    vtrace_rho_clip: float = option(
        1.0, "upper limit of the ratio that weights a step's own error", low=0
    )
    vtrace_c_clip: float = option(1.0, "upper limit of the ratios that weight later errors", low=0)
    prio_alpha: float = option(
        0.0, "how strongly to prefer segments with large advantages; 0: uniform", low=0
    )
    prio_beta0: float = option(
        0.4,
        "exponent of the weights that correct for prio_alpha; rises to 1 over the run",
        low=0,
        high=1,
    )

    clip_coef: float = option(0.2, "clip range of the policy ratio around 1", low=0)
    clip_coef_final: float | None = option(None, "value of clip_coef at the end of the run", low=0)
    vf_coef: float = option(0.5, "weight of the value loss", low=0)
    vf_clip_coef: float | None = option(None, "clip range of value updates", low=0)
    ent_coef: float = option(0.01, "weight of the entropy bonus", low=0)
    ent_coef_final: float | None = option(None, "value of ent_coef at the end of the run", low=0)
    norm_adv: bool = option(
        True, "normalise the advantages of a minibatch to mean 0 and deviation 1"
    )
    target_kl: float | None = option(None, "skip further epochs above this approx_kl", low=0)

    optimizer: str = option(
        "adam",
        "update rule; muon: orthogonal steps for hidden matrices, Adam for the rest",
        choices=OPTIMIZERS,
    )
    learning_rate: float = option(3e-4, "step size at the first update", low=0)
    anneal_lr: bool | None = option(
        None, "decay the learning rate linearly to 0 over the run; none: if a budget is set"
    )
    adam_beta1: float = option(
        0.9, "decay of Adam's running mean of gradients", low=0, high=0.999999
    )
    adam_beta2: float = option(
        0.999, "decay of Adam's running mean of squared gradients", low=0, high=0.999999
    )
    adam_eps: float = option(1e-5, "epsilon in Adam's denominator", low=0)
    muon_momentum: float = option(
        0.95, "decay of Muon's running mean of gradients", low=0, high=0.9999
    )
    max_grad_norm: float | None = option(0.5, "clip gradients to this norm", low=0)
    on_nan: Literal["stop", "skip"] = option(
        "stop", "what to do on a non-finite loss or gradient: end the run, or skip the update"
    )

    self_play: bool = option(False, "train against past versions of the policy in two-sided envs")
    self_play_pool: int = option(8, "past versions to keep as opponents", low=1)
    self_play_interval: int = option(20, "iterations between two versions", low=1)

    engine: str = option(
        "auto",
        "which implementation trains; auto: the fastest that supports the policy",
        choices=("auto", *ENGINES),
    )
    compile: Literal["auto", "on", "off"] = option("auto", "torch.compile; auto: on CUDA only")
    precision: Literal["float32", "bfloat16"] = option(
        "float32", "precision of the policy's products; the loss is always float32"
    )
    torch_threads: int | None = option(
        None, "CPU threads of torch; none: 1 for small policies, else all cores", low=1
    )

    timeout: float = option(
        60.0, "seconds without an answer after which a rank of torchrun is lost", low=0.1
    )

    run_dir: str = option("runs", "folder that holds a folder for each run")
    checkpoint_interval: int = option(
        50, "iterations between checkpoints; 0: only at the end", low=0
    )
    keep_checkpoints: int = option(3, "numbered checkpoints to keep besides latest and best", low=0)
    best_metric: str = option(
        "auto", "metric that selects the best checkpoint; auto: elo, perf or mean_reward"
    )
    log_interval: int = option(1, "iterations between two log entries", low=1)
    dashboard: Literal["auto", "on", "off"] = option(
        "auto", "live panel in the terminal; auto: if the output is one"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        kind, _, number = self.device.partition(":")  # torch would take seconds to refuse it
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
        return -(-self.total_timesteps // self.batch_size)  # rounded up: never fewer steps


@dataclass(frozen=True, kw_only=True)
class LogConfig(Section):
    """Where the metrics of a run go besides its metrics.jsonl."""

    logger: str = option("none", f"{', '.join(LOGGERS)}, or several with commas")
    project: str = option("pufferlib", "project at W&B or Neptune")
    entity: str | None = option(None, "user or team at W&B; none: your own")
    name: str | None = option(None, "name of the run at W&B or Neptune; none: that of its folder")

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
class SweepConfig(Section):
    """How to search: method, metric, budget, and how many trials run at a time."""

    method: Literal["protein", "random", "tpe", "gp"] = option(
        "protein", "how to suggest configs; tpe and gp are Optuna's samplers"
    )
    metric: str = option("mean_reward", "number of a run's log to search by")
    goal: Literal["maximize", "minimize"] = option("maximize", "whether higher or lower is better")
    num_trials: int | None = option(
        None, "trials in the sweep; none: 50, or no limit if max_cost is set", low=1
    )
    cost: Literal["seconds", "steps"] = option("seconds", "what a trial costs: its training time")
    max_cost: float | None = option(None, "cost of all trials together", low=0.001)
    parallel: int | None = option(None, "trials at a time; none: as many as the cores allow", low=1)
    threads: int = option(1, "cores of each trial", low=1)
    early_stop: bool = option(True, "stop trials that are clearly behind the best ones")
    repeats: int = option(2, "runs of a leading config with other seeds, if scores vary", low=0)
    start: bool = option(True, "begin with the values of the config, if they are in the ranges")
    executor: Literal["local", "ray"] = option("local", "where trials run")
    seed: int = option(
        42, "seed of the search, and of the first run of a config", low=0, high=2**31
    )
    storage: str | None = option(None, "URL of a database; none: a journal file in the folder")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All options of a run on one environment. `env` is checked where the env is made.

    `chosen` names the options of `train` that any layer has set; a run may adjust the others.
    None: those that differ from their defaults. `has_default_envs` is true where the number of envs
    is that of a family's ini.
    """

    name: str
    vec: VecConfig = field(default_factory=VecConfig)
    env: Mapping[str, Any] = field(default_factory=dict)  # values of params, of any type
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    log: LogConfig = field(default_factory=LogConfig)
    chosen: frozenset[str] | None = field(default=None, compare=False)
    has_default_envs: bool = field(default=False, compare=False)

    def chosen_train(self) -> dict[str, Any]:
        """Return the options of `train` that were set."""
        if self.chosen is None:
            return self.train.changed()
        return {key: vars(self.train)[key] for key in sorted(self.chosen)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold; `from_dict` reads them back."""
        values = dataclasses.asdict(self)
        del values["chosen"], values["has_default_envs"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Build a config from `to_dict`'s values; absent sections and keys take their defaults."""
        for key in values:
            if key not in ("name", "env", *SECTIONS):
                raise unknown_name("section", key, ["name", "env", *SECTIONS])
        sections: dict[str, Any] = {
            name: section.from_dict(values.get(name, {})) for name, section in SECTIONS.items()
        }
        chosen = frozenset(values.get("train", {}))
        return cls(name=values["name"], env=dict(values.get("env", {})), chosen=chosen, **sections)

    @classmethod
    def from_file(cls, values: Any) -> Config:
        """Build a config from JSON that a stranger may have written; raises UsageError.

        Params of the env must be what an ini can hold: some packages take a nested one for options
        of theirs, which can name classes to import.
        """
        if not isinstance(values, dict) or not isinstance(values.get("name"), str):
            raise UsageError("its config has no name of an environment")
        for name in ("env", *SECTIONS):
            if not isinstance(values.get(name, {}), dict):
                raise UsageError(f"its section {quoted(name)} holds no options")
        for key, value in values.get("env", {}).items():
            if not isinstance(value, str | int | float | None):
                raise UsageError(
                    f"its param {quoted(key)} of the env is not a number, a text, true, false or "
                    f"none, but {quoted(value)}"
                )
        return cls.from_dict(values)


SECTIONS: dict[str, type[Section]] = {
    "train": TrainConfig,
    "vec": VecConfig,
    "policy": PolicyConfig,
    "log": LogConfig,
}


class Option(NamedTuple):
    """One key of a section, as `--help` and the docs show it."""

    key: str
    type: str  # "int", "float or none", "auto | on | off"
    default: object
    help: str


def describe(section: str) -> list[Option]:
    """Return the options of `section` in the order of their declaration, none for `env`."""
    if section == "env":
        return []
    known = {**SECTIONS, "sweep": SweepConfig}
    if section not in known:
        raise unknown_name("section", section, ["env", *known])
    rules = rules_of(known[section])
    return [Option(key, rule.type_text(), rule.default, rule.help) for key, rule in rules.items()]
