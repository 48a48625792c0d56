"""An extension of griffe: fields of a class that have a comment on their line, as a table in its documentation."""

from __future__ import annotations

import re
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        fields = {name: _comment(member) for name, member in cls.members.items() if _is_field(member)}
        rows = "".join(f"\n    {name}: {comment}" for name, comment in fields.items() if comment)
        if rows:
            text = cls.docstring.value if cls.docstring else ""
            cls.docstring = griffe.Docstring(f"{text}\n\nAttributes:{rows}\n", parent=cls)


def _is_field(member: Any) -> bool:
    is_public = isinstance(member, griffe.Attribute) and not member.name.startswith("_")
    return is_public and member.docstring is None and member.annotation is not None and "property" not in member.labels


def _comment(field: griffe.Attribute) -> str:
    """On the field's last line, or on the one before it where a long comment stands alone."""
    lines = field.lines_collection[field.filepath][(field.lineno or 1) - 1 : field.endlineno]
    found = [re.search(r"(?<!['\"])#\s*(?!type:|pyright:|noqa)(.+)$", line) for line in lines]
    return next((match[1].strip() for match in reversed(found) if match), "")
