"""Families of environments that other packages bring, each in a file of its own.

A family is a module with two functions, listed in `registry.FAMILIES` and imported when a name with
its prefix is made or listed:

- `find(name) -> EnvSpec` for what follows the prefix, in the user's spelling. An UnknownNameError
  offers the nearest names; a MissingExtraError is one line with the command that installs.
- `names() -> list[str]`: what can be made here and now, with the prefix.
"""
