"""Many environments at once behind one interface."""

from pufferlib.vectorization.base import Batch, VectorEnv
from pufferlib.vectorization.multiprocessing import Multiprocessing
from pufferlib.vectorization.ray import Ray
from pufferlib.vectorization.serial import Serial
from pufferlib.vectorization.threads import Threads

__all__ = [
    "Batch",
    "Multiprocessing",
    "Ray",
    "Serial",
    "Threads",
    "VectorEnv",
    "creators",
    "measuring",
    "threads",
]
