"""Many environments at once behind one interface."""

from pufferlib.vectorization.backends import emulate, make
from pufferlib.vectorization.base import Batch, VectorEnv, check_vector_env, no_action_check
from pufferlib.vectorization.batched import Batched
from pufferlib.vectorization.multiprocessing import Multiprocessing
from pufferlib.vectorization.ray import Ray, connect_ray
from pufferlib.vectorization.serial import Serial
from pufferlib.vectorization.sizes import DEFAULT_NUM_ENVS
from pufferlib.vectorization.threads import Threads

__all__ = [
    "DEFAULT_NUM_ENVS",
    "Batch",
    "Batched",
    "Multiprocessing",
    "Ray",
    "Serial",
    "Threads",
    "VectorEnv",
    "batched",
    "check_vector_env",
    "connect_ray",
    "emulate",
    "make",
    "measuring",
    "no_action_check",
    "threads",
]
