"""Runs the parts in order, keeps what each found, and draws the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...artifacts import command_line, provenance, read_json, write_json
from ...report.page import check_installed, write_page
from ...report.reproduction import CONTENTS
from ...worlds import load_world
from ..stage import run_stages
from .part import PARTS, Facts, Part
from .setting import Reproduction

PAGE = "report.html"


def reproduce(
    reproduction: Reproduction,
    names: Sequence[str] = (),  # of parts; all that apply to the task, if none are named
    on_stage: Callable[[str], None] = lambda title: None,
) -> dict[str, Facts]:
    """Resumable: trainings, trials and finished parts of the same setting are kept; parts can be added later. Returns
    what each part found."""
    check_installed()
    parts = _chosen(reproduction, names)
    stages = reproduction.stages()
    run_stages(stages, reproduction.paths.minutes, lambda number, stage: on_stage(stage.name))
    results: dict[str, Facts] = {}
    for part in parts:
        on_stage(part.title)
        facts = _finished(reproduction, part)
        if facts is None:
            about = {"name": part.name, "title": part.title, "about": part.about, "identity": reproduction.identity}
            history = {"command": command_line(), "provenance": provenance(world=load_world(reproduction.world).digest)}
            facts = about | part.run(reproduction) | history
            write_json(_file(reproduction, part), facts)
        results[part.name] = facts
    _write_contents(reproduction)
    write_page([reproduction.out], reproduction.out / PAGE, f"{reproduction.task.title}: the paper's experiment")
    return results


def _file(reproduction: Reproduction, part: Part) -> Path:
    return reproduction.out / f"{part.name}.json"


def _finished(reproduction: Reproduction, part: Part) -> Facts | None:
    """What a part found with these very settings."""
    file = _file(reproduction, part)
    facts = read_json(file) if file.exists() else {}
    return facts if facts.get("identity") == reproduction.identity else None


def _chosen(reproduction: Reproduction, names: Sequence[str]) -> list[Part]:
    parts = [PARTS.get(name) for name in names] or PARTS.values()
    refused = [part.name for part in parts if not part.applies(reproduction)]
    if names and refused:
        raise ValueError(
            f"The paper has no {', '.join(refused)} for {reproduction.task.name}. Parts: "
            f"{', '.join(part.name for part in PARTS.values() if part.applies(reproduction))}."
        )
    return [part for part in parts if part.applies(reproduction)]


def _write_contents(reproduction: Reproduction) -> None:
    """What the page is of: the parts that are finished with these settings; those of others are left out."""
    finished = [part.name for part in PARTS.values() if _finished(reproduction, part) is not None]
    contents: dict[str, Any] = {
        "task": reproduction.task.name,
        "scale": reproduction.preset.scale,
        "differs": reproduction.differs,
        "parts": finished,
    }
    write_json(reproduction.out / CONTENTS, contents)
