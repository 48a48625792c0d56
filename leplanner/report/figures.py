"""Figures for a column's width, each a function from a table on disk to a figure."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..artifacts import atomic_path
from ..control.methods import BLACK, BLUE, GRAY, METHODS, SKY, VERMILION
from ..evaluation.metrics import HEADLINE
from .comparison import planner_title
from .tables import Evaluation, MethodRow, metric_title

COLUMN_IN = 3.4
HELD = "held"  # the metric that is drawn beside the headline
MARKERS = "osD^v"
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "figure.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.hashsalt": "leplanner",  # the same table, the same file
}


def styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """What is drawn takes its style when it is drawn."""

    @functools.wraps(draw)
    def drawn(*arguments: Any) -> Any:
        import matplotlib as mpl

        with mpl.rc_context(STYLE):
            return draw(*arguments)

    return drawn


@styled
def success(evaluation: Evaluation, title: str) -> Any:
    """Any-time success of every method with its 95 % Wilson interval; hollow where it was held for the last steps."""
    figure, axes = new_axes(COLUMN_IN, 0.9 + 0.22 * len(evaluation.methods))
    drawn = [(name, offset) for name, offset in ((HEADLINE, -0.13), (HELD, 0.13)) if name in evaluation.metrics]
    for place, row in enumerate(evaluation.methods):
        for name, offset in drawn:
            if name in row.rates:
                fill = row.color if name == HEADLINE else "white"
                draw_interval(axes, row.rates[name], place + offset, row.color, fill)
    axes.set_yticks(range(len(evaluation.methods)), [row.label for row in evaluation.methods])
    axes.invert_yaxis()
    axes.set_xlim(-3, 103)
    axes.set_xlabel("success, %")
    for name, _ in drawn:
        fill = BLACK if name == HEADLINE else "white"
        axes.plot([], [], "o", ms=4, color=BLACK, mfc=fill, label=metric_title(name))
    figure.legend(loc="outside lower center", ncols=2)
    axes.set_title(title)
    return figure


@styled
def cost(evaluation: Evaluation, title: str) -> Any:
    """Predictor transitions and milliseconds of one plan, on logarithmic axes; without methods that imagine nothing."""
    figure, axes = new_axes(COLUMN_IN, 2.2)
    shown: dict[str, tuple[float, float]] = {}
    for row in evaluation.methods:
        if row.costs["transitions"] >= 1 and row.title not in shown:
            point = (row.costs["transitions"], row.costs["plan_ms"])
            near = sum(all(0.5 < a / b < 2 for a, b in zip(point, other, strict=True)) for other in shown.values())
            shown[row.title] = point
            axes.plot(*point, "o", color=row.color)
            lower = 4 - 11 * near  # methods of one kind cost about the same: names must not meet
            axes.annotate(row.title, point, xytext=(5, lower), textcoords="offset points")
    for side, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        low, high = side.get_data_interval()
        side.axes.set(**{f"{side.axis_name}lim": (low / 3, max(5 * high, 50 * low))})  # decades, with room for names
    axes.set_xlabel("predictor transitions per plan")
    axes.set_ylabel("ms per plan")
    axes.set_title(title)
    return figure


@styled
def arrival_profiles(imagined: dict[str, Any], title: str) -> Any:
    """Distance to the goal after each block, one line for each block q at which the data was there. q is marked, and
    where the line is lowest."""
    import matplotlib

    figure, axes = new_axes(COLUMN_IN, 2.3)
    shades = matplotlib.colormaps["viridis"]
    rows = [(q, row) for q, row in enumerate(imagined["profile"], start=1) if row is not None]
    for q, row in rows:
        color = shades(0.9 * (q - 1) / max(1, len(imagined["profile"]) - 1))
        shares = [100 * value / imagined["start"] for value in row]
        axes.plot(range(1, len(row) + 1), shares, color=color, label=f"q = {q}")
        axes.plot([q], [shares[q - 1]], "o", color=color, ms=5)
        lowest = shares.index(min(shares))
        axes.plot([lowest + 1], [shares[lowest]], "o", color=color, mfc="none", ms=9, mew=0.8)
    axes.set_yscale("log")
    axes.set_xticks(range(1, len(imagined["profile"]) + 1))
    axes.set_xlabel("block (dot: the data arrived; ring: minimum)")
    axes.set_ylabel("distance, % of the start")
    axes.legend(ncols=2)
    axes.set_title(title)
    return figure


@styled
def refinement_depth(imagined: dict[str, Any], title: str) -> Any:
    """Terminal and arrival distance after k refinements; what lies beyond the trained depth is shaded."""
    figure, axes = new_axes(COLUMN_IN, 2.2)
    rows, trained = imagined["depth"], imagined["trained_depth"]
    k = [row["k"] for row in rows]
    axes.plot(k, [row["terminal"] for row in rows], "o-", ms=3, color=BLUE, label="terminal")
    axes.plot(k, [row["arrival"] for row in rows], "s--", ms=3, color=VERMILION, label="arrival")
    if k[-1] > trained:
        axes.axvspan(trained + 0.5, k[-1] + 0.5, color="#00000014", lw=0)
        axes.text(k[-1] + 0.4, axes.get_ylim()[1], "not trained ", ha="right", va="top", fontsize=7)
    axes.set_yscale("log")
    axes.set_xlabel("refinements k")
    axes.set_ylabel("mean distance")
    axes.legend()
    axes.set_title(title)
    return figure


@styled
def closed_loop(executed: dict[str, Any], title: str) -> Any:
    """Distance at a replan against the next one's, the fitted line, and where it meets the diagonal."""
    figure, axes = new_axes(COLUMN_IN, 2.6)
    fit = executed["fit"]
    before = [value for row in executed["distances"] for value in row[:-1]]
    after = [value for row in executed["distances"] for value in row[1:]]
    most = 1.05 * max(*before, *after)
    axes.plot(before, after, ".", ms=3, color=SKY)
    axes.plot([0, most], [0, most], color=GRAY, lw=0.8, ls=":")
    axes.plot(
        [0, most], [fit["b"], fit["c"] * most + fit["b"]], color=BLUE, label=f"D' = {fit['c']:.2f} D + {fit['b']:.3f}"
    )
    if fit["fixed_point"] is not None:
        axes.plot(
            [fit["fixed_point"]],
            [fit["fixed_point"]],
            "D",
            ms=5,
            color=VERMILION,
            label=f"D* = {fit['fixed_point']:.3f}",
        )
    axes.set_xlim(0, most)
    axes.set_ylim(0, most)
    axes.set_xlabel("distance D at a replan")
    axes.set_ylabel("D' at the next")
    axes.legend()
    axes.set_title(title)
    return figure


@styled
def drift(executed: dict[str, Any], title: str) -> Any:
    """Distance of imagined and real latents, block by block, as a share of the error of copying the first latent: our
    plans, and the data's actions from the same starts."""
    figure, axes = new_axes(COLUMN_IN, 2.0)
    for label, name, style, color in (
        ("our plans", "drift", "o-", BLUE),
        ("the data's actions", "data_drift", "s--", GRAY),
    ):
        shares = [100 * d / still for d, still in zip(executed[name], executed[f"{name}_of_copying"], strict=True)]
        axes.plot(range(1, len(shares) + 1), shares, style, ms=3, color=color, label=label)
    axes.set_xticks(range(1, len(executed["drift"]) + 1))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("block")
    axes.set_ylabel("error, % of copying")
    axes.legend()
    axes.set_title(title)
    return figure


@styled
def reach(evaluations: list[Evaluation], title: str) -> Any:
    """Any-time success against how far ahead the goal lies, with Wilson intervals; one line for each method and m that
    was measured at several offsets."""
    figure, axes = new_axes(COLUMN_IN, 2.4)
    lines: dict[str, list[tuple[int, dict[str, float], MethodRow]]] = {}
    for evaluation in sorted(evaluations, key=lambda one: one.offset):
        for row in evaluation.methods:
            if HEADLINE in row.rates:
                lines.setdefault(row.label, []).append((evaluation.offset, row.rates[HEADLINE], row))
    for label, points in lines.items():
        if len({offset for offset, _, _ in points}) == 1:
            continue  # measured at one offset: no line
        row = points[0][2]
        value = [100 * rate["value"] for _, rate, _ in points]
        bars = [
            [100 * (rate["value"] - rate["low"]) for _, rate, _ in points],
            [100 * (rate["high"] - rate["value"]) for _, rate, _ in points],
        ]
        style = "o-" if row.replan <= 1 else "s--"
        at = [offset for offset, _, _ in points]
        axes.errorbar(at, value, yerr=bars, fmt=style, ms=3, color=row.color, lw=1, label=label)
    axes.set_xticks(sorted({evaluation.offset for evaluation in evaluations}))
    axes.set_ylim(-3, 103)
    axes.set_xlabel("goal, actions ahead")
    axes.set_ylabel("success, %")
    figure.legend(loc="outside lower center", ncols=2)
    axes.set_title(title)
    return figure


@styled
def hold_ablation(table: dict[str, Any], title: str) -> Any:
    """Left: any-time success of every variant at every replanning interval m that was measured, the smallest filled.
    Right: where its closed loop settles."""
    from matplotlib.figure import Figure

    variants = table["variants"]
    intervals = sorted({m for row in variants for m in row["success"]}, key=int)
    apart = 0.6 / max(2, len(intervals))
    figure = Figure(figsize=(2 * COLUMN_IN, 1.0 + 0.22 * len(variants)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for number, m in enumerate(intervals):
        marker, offset = MARKERS[number % len(MARKERS)], apart * (number - (len(intervals) - 1) / 2)
        for place, row in enumerate(variants):
            if m in row["success"]:
                color = variant_color(row)
                draw_interval(left, row["success"][m], place + offset, color, "white" if number else color, marker)
        left.plot([], [], marker, ms=4, color=BLACK, mfc="white" if number else BLACK, label=f"m = {m}")
    for place, row in enumerate(variants):
        color = variant_color(row)
        fit = row["fit"]
        if fit["fixed_point"] is not None and fit["low"] is not None:
            right.plot([fit["low"], fit["high"]], [place, place], color=color, lw=1)
            right.plot([fit["fixed_point"]], [place], "D", ms=4, color=color)
    left.set_yticks(range(len(variants)), [row["name"] for row in variants])
    left.set_ylim(len(variants) - 0.5, -0.5)  # the first on top
    left.set_xlim(-3, 103)
    left.set_xlabel("any-time success, %")
    right.set_xlabel("D*, where the closed loop settles")
    figure.legend(loc="outside lower center", ncols=max(1, len(intervals)))
    figure.suptitle(title)
    return figure


@styled
def family_comparison(report: dict[str, Any], title: str) -> Any:
    """Families of world models, each with its own planner and with ours. Success at every replanning interval with its
    95 % Wilson interval, filled at any time and hollow where it was held; and the time of a decision."""
    from matplotlib.figure import Figure

    families, timed = report["families"], report["latency"]["rows"]
    replans = sorted({row["replan"] for family in families for row in family["methods"]})
    drawn = list(dict.fromkeys(row["method"] for family in families for row in family["methods"]))
    color = {name: METHODS.get(name).color if name in METHODS else GRAY for name in drawn}
    figure = Figure(figsize=(2 * COLUMN_IN, 1.15 + 0.42 * len(families)), layout="constrained")
    *panels, last = figure.subplots(1, len(replans) + 1, sharey=True)
    for place, family in enumerate(families):
        ours = [name for name in (report["leplanner"], family["own_planner"]) if name in drawn]
        above = {name: place + 0.36 * (number - (len(ours) - 1) / 2) for number, name in enumerate(ours)}
        for panel, m in zip(panels, replans, strict=True):
            for row in family["methods"]:
                for metric, offset in ((HEADLINE, -0.07), (HELD, 0.07)):
                    if row["replan"] == m and metric in row["rates"]:
                        fill = color[row["method"]] if metric == HEADLINE else "white"
                        at = above[row["method"]] + offset
                        draw_interval(panel, row["rates"][metric], at, color[row["method"]], fill)
        for row in timed:
            if row["family"] == family["name"]:
                time = row["encode_ms"] + row["plan_ms"]
                last.plot([time], [above[row["method"]]], "D", ms=4, color=color[row["method"]])
    for panel, m in zip(panels, replans, strict=True):
        panel.set_xlim(-3, 103)
        panel.set_xlabel(f"success, %, m = {m}" if m else "success, %, every action")
    panels[0].set_yticks(range(len(families)), [family["name"] for family in families])
    panels[0].set_ylim(len(families) - 0.5, -0.5)  # the first on top
    times = [row["encode_ms"] + row["plan_ms"] for row in timed]
    last.set_xscale("log")
    last.set_xlim(10 ** math.floor(math.log10(min(times))), 10 ** math.ceil(math.log10(max(times))))  # whole decades
    last.xaxis.set_major_formatter("{x:g}")
    last.xaxis.set_minor_formatter("")
    last.set_xlabel("ms a decision")
    for axes in (*panels, last):
        for place in range(1, len(families)):
            axes.axhline(place - 0.5, color=GRAY, lw=0.3)
    for shade in dict.fromkeys(color.values()):  # searches share one
        names = ", ".join(planner_title(name) for name in drawn if color[name] == shade)
        last.plot([], [], "s", ms=5, color=shade, label=names)
    for metric in (HEADLINE, HELD):
        fill = BLACK if metric == HEADLINE else "white"
        panels[0].plot([], [], "o", ms=4, color=BLACK, mfc=fill, label=metric_title(metric))
    figure.legend(loc="outside lower center", ncols=len(drawn) + 2)
    figure.suptitle(title)
    return figure


def variant_color(row: dict[str, Any]) -> str:
    return VERMILION if row["name"].startswith("fixed-terminal") else BLUE


def draw_interval(axes: Any, rate: dict[str, Any], place: float, color: str, fill: str, marker: str = "o") -> None:
    """A rate in percent with its interval, as a dot with a horizontal bar."""
    value, low, high = (100 * rate[part] for part in ("value", "low", "high"))
    bars = [[value - low], [high - value]]
    axes.errorbar([value], [place], xerr=bars, fmt=marker, ms=4, color=color, mfc=fill, elinewidth=1, capsize=0)


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """As SVG and PNG."""
    paths = []
    for extension in ("svg", "png"):
        with atomic_path(folder / f"{name}.{extension}") as temporary:
            temporary.write_bytes(rendered(figure, extension))
        paths.append(folder / f"{name}.{extension}")
    return paths


def rendered(figure: Any, extension: str) -> bytes:
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=extension, dpi=200, metadata={"Date": None} if extension == "svg" else None)
    return buffer.getvalue()


def new_grid(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    """Axes (rows, columns) for frames: no ticks, a thin border."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for place in axes.flat:
        place.set(xticks=[], yticks=[])
        place.spines[:].set_linewidth(0.3)
    return figure, axes


def new_axes(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()
