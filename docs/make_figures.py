"""Draws the documentation's diagrams as SVG, each for light and for dark pages: python docs/make_figures.py"""

from __future__ import annotations

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from drawing import OUT, Drawing, Point, axes, write_figures

# printed in the paper's appendix C: held-out distances of two plans for a goal one block away,
# and the fits D' = c D + b of the closed loop, both from the same start
DEFERS, ARRIVES = (0.090, 0.053, 0.035, 0.023, 0.014), (0.015, 0.014, 0.014, 0.015, 0.014)
FITS = {"bad": (0.579, 0.041), "ours": (0.392, 0.024)}
START = 0.491
THRESHOLD = 1.5306  # the paper's c95 for PushT


def refinement(theme: dict[str, str]) -> Drawing:
    d = Drawing(880, 330, theme, "A plan is drafted, imagined by the frozen world, and refined three times")
    for y, lines in ((56, ("last 3 frames", "and 2 past blocks")), (176, ("goal image", ""))):
        d.labeled_box(16, y, 138, 74, [line for line in lines if line], "panel", "line")
    d.labeled_box(236, 88, 150, 86, ("plan", "5 blocks of 5 actions"), "ours_fill", "ours")
    d.labeled_box(468, 88, 150, 86, ("frozen world", "imagines 5 latents"), "panel", "soft", "6 4")
    d.labeled_box(700, 88, 164, 86, ("consequences", "latents, and their", "distances to the goal"), "panel", "line")
    d.path("M154 93C196 93 196 122 232 124", arrow=True)
    d.path("M154 213C200 213 196 142 232 140", arrow=True)
    d.text(196, 78, "draft", "soft", 13)
    d.path("M386 131H463", "ours", arrow=True)
    d.path("M618 131H695", arrow=True)
    d.path("M782 174V240Q782 252 770 252H494", "goal", arrow=True)
    d.box(382, 226, 108, 52, "goal_fill", "goal")
    d.text(436, 249, "refine", bold=True)
    d.text(436, 267, "3 times", "soft", 12.5)
    d.path("M382 252H330Q318 252 318 240V180", "goal", arrow=True)
    d.path("M311 88V50H463", "ours", arrow=True)
    d.box(468, 28, 150, 44, "ours_fill", "ours")
    d.text(543, 55, "act: first block", bold=True)
    d.text(390, 42, "after 3 refinements", "soft", 12.5)
    d.text(
        440,
        314,
        "(3 + 1) plans of 5 blocks: 20 predictor transitions, where CEM computes 300 x 30 x 5 = 45,000",
        "soft",
        14,
    )
    return d


def deadline(theme: dict[str, str]) -> Drawing:
    """Which block must be at the goal, for four plans in a row; the data reached this goal after three blocks."""
    d = Drawing(
        880, 316, theme, "A fixed-terminal deadline moves with every replan; arrival-and-hold keeps it in place"
    )
    cell, rows = 40, 4
    for left, name, color, fill in (
        (30, "fixed-terminal", "bad", "bad_fill"),
        (470, "arrival-and-hold", "ours", "ours_fill"),
    ):
        d.text(left, 28, name, color, 17, "start", bold=True)
        ours = color == "ours"
        d.text(
            left,
            50,
            "be at the goal when the data was, then stay" if ours else "be at the goal when the plan ends",
            "soft",
            13,
            "start",
        )
        for row in range(rows):
            y = 72 + 46 * row
            for block in range(5):
                x, time = left + cell * (row + block), row + block + 1
                must = time >= 3 if ours else block == 4
                d.box(x + 2, y, cell - 4, 32, fill if must else "panel", color if must else "faint", r=5)
                if must:
                    arrival = not ours or time == 3
                    d.text(x + cell / 2, y + 21, "goal" if arrival else "stay", color, 12.5, bold=arrival)
        d.path(f"M{left} 268H{left + 8 * cell + 18}", arrow=True)
        for time in range(1, 9):
            d.text(left + cell * (time - 0.5), 288, str(time), "soft", 12.5)
        d.text(left + 8 * cell + 50, 272, "blocks", "soft", 12.5)
        d.text(left + cell * 2.5, 306, "the data arrived", "soft", 12.5)
    for row, words in enumerate(("plan 1", "plan 2", "plan 3", "plan 4")):
        d.text(448, 93 + 46 * row, words, "soft", 12.5)
    return d


def procrastination(theme: dict[str, str]) -> Drawing:
    d = Drawing(
        880,
        350,
        theme,
        "Deferring and arriving plans score the same at the end; replanning then settles away from the goal",
    )
    left, top, w, h = 60, 60, 340, 220

    def place(i: float, value: float, most: float, count: int, x0: float) -> Point:
        return x0 + w * (i + 0.5) / count, top + h * (1 - value / most)

    axes(
        d,
        left,
        top,
        w,
        h,
        [(place(i, 0, 1, 5, left)[0], str(i + 1)) for i in range(5)],
        "block of the plan",
        "One plan, for a goal one block away",
    )
    d.text(left - 8, top + 4, "0.1", "soft", 12.5, "end")
    d.text(left - 8, top + h + 4, "0", "soft", 12.5, "end")
    for color, values in (("bad", DEFERS), ("ours", ARRIVES)):
        d.curve([place(i, v, 0.1, 5, left) for i, v in enumerate(values)], color)
    d.text(left + 62, top + 26, "arrives when the plan ends", "bad", 13.5, "start")
    d.text(left + 30, top + h - 46, "arrives at once, stays", "ours", 13.5, "start")
    x, y = place(4, 0.014, 0.1, 5, left)
    d.path(f"M{x:.1f} {y - 12:.1f}V{y - 60:.1f}", "line", 1.2, dash="3 4")
    d.text(x, y - 84, "same d at block 5:", "soft", 12.5)
    d.text(x, y - 68, "same loss", "soft", 12.5)

    left2, steps = 500, 9
    axes(
        d,
        left2,
        top,
        w,
        h,
        [(place(i, 0, 1, steps, left2)[0], str(i)) for i in range(steps)],
        "replans, one block executed each",
        "In the loop: distance D to the goal",
    )
    d.text(left2 - 8, top + 4, "0.5", "soft", 12.5, "end")
    d.text(left2 - 8, top + h + 4, "0", "soft", 12.5, "end")
    for color, (c, b) in FITS.items():
        values = [START]
        for _ in range(steps - 1):
            values.append(c * values[-1] + b)
        d.curve([place(i, v, 0.5, steps, left2) for i, v in enumerate(values)], color)
        floor = b / (1 - c)
        y = place(0, floor, 0.5, steps, left2)[1]
        d.path(f"M{left2} {y:.1f}H{left2 + w}", color, 1.2, dash="4 5")
    for color, height, name in (("bad", 0.27, "fixed-terminal"), ("ours", 0.2, "arrival-and-hold")):
        c, b = FITS[color]
        spot = place(0, height, 0.5, steps, left2)[1]
        d.text(left2 + w, spot, f"{name} settles at {b / (1 - c):.3f}", color, 13.5, "end")
    return d


def alignment(theme: dict[str, str]) -> Drawing:
    d = Drawing(880, 372, theme, "Frames, the blocks that leave them, and the plan")
    step, left, size = 110, 24, 52

    def frame(i: int, y: float, words: str, color: str, fill: str, dash: str = ""):
        d.box(left + step * i, y, size, size, fill, color, dash, 6)
        d.text(left + step * i + size / 2, y + size / 2 + 5, words, color if color != "line" else "ink", 14, bold=True)

    def block(i: int, y: float, words: str, color: str):
        x = left + step * i + size
        d.path(f"M{x + 3} {y + size / 2}H{x + step - size - 6}", color, 2, arrow=True)
        d.text(
            x + (step - size) / 2,
            y + size / 2 - 10,
            words,
            "goal" if color == "goal" else color if color != "line" else "soft",
            13,
        )

    y = 66
    d.text(left, 26, "In the middle of an episode", "ink", 15, "start", bold=True)
    for i, words in enumerate(("z-2", "z-1", "z0")):
        frame(i, y, words, "line", "panel")
    for i, words in enumerate(("past", "past")):
        block(i, y, words, "line")
    for i in range(5):
        block(i + 2, y, f"b{i + 1}", "ours")
        frame(i + 3, y, f"z{i + 1}", "ours", "ours_fill", "5 3")
    d.text(left + step + size / 2, y + 78, "context: 3 latents, 2 blocks between", "soft", 13)
    d.path(f"M{left} {y + 60}H{left + 2 * step + size}", "line", 1.4)
    d.text(left + 5 * step + 4, y + 78, "plan: 5 blocks; the first leaves the current frame", "ours", 13)
    d.path(f"M{left + 2 * step + size + 12} {y + 60}H{left + 7 * step + size}", "ours", 1.4)
    d.text(left + 2 * step + size / 2, y - 12, "now", "ink", 13)

    y = 246
    d.text(left, 206, "At its start: one frame is known", "ink", 15, "start", bold=True)
    for i in range(2):
        frame(i, y, "z0", "line", "panel", "3 3")
        block(i, y, "zeros", "goal")
    frame(2, y, "z0", "line", "panel")
    for i in range(5):
        block(i + 2, y, f"b{i + 1}", "ours")
        frame(i + 3, y, f"z{i + 1}", "ours", "ours_fill", "5 3")
    d.text(left, y + 78, "padding: first frame repeated, zero actions", "soft", 13, "start")
    d.path(f"M{left} {y + 60}H{left + 2 * step + size}", "line", 1.4)
    d.text(left + 5 * step + 4, y + 78, "imagined, dashed", "ours", 13)
    d.path(f"M{left + 2 * step + size + 12} {y + 60}H{left + 7 * step + size}", "ours", 1.4)
    d.text(left + 2 * step + size / 2, y - 12, "now", "ink", 13)
    d.text(left, 366, "A block is five environment actions, standardized. Block k leaves frame k.", "soft", 13, "start")
    return d


def support(theme: dict[str, str]) -> Drawing:
    d = Drawing(880, 330, theme, "The support penalty is zero for blocks that the data supports and grows outside")
    left, top, w, h = 50, 60, 340, 200
    axes(d, left, top, w, h, [], "an action block (one dimension of it)", "A density fitted to the data's blocks")

    def density(u: float) -> float:
        parts = ((0.6, -1.0, 0.55), (0.4, 1.5, 0.4))
        return sum(p * math.exp(-(((u - m) / s) ** 2) / 2) / (s * math.sqrt(2 * math.pi)) for p, m, s in parts)

    grid = [-3.4 + 6.8 * i / 240 for i in range(241)]
    values = [density(u) for u in grid]
    total, kept, level = sum(values), 0.0, 0.0
    for value in sorted(values, reverse=True):  # the highest values that hold 95 % of the mass
        kept += value
        level = value
        if kept >= 0.95 * total:
            break
    spots = [(left + w * i / 240, top + h * (1 - v / 0.5)) for i, v in enumerate(values)]
    run: list[Point] = []
    for spot, value in [*zip(spots, values, strict=True), ((0, 0), 0.0)]:
        if value >= level:
            run.append(spot)
        elif run:
            edge = f"M{run[0][0]:.1f} {top + h}L" + "L".join(f"{x:.1f} {y:.1f}" for x, y in run)
            d.path(f"{edge}L{run[-1][0]:.1f} {top + h}Z", "ours", 0, fill="ours_fill")
            run = []
    d.curve(spots, "ours", dots=False)
    d.text(left + 122, top + h - 20, "supported", "ours", 13.5)
    d.text(left + 246, top + h - 20, "supported", "ours", 13.5)
    d.text(left + 6, top + h - 26, "not", "bad", 13.5, "start")
    d.text(left + w - 6, top + h - 26, "not", "bad", 13.5, "end")

    left2 = 500

    def x_of(r: float) -> float:
        return left2 + w * r / 3.0

    axes(
        d,
        left2,
        top,
        w,
        h,
        [(x_of(THRESHOLD), "c95")],
        "r: the block's negative log density, per dimension",
        "The penalty: max(0, r - c95) squared",
    )
    line = [(x_of(0), top + h - 1.5), (x_of(THRESHOLD), top + h - 1.5)]
    tail = [THRESHOLD + (2.75 - THRESHOLD) * i / 40 for i in range(41)]
    d.box(left2 + 2, top, x_of(THRESHOLD) - left2 - 2, h - 2, "ours_fill", "ours_fill", r=3)
    d.curve(line, "ours", 3, dots=False)
    d.curve([(x_of(r), top + h - 1.5 - h * 0.62 * (r - THRESHOLD) ** 2) for r in tail], "bad", 3, dots=False)
    d.path(f"M{x_of(THRESHOLD):.1f} {top}V{top + h}", "line", 1.2, dash="4 5")
    d.text(x_of(THRESHOLD / 2), top + 88, "95 % of real blocks:", "ours", 13.5)
    d.text(x_of(THRESHOLD / 2), top + 108, "exactly no penalty", "ours", 13.5)
    d.text(x_of(1.95), top + 66, "pushed back", "bad", 13.5)
    return d


def reuse(theme: dict[str, str]) -> Drawing:
    d = Drawing(
        880, 210, theme, "The remaining plan and the new plan are imagined from the same frame; the nearer end wins"
    )
    cell, left = 62, 180
    rows = (
        (46, "last plan", ("done", "2", "3", "4", "5"), 0, "line"),
        (98, "what remains of it", ("2", "3", "4", "5", "e"), 1, "goal"),
        (150, "new plan", ("a", "b", "c", "d", "e"), 1, "ours"),
    )
    for y, name, blocks, shift, color in rows:
        d.text(left - 16, y + 22, name, "ink", 14, "end")
        for i, words in enumerate(blocks):
            borrowed = name.startswith("what") and words == "e"
            own = "ours" if borrowed else color
            fill = {"line": "panel", "goal": "goal_fill", "ours": "ours_fill"}[own]
            x = left + cell * (i + shift)
            d.box(x + 2, y, cell - 4, 34, fill, own, "5 3" if borrowed else "", 5)
            d.text(x + cell / 2, y + 22, words, "ink" if own == "line" else own, 13.5, bold=True)
    d.path(f"M{left + cell} 26V196", "line", 1.4, dash="4 5")
    d.text(left + cell, 18, "now", "soft", 13)
    end = left + 6 * cell
    for y, words, color in ((115, "imagined end, distance 1", "goal"), (167, "imagined end, distance 2", "ours")):
        d.path(f"M{end + 8} {y}H{end + 46}", color, arrow=True)
        d.text(end + 54, y + 5, words, color, 13.5, "start")
    d.text(end + 54, 68, "follow the one that ends nearer", "ink", 14, "start", bold=True)
    return d


def draw_all(out: Path) -> list[Path]:
    return write_figures((refinement, deadline, procrastination, alignment, support, reuse), out)


if __name__ == "__main__":
    for path in draw_all(OUT):
        print(path)
