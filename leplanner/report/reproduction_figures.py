"""Figures of the paper that compare objectives and whole episodes, each a function from what a part of the reproduction
kept to a figure."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..control.methods import BLUE, GRAY, METHODS, VERMILION
from .figures import COLUMN_IN, MARKERS, draw_interval, new_axes, new_grid, styled, variant_color


@styled
def environments(frames: dict[str, Any], title: str) -> Any:
    """Of some trials: where they start, and the goal image."""
    count = len(frames["start"])
    figure, axes = new_grid(2, count, COLUMN_IN, 0.4 + 2 * COLUMN_IN / (count + 0.5))
    for row, (name, label) in enumerate((("start", "$o_t$"), ("goal", "$o_G$"))):
        for place in range(count):
            axes[row, place].imshow(frames[name][place])
        axes[row, 0].set_ylabel(label)
    figure.suptitle(title)
    return figure


@styled
def objectives(data: dict[str, Any], title: str) -> Any:
    """Success of each objective with its 95 % interval, and each training seed as a dot."""
    rows = data["rows"]
    replans = list(rows[0]["success"])
    figure, axes = new_axes(COLUMN_IN, 0.9 + 0.3 * len(rows))
    for number, m in enumerate(replans):
        marker, shift = MARKERS[number % len(MARKERS)], 0.3 * (number - (len(replans) - 1) / 2)
        for place, row in enumerate(rows):
            color = variant_color(row)
            draw_interval(axes, row["success"][m], place + shift, color, "white" if number else color, marker)
            if len(row["by_seed"][m]) > 1:
                seeds = [100 * rate for rate in row["by_seed"][m]]
                axes.plot(seeds, [place + shift + 0.13] * len(seeds), "|", ms=4, color=GRAY)
        axes.plot([], [], marker, ms=4, color=BLUE, mfc="white" if number else BLUE, label=f"m = {m}")
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(-3, 103)
    axes.set_xlabel("success, %")
    figure.legend(loc="outside lower center", ncols=len(replans))
    axes.set_title(title)
    return figure


@styled
def settling(data: dict[str, Any], title: str) -> Any:
    """Fitted closed loops of both objectives from one start, and where each settles."""
    figure, axes = new_axes(COLUMN_IN, 2.2)
    for (name, curve), color in zip(data["curves"].items(), (VERMILION, BLUE), strict=True):  # as the paper's figures
        axes.plot(range(len(curve["distances"])), curve["distances"], "o-", ms=3, color=color, label=name)
        if curve["settles"] is not None:
            axes.axhline(curve["settles"], color=color, lw=0.6, ls=":")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("replans")
    axes.set_ylabel("distance D")
    axes.legend()
    axes.set_title(title)
    return figure


@styled
def steps(data: dict[str, Any], title: str) -> Any:
    """Share of trials that had reached the goal by each step: any-time success alone hides haste and delay."""
    figure, axes = new_axes(COLUMN_IN, 2.6)
    names = list(dict.fromkeys(label.rpartition(", ")[0] for label in data["curves"]))
    known = {method.title: method.color for method in METHODS.values()}
    for label, curve in data["curves"].items():
        name, _, pace = label.rpartition(", ")
        style = "-" if pace in ("m = 1", "every action") else "--"
        shade = 1 - 0.2 * (names.index(name) % 4)
        axes.step(range(1, len(curve) + 1), [100 * share for share in curve], style, where="post", lw=1,
                  color=known.get(name, GRAY), alpha=shade, label=label)  # fmt: skip
    axes.set_xlim(0, data["budget"])
    axes.set_ylim(0, 103)
    axes.set_xlabel("environment actions")
    axes.set_ylabel("trials that succeeded, %")
    figure.legend(loc="outside lower center", ncols=2)
    axes.set_title(title)
    return figure


@styled
def wall_clock(data: dict[str, Any], title: str) -> Any:
    """Seconds of a whole episode, logarithmic."""
    bars = data["bars"]
    figure, axes = new_axes(COLUMN_IN, 0.7 + 0.2 * len(bars))
    labels = [f"{METHODS.get(bar['method']).title}, m = {bar['replan']}".replace(", m = 0", "") for bar in bars]
    seconds = np.array([bar["seconds"] for bar in bars])
    axes.barh(range(len(bars)), seconds, color=[METHODS.get(bar["method"]).color for bar in bars], height=0.7)
    for place, value in enumerate(seconds):
        axes.annotate(f"{value:.3g}", (value, place), xytext=(3, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(bars)), labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(right=4 * seconds.max())
    axes.set_xlabel("seconds an episode")
    axes.set_title(title)
    return figure
