"use strict";
// The script of the report page: fills charts and table from the JSON data, and links them by the chosen pair.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const MAX_FOREST_ROWS = 25, MAX_EDGES = 80;
  const TABLE_ROWS = 200;  // shown at first; a button shows more
  const byId = (id) => document.getElementById(id);
  const state = { measure: data.measure, threshold: 0, accepted: false, search: "", sort: "strength", up: false, chosen: 0, rows: TABLE_ROWS };
  const views = {};

  // One object for each pair and measure. Decisions are those of the Python package; the page makes none.
  const compactName = new Map(data.names.map((name, unit) => [name, data.compact_names[unit]]));
  const SIGNS = { "1": "positive", "-1": "negative", "0": "neither" };
  const pairsOf = {};
  for (const [measure, columns] of Object.entries(data.measures)) {
    const { accepted, ...numbers } = columns;
    pairsOf[measure] = columns.mean.map((value, pair) => {
      const first = data.names[data.pairs.first[pair]], second = data.names[data.pairs.second[pair]];
      const row = { pair, first, second, label: data.pairs.label[pair], short: data.pairs.short[pair], sign: SIGNS[data.majority[pair]], unsure: false };
      for (const [name, values] of Object.entries({ ...numbers, ...data.evidence })) row[name] = values[pair];
      if (accepted !== null) {
        row.unsure = !accepted[pair];
        // A pair that was not tested is not decided about.
        row.decision = data.evidence !== null && row.p === null ? "" : accepted[pair] ? "yes" : "no";
      }
      return { ...row, strength: value, band: 0 };
    });
  }
  const hasIntervals = "low" in data.measures.geh, hasEvidence = data.evidence !== null, words = data.decision;
  const hasTrueInterval = hasEvidence && "true_low" in data.evidence;
  if (hasEvidence) pairsOf.supported = pairsOf.geh.map((row) => ({ ...row, strength: row.supported ?? 0, band: row.mean }));
  const scoreName = () => (state.measure === "supported" ? "GEH" : state.measure.toUpperCase());

  const pairs = () => pairsOf[state.measure];
  const largest = () => pairs().reduce((max, row) => Math.max(max, row.strength, row.band), 0);
  const minimum = () => (state.threshold / 100) * pairs().reduce((max, row) => Math.max(max, row.strength), 0);
  const format = (value) => (value === undefined || value === null ? "" : Number(value.toPrecision(4)).toString());

  function isShown(row) {
    if (row.strength < minimum() || (state.accepted && row.unsure)) return false;
    return !state.search || row.first.toLowerCase().includes(state.search) || row.second.toLowerCase().includes(state.search);
  }

  function shownRows() {
    const rows = pairs().filter(isShown), key = state.sort, direction = state.up ? 1 : -1;
    const known = rows.filter((row) => row[key] !== null), unknown = rows.filter((row) => row[key] === null);
    const compare = typeof pairs()[0][key] === "string" ? (a, b) => a[key].localeCompare(b[key]) : (a, b) => a[key] - b[key];
    return [...known.sort((a, b) => direction * compare(a, b) || a.pair - b.pair), ...unknown];  // unknown numbers last
  }

  const byStrength = (rows) => [...rows].sort((a, b) => b.strength - a.strength || a.pair - b.pair);

  // Charts.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function config() {
    const text = { labelColor: "var(--front)", titleColor: "var(--soft)", titleFontWeight: "normal" };
    return {
      background: null, font: getComputedStyle(document.body).fontFamily, view: { stroke: null },
      axis: { ...text, grid: false, domainColor: "var(--line)", tickColor: "var(--line)" },
      legend: text, text: { color: "var(--front)" }, rule: { color: "var(--soft)" },
    };
  }

  async function draw(name, spec, datasets) {
    const options = { renderer: "svg", actions: false, config: config() };
    const { view } = await vegaEmbed(byId(name), { ...spec, datasets }, options);
    view.addEventListener("click", (_, item) => {
      if (item && item.datum && item.datum.pair !== undefined) choose(item.datum.pair);
    });
    views[name] = view;
    await view.signal("chosen", state.chosen).signal("largest", largest()).runAsync();
  }

  function cells() {
    const byUnits = new Map();
    for (const row of pairs()) byUnits.set(`${data.pairs.first[row.pair]},${data.pairs.second[row.pair]}`, row);
    const result = [];
    for (const i of data.heatmap) for (const j of data.heatmap) {
      if (i === j) continue;
      const row = byUnits.get(i < j ? `${i},${j}` : `${j},${i}`);
      if (row === undefined) {
        result.push({ unknown: true, value: null, row: data.names[i], column: data.names[j] });
        continue;
      }
      // The supported score is below the diagonal, GEH above it.
      const value = state.measure === "supported" && i < j ? row.mean : row.strength;
      result.push({ ...row, value, row: data.names[i], column: data.names[j], shown: isShown(row) });
    }
    return result;
  }

  function nodes() {
    const { unit, x, y, size } = data.nodes;
    return unit.map((number, n) => ({
      name: data.names[number], short: data.short_names[number], x: x[n], y: y[n], size: size[n], text_x: 1.1 * x[n], text_y: 1.1 * y[n],
      side: Math.abs(x[n]) < 0.2 ? "center" : x[n] > 0 ? "left" : "right",
    }));
  }

  function edges() {
    const { unit, x, y } = data.nodes, nodeOf = new Map(unit.map((number, n) => [number, n]));
    const result = [];
    for (const row of byStrength(pairs().filter(isShown))) {
      const a = nodeOf.get(data.pairs.first[row.pair]), b = nodeOf.get(data.pairs.second[row.pair]);
      if (a === undefined || b === undefined) continue;
      result.push({ ...row, x: x[a], y: y[a], x2: x[b], y2: y[b] });
      if (result.length === MAX_EDGES) break;
    }
    return result.reverse();  // the strongest on top
  }

  // Copies, because Vega tags each object with an identifier, and would take a shared object for one datum.
  const forestRows = () => byStrength(pairs().filter(isShown)).slice(0, MAX_FOREST_ROWS).map((row) => ({ ...row }));

  async function drawAll() {
    data.charts.heatmap.layer[0].encoding.color.scale.range = ["--weak", "--middle", "--strong"].map(colour);
    await Promise.all([
      draw("heatmap", data.charts.heatmap, { cells: cells() }),
      draw("forest", data.charts.forest, { rows: forestRows() }),
      draw("network", data.charts.network, { edges: edges(), nodes: nodes() }),
    ]);
    await drawChosen();
  }

  async function update() {
    const rows = forestRows();
    byId("nothing").hidden = rows.length > 0;
    byId("forest").hidden = rows.length === 0;
    await Promise.all([
      views.heatmap.data("cells", cells()).runAsync(),
      rows.length ? views.forest.data("rows", rows).runAsync() : null,
      views.network.signal("largest", largest()).data("edges", edges()).runAsync(),
    ]);
    fillTable();
    fillCaptions();
    const total = pairs().length, shown = pairs().filter(isShown).length;
    byId("count").textContent = `${shown} of ${total} pairs`;
    byId("threshold-value").textContent = format(minimum());
  }

  // The chosen pair.
  async function choose(pair) {
    state.chosen = pair;
    await Promise.all(["heatmap", "forest", "network"].map((name) => views[name].signal("chosen", pair).runAsync()));
    for (const row of byId("table").tBodies[0].rows) row.classList.toggle("chosen", Number(row.dataset.pair) === pair);
    await drawChosen();
  }

  async function drawChosen() {
    const row = pairs()[state.chosen];
    byId("pair").textContent = row.label;
    byId("pair-summary").textContent = summary(row);
    const surface = data.surfaces.find(({ pair }) => pair === row.pair);
    byId("groups-figure").hidden = row.pair >= data.group_effects.mean.length;
    byId("surface-figure").hidden = surface === undefined;
    showImages(row);
    if (!byId("groups-figure").hidden) await draw("groups", data.charts.groups, { groups: groupEffects(row.pair) });
    if (surface) await drawSurface(surface);
  }

  function summary(row) {
    const score = `${scoreName()} ${format(row.mean)}`;
    const interval = hasIntervals ? `, ${level} interval ${format(row.low)} to ${format(row.high)}` : "; one draw, no interval";
    const decision = words === null ? "" : row.unsure ? words.other : words.label;
    if (hasEvidence && row.p === null) return `${score}${interval}. Not tested on held-out labels.`;
    if (hasEvidence) return `${score}${interval}. Held-out labels support ${format(row.supported)} of it${slope(row)}, p ${shortP(row.p)}: ${decision}.${trueInterval(row)}`;
    return `${score}${interval}${decision && `: ${decision}`}.${row.p === undefined ? "" : ` p-value ${format(row.p)}.`}`;
  }

  const slope = (row) => (row.slope === null ? "" : ` (slope ${row.slope.toFixed(2)} ± ${row.slope_se.toFixed(2)})`);
  const trueInterval = (row) => (hasTrueInterval && row.true_low !== null ? ` ${level} interval of the true GEH: ${format(row.true_low)} to ${format(row.true_high)}.` : "");
  const shortP = (p) => (p < 0.001 ? "< 0.001" : `= ${format(p)}`);

  function groupEffects(pair) {
    const { mean, half } = data.group_effects;
    const { names, sizes, descriptions } = data.groups.by_pair?.[pair] ?? data.groups;
    return names.flatMap((name, group) => {
      if (sizes[group] === 0) return [];
      const words = descriptions?.[group] ?? "";
      const row = { group: `${name} (${sizes[group]})${words && `: ${words}`}`, mean: mean[pair][group] };
      return half === null || half[pair][group] === null ? row : { ...row, low: row.mean - half[pair][group], high: row.mean + half[pair][group] };
    });
  }

  async function drawSurface(surface) {
    const spec = structuredClone(data.charts.surface), { x, y } = spec.layer[0].encoding;
    [x.title, y.title] = surface.names;
    [x, y].forEach((axis, i) => {
      const levels = surface.levels[i];
      if (levels) axis.axis = { values: levels.map((_, k) => k), labelExpr: `(${JSON.stringify(levels)})[datum.value]`, labelLimit: 110 };
    });
    const cells = surface.values.flatMap((column, i) => column.map((value, j) => (
      { x: surface.x[0][i], x2: surface.x[1][i], y: surface.y[0][j], y2: surface.y[1][j], value })));
    const inside = ([a, b]) => a >= surface.x[0][0] && a <= surface.x[1].at(-1) && b >= surface.y[0][0] && b <= surface.y[1].at(-1);
    await draw("surface", spec, { cells, points: surface.points.filter(inside).map(([a, b]) => ({ x: a, y: b })) });
  }

  function showImages(row) {
    const units = [row.first, row.second].filter((name) => Object.hasOwn(data.images, name));
    const columns = units.map((name) => ({
      name, short: compactName.get(name), image: data.images[name], painted: data.painted[name],
      words: `Inputs with the highest activation of ${name}`,
    }));
    const both = units.length === 2 ? data.joint[row.pair] : undefined;
    if (both) columns.push({ name: row.label, short: "both", image: both[0], painted: both[1], words: `Inputs that activate both ${row.first} and ${row.second}` });
    byId("images-figure").hidden = columns.length === 0;
    byId("painted-words").hidden = !columns.some(({ painted }) => painted);
    byId("images").replaceChildren(...columns.map(({ name, short, image, painted, words }) => {
      const box = document.createElement("div"), label = document.createElement("span");
      label.textContent = short;
      label.title = name;
      box.append(picture(image, words), label, ...(painted ? [picture(painted, `Input by gradient ascent for ${name}`)] : []));
      return box;
    }));
  }

  function picture(source, words) {
    const image = document.createElement("img");
    image.src = source;
    image.alt = words;
    return image;
  }

  // The table.
  const COLUMNS = [["first", "unit i"], ["second", "unit j"], ["mean", "mean"], ["std", "std"],
    ...(hasIntervals ? [["low", "low"], ["high", "high"]] : []),
    ...(hasEvidence ? [["supported", "supported"], ["slope", "slope"], ["slope_se", "slope se"]] : []),
    ...(hasTrueInterval ? [["true_low", "true GEH, low"], ["true_high", "high"]] : []),
    ...(hasEvidence || "p" in data.measures.geh ? [["p", "p"]] : []),
    ...(words === null ? [] : [["decision", words.column]])]
    .filter(([key]) => key !== "std" || data.measures.geh.std.some((value) => value !== null));
  // The column that shows the strength of a pair, by which the table is sorted at first.
  const isSorted = (key) => key === (state.sort !== "strength" ? state.sort : state.measure === "supported" ? "supported" : "mean");

  function fillHead() {
    byId("table").tHead.rows[0].replaceChildren(...COLUMNS.map(([key, name]) => {
      const head = document.createElement("th"), button = document.createElement("button");
      head.scope = "col";
      head.setAttribute("aria-sort", !isSorted(key) ? "none" : state.up ? "ascending" : "descending");
      button.type = "button";
      button.textContent = name + (!isSorted(key) ? "" : state.up ? " ↑" : " ↓");
      button.addEventListener("click", () => {
        state.up = isSorted(key) ? !state.up : (typeof pairs()[0][key] === "string" && key !== "decision") || key === "p";
        state.sort = key;
        fillHead();
        fillTable();
        byId("table").tHead.rows[0].cells[COLUMNS.findIndex(([column]) => column === key)].firstChild.focus();
      });
      head.append(button);
      return head;
    }));
  }

  function fillTable() {
    const rows = shownRows();
    byId("more").hidden = rows.length <= state.rows;
    byId("table").tBodies[0].replaceChildren(...rows.slice(0, state.rows).map((row) => {
      const line = document.createElement("tr");
      line.dataset.pair = row.pair;
      line.classList.toggle("chosen", row.pair === state.chosen);
      line.classList.toggle("unsure", row.unsure);
      for (const [key] of COLUMNS) {
        const cell = line.insertCell(), value = row[key];
        if (key === "first") {
          const button = document.createElement("button");
          button.type = "button";
          button.textContent = compactName.get(value);
          button.title = value;
          button.setAttribute("aria-label", `Choose ${row.label}`);
          cell.append(button);
        } else if (key === "second") {
          cell.textContent = compactName.get(value);
          cell.title = value;
        } else cell.textContent = typeof value === "string" ? value : key === "p" && value !== null && value < 0.001 ? "<0.001" : format(value);
      }
      line.addEventListener("click", () => choose(row.pair));
      return line;
    }));
  }

  function csv() {
    // Spreadsheets take text that starts with one of these for a formula; an apostrophe keeps it text.
    const neutral = (text) => (/^\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/.test(text) ? `'${text}` : text);
    const quoted = (text) => `"${neutral(text).replaceAll('"', '""')}"`;
    const cell = (value) => (typeof value === "number" ? String(value) : quoted(String(value ?? "")));
    const lines = [COLUMNS.map(([, name]) => quoted(name)), ...byStrength(pairs()).map((row) => COLUMNS.map(([key]) => cell(row[key])))];
    return lines.map((line) => line.join(",")).join("\r\n") + "\r\n";
  }

  function download() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    link.download = `interactions_${state.measure}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // Arrow keys on a chart choose the next weaker or stronger pair.
  function step(event) {
    const direction = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!direction) return;
    event.preventDefault();
    const rows = byStrength(pairs().filter(isShown)), position = rows.findIndex((row) => row.pair === state.chosen);
    const next = rows[Math.min(rows.length - 1, Math.max(0, position + direction))];
    if (next) choose(next.pair);
  }

  function fillCaptions() {
    const supported = state.measure === "supported";
    byId("heatmap-score").textContent = supported ? "Below the diagonal: GEH as far as held-out labels support it; above: GEH of the network" : `${scoreName()} of each pair`;
    if (data.partial) byId("heatmap-score").textContent += "; grey: not computed";
    byId("colour-words").textContent = words === null ? "" : `blue: ${words.label}; grey: ${words.other}${hasEvidence ? "; green: supported by the labels" : ""}`;
    byId("width-word").textContent = supported ? "supported GEH, in front of GEH, pale" : scoreName();
  }

  function listen() {
    byId("measure").addEventListener("change", (event) => {
      state.measure = event.target.value;
      fillHead();
      update().then(drawChosen);
    });
    byId("threshold").addEventListener("input", (event) => { state.threshold = Number(event.target.value); update(); });
    byId("accepted").addEventListener("change", (event) => { state.accepted = event.target.checked; update(); });
    byId("search").addEventListener("input", (event) => { state.search = event.target.value.trim().toLowerCase(); update(); });
    document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    byId("more").addEventListener("click", () => { state.rows *= 5; fillTable(); });
    byId("download").addEventListener("click", download);
    for (const figure of document.querySelectorAll("figure[tabindex]")) figure.addEventListener("keydown", step);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  }

  byId("node-size").textContent = data.nodes.size_meaning;
  const level = `${Number((100 * data.level).toPrecision(3))} %`;
  byId("level").textContent = level;
  byId("forest-intervals").hidden = !hasIntervals;
  for (const id of ["hatched", "only-accepted", "forest-colours", "dashed"]) byId(id).hidden = words === null;
  if (words !== null) {
    byId("accepted-word").textContent = words.column;
    for (const id of ["hatched-word", "dashed-word"]) byId(id).textContent = words.other;
  }
  for (const option of [...byId("measure").options]) if (!(option.value in data.measures)) option.remove();
  if (hasEvidence) byId("measure").prepend(new Option("supported GEH", "supported"));
  byId("measure").value = data.measure;
  fillHead();
  listen();
  drawAll().then(update).then(() => { document.documentElement.dataset.ready = "yes"; });
})();
