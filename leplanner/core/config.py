"""Frozen configurations, changed by copying."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

Config = TypeVar("Config")


def has_field(config: Any, name: str) -> bool:
    """Whether `changed` knows this field: the config's own, or that of a config inside it."""
    inner = [getattr(config, field.name) for field in dataclasses.fields(config)]
    known = [config, *(value for value in inner if dataclasses.is_dataclass(value))]
    return any(field.name == name for part in known for field in dataclasses.fields(part))


def changed(config: Config, **fields: Any) -> Config:
    """A copy with other values. A field may be the config's own or that of a config inside it, such as `optim`."""
    own = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    values = {name: value for name, value in fields.items() if name in own}
    for name in own - set(values):
        inner = getattr(config, name)
        if dataclasses.is_dataclass(inner):
            theirs = {field.name for field in dataclasses.fields(inner)} & (set(fields) - own)
            if theirs:
                values[name] = dataclasses.replace(inner, **{key: fields.pop(key) for key in theirs})  # type: ignore[type-var]
    unknown = sorted(set(fields) - own)
    if unknown:
        raise ValueError(f"{type(config).__name__} has no field {', '.join(unknown)}.")
    return dataclasses.replace(config, **values)  # type: ignore[type-var]
