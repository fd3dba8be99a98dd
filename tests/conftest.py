"""Tests share few cores: torch computes on one thread unless a test asks for more."""

import torch

torch.set_num_threads(1)
