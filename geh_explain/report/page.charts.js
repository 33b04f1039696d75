// The charts: heatmap, network, and the surface of the chosen pair. Colours are variables of the style sheet, so that
// they follow the theme and the printer without being drawn again.
const MAX_EDGES = 80, MIN_KNOWN = 0.2;
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
  const spec = structuredClone(data.charts.heatmap), shape = heatmapShape(), { names, cell } = shape, units = data.heatmap.length;
  const height = cellHeight(shape), { x, y } = spec.encoding;
  spec.width = shape.width;
  spec.height = Math.round(height * units);
  spec.autosize = { type: "fit-x", contains: "padding" };
  const short = Object.fromEntries(data.heatmap.map((unit) => [data.names[unit], names.get(unit)]));
  const axis = { labelExpr: `(${JSON.stringify(short)})[datum.value]`, labelLimit: 2 * shape.widest };
  x.axis = shape.below === 0 ? null : { ...x.axis, ...axis, labelAngle: shape.angle, labelFontSize: Math.min(12, cell - 1) };
  y.axis = { ...y.axis, ...axis, labelFontSize: Math.min(12, Math.max(6, height - 1)) };
  spec.layer[1].mark.size = Math.min(36, (0.3 * height) ** 2);
  await draw("heatmap", spec, { cells: cells() });
}

// Places of the units in pixels, on an ellipse that leaves space for their names.
function nodes(width, height) {
  const { unit, x, y, size } = data.nodes, many = unit.length > 12;
  const { names, widest } = fitNames(unit, 0.24 * width, many ? 11 : 12);
  const down = height / 2 - (many ? 12 : 26), across = Math.max(40, Math.min(width / 2 - widest - 24, 1.5 * down));
  // The circle of few units does not reach all sides.
  const fill = (places) => {
    const low = Math.min(...places), half = (Math.max(...places) - low) / 2;
    return places.map((place) => (half < 1e-9 ? place : (place - low) / half - 1));
  };
  const [xs, ys] = [fill(x), fill(y)];
  const made = unit.map((number, n) => {
    const side = !many && Math.abs(x[n]) < 0.2 ? "center" : x[n] > -1e-9 ? "left" : "right";
    return { name: data.names[number], short: names.get(number), x: across * xs[n], y: down * ys[n], size: size[n], side,
      // Many names are in a column on each side, at the end of a line from their node.
      leader: many, text_x: many ? (across + 16) * (side === "left" ? 1 : -1) : (across + 14) * xs[n], text_y: down * ys[n] + (many ? 0 : 16 * y[n]) };
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
    result.push({ ...row, band: row.unsure ? 0 : row.band, x: a.x, y: a.y, x2: b.x, y2: b.y });
    if (result.length === MAX_EDGES) break;
  }
  return result.reverse().sort((a, b) => b.unsure - a.unsure);  // accepted and strong ones on top
}

let places = [];
async function drawNetwork() {
  const spec = structuredClone(data.charts.network), width = widthOf("network"), height = networkHeight();
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

// The surface of the chosen pair, ``more`` pixels higher than it needs to be.
async function drawSurface(surface, more = 0) {
  const spec = structuredClone(data.charts.surface), { x, y } = spec.layer[0].encoding, scale = factor();
  spec.width = widthOf("surface");
  spec.height = Math.round(Math.min(320, Math.max(220, 0.58 * spec.width))) + more;
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

async function drawCharts() {
  arrange();
  fillTable();  // the names of pairs have as much space as the columns leave
  if (!byId("heatmap-card").hidden) await drawHeatmap();
  if (!byId("network-card").hidden) await drawNetwork();
  await fillChosen();
}

async function updateCharts() {
  const signals = (view) => view.signal("largest", largest()).signal("chosen", state.chosen);
  await Promise.all([
    views.heatmap ? signals(views.heatmap).data("cells", cells()).runAsync() : null,
    views.network ? signals(views.network).data("edges", edges(places)).runAsync() : null,
  ]);
}
