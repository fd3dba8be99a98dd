"""What users type: the names that the package exports, and that all of them are there."""

from __future__ import annotations

import importlib

import pytest

import pufferlib

# all that users are ever promised; those of later versions may be missing, none may be added
PROMISED = {
    "JsonlLogger",
    "NeptuneLogger",
    "NoLogger",
    "Protein",
    "PuffeRL",
    "PufferEnv",
    "TensorboardLogger",
    "WandbLogger",
    "Wrapper",
    "check_env",
    "emulate",
    "errors",
    "evaluate_policy",
    "list_envs",
    "load",
    "make",
    "register",
    "to_gymnasium",
    "to_pettingzoo",
    "to_sb3",
}
PRESENT = {
    "check_env",
    "JsonlLogger",
    "NeptuneLogger",
    "NoLogger",
    "Protein",
    "PuffeRL",
    "PufferEnv",
    "TensorboardLogger",
    "WandbLogger",
    "errors",
    "evaluate_policy",
    "list_envs",
    "load",
    "make",
    "register",
    "to_gymnasium",
    "to_pettingzoo",
    "to_sb3",
}


def test_the_package_exports_what_is_promised_and_no_more() -> None:
    assert set(pufferlib.__all__) >= PRESENT
    assert set(pufferlib.__all__) <= PROMISED


def test_every_exported_name_is_there_and_shows_up() -> None:
    for name in pufferlib.__all__:
        assert getattr(pufferlib, name) is not None
        assert name in dir(pufferlib)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("vectorization", ["Batch", "Multiprocessing", "Ray", "Serial", "Threads", "VectorEnv"]),
        ("pytorch", ["LSTMWrapper", "layer_init", "unflatten_observations"]),
        ("models", ["CNN", "MLP", "MultiInput", "make_policy"]),
        ("adapters", ["GymnasiumEnv", "GymnasiumVectorEnv", "to_gymnasium"]),
        ("ocean", ["gymnasium_id", "register_gymnasium"]),
        ("ocean.environment", ["OCEAN_REGISTRY"]),
        (
            "errors",
            ["CheckpointError", "EnvError", "MissingExtraError", "NativeError", "PufferError"],
        ),
        ("errors", ["UnknownNameError", "UsageError"]),
    ],
)
def test_modules_hold_their_public_names(module: str, names: list[str]) -> None:
    found = importlib.import_module(f"pufferlib.{module}")
    assert [name for name in names if not hasattr(found, name)] == []


@pytest.mark.parametrize("name", ["vectorization", "pytorch", "models", "ocean"])
def test_modules_can_be_reached_without_importing_them(name: str) -> None:
    assert getattr(pufferlib, name) is importlib.import_module(f"pufferlib.{name}")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'pufferlib' has no attribute 'mkae'"):
        _ = pufferlib.mkae
