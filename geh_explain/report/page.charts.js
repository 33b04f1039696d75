// The charts: heatmap, network, and the surface of the chosen pair. Colours are variables of the style sheet, so that
// they follow the theme and the printer without being drawn again.
const MAX_EDGES = 80, MIN_KNOWN = 0.2, MAX_CELL_HEIGHT = 90, MIN_CELL_HEIGHT = 9, NAME_WIDTH = 6.4;
const views = {};

function config() {
  const text = { labelColor: "var(--front)", titleColor: "var(--soft)", titleFontWeight: "normal", labelFontSize: 12, titleFontSize: 12 };
  return {
    background: null, font: getComputedStyle(document.body).fontFamily, view: { stroke: null }, padding: 0,
    axis: { ...text, grid: false, domainColor: "var(--line)", tickColor: "var(--line)" },
    legend: text, text: { color: "var(--front)", fontSize: 12 }, rule: { color: "var(--soft)" },
  };
}

async function draw(name, spec, datasets) {
  views[name]?.finalize();
  const options = { renderer: "svg", actions: false, config: config() };
  const { view } = await vegaEmbed(byId(name), { ...spec, datasets }, options);
  view.addEventListener("click", (_, item) => {
    if (item && item.datum && item.datum.pair !== undefined) choose(item.datum.pair);
  });
  views[name] = view;
  await view.signal("chosen", state.chosen).signal("largest", largest()).runAsync();
}

const widthOf = (name) => Math.max(200, Math.floor(byId(name).getBoundingClientRect().width));
const plotHeight = (width) => Math.round(Math.min(500, Math.max(280, 0.75 * width)));

// From pale to strong, as a colour that the browser mixes.
function shade(share) {
  const [from, to, part] = share < 0.5 ? ["--weak", "--middle", 2 * share] : ["--middle", "--strong", 2 * share - 1];
  return `color-mix(in srgb, var(${to}) ${(100 * part).toFixed(1)}%, var(${from}))`;
}

function cells() {
  const byUnits = new Map(), end = largest() || 1;
  for (const row of pairs()) byUnits.set(`${data.pairs.first[row.pair]},${data.pairs.second[row.pair]}`, row);
  const result = [];
  for (const i of data.heatmap) for (const j of data.heatmap) {
    if (i === j) continue;
    const row = byUnits.get(i < j ? `${i},${j}` : `${j},${i}`), place = { row: data.names[i], column: data.names[j] };
    if (row === undefined) {
      result.push({ ...place, unknown: true, value: null, fill: "var(--unknown)", shown: true });
      continue;
    }
    // The supported score is below the diagonal, GEH above it.
    const value = state.measure === "supported" && i < j ? row.mean : row.strength, share = Math.min(1, value / end);
    result.push({ ...row, ...place, value, fill: shade(share), dot: share < 0.5 ? "var(--front)" : "var(--back)", shown: isShown(row) });
  }
  return result;
}

async function drawHeatmap() {
  const spec = structuredClone(data.charts.heatmap), width = widthOf("heatmap"), units = data.heatmap.length;
  const names = data.heatmap.map((unit) => data.short_names[unit]), longest = Math.max(...names.map((name) => name.length));
  const limit = Math.min(0.3 * width, NAME_WIDTH * longest + 10), cell = (width - limit) / units;
  const height = Math.min(cell, units < 5 ? 1.5 * MAX_CELL_HEIGHT : MAX_CELL_HEIGHT, Math.max(MIN_CELL_HEIGHT, plotHeight(width) / units)), { x, y } = spec.encoding;
  spec.width = width;
  spec.height = Math.round(height * units);
  spec.autosize = { type: "fit-x", contains: "padding" };
  x.axis = { ...x.axis, labelLimit: limit, labelAngle: NAME_WIDTH * longest < cell ? 0 : -90, labelFontSize: Math.min(12, Math.max(6, cell - 1)) };
  y.axis = { ...y.axis, labelLimit: limit, labelFontSize: Math.min(12, Math.max(6, height - 1)) };
  spec.layer[1].mark.size = Math.min(36, (0.3 * height) ** 2);
  await draw("heatmap", spec, { cells: cells() });
}

// Places of the units in pixels, on an ellipse that leaves space for their names.
function nodes(width, height) {
  const { unit, x, y, size } = data.nodes, names = unit.map((number) => data.short_names[number]), many = unit.length > 12;
  const beside = Math.min(0.33 * width, NAME_WIDTH * Math.max(...names.map((name) => name.length)) + 20);
  const down = height / 2 - 26, across = Math.max(40, Math.min(width / 2 - beside, 1.5 * down));
  const made = unit.map((number, n) => {
    const side = !many && Math.abs(x[n]) < 0.2 ? "center" : x[n] > -1e-9 ? "left" : "right";
    return { name: data.names[number], short: names[n], x: across * x[n], y: down * y[n], size: size[n], side,
      text_x: (across + 14) * x[n] + (many ? 8 * Math.sign(x[n] + 1e-9) : 0), text_y: (down + (many ? 8 : 16)) * y[n] };
  });
  for (const side of many ? ["left", "right"] : []) spread(made.filter((node) => node.side === side), height);
  return made;
}

// Move names apart that would cover each other, from the top and from the bottom towards the middle.
function spread(column, height) {
  const gap = Math.min(15, (height - 12) / column.length);
  column.sort((a, b) => b.text_y - a.text_y);
  for (const [from, direction] of [[0, 1], [column.length - 1, -1]]) {
    const end = direction * (height / 2 - 8);
    let last = end + direction * gap;
    for (let n = from; column[n] && direction * column[n].y > -1; n += direction) {
      column[n].text_y = direction * Math.min(direction * column[n].text_y, direction * last - gap);
      last = column[n].text_y;
    }
  }
}

function edges(places) {
  const nodeOf = new Map(data.nodes.unit.map((number, n) => [number, places[n]]));
  const result = [];
  for (const row of byStrength(pairs().filter(isShown))) {
    const a = nodeOf.get(data.pairs.first[row.pair]), b = nodeOf.get(data.pairs.second[row.pair]);
    if (a === undefined || b === undefined) continue;
    result.push({ ...row, x: a.x, y: a.y, x2: b.x, y2: b.y });
    if (result.length === MAX_EDGES) break;
  }
  return result.reverse();  // the strongest on top
}

// So high that both columns end at the same place, where the heatmap is in the other one.
function networkHeight(width) {
  const box = (id) => byId(id).getBoundingClientRect(), left = box("heatmap-card"), right = box("network-card");
  if (byId("heatmap-card").hidden && right.left > box("list").right) {
    return Math.round(Math.min(plotHeight(width), Math.max(280, box("table").bottom - box("network").top - 12)));
  }
  if (byId("heatmap-card").hidden || right.left < left.right) return plotHeight(width);
  const board = byId("board").classList, few = board.contains("few") && !board.contains("all-columns"), short = board.contains("short");
  // What is above both: the table, and what the chosen pair fills of its box.
  const above = few ? box("list").bottom - box("parts").bottom - 20 : short ? left.top - right.top : 0;
  const wanted = above + (box("heatmap").bottom - left.top) - (box("network").top - right.top);
  return Math.round(Math.min(760, Math.max(260, wanted)));
}

let places = [];
async function drawNetwork() {
  const spec = structuredClone(data.charts.network), width = widthOf("network"), height = networkHeight(width);
  places = nodes(width, height);
  const space = width / 2 - Math.max(...places.map((place) => (place.side === "center" ? 0 : Math.abs(place.text_x))));
  spec.width = width;
  spec.height = height;
  spec.autosize = { type: "none" };
  for (const layer of spec.layer) {
    if (layer.mark.type === "text") [layer.mark.limit, layer.mark.fontSize] = [space, data.nodes.unit.length > 12 ? 11 : 12];
    for (const [channel, size] of [["x", width], ["y", height]]) layer.encoding[channel].scale = { domain: [-size / 2, size / 2], nice: false, zero: false };
  }
  await draw("network", spec, { edges: edges(places), nodes: places });
}

async function drawSurface(surface) {
  const spec = structuredClone(data.charts.surface), { x, y } = spec.layer[0].encoding, scale = factor();
  spec.width = widthOf("surface");
  spec.height = Math.round(Math.min(320, Math.max(220, 0.58 * spec.width)));
  spec.autosize = { type: "fit-x", contains: "padding" };
  const shortOf = new Map(data.names.map((name, unit) => [name, data.short_names[unit]]));
  [x.title, y.title] = surface.names.map((name) => shortOf.get(name) ?? name);
  [x, y].forEach((axis, i) => {
    const levels = surface.levels[i];
    if (levels) axis.axis = { values: levels.map((_, k) => k), labelExpr: `(${JSON.stringify(levels)})[datum.value]`, labelLimit: 110 };
  });
  const cellsOf = surface.values.flatMap((column, i) => column.map((value, j) => (
    { x: surface.x[0][i], x2: surface.x[1][i], y: surface.y[0][j], y2: surface.y[1][j], value: scale * value })));
  const inside = ([a, b]) => a >= surface.x[0][0] && a <= surface.x[1].at(-1) && b >= surface.y[0][0] && b <= surface.y[1].at(-1);
  await draw("surface", spec, { cells: cellsOf, points: surface.points.filter(inside).map(([a, b]) => ({ x: a, y: b })) });
}

// Charts of one pair say nothing, nor does a heatmap of which most is unknown.
function arrange() {
  const units = data.heatmap.length, count = pairs().length;
  const single = count === 1, sparse = data.partial && count < MIN_KNOWN * units * (units - 1) / 2;
  byId("heatmap-card").hidden = single || sparse;
  byId("network-card").hidden = single;
  byId("board").classList.toggle("single", single);
  byId("board").classList.toggle("few", count <= FEW_PAIRS && !single && !sparse);
  byId("board").classList.toggle("no-heatmap", sparse && !single);
}

// Where the chosen pair needs less space than the table, the network follows it, and not the table.
function arrangeNetwork() {
  const board = byId("board").classList, chosen = byId("chosen").getBoundingClientRect();
  board.remove("short");
  const unused = byId("chosen").getBoundingClientRect().bottom - byId("parts").getBoundingClientRect().bottom - 20;
  board.toggle("short", unused > 60 && chosen.left > byId("list").getBoundingClientRect().left
    && !["few", "single", "no-heatmap", "all-columns"].some((name) => board.contains(name)));
}

async function drawCharts() {
  arrangeNetwork();
  if (!byId("heatmap-card").hidden) await drawHeatmap();
  if (!byId("network-card").hidden) await drawNetwork();
}

async function updateCharts() {
  const signals = (view) => view.signal("largest", largest()).signal("chosen", state.chosen);
  await Promise.all([
    views.heatmap ? signals(views.heatmap).data("cells", cells()).runAsync() : null,
    views.network ? signals(views.network).data("edges", edges(places)).runAsync() : null,
  ]);
}
