"""Families of third-party environments, one file each.

A family is a module with two functions, listed in `registry.FAMILIES` and imported when a name with
its prefix is made or listed:

- `find(name) -> EnvSpec` for what follows the prefix, in the user's spelling. An UnknownNameError
  offers the nearest names; a MissingExtraError is one line with the command that installs.
  A family whose first word alone is a name (`Family.single`) gets an empty name for it.
- `names() -> list[str]`: what can be made with the installed packages, with the prefix.
"""
