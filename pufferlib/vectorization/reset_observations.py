"""The result of `reset`: observations that refuse to be unpacked into two names.

`observations, info = env.reset()`, as in Gymnasium, would fail with "too many values to unpack"
here, or assign a row to each name where there are two slots or two agents. An iterator cannot
distinguish that from a loop over rows, but the caller's current bytecode instruction can; it is
checked when the result of `reset` is iterated. `step` returns plain arrays, at no cost. Where an
interpreter does not show its instructions, nothing is refused.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np

from pufferlib.errors import UsageError

_UNPACK = dis.opmap.get("UNPACK_SEQUENCE", -1)


def first_observations(observations: Any) -> Any:
    """Return the same observations, rows or rows by agent, in a form that refuses the mistake."""
    if isinstance(observations, np.ndarray):
        rows = observations.view(FirstRows)
        rows.is_whole = True
        return rows
    if type(observations) is dict:
        return FirstRowsByAgent(observations)
    return observations


class FirstRows(np.ndarray[Any, Any]):
    """The array that `reset` returned; parts of it and results with it may be unpacked."""

    is_whole = False

    def __iter__(self) -> Iterator[Any]:
        if self.is_whole:
            _refuse_pair(sys._getframe(1))
        return super().__iter__()

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __reduce__(self) -> Any:  # a copy or a file of it is a plain array
        return np.asarray(self).__reduce__()


class FirstRowsByAgent(dict[Any, Any]):
    """The dict {agent_id: rows} that `reset` returned."""

    def __iter__(self) -> Iterator[Any]:
        _refuse_pair(sys._getframe(1))
        return super().__iter__()

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _refuse_pair(frame: FrameType) -> None:
    """Raise if the caller unpacks into two names; more or fewer fail by themselves."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if code[at] == _UNPACK and code[at + 1] == 2:
        raise UsageError(
            "`env.reset()` must be assigned to one name: a VectorEnv returns the observations "
            "alone, but got two names. Try `observations = env.reset()`."
        )
