"""`leplanner report`: one HTML page about evaluations."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..report.page import write_page
from .options import MaybePath, Out, Output


@dataclass(frozen=True)
class Report:
    """Draw evaluations, diagnostics, ablations and comparisons as one self-contained HTML page.

    Tables, figures, videos of the trials that were recorded, and a browser of all trials. Evaluations of one task at
    several goal offsets also give its reach.

    Example: leplanner report runs/tworoom/evaluation/nontrivial-25-42 runs/tworoom/diagnostics --figures figures
    """

    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="FOLDER ...")]
    """folders that `leplanner evaluate`, `diagnose`, `ablate`, `compare` or `reproduce` made; videos are there with
    --videos N"""
    out: MaybePath = None
    """the page to write (default: report.html in the first folder)"""
    figures: MaybePath = None
    """a folder to keep the page's figures in, as SVG and PNG"""
    output: Out = field(default_factory=Output)

    def run(self) -> None:
        if not self.runs:
            raise ValueError("Give at least one folder that `leplanner evaluate` or `leplanner diagnose` made.")
        page = write_page(list(self.runs), self.out or self.runs[0] / "report.html", figure_folder=self.figures)
        self.output.show({"report": page, "figures": self.figures}, f"report: {page}")
