"""What the page shows of a session, as HTML: the scenes with their numbers, and the goal."""

from __future__ import annotations

import base64
import io
from html import escape

import numpy as np

from ..core.actions import Array
from .lane import HOLD_STEPS, Numbers
from .session import Session, Shown

QUALITY = 92  # of JPEG: ten pictures a second travel to the page


def data_uri(picture: Array) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.asarray(picture)).save(file, "JPEG", quality=QUALITY, subsampling=0)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def status(numbers: Numbers) -> tuple[str, str]:
    """A style and what it says."""
    if numbers.held:
        return "held", f"holds the goal, {numbers.within} steps"
    if numbers.reached:
        return "reached", "at the goal"
    if numbers.step == 0:
        return "waiting", "waiting"
    return "moving", "on its way"


def lane_html(shown: Shown, unit: str, clickable: bool) -> str:
    numbers = shown.numbers
    style, says = status(numbers)
    ms = "–" if numbers.decision_ms is None else f"{numbers.decision_ms:.0f}"
    transitions = "–" if numbers.transitions is None else f"{numbers.transitions:,}"
    reached = "–" if numbers.first_reached is None else f"{numbers.first_reached}"
    cells = (
        ("step", str(numbers.step), "step"),
        ("distance", f"{numbers.distance:.3g}", f"{unit} to the goal"),
        ("ms", ms, "ms a decision"),
        ("transitions", transitions, "predictor transitions"),
        ("first", reached, "first reached at step"),
    )
    facts = "".join(
        f'<div><dd data-number="{name}">{value}</dd><dt>{escape(label)}</dt></div>' for name, value, label in cells
    )
    alt = f"{numbers.title} at step {numbers.step}, {numbers.distance:.3g} {unit} from the goal: {says}"
    return (
        f'<figure class="lane {style}"><figcaption><b>{escape(numbers.title)}</b>'
        f'<span class="status" data-status="{style}">{escape(says)}</span></figcaption>'
        f'<img class="scene{" clickable" if clickable else ""}" alt="{escape(alt)}" src="{data_uri(shown.picture)}">'
        f"<dl>{facts}</dl></figure>"
    )


def stage_html(session: Session, message: str = "") -> str:
    """All lanes and the goal; `message`: an answer to what was just asked."""
    task, clickable = session.task, session.task.goal_click is not None
    lanes = "".join(lane_html(shown, task.error_unit, clickable) for shown in session.show())
    hint = task.goal_click.hint if task.goal_click else "Goals come from recorded behavior: New scene."
    note = message or (session.far if not session.started else "") or ""
    goal = (
        '<figure class="goal"><figcaption><b>Goal</b></figcaption>'
        f'<img alt="The goal, as the controller sees it" src="{data_uri(session.goal_picture)}">'
        f"<p>{escape(hint)}</p>"
        '<p class="legend"><i class="ring"></i> where things should be<br>'
        '<i class="path"></i> the imagined plan, later blocks fainter</p>'
        f"<p>The goal is held after {HOLD_STEPS} steps in a row.</p></figure>"
    )
    warning = f'<p class="note" role="status">{escape(note)}</p>'
    return f'<div class="stage" data-lanes="{len(session.lanes)}">{lanes}{goal}</div>{warning}'
