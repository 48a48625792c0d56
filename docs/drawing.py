"""A small drawing in SVG, in the colors of light or of dark pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

OUT = Path(__file__).parent / "images"
LIGHT = {
    "ink": "#1b2430", "soft": "#5c6773", "line": "#8b96a3", "faint": "#d9dee5", "panel": "#f3f5f8",
    "ours": "#0072B2", "ours_fill": "#dcecf7", "goal": "#B87400", "goal_fill": "#fdf0d5",
    "bad": "#C04A00", "bad_fill": "#fbe3d6",
}  # fmt: skip
DARK = {
    "ink": "#e8ecf1", "soft": "#a7b0bc", "line": "#77818f", "faint": "#3a434f", "panel": "#2a313b",
    "ours": "#6cbcf0", "ours_fill": "#1d3a52", "goal": "#f0b64a", "goal_fill": "#46391c",
    "bad": "#ff9366", "bad_fill": "#4a2b1e",
}  # fmt: skip

Point = tuple[float, float]


class Drawing:
    """Shapes in the order in which they are drawn; colors are names of a theme."""

    def __init__(self, width: int, height: int, theme: dict[str, str], title: str):
        self.theme, self.size, self.title, self.parts = theme, (width, height), title, []

    def box(self, x: float, y: float, w: float, h: float, fill: str, stroke: str, dash: str = "", r: float = 8):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{r:g}" fill="{self.theme[fill]}" '
            f'stroke="{self.theme[stroke]}" stroke-width="1.6"{dashed}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        color: str = "ink",
        size: float = 15,
        anchor: str = "middle",
        bold: bool = False,
    ):
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{self.theme[color]}"{weight}>{words}</text>'
        )

    def path(
        self, d: str, color: str = "line", width: float = 1.8, arrow: bool = False, dash: str = "", fill: str = ""
    ):
        extra = (' marker-end="url(#a-' + color + ')"') if arrow else ""
        extra += f' stroke-dasharray="{dash}"' if dash else ""
        filled = self.theme[fill] if fill else "none"
        self.parts.append(
            f'<path d="{d}" fill="{filled}" stroke="{self.theme[color]}" stroke-width="{width:g}" '
            f'stroke-linejoin="round" stroke-linecap="round"{extra}/>'
        )

    def dot(self, x: float, y: float, color: str, r: float = 4.5):
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{r:g}" fill="{self.theme[color]}"/>')

    def ring(self, x: float, y: float, color: str, r: float = 5):
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:g}" r="{r:g}" fill="none" stroke="{self.theme[color]}" stroke-width="1.8"/>'
        )

    def labeled_box(
        self, x: float, y: float, w: float, h: float, lines: Sequence[str], fill: str, stroke: str, dash: str = ""
    ):
        """The first line large, the others small below it."""
        self.box(x, y, w, h, fill, stroke, dash)
        top = y + h / 2 - 9 * (len(lines) - 1) + 5
        self.text(x + w / 2, top, lines[0], bold=True)
        for i, line in enumerate(lines[1:], 1):
            self.text(x + w / 2, top + 2 + 17 * i, line, "soft", 12.5)

    def curve(self, points: Sequence[Point], color: str, width: float = 2.4, dots: bool = True, dash: str = ""):
        self.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), color, width, dash=dash)
        for x, y in points if dots else ():
            self.dot(round(x, 1), round(y, 1), color)

    def svg(self) -> str:
        width, height = self.size
        arrows = "".join(
            f'<marker id="a-{name}" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="6.5" markerHeight="6.5" '
            f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{self.theme[name]}"/></marker>'
            for name in ("line", "ours", "goal", "bad")
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif">'
            f"<title>{self.title}</title><defs>{arrows}</defs>\n" + "\n".join(self.parts) + "\n</svg>\n"
        )


Figure = Callable[[dict[str, str]], Drawing]


def axes(
    d: Drawing, left: float, top: float, w: float, h: float, ticks: Sequence[tuple[float, str]], label: str, title: str
):
    d.text(left, top - 22, title, "ink", 15, "start", bold=True)
    d.path(f"M{left} {top}V{top + h}H{left + w}", "line", 1.4)
    for x, words in ticks:
        d.text(x, top + h + 20, words, "soft", 12.5)
    d.text(left + w / 2, top + h + 41, label, "soft", 13)


def write_figures(figures: Sequence[Figure], out: Path) -> list[Path]:
    created = []
    for figure in figures:
        for mode, theme in (("light", LIGHT), ("dark", DARK)):
            created.append(out / f"{figure.__name__}-{mode}.svg")
            created[-1].write_text(figure(theme).svg())
    return created
