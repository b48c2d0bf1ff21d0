"""The few marks that the pictures are made of, as SVG text: legible on white and on black."""

from collections.abc import Sequence

from directloss.lab.figures import COLORS

POSITIVE, NEGATIVE, CHOSEN, DIRECTION = COLORS[:4]
INK = "#7d7d7d"
WIDTH, HEIGHT = 112.0, 92.0  # of a panel's drawing


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def shade(value: float) -> tuple[str, float]:
    """The colour and opacity of a value from -1 to 1."""
    return (POSITIVE if value >= 0 else NEGATIVE), min(1.0, abs(value))


class Panel:
    """A title and a drawing of WIDTH x HEIGHT below it, whose origin is the upper left corner."""

    def __init__(self, title: str):
        self.title = title
        self.marks: list[str] = []

    def mark(self, tag: str, content: str = "", **attributes: str | float) -> None:
        given = "".join(
            f' {name.rstrip("_").replace("_", "-")}="{value if isinstance(value, str) else number(value)}"'
            for name, value in attributes.items()
        )
        self.marks.append(f"<{tag}{given}>{content}</{tag}>" if content else f"<{tag}{given}/>")

    def box(self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> None:
        if width > 0 and height > 0.05 and opacity >= 0.01:
            self.mark("rect", x=x, y=y, width=width, height=height, fill=fill, fill_opacity=f"{opacity:.2f}")

    def frame(self, x: float, y: float, width: float, height: float, color: str = INK, thick: float = 1) -> None:
        self.mark("rect", x=x, y=y, width=width, height=height, fill="none", stroke=color, stroke_width=thick)

    def line(
        self, points: Sequence[tuple[float, float]], color: str, thick: float, opacity: float = 1.0, dashes: str = ""
    ) -> None:
        if opacity < 0.01:
            return
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.curve(path, color, thick, opacity, **({"stroke_dasharray": dashes} if dashes else {}))

    def curve(self, path: str, color: str, thick: float, opacity: float = 1.0, **more: str) -> None:
        own = {"stroke_opacity": f"{opacity:.2f}"} if opacity < 1 else {}
        self.mark("path", d=path, fill="none", stroke=color, stroke_width=thick, **own, **more)

    def arrow(self, start: tuple[float, float], end: tuple[float, float], color: str, opacity: float = 1.0) -> None:
        """A line with a tip that ends at ``end``."""
        (a, b), (x, y) = start, end
        length = ((x - a) ** 2 + (y - b) ** 2) ** 0.5
        if length < 1 or opacity < 0.01:
            return
        along, tip = ((x - a) / length, (y - b) / length), min(7.0, length)
        foot = (x - tip * along[0], y - tip * along[1])
        self.line([start, foot], color, 2, opacity)
        sides = [(foot[0] - s * 3.5 * along[1], foot[1] + s * 3.5 * along[0]) for s in (1, -1)]
        corners = " ".join(f"{number(p)},{number(q)}" for p, q in (end, *sides))
        self.mark("polygon", points=corners, fill=color, fill_opacity=f"{opacity:.2f}")

    def dot(self, x: float, y: float, radius: float, fill: str, stroke: str = "none") -> None:
        self.mark("circle", cx=x, cy=y, r=radius, fill=fill, stroke=stroke)

    def text(self, x: float, y: float, content: str, color: str = INK, size: float = 10, weight: str = "") -> None:
        more = {"font_weight": weight} if weight else {}
        self.mark("text", content, x=x, y=y, fill=color, font_size=size, **more)


def picture(title: str, panels: Sequence[Panel], columns: int = 3) -> str:
    """The panels in rows, as one SVG file."""
    across, down, margin = WIDTH + 18, HEIGHT + 30, 6
    rows = -(-len(panels) // columns)
    width, height = columns * across + 2 * margin - 18, rows * down
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" role="img" '
        'font-family="system-ui, sans-serif" text-anchor="middle" stroke-linecap="round">',
        f"<title>{title}</title>",
    ]
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        lines.append(f'<g transform="translate({number(margin + column * across)} {number(row * down + 22)})">')
        lines.append(f'<text x="{number(WIDTH / 2)}" y="-9" font-size="12" fill="{INK}">{panel.title}</text>')
        lines += panel.marks
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])
