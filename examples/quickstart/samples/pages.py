"""Two pictures of text, and where in them each line was drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

from PIL import Image, ImageDraw, ImageFont

Box = tuple[float, float, float, float]
"""Left, top, right and bottom edge in pixels."""

PAPER = (250, 249, 244)
INK = (30, 30, 36)

ORDER = (
    ("Oat flat white", "3.60"),
    ("Rye sandwich", "6.20"),
    ("Lentil soup", "5.40"),
    ("Carrot cake", "4.10"),
    ("Still water", "1.90"),
)

TITLE = "On looms"
PARAGRAPHS = (
    (
        "A loom holds one set of threads tight, the",
        "warp, and carries another, the weft, across",
        "it. Treadles under the weaver's feet lift",
        "some of the warp and leave the rest, so that",
        "the shuttle can pass between.",
    ),
    (
        "Which treadle comes next decides the cloth.",
        "Plain weave needs two, twill needs four, and",
        "a patient weaver with eight can draw flowers.",
    ),
    (
        "The order is written down before the work",
        "starts and is followed to the last thread.",
    ),
)


@dataclass(slots=True)
class Page:
    """A picture under construction, which remembers where text was put."""

    width: int
    height: int
    lines: list[Box] = field(default_factory=list)
    """The tight box of every piece of text, in drawing order."""
    image: Image.Image = field(init=False)

    def __post_init__(self) -> None:
        self.image = Image.new("RGB", (self.width, self.height), PAPER)

    def write(self, x: float, y: float, text: str, size: float, anchor: str = "la") -> None:
        """Draw ``text`` at a point that ``anchor`` (Pillow's two letters) says how to read."""
        font = ImageFont.load_default(size=size)
        draw = ImageDraw.Draw(self.image)
        draw.text((x, y), text, fill=INK, font=font, anchor=anchor)
        self.lines.append(draw.textbbox((x, y), text, font=font, anchor=anchor))


def receipt() -> Page:
    """A café's receipt: short pieces of text, left and right."""
    sheet = Page(420, 560)
    sheet.write(210, 30, "CAFE TWILL", 34, anchor="ma")
    sheet.write(210, 78, "12 Weaver Lane", 20, anchor="ma")
    for row, (item, price) in enumerate(ORDER):
        sheet.write(40, 150 + 46 * row, item, 22)
        sheet.write(380, 150 + 46 * row, price, 22, anchor="ra")
    total = sum(round(100 * float(price)) for _, price in ORDER)
    sheet.write(40, 410, "TOTAL", 28)
    sheet.write(380, 410, f"{total / 100:.2f}", 28, anchor="ra")
    sheet.write(210, 490, "Thank you, come again", 20, anchor="ma")
    return sheet


def page() -> Page:
    """A title and three paragraphs: long lines, close together."""
    sheet = Page(760, 820)
    sheet.write(70, 60, TITLE, 44)
    y = 160
    for paragraph in PARAGRAPHS:
        for line in paragraph:
            sheet.write(70, y, line, 27)
            y += 46
        y += 32
    return sheet
