"""Policies that come with the package: a small checkpoint for each env, with the policy alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pufferlib.errors import CheckpointError, UsageError, nearest

FOLDER = Path(__file__).resolve().parent.parent / "pretrained"
_PARTS = ("policy/", "observation_norm/")  # of the tensors
_VALUES = ("policy", "spaces")


def pretrained_path(name: str) -> Path:
    """Return the checkpoint of the policy that comes with the package for env `name`."""
    path = FOLDER / f"{name}.safetensors"
    if path.exists():
        return path
    near = nearest(name, (each.stem for each in FOLDER.glob("*.safetensors")))
    hint = f"Did you mean `{near[0]}`?" if near else f"Try `puffer train {name}`."
    raise UsageError(f"`--pretrained` needs a policy of {name}, but none comes with this. {hint}")


def keep_policy(checkpoint_path: Path, name: str, about: dict[str, Any]) -> bool:
    """Keep the policy of a run as that of env `name`, unless one with a higher perf is there.

    `about` becomes the metadata of the file: `perf`, and how it was trained.
    """
    from pufferlib.runs import checkpoint

    path = FOLDER / f"{name}.safetensors"
    if path.exists():
        try:
            before = checkpoint.load(path).metadata
            if before["perf"] >= about["perf"]:
                return False
        except (CheckpointError, KeyError, TypeError):
            pass  # of another version, or not ours
    saved = checkpoint.load(checkpoint_path)
    tensors = {key: part for key, part in saved.tensors.items() if key.startswith(_PARTS)}
    FOLDER.mkdir(exist_ok=True)
    checkpoint.save(path, tensors, {key: saved.values[key] for key in _VALUES}, about)
    return True
