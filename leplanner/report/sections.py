"""A section of a page that is mostly figures, and its figures as elements of the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import figures
from .comparison import Sheet

Drawn = dict[str, tuple[str, Any]]  # name -> caption and figure


@dataclass(frozen=True)
class Picture:
    caption: str
    svg: str  # an element to stand in the page, in the page's own colors
    wide: bool = False


@dataclass(frozen=True)
class Section:
    title: str
    about: str
    lines: list[str]  # what the figures do not show
    drawn: Drawn
    tables: Sequence[Sheet] = ()


def to_pictures(drawn: Drawn, number: int, folder: Path | None) -> list[Picture]:
    """Figures as elements of section `number`; also kept in `folder`, as SVG and PNG."""
    pictures = []
    for name, (caption, figure) in drawn.items():
        if folder is not None:
            figures.save(figure, folder, f"{number}_{name}")
        svg = inline(figures.rendered(figure, "svg").decode(), f"f{number}-{name}-")
        pictures.append(Picture(caption, svg, figure.get_figwidth() > figures.COLUMN_IN))
    return pictures


def inline(svg: str, prefix: str) -> str:
    """An SVG file as an element: ink and paper are the page's, so that the dark suits it too, and ids are unique."""
    element = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    element = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", element)
    element = element.replace("#000000", "currentColor").replace("#ffffff", "var(--surface)")
    return element.replace("<svg", '<svg aria-hidden="true"', 1)
