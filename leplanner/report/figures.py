"""Figures for a column's width, each a function from a table on disk to a figure. Colours that colour-blind eyes tell apart."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..artifacts import atomic_path
from .tables import Evaluation, MethodRow

# Okabe and Ito's
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
FAMILIES = {
    "leplanner": BLUE,
    "leplanner-keep": SKY,
    "cem": ORANGE,
    "icem": ORANGE,
    "mppi": ORANGE,
    "gradient": ORANGE,
}
FAMILIES |= {"gcidm": PURPLE, "gcbc": PURPLE, "gcivl": PURPLE, "gciql": PURPLE}
REST = "#888888"  # floors and ceilings
COLUMN_IN = 3.4
STYLE = {
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
    figure, axes = _new(COLUMN_IN, 0.9 + 0.22 * len(evaluation.methods))
    for place, row in enumerate(evaluation.methods):
        colour = FAMILIES.get(row.method, REST)
        for rate, offset, fill in ((row.rates["any_time"], -0.13, colour), (row.rates["held"], 0.13, "white")):
            value, low, high = (100 * rate[part] for part in ("value", "low", "high"))
            bars = [[value - low], [high - value]]
            axes.errorbar(
                [value], [place + offset], xerr=bars, fmt="o", ms=4, color=colour, mfc=fill, elinewidth=1, capsize=0
            )
    axes.set_yticks(range(len(evaluation.methods)), [_label(row) for row in evaluation.methods])
    axes.invert_yaxis()
    axes.set_xlim(-3, 103)
    axes.set_xlabel("success, %")
    for label, fill in (("any time", BLACK), ("held 5 steps", "white")):
        axes.plot([], [], "o", ms=4, color=BLACK, mfc=fill, label=label)
    figure.legend(loc="outside lower center", ncols=2)
    axes.set_title(title)
    return figure


@styled
def cost(evaluation: Evaluation, title: str) -> Any:
    """Imagined steps and milliseconds of one decision, on logarithmic axes; methods that imagine nothing have no place."""
    figure, axes = _new(COLUMN_IN, 2.2)
    shown: set[str] = set()
    for row in evaluation.methods:
        if row.costs["rows"] >= 1 and row.title not in shown:
            shown.add(row.title)
            axes.plot(row.costs["rows"], row.costs["plan_ms"], "o", color=FAMILIES.get(row.method, REST))
            below = row.method == "leplanner"  # close to leplanner-keep: names must not meet
            place = {"xytext": (5, -11 if below else 4), "textcoords": "offset points"}
            axes.annotate(row.title, (row.costs["rows"], row.costs["plan_ms"]), **place)
    for side, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        low, high = side.get_data_interval()
        side.axes.set(**{f"{side.axis_name}lim": (low / 3, max(5 * high, 50 * low))})  # decades, with room for names
    axes.set_xlabel("imagined steps a plan")
    axes.set_ylabel("ms a plan")
    axes.set_title(title)
    return figure


@styled
def arrival_profiles(imagined: dict[str, Any], title: str) -> Any:
    """Distance to the goal after each block, one line for each block q at which the data was there; q is marked."""
    import matplotlib

    figure, axes = _new(COLUMN_IN, 2.3)
    shades = matplotlib.colormaps["viridis"]
    rows = [(q, row) for q, row in enumerate(imagined["profile"], start=1) if row is not None]
    for q, row in rows:
        colour = shades(0.9 * (q - 1) / max(1, len(imagined["profile"]) - 1))
        shares = [100 * value / imagined["start"] for value in row]
        axes.plot(range(1, len(row) + 1), shares, color=colour, label=f"q = {q}")
        axes.plot([q], [shares[q - 1]], "o", color=colour, ms=5)
    axes.set_yscale("log")
    axes.set_xticks(range(1, len(imagined["profile"]) + 1))
    axes.set_xlabel("block of the plan (dot: when the data arrived)")
    axes.set_ylabel("distance, % of the start")
    axes.legend(ncols=2)
    axes.set_title(title)
    return figure


@styled
def refinement_depth(imagined: dict[str, Any], title: str) -> Any:
    """Terminal and arrival distance after k corrections; what lies beyond the trained depth is shaded."""
    figure, axes = _new(COLUMN_IN, 2.2)
    rows, trained = imagined["depth"], imagined["trained_depth"]
    k = [row["k"] for row in rows]
    axes.plot(k, [row["terminal"] for row in rows], "o-", ms=3, color=BLUE, label="terminal")
    axes.plot(k, [row["arrival"] for row in rows], "s--", ms=3, color=VERMILION, label="arrival")
    if k[-1] > trained:
        axes.axvspan(trained + 0.5, k[-1] + 0.5, color="#00000014", lw=0)
        axes.text(k[-1] + 0.4, axes.get_ylim()[1], "not trained ", ha="right", va="top", fontsize=7)
    axes.set_yscale("log")
    axes.set_xlabel("corrections k")
    axes.set_ylabel("mean distance")
    axes.legend()
    axes.set_title(title)
    return figure


@styled
def closed_loop(executed: dict[str, Any], title: str) -> Any:
    """Distance at a replan against the next one's, the fitted line, and where it meets the diagonal."""
    figure, axes = _new(COLUMN_IN, 2.6)
    fit = executed["fit"]
    before = [value for row in executed["distances"] for value in row[:-1]]
    after = [value for row in executed["distances"] for value in row[1:]]
    most = 1.05 * max(*before, *after)
    axes.plot(before, after, ".", ms=3, color=SKY)
    axes.plot([0, most], [0, most], color=REST, lw=0.8, ls=":")
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
    """Imagined against real latents, block by block, as a share of what standing still would err: our plans, and the data's
    actions from the same starts."""
    figure, axes = _new(COLUMN_IN, 2.0)
    for label, name, style, colour in (
        ("our plans", "drift", "o-", BLUE),
        ("the data's actions", "data_drift", "s--", REST),
    ):
        shares = [100 * d / still for d, still in zip(executed[name], executed[f"{name}_of_copying"], strict=True)]
        axes.plot(range(1, len(shares) + 1), shares, style, ms=3, color=colour, label=label)
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
    figure, axes = _new(COLUMN_IN, 2.4)
    lines: dict[str, list[tuple[int, dict[str, float], MethodRow]]] = {}
    for evaluation in sorted(evaluations, key=lambda one: one.offset):
        for row in evaluation.methods:
            lines.setdefault(_label(row), []).append((evaluation.offset, row.rates["any_time"], row))
    for label, points in lines.items():
        if len({at for at, _, _ in points}) == 1:
            continue  # measured at one offset: that is no reach
        row = points[0][2]
        value = [100 * rate["value"] for _, rate, _ in points]
        bars = [
            [100 * (rate["value"] - rate["low"]) for _, rate, _ in points],
            [100 * (rate["high"] - rate["value"]) for _, rate, _ in points],
        ]
        style = "o-" if row.replan <= 1 else "s--"
        colour = FAMILIES.get(row.method, REST)
        axes.errorbar([at for at, _, _ in points], value, yerr=bars, fmt=style, ms=3, color=colour, lw=1, label=label)
    axes.set_xticks(sorted({evaluation.offset for evaluation in evaluations}))
    axes.set_ylim(-3, 103)
    axes.set_xlabel("goal, actions ahead")
    axes.set_ylabel("success, %")
    figure.legend(loc="outside lower center", ncols=2)
    axes.set_title(title)
    return figure


@styled
def hold_ablation(table: dict[str, Any], title: str) -> Any:
    """Left: success at both replanning intervals of every variant. Right: where its closed loop settles."""
    from matplotlib.figure import Figure

    variants = table["variants"]
    figure = Figure(figsize=(2 * COLUMN_IN, 0.8 + 0.2 * len(variants)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, row in enumerate(variants):
        colour = VERMILION if row["name"].startswith("fixed-terminal") else BLUE
        for m, offset, fill in (("1", -0.15, colour), ("5", 0.15, "white")):
            rate = row["success"][m]
            value, low, high = (100 * rate[part] for part in ("value", "low", "high"))
            bars = [[value - low], [high - value]]
            left.errorbar([value], [place + offset], xerr=bars, fmt="o", ms=4, color=colour, mfc=fill, elinewidth=1)
        fit = row["fit"]
        if fit["fixed_point"] is not None and fit["low"] is not None:
            right.plot([fit["low"], fit["high"]], [place, place], color=colour, lw=1)
            right.plot([fit["fixed_point"]], [place], "D", ms=4, color=colour)
    left.set_yticks(range(len(variants)), [row["name"] for row in variants])
    left.invert_yaxis()
    left.set_xlim(-3, 103)
    left.set_xlabel("any-time success, % (hollow: m = 5)")
    right.set_xlabel("D*, where the closed loop settles")
    figure.suptitle(title)
    return figure


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


def _new(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _label(row: MethodRow) -> str:
    return f"{row.title}, {row.pace}"
