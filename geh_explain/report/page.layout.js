// The layout: which cards are below each other, and at which heights they end together. The style sheet has the columns.
const GAP = 24, PADDING = 20;
const MIN_CELL_HEIGHT = 10, MAX_CELL_HEIGHT = 90, MIN_CELL_WIDTH = 9, MIN_SLANTED = 17;
const OTHER_HEIGHT = 27;
const SPARE = 40;  // an empty stretch of so many pixels is none

const box = (id) => byId(id).getBoundingClientRect();
const has = (name) => byId("board").classList.contains(name);
const columns = () => getComputedStyle(byId("board")).gridTemplateColumns.split(" ").length;
const plotHeight = (width) => Math.round(Math.min(500, Math.max(280, 0.75 * width)));

// Heights of cards: what the table and the chosen pair need, and what a chart has around it.
const listHeight = () => box("rows").top - box("list").top + byId("table").offsetHeight + PADDING;
const chosenHeight = () => box("parts").bottom - box("chosen").top + PADDING;
const around = (name) => box(name).top - box(`${name}-card`).top + PADDING + 1;

// Names of the units of the charts, as long as they fit into a space; the widest of them.
function fitNames(units, space, size) {
  const lists = data.chart_names.map((names) => new Map(data.heatmap.map((unit, n) => [unit, names[n]])));
  const widest = (names) => Math.max(...units.map((unit) => textWidth(names.get(unit), `${size}px`)));
  const names = lists.find((each) => widest(each) <= space) ?? lists.at(-1);
  return { names, widest: Math.ceil(widest(names)) };
}

// Names and width of a cell of the heatmap; names of columns are flat, slanted, upright or, of narrow ones, left out.
function heatmapShape() {
  const units = data.heatmap.length, width = widthOf("heatmap");
  const { names, widest } = fitNames(data.heatmap, 0.27 * width, units > 30 ? 9 : 12);
  const cell = (width - widest - 8) / units, angle = widest < cell - 6 ? 0 : cell >= MIN_SLANTED ? -45 : -90;
  const below = cell < MIN_CELL_WIDTH ? 0 : { 0: 20, "-45": 0.75 * widest + 10, "-90": widest + 8 }[angle];
  return { names, widest, width, cell, angle, below };
}

// Heights of both charts at which names have lines of their own.
const leastHeatmap = () => Math.max(150, 1.05 * MIN_CELL_HEIGHT * data.heatmap.length);
const leastNetwork = () => Math.max(240, 15 * Math.ceil(data.nodes.unit.length / 2) + 30);
const networkCard = () => around("network") + leastNetwork();

function cellHeight(shape) {
  const units = data.heatmap.length, rest = around("heatmap") + shape.below, plot = plotHeight(shape.width);
  const wide = columns() === 3, few = has("few") && columns() === 2;
  const wanted = few ? Math.max(plot, chosenHeight() + networkCard() - listHeight() - rest)
    : !wide ? plot
    : has("short") ? chosenHeight() + GAP + networkCard() + 60 - rest
    : Math.max(leastHeatmap(), Math.min((chosenHeight() - GAP) / 2, chosenHeight() - GAP - networkCard()) - rest);
  const most = wide || few ? Math.max(2 * shape.cell, 1.8 * MIN_CELL_HEIGHT) : Math.min(shape.cell, units < 5 ? 1.5 * MAX_CELL_HEIGHT : MAX_CELL_HEIGHT);
  return Math.max(MIN_CELL_HEIGHT, Math.min(most, wanted / units));
}

// So high that both columns end at the same place, where the heatmap is in the other one.
function networkHeight() {
  const plot = plotHeight(widthOf("network")), count = columns();
  if (byId("heatmap-card").hidden) {
    const beside = box("network-card").left > box("list").right;
    return beside ? Math.round(Math.min(plot, Math.max(leastNetwork(), box("table").bottom - box("network").top - 12))) : plot;
  }
  if (count === 1) return plot;
  const heatmap = around("heatmap") + box("heatmap").height;
  const card = has("few") ? listHeight() + heatmap - chosenHeight()
    : count === 3 ? (has("short") ? heatmap - chosenHeight() : chosenHeight() - heatmap) - GAP
    : has("short") ? box("list").bottom + GAP + heatmap - box("chosen").top - chosenHeight() - GAP
    : heatmap;
  return Math.round(Math.min(760, Math.max(leastNetwork(), card - around("network"))));
}

// Charts of one pair say nothing, nor does a heatmap of which most is unknown.
function hideCharts() {
  const units = data.heatmap.length, count = pairs().length;
  const single = count === 1, sparse = data.partial && count < MIN_KNOWN * units * (units - 1) / 2;
  byId("heatmap-card").hidden = single || sparse;
  byId("network-card").hidden = single;
  byId("board").classList.toggle("single", single);
  byId("board").classList.toggle("no-heatmap", sparse && !single);
}

// Where the table is short, the heatmap follows it; where the chosen pair needs less space than the table, the network
// follows the pair.
function arrange() {
  const board = byId("board").classList;
  board.remove("two", "few", "short");
  if (columns() === 1 || ["single", "no-heatmap", "all-columns"].some(has)) return;
  if (columns() === 3) {
    const list = listHeight(), chosen = chosenHeight();
    const least = around("heatmap") + heatmapShape().below + leastHeatmap() + GAP + networkCard(), short = chosen < least - SPARE;
    board.toggle("short", short);
    // Two columns hold a short table better.
    board.toggle("two", list < (short ? chosen + GAP + networkCard() : Math.max(chosen, least)) - SPARE);
    if (!has("two")) return;
  }
  const list = listHeight(), chosen = chosenHeight();
  board.toggle("few", list < chosen - SPARE || (pairs().length <= FEW_PAIRS && list < chosen + SPARE));
  board.toggle("short", !has("few") && box("list").height > chosen + SPARE);
}

// What the cards beside it leave of the height goes to the surface in three columns, and to further pairs.
async function fillChosen() {
  if (columns() === 1) return;
  const unused = () => Math.floor(box("chosen").height - chosenHeight()), row = pairs()[state.chosen];
  const surface = data.surfaces.find(({ pair }) => pair === state.chosen);
  if (columns() === 3 && surface && unused() > SPARE) await drawSurface(surface, Math.min(unused(), 240));
  if (unused() > OTHER_HEIGHT) fillOthers(row, MIN_OTHERS + Math.floor(unused() / OTHER_HEIGHT));
}
