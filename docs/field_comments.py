"""An extension of griffe: a field without a docstring is documented by the comment on its line."""

from __future__ import annotations

import re
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is None and attr.lineno is not None and isinstance(attr.parent, griffe.Class):
            last = attr.endlineno or attr.lineno
            comment = re.search(r"#\s*(?!type:|pyright:|noqa)(.+)$", attr.lines_collection[attr.filepath][last - 1])
            if comment:
                attr.docstring = griffe.Docstring(comment[1], lineno=last, parent=attr)
