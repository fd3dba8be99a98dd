"""Objects that hold a resource: leaving their `with` block closes them."""

from __future__ import annotations

from typing import Self


class Closing:
    """Base of everything that has a `close` method; `with` calls it, also after an exception."""

    def close(self) -> None:
        """Release what the object holds. May be called more than once."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
