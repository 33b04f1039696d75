// Controls, and the first drawing.
async function update() {
  fillHead();
  fillTable();
  fillLegend();
  fillCaptions();
  const total = pairs().length, shown = pairs().filter(isShown).length;
  byId("count").textContent = `${shown.toLocaleString("en")} of ${total.toLocaleString("en")} pairs`;
  byId("threshold-value").textContent = format(minimum());
  await updateCharts();
}

async function choose(pair) {
  state.chosen = pair;
  for (const row of byId("table").tBodies[0].rows) {
    const chosen = Number(row.dataset.pair) === pair;
    row.classList.toggle("chosen", chosen);
    if (chosen) showRow(row);
  }
  await Promise.all(["heatmap", "network"].map((name) => views[name]?.signal("chosen", pair).runAsync()));
  await drawChosen();
  await fillChosen();
  // Below a chosen pair of another height both columns still end together.
  if (byId("board").classList.contains("few") && !byId("network-card").hidden) await drawNetwork();
}

// Scroll the table, and not the page, until a row is visible.
function showRow(row) {
  const box = byId("rows"), head = byId("table").tHead.offsetHeight, top = row.offsetTop - head;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (row.offsetTop + row.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = row.offsetTop + row.offsetHeight - box.clientHeight;
}

// Arrow keys choose the next weaker or stronger pair; on the table, the next row.
function step(event, rows, keys) {
  const direction = keys[event.key];
  if (!direction) return;
  event.preventDefault();
  const position = rows.findIndex((row) => row.pair === state.chosen);
  const next = rows[Math.min(rows.length - 1, Math.max(0, position + direction))];
  if (next) choose(next.pair);
}

function fillCaptions() {
  const supported = state.measure === "supported", drawn = Math.min(MAX_EDGES, pairs().filter(isShown).length);
  byId("heatmap-score").textContent = supported ? "Below the diagonal: GEH as far as held-out labels support it; above: GEH of the network" : `${scoreName()} of each pair`;
  if (data.partial) byId("heatmap-score").textContent += "; grey: not computed";
  byId("ramp-end").textContent = format(largest());
  byId("width-word").textContent = supported ? "supported GEH, on a faint band as wide as GEH" : scoreName();
  const units = data.nodes.unit.length, all = data.names.length;
  byId("network-share").textContent = `${units < all ? ` ${units} of ${all.toLocaleString("en")} units.` : ""}${drawn === MAX_EDGES ? ` Edges: the ${MAX_EDGES} strongest pairs.` : ""}`;
}

async function redraw() {
  made = {};
  await update();
  await drawChosen();
  await fillChosen();
}

// Charts have the width of their boxes.
function followWidth() {
  let width = byId("board").clientWidth, timer = null;
  new ResizeObserver(() => {
    if (Math.abs(byId("board").clientWidth - width) < 8 || matchMedia("print").matches) return;
    width = byId("board").clientWidth;
    clearTimeout(timer);
    timer = setTimeout(() => { fillHead(); fillTable(); drawChosen().then(drawCharts); }, 150);
  }).observe(byId("board"));
}

function listen() {
  byId("measure").addEventListener("change", (event) => { state.measure = event.target.value; redraw(); });
  byId("unit").addEventListener("change", (event) => { state.unit = event.target.value; redraw(); });
  byId("threshold").addEventListener("input", (event) => { state.threshold = Number(event.target.value); update(); });
  byId("accepted").addEventListener("change", (event) => { state.accepted = event.target.checked; update(); });
  byId("search").addEventListener("input", (event) => { state.search = event.target.value.trim().toLowerCase(); update(); });
  byId("all").addEventListener("change", (event) => {
    byId("board").classList.toggle("all-columns", event.target.checked);
    fillTable();
    drawChosen().then(drawCharts);
  });
  document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  byId("more").addEventListener("click", () => { state.rows *= 5; fillTable(); });
  byId("download").addEventListener("click", download);
  const stronger = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  for (const id of ["heatmap-card", "network-card"]) {
    byId(id).addEventListener("keydown", (event) => step(event, byStrength(pairs().filter(isShown)), stronger));
  }
  byId("rows").addEventListener("keydown", (event) => step(event, shownRows(), { ArrowDown: 1, ArrowUp: -1 }));
  followWidth();
}

async function start() {
  byId("node-size").textContent = data.nodes.size_meaning;
  for (const id of ["dotted", "only-accepted", "pale"]) byId(id).hidden = words === null;
  if (words !== null) {
    byId("accepted-word").textContent = words.column;
    byId("dotted-word").textContent = words.label;
    byId("pale-word").textContent = words.other;
  }
  for (const element of document.querySelectorAll(".painted-words")) element.hidden = Object.keys(data.painted).length === 0;
  byId("unit-choice").hidden = data.output_std === null;
  for (const option of [...byId("measure").options]) if (!(option.value in data.measures)) option.remove();
  if (hasEvidence) byId("measure").prepend(new Option("supported GEH", "supported"));
  byId("measure").value = data.measure;
  byId("unit").value = state.unit;
  // The pair of the verdict: the strongest one that was accepted.
  state.chosen = (pairs().find((row) => row.decision === "yes") ?? pairs()[0]).pair;
  hideCharts();
  fillGallery();
  listen();
  await update();
  await drawChosen();
  await drawCharts();
  document.documentElement.dataset.ready = "yes";
}

start();
