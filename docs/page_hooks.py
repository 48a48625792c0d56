"""Hooks of mkdocs: the command-line page is made from `--help`, `::: lp.NAME` documents a public name, and
`<!-- comparison FILE -->` shows the tables of a `comparison.json`."""

from __future__ import annotations

import contextlib
import html
import io
import json
import os
import re
from pathlib import Path
from typing import Any

MARKER = "<!-- every verb -->"
WIDTH = "100"  # help is wrapped to this many columns, one box below the other, and unwrapped here
GROUPS = {  # option groups are named for fields of the code; readers want to know what they set
    "choice options": "task and preset",
    "config options": "settings of this stage",
    "config.optim options": "optimization",
    "config.model options": "the density's network",
    "named options": "names of columns",
    "compute options": "device and logging",
    "workers options": "processes",
    "shape options": "the planner's network",
    "network options": "the world's network",
    "network.encoder options": "its encoder",
    "objective options": "its loss",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    markdown = re.sub(r"^::: lp\.(\w+)$", _public_name, markdown, flags=re.M)
    markdown = re.sub(r"^<!-- comparison (\S+) -->$", _comparison, markdown, flags=re.M)
    return markdown.replace(MARKER, reference()) if MARKER in markdown else markdown


def _public_name(match: re.Match[str]) -> str:
    name = match[1]
    return f"::: leplanner.{name}\n    options: {{heading: lp.{name}, toc_label: {name}}}"


def _comparison(match: re.Match[str]) -> str:
    """The tables of `leplanner compare`."""
    from leplanner.report.comparison import comparison_tables

    report = json.loads((Path(__file__).parent / match[1]).read_text())
    return "\n\n".join(sheet.markdown for sheet in comparison_tables(report))


def reference() -> str:
    """Markdown for all verbs, in the order of `leplanner --help`."""
    return "\n\n".join(section(verb) for verb in verbs())


def verbs() -> list[str]:
    """Of one word or two, as `leplanner --help` lists them."""
    return re.findall(r"^  ([a-z]+(?: [a-z]+)?) {2,}\S", help_of(""), flags=re.M)


def help_of(command: str) -> str:
    """What the terminal shows, without colors."""
    from leplanner.cli.main import main

    shown = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)  # boxes are drawn where they can be encoded
    before = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ.update(COLUMNS=WIDTH, NO_COLOR="1")
    try:
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            main([*command.split(), "--help"])
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.buffer.getvalue().decode())


def section(command: str) -> str:
    """A verb's description, examples and options."""
    prose, *boxes = re.split(r"^╭─ ", help_of(command), flags=re.M)
    _, _, text = prose.partition("\n\n")  # the usage line comes first
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]
    examples = [p.removeprefix("Example: ") for p in paragraphs if p.startswith("Example: ")]
    parts = [f"## {command} {{ #{command.replace(' ', '-')} }}"]
    parts += [p for p in paragraphs if not p.startswith("Example: ")]
    parts.append("```sh\n" + "\n".join(examples) + "\n```")
    return "\n\n".join([*parts, *filter(None, map(options, boxes))])


def options(box: str) -> str:
    """One box of a help text as a list of options and what they mean."""
    title, _, body = box.partition(" ─")
    rows: list[list[str]] = []
    lead: list[str] = []
    for line in re.findall(r"^│ (.*?) *│$", body, flags=re.M):
        if set(line) == {"─"}:
            lead, rows = [row[0] for row in rows], []  # what stood above the rule describes the group
        elif line and not line.startswith(" "):
            rows.append(re.split(r" {2,}", line, maxsplit=1))
        elif rows and line.strip():
            rows[-1].append(line.strip())
    rows = [row for row in rows if not row[0].startswith("-h, --help")]
    if not rows:
        return ""
    shown = [" ".join(lead)]
    shown += [f"`{name}`\n:   {_unwrapped(lines) or '-'}" for name, *lines in rows]
    text = "\n\n".join(part for part in shown if part)
    if title in GROUPS:  # shared by many verbs, and long: folded
        return f'??? abstract "{GROUPS[title]}"\n\n' + re.sub(r"^(?=.)", "    ", text, flags=re.M)
    return text


def _unwrapped(lines: list[str]) -> str:
    """Lines of help as one; a list such as `a,b,c` that was broken after a comma gets no space."""
    text = re.sub(r"(?<=,)(\S+,) (?=\S)", r"\1", " ".join(lines))
    return html.escape(text, quote=False).replace("*", "\\*")
