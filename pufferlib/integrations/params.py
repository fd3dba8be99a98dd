"""Params of third-party envs, as a signature that `make` can check."""

from __future__ import annotations

import inspect
import re
from typing import Any

from pufferlib.errors import UsageError, unknown_name


def keyword_signature(make: Any, more: tuple[str, ...] = ()) -> inspect.Signature:
    """Return the keywords of `make`, and `more`; any keyword if `make` has no signature."""
    try:
        given = list(inspect.signature(make).parameters.values())
    except (TypeError, ValueError):  # C code may have no signature
        given = [inspect.Parameter("params", inspect.Parameter.VAR_KEYWORD)]
    named = {p.name: p for p in given if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    params = [p.replace(kind=p.KEYWORD_ONLY) for p in named.values()]
    params += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in more
        if name not in named
    ]
    return inspect.Signature(params + [p for p in given if p.kind is p.VAR_KEYWORD])


def refused_param(id: str, error: TypeError, signature: inspect.Signature) -> UsageError | None:
    """Return the error for a keyword that only the constructor could refuse, else None."""
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found is None:
        return None
    params = signature.parameters.values()
    is_open = any(p.kind is p.VAR_KEYWORD for p in params)  # it takes more than it names
    known = [] if is_open else [p.name for p in params]
    return unknown_name(f"param of `{id}`", found[1], known)
