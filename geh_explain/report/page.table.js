// The table: marks, bars with intervals, numbers.
const COLUMNS = () => [
  ...(words === null ? [] : [{ key: "decision", name: "", title: words.column }]),
  { key: "first", name: "pair" },
  { key: "strength", name: "", plot: true },
  { key: "mean", name: scoreName(), optional: state.measure === "supported" },
  ...(hasStable ? [{ key: "stable", name: "stable", extra: true, text: (row) => (row.stable ? "yes" : "no") }] : []),
  ...(hasIntervals ? [{ key: "low", name: `${level} interval`, extra: true, text: (row) => range(row.low, row.high) }] : []),
  ...(hasEvidence ? [
    { key: "supported", name: "supported", optional: state.measure !== "supported" },
    { key: "slope", name: "slope", extra: true, text: (row) => (row.slope === null ? "" : `${format(row.slope)} ± ${format(row.slope_se, 2)}`) },
  ] : []),
  ...(hasTrueInterval ? [{ key: "true_low", name: "true GEH", extra: true, text: (row) => range(row.true_low, row.true_high) }] : []),
  ...(hasEvidence || "p" in data.measures.geh ? [{ key: "p", name: "p", text: (row) => shortP(row.p), roomy: true }] : []),
  ...(Object.keys(data.shares).length ? [{ key: "share", name: "of variance", extra: true, text: (row) => percent(row.share) }] : []),
].filter(({ key }) => key !== "supported" || pairs()[0].supported !== undefined);
// Columns of the file.
const FILE_COLUMNS = [["first", "unit i"], ["second", "unit j"], ["mean", "mean"], ["std", "std"],
  ...(hasIntervals ? [["low", "low"], ["high", "high"]] : []),
  ...(hasEvidence ? [["supported", "supported"], ["slope", "slope"], ["slope_se", "slope se"]] : []),
  ...(hasTrueInterval ? [["true_low", "true GEH, low"], ["true_high", "high"]] : []),
  ...(hasEvidence || "p" in data.measures.geh ? [["p", "p"]] : []),
  ...(words === null ? [] : [["decision", words.column]])]
  .filter(([key]) => key !== "std" || data.measures.geh.std.some((value) => value !== null));
// The column that shows the strength of a pair, by which the table is sorted at first.
const isSorted = (key) => key === (state.sort !== "strength" ? state.sort : state.measure === "supported" ? "supported" : "mean");
let axisEnd = 1;

function fillHead() {
  const end = pairs().filter(isShown).reduce((max, row) => Math.max(max, row.strength, row.band, row.high ?? 0), 0) || largest() || 1;
  const step = niceStep(end, 4);
  axisEnd = end * 1.02;
  byId("table").style.setProperty("--step", `${(100 * step / axisEnd).toFixed(3)}%`);
  byId("table").tHead.rows[0].replaceChildren(...COLUMNS().map((column) => {
    const { key, name, title, plot } = column;
    const head = make("th", { scope: "col", class: classOf(column), "data-key": key });
    if (plot) {
      const ticks = [...Array(Math.floor(axisEnd / step) + 1).keys()].map((tick) => tick * step).filter((tick) => tick / axisEnd < 0.93);
      const narrow = byId("list").clientWidth < 480;
      const shown = ticks.filter((_, tick) => (narrow ? tick === 0 || tick === ticks.length - 1 : ticks.length < 4 || tick % 2 === 0));
      head.append(make("span", { class: "hidden", text: hasIntervals ? "bar with interval" : "bar" }), make("div", { class: "axis", "aria-hidden": "true" },
        ...shown.map((tick) => make("span", { text: plain(tick), style: { left: `${100 * tick / axisEnd}%` } }))));
      return head;
    }
    head.setAttribute("aria-sort", !isSorted(key) ? "none" : state.up ? "ascending" : "descending");
    const button = make("button", { type: "button", text: name + (!isSorted(key) ? "" : state.up ? " ↑" : " ↓"), ...(title ? { "aria-label": title, title: `Sort by: ${title}` } : {}) });
    if (title && !isSorted(key)) button.textContent = "↕";
    button.addEventListener("click", () => {
      state.up = isSorted(key) ? !state.up : key === "first" || key === "p";
      state.sort = key;
      fillHead();
      fillTable();
      byId("table").querySelector(`th[data-key="${key}"] button`).focus();
    });
    head.append(button);
    return head;
  }));
}

const classOf = ({ key, plot, extra, optional, roomy }) => [key, plot && "plot", extra && "extra", optional && "optional", roomy && "roomy"].filter(Boolean).join(" ");

function track(row) {
  const place = (value) => value / axisEnd, parts = [part("i", 0, place(row.mean), "score")];
  if (state.measure === "supported" && row.decision !== "") parts.push(part("i", 0, place(row.supported), "supported"));
  if (row.low !== undefined && row.low !== null) {
    parts.push(part("b", place(row.low), place(row.high)), part("s", place(row.low50), place(row.high50)));
  } else parts.push(make("u", { style: { left: `${100 * place(row.mean)}%` } }));
  return make("div", { class: "track", ...(hasStable ? { title: row.stable ? "stable in the network" : "not stable in the network" } : {}) }, ...parts);
}

function nameOf(row) {
  const button = make("button", { type: "button", title: row.label, "aria-label": `Choose ${row.label}` });
  const words = (kind, first, second) => make("span", { class: kind }, make("span", { class: "name", text: `${breakable(first)} ×` }), " ", make("span", { class: "name", text: breakable(second) }));
  button.append(words("roomy-name", row.short_first, row.short_second), words("brief-name", row.brief_first, row.brief_second));
  return button;
}

function fillTable() {
  const rows = shownRows(), columns = COLUMNS();
  byId("more").hidden = rows.length <= state.rows;
  byId("nothing").hidden = rows.length > 0;
  byId("table").tBodies[0].replaceChildren(...rows.slice(0, state.rows).map((row) => {
    const line = make("tr", { "data-pair": row.pair });
    line.classList.toggle("chosen", row.pair === state.chosen);
    line.classList.toggle("unsure", row.unsure);
    line.classList.toggle("unstable", row.unstable);
    for (const column of columns) {
      const { key, plot, text } = column, cell = line.insertCell();
      cell.className = classOf(column);
      if (key === "decision") cell.append(...decisionMark(row));
      else if (key === "first") cell.append(nameOf(row));
      else if (plot) cell.append(track(row));
      else cell.textContent = text ? text(row) : format(row[key]);
    }
    line.addEventListener("click", () => choose(row.pair));
    return line;
  }));
  fitColumns(rows.slice(0, state.rows));
  byId("rows").style.setProperty("--rows-height", `${byId("table").offsetHeight + 16}px`);
}

// Widths of columns: numbers have what they need; names have one line where these take less than two fifths of the table,
// else two.
function fitColumns(rows) {
  const table = byId("table"), most = (list, font) => Math.ceil(list.reduce((max, text) => Math.max(max, textWidth(text, font)), 0));
  const set = (name, width) => table.style.setProperty(name, `${width}px`);
  const widest = (list) => most(list, "600 14px") + 10, room = 0.4 * table.clientWidth;
  const whole = widest(rows.map((row) => `${row.short_first} × ${row.short_second}`));
  table.classList.toggle("long", whole > room);
  const parts = widest(rows.flatMap((row) => [`${row.short_first} ×`, row.short_second]));
  set("--names", Math.min(Math.max(80, whole > room ? 0.92 * parts : whole), room));
  set("--numbers", most(rows.flatMap((row) => [row.mean, row.supported].map((value) => format(value))), "14px") + 16);
  // Ticks that would end in the next column.
  for (const tick of table.tHead.querySelectorAll(".axis span")) {
    tick.hidden = false;
    tick.hidden = tick.getBoundingClientRect().right > tick.closest("th").getBoundingClientRect().right + 4;
  }
}

function fillLegend() {
  const item = (symbol, text) => make("span", {}, symbol, ` ${text}`);
  const mark = (kind) => make("span", { class: `mark ${kind}` }), swatch = (kind) => make("span", { class: `swatch ${kind}` });
  const untested = hasEvidence && pairs().some((row) => row.p === null);
  byId("legend").replaceChildren(
    ...(words === null ? [] : [item(mark("yes"), words.label), item(mark("no"), words.other)]),
    ...(untested ? [item(mark("untested"), "not tested")] : []),
    ...(hasStable ? [item(swatch(""), `${scoreName()}, stable in the network`), ...(pairs().some((row) => !row.stable) ? [item(swatch("other"), "not stable")] : [])]
      : [item(swatch(""), `${scoreName()} of the network`)]),
    ...(state.measure === "supported" ? [item(swatch("supported"), "supported by held-out labels")] : []),
    ...(hasIntervals ? [item(swatch("line"), `intervals: 50 % thick, ${level} thin`)] : []),
  );
}

function csv() {
  // Spreadsheets take text that starts with one of these for a formula; an apostrophe keeps it text.
  const neutral = (text) => (/^\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/.test(text) ? `'${text}` : text);
  const quoted = (text) => `"${neutral(text).replaceAll('"', '""')}"`;
  const cell = (value) => (typeof value === "number" ? String(value) : quoted(String(value ?? "")));
  // Always in units of the output.
  const rows = byStrength(makeRows(state.measure, 1));
  const lines = [FILE_COLUMNS.map(([, name]) => quoted(name)), ...rows.map((row) => FILE_COLUMNS.map(([key]) => cell(row[key])))];
  return lines.map((line) => line.join(",")).join("\r\n") + "\r\n";
}

function download() {
  const link = make("a", { href: URL.createObjectURL(new Blob([csv()], { type: "text/csv" })), download: `interactions_${state.measure}.csv` });
  link.click();
  URL.revokeObjectURL(link.href);
}
