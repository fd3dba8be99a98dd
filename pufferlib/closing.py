"""Closing: the base class of what must be closed."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Self

from pufferlib.errors import PufferError


class Closing:
    """An object with `close`, which the end of a `with` statement calls.

    An exception that leaves the `with` statement is not replaced by one of `close`, which becomes a
    warning then.
    """

    def close(self) -> None:
        """Free what this object holds. Safe to call twice."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except PufferError as failed:
            if error is None:
                raise
            warnings.warn(str(failed), stacklevel=2)
