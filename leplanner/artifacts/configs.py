"""Frozen dataclasses to JSON and back, strictly."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

NONE = dataclasses.MISSING


def to_dict(config: Any) -> dict[str, Any]:
    """Nested dataclasses too; one with a `kind` is stored with it, so that a union can be read again."""
    value = {}
    for field in dataclasses.fields(config):
        inner = getattr(config, field.name)
        value[field.name] = to_dict(inner) if dataclasses.is_dataclass(inner) else inner
    kind = getattr(type(config), "kind", None)
    return {"kind": kind, **value} if isinstance(kind, str) else value


def other_values(known: dict[str, Any], requested: dict[str, Any], prefix: str = "") -> list[str]:
    """Where two configs as JSON differ, a phrase each, by dotted names."""
    lines: list[str] = []
    for name in known | requested:
        one, other = known.get(name), requested.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            lines += other_values(one, other, f"{prefix}{name}.")
        elif _as_json(one) != _as_json(other):
            lines.append(f"{prefix}{name} is {one}, requested {other}")
    return lines


def _as_json(value: Any) -> Any:
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def from_dict(cls: type, value: dict[str, Any]) -> Any:
    """Lists are tuples, and fields that the class does not have, or that it needs, are named."""
    if not isinstance(value, dict):
        raise ValueError(f"{cls.__name__} is described by a mapping; got {type(value).__name__}.")
    value = {name: inner for name, inner in value.items() if name != "kind" or not hasattr(cls, "kind")}
    fields = dataclasses.fields(cls)
    names = {field.name for field in fields}
    unknown = sorted(set(value) - names)
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {', '.join(unknown)}; it has {', '.join(sorted(names))}.")
    needed = {field.name for field in fields if field.default is NONE and field.default_factory is NONE}
    missing = sorted(needed - set(value))
    if missing:
        raise ValueError(f"{cls.__name__} needs {', '.join(missing)}; got {', '.join(sorted(value)) or 'nothing'}.")
    hints = typing.get_type_hints(cls)
    return cls(**{name: _converted(hints[name], inner) for name, inner in value.items()})


def _converted(hint: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    classes: list[Any] = [option for option in options if dataclasses.is_dataclass(option)]
    if not isinstance(value, dict) or not classes:
        return value
    kinds = {getattr(cls, "kind", cls.__name__): cls for cls in classes}
    if len(classes) == 1:
        return from_dict(typing.cast(type, classes[0]), value)
    if value.get("kind") not in kinds:
        raise ValueError(f"Unknown kind {value.get('kind')!r}; known: {', '.join(map(str, kinds))}.")
    return from_dict(typing.cast(type, kinds[value["kind"]]), value)
