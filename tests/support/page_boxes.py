"""Where things are on the report page: scripts that measure in the browser, and what follows from the boxes."""

from collections.abc import Sequence

import numpy as np

#: For each visible card its place, the widest vertical stretch without content, and the widths of card and content.
CARDS = """() => [...document.querySelectorAll(".card")].filter((card) => card.offsetParent).map((card) => {
  const { left, right, top, bottom } = card.getBoundingClientRect();
  const boxes = [...card.querySelectorAll("*")].filter((element) => {
    const graphic = ["rect", "path", "line", "text", "IMG", "INPUT", "I"].includes(element.tagName);
    const words = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    return (graphic || words) && !element.closest(".hidden, defs, [class*=background]");
  }).map((element) => element.getBoundingClientRect()).filter(({ width, height }) => width + height > 2);
  const inside = boxes.filter((box) => box.top < bottom && box.bottom > top).sort((a, b) => a.top - b.top);
  let reached = top, hole = 0;
  for (const box of inside) {
    hole = Math.max(hole, box.top - reached);
    reached = Math.max(reached, Math.min(bottom, box.bottom));
  }
  const outside = boxes.filter((box) => box.right > right + 1 || box.left < left - 1).length;
  const width = Math.max(...inside.map((box) => box.right)) - Math.min(...inside.map((box) => box.left));
  return { id: card.id, box: [left, right, top, bottom], hole: Math.max(hole, bottom - reached), outside, width };
})"""
#: Elements whose text is wider than they are, and hidden in part.
CUT = """() => [...document.querySelectorAll("body *")].filter((element) => element.clientWidth > 0
  && element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible"
  && !element.closest(".hidden, svg"))
  .map((element) => element.id || element.className)"""


#: The text of each line that is seen, with its box on the page; slanted texts are left out.
LINES = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const lines = [], range = document.createRange();
  const scroller = document.getElementById("rows").getBoundingClientRect();
  const within = (top, bottom) => top > scroller.top + 40 && bottom < scroller.bottom;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, label = element.closest("text");
    if (!node.textContent.trim() || element.closest("script, style, option, .hidden, #vg-tooltip-element")) continue;
    if (!element.checkVisibility() || label?.getAttribute("transform")?.match(/rotate\\((?!0)/)) continue;
    range.selectNodeContents(node);
    for (const { left, right, top, bottom } of range.getClientRects()) {
      if (right - left < 1 || (element.closest("#rows tbody") && !within(top, bottom))) continue;
      lines.push([node.textContent.trim(), left, right, top + scrollY, bottom + scrollY]);
    }
  }
  return lines;
}"""
#: The boxes of everything that is seen and no text: marks of charts, images, bars, controls.
GRAPHICS = """() =>
  [...document.querySelectorAll("svg :is(.role-mark path, .role-mark line, text), img, .track, form *, button")]
  .filter((element) => element.checkVisibility()).map((element) => element.getBoundingClientRect())
  .map(({ left, right, top, bottom }) => [left, right, top + scrollY, bottom + scrollY])"""
#: The texts of tables that reach beyond the right edge of their cells.
WIDE_CELLS = """() => [...document.querySelectorAll("#table *, .waterfall *")].flatMap((element) => {
  const cell = element.closest("td, th"), range = document.createRange();
  if (!cell || !element.checkVisibility() || element.closest(".hidden")) return [];
  return [...element.childNodes].filter((node) => node.nodeType === 3).filter((node) => {
    range.selectNodeContents(node);
    return range.getBoundingClientRect().right > cell.getBoundingClientRect().right + 5;
  }).map((node) => node.textContent);
})"""
#: Step in pixels of the grid on which empty areas are found.
STEP = 10


def overlapping(lines: Sequence[Sequence]) -> list[tuple[str, str]]:
    """Return the texts that cover each other by more than two pixels in both directions."""
    boxes = np.array([box for _, *box in lines])
    width = np.minimum.outer(boxes[:, 1], boxes[:, 1]) - np.maximum.outer(boxes[:, 0], boxes[:, 0])
    height = np.minimum.outer(boxes[:, 3], boxes[:, 3]) - np.maximum.outer(boxes[:, 2], boxes[:, 2])
    pairs = np.argwhere(np.triu((width > 2) & (height > 2), 1))
    return [(lines[i][0], lines[j][0]) for i, j in pairs]


def largest_empty_area(boxes: Sequence[Sequence[float]], width: int, height: int) -> int:
    """Return the area of the largest rectangle of the page without any box, in square pixels."""
    empty = np.ones((height // STEP, width // STEP), dtype=bool)
    for left, right, top, bottom in boxes:
        empty[
            max(0, int(top // STEP)) : int(bottom // STEP) + 1, max(0, int(left // STEP)) : int(right // STEP) + 1
        ] = False
    above, largest = np.zeros(empty.shape[1], dtype=int), 0
    for row in empty:
        above = np.where(row, above + 1, 0)
        # The largest rectangle that ends in this row: for each height the longest run of columns that reach it.
        for tall in np.unique(above[above > 0]):
            edges = np.flatnonzero(np.diff(np.concatenate([[0], above >= tall, [0]])))
            largest = max(largest, int(tall * (edges[1::2] - edges[::2]).max()))
    return largest * STEP**2
