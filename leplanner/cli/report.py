"""`leplanner report`: one HTML page about evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..report.page import write_page
from .options import MaybePath
from .progress import console


def report(
    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="FOLDER ...")],
    out: MaybePath = None,
    figures: MaybePath = None,
) -> None:
    """Draw evaluations, diagnostics and ablations as one self-contained HTML page.

    Tables, figures, videos of the trials that were recorded, and a browser of all trials. Evaluations of one task at
    several goal offsets also give its reach.

    Example: leplanner report runs/tworoom/evaluation/nontrivial-25-42 runs/tworoom/diagnostics --figures figures

    Args:
        runs: folders that `leplanner evaluate`, `diagnose` or `ablate` made; videos are there when it ran with
            --videos N.
        out: the page to write (default: report.html in the first folder).
        figures: a folder to keep the page's figures in, as SVG and PNG.
    """
    if not runs:
        raise ValueError("Give at least one folder that `leplanner evaluate` or `leplanner diagnose` made.")
    console.print(f"report: {write_page(list(runs), out or runs[0] / 'report.html', figure_folder=figures)}")
