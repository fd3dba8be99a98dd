"""A training script to start from: copy it, replace the policy, change what you like.

    python scripts/train_template.py --env-name cartpole --num-envs 256
    torchrun --nproc_per_node=2 scripts/train_template.py --env-name cartpole --device cpu

The run lives in `<checkpoint-dir>/<exp-name>/`. Where that holds a checkpoint already, the run goes
on from there: after Ctrl-C or a crash start the same command again; torchrun restarts it by itself.
For a new run choose another `--exp-name`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

import pufferlib
from pufferlib.errors import CheckpointError, PufferError, UsageError
from pufferlib.loggers import kept_id
from pufferlib.pytorch import layer_init

CHECKPOINT = "latest.safetensors"


class Policy(nn.Module):
    """A network of your own. The trainer adapts to what `forward` returns; see docs/policies.md.

    This one reads vectors and small images, and plays discrete, multi-discrete and continuous
    actions. Actor and critic share nothing: large returns cannot drown what the actor learns.
    """

    def __init__(self, env: Any, width: int = 64) -> None:
        super().__init__()
        observation, action = env.observation_space, env.action_space  # those of one agent
        if not isinstance(observation, spaces.Box):
            raise UsageError(
                f"`Policy` needs Box observations, not {type(observation).__name__} of {env.name}. "
                "Try `policy=None` in `make_trainer`, which builds one for any space."
            )
        self.is_continuous = isinstance(action, spaces.Box)
        if isinstance(action, spaces.Discrete):
            num_outputs = int(action.n)
        elif isinstance(action, spaces.MultiDiscrete):
            num_outputs = int(action.nvec.sum())  # the logits of all choices, concatenated
        elif isinstance(action, spaces.Box):
            num_outputs = math.prod(action.shape)
            self.log_std = nn.Parameter(torch.zeros(num_outputs))
        else:
            raise UsageError(f"`Policy` does not support {action}. Try to extend it.")
        num_inputs = math.prod(observation.shape)
        self.scale = 1 / 255 if observation.dtype == "uint8" else 1.0
        # small last weights: at first, all actions are about equally likely
        self.actor = make_network(num_inputs, width, num_outputs, std=0.01)
        self.critic = make_network(num_inputs, width, 1, std=1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, ...]:
        rows = observations.flatten(1).float() * self.scale
        actions, value = self.actor(rows), self.critic(rows)
        if self.is_continuous:
            return actions, self.log_std.exp().expand_as(actions), value
        return actions, value


def make_network(num_inputs: int, width: int, num_outputs: int, std: float) -> nn.Module:
    return nn.Sequential(
        layer_init(nn.Linear(num_inputs, width)),
        nn.Tanh(),
        layer_init(nn.Linear(width, width)),
        nn.Tanh(),
        layer_init(nn.Linear(width, num_outputs), std=std),
    )


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a policy of your own with PPO.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--env-name", default="cartpole", help="environment, see `puffer envs`")
    add("--num-envs", type=int, default=256, help="environments of each process")
    add("--num-workers", type=int, help="threads or processes that step them; default: all cores")
    add("--num-iterations", type=int, default=60, help="rollouts to collect and learn from")

    add("--learning-rate", type=float, default=3e-3, help="decays to 0 over the run")
    add("--batch-size", type=int, default=16384, help="steps per iteration, over all processes")
    add("--n-epochs", type=int, default=4, help="passes over each batch")
    add("--gamma", type=float, default=0.99, help="discount per step")
    add("--gae-lambda", type=float, default=0.95, help="0: one-step advantages, 1: full returns")
    add("--clip-coef", type=float, default=0.2, help="clip range of the policy ratio around 1")
    add("--ent-coef", type=float, default=0.01, help="weight of the entropy bonus")
    add("--vf-coef", type=float, default=0.5, help="weight of the value loss")
    add("--max-grad-norm", type=float, default=0.5, help="clip gradients to this norm")

    add("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    switch = {"nargs": "?", "const": "on", "default": "auto", "choices": ("auto", "on", "off")}
    add("--compile", **switch, help="torch.compile; auto: on CUDA only")
    add("--seed", type=int, default=42, help="seed of envs, policy and sampling")

    known = ("wandb", "neptune", "tensorboard", "none")
    add("--logger", choices=known, default="none", help="in addition to a metrics.jsonl")
    add("--project", default="pufferlib", help="project at W&B or Neptune")
    add("--exp-name", help="name of the run and its folder; default: the environment")
    add("--neptune-token", help="for a Neptune server of your own")
    add("--log-freq", type=int, default=1, help="iterations between two log entries")
    add(
        "--checkpoint-dir",
        type=Path,
        default=Path("checkpoints"),
        help="holds a folder per run, on the machine of the first process",
    )
    add("--save-freq", type=int, default=20, help="iterations between two checkpoints")
    args = parser.parse_args(argv)
    if args.save_freq < 1:
        parser.error(f"--save-freq must be at least 1, but got {args.save_freq}")
    args.exp_name = args.exp_name or args.env_name
    return args


def is_main() -> bool:
    """Return whether this is the process that logs and prints: the first one of a torchrun."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    if is_main():
        print(text, file=sys.stderr)


def find_device(name: str) -> str:
    if name.startswith("cuda") and not torch.cuda.is_available():
        say(f"No CUDA device for `--device {name}`: training on the CPU instead.")
        return "cpu"
    return name


def make_loggers(args: argparse.Namespace, folder: Path) -> list[Any]:
    if not is_main():
        return []
    loggers: list[Any] = [pufferlib.JsonlLogger(folder / "metrics.jsonl")]
    if args.logger == "wandb":
        shown = {key: str(value) for key, value in vars(args).items() if key != "neptune_token"}
        own = kept_id(folder / "wandb.id")  # a resumed run continues the same one at W&B
        loggers.append(
            pufferlib.WandbLogger(args.project, name=args.exp_name, config=shown, id=own)
        )
    elif args.logger == "neptune":
        loggers.append(pufferlib.NeptuneLogger(args.project, args.exp_name, args.neptune_token))
    elif args.logger == "tensorboard":
        loggers.append(pufferlib.TensorboardLogger(folder / "tensorboard"))
    return loggers


def make_trainer(env: Any, args: argparse.Namespace, folder: Path) -> pufferlib.PuffeRL:
    torch.manual_seed(args.seed)  # all processes start with the same weights
    return pufferlib.PuffeRL(
        env,
        Policy(env),
        logger=make_loggers(args, folder),
        num_iterations=args.num_iterations,
        learning_rate=args.learning_rate,
        batch_size=args.batch_size,
        n_epochs=args.n_epochs,
        gamma=args.gamma,
        gae_lambda=args.gae_lambda,
        clip_coef=args.clip_coef,
        ent_coef=args.ent_coef,
        vf_coef=args.vf_coef,
        max_grad_norm=args.max_grad_norm,
        norm_reward=True,  # so that the losses suit rewards of any size
        device=find_device(args.device),
        compile=args.compile,
        seed=args.seed,
        log_interval=args.log_freq,
        dashboard="auto" if is_main() else "off",
    )


def save(trainer: pufferlib.PuffeRL, path: Path, log: dict[str, float]) -> None:
    """Save everything that a resumed run needs, with the score as metadata."""
    try:
        trainer.save_checkpoint(
            path, metadata={"steps": log["steps"], "reward": log["mean_reward"]}
        )
    except CheckpointError as error:  # a full disk must not end a run of days
        say(f"{error}. The run continues.")


def train(args: argparse.Namespace) -> None:
    folder = args.checkpoint_dir / args.exp_name
    path = folder / CHECKPOINT
    with (
        pufferlib.make(args.env_name, num_envs=args.num_envs, num_workers=args.num_workers) as env,
        make_trainer(env, args, folder) as trainer,
    ):
        if trainer.world.from_first(path.exists()):  # on the machine that writes it
            trainer.load_checkpoint(path)
            if trainer.done:
                say(
                    f"{folder} has trained all {trainer.iteration} iterations. Choose another "
                    "--exp-name for a new run, or a larger --num-iterations to go on."
                )
                return
            say(f"Resuming from {path}, after iteration {trainer.iteration}.")
        while not trainer.done:
            trainer.evaluate()  # collect a rollout
            trainer.train()  # learn from it
            log = trainer.mean_and_log()
            if trainer.iteration % args.save_freq == 0 or trainer.done:
                save(trainer, path, log)
        trainer.finish({"checkpoint": str(path), "log": str(folder / "metrics.jsonl")})


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    try:
        train(args)
    except PufferError as error:
        print(f"train_template: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        say("Interrupted. The same command resumes from the last checkpoint.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
