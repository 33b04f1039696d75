"use strict";
// The script of the report page. This part holds the data and the state; page.charts.js draws the charts, page.table.js
// the table, page.pair.js the chosen pair, and page.start.js connects them. Decisions are those of the Python package;
// the page makes none.
const data = JSON.parse(document.getElementById("data").textContent);
const TABLE_ROWS = 200;  // shown at first; a button shows more
const FEW_PAIRS = 8;  // whose table is short, so that the heatmap has its place below it
const byId = (id) => document.getElementById(id);
const state = { measure: data.measure, unit: "output", threshold: 0, accepted: false, search: "", sort: "strength", up: false, chosen: 0, rows: TABLE_ROWS };

const words = data.decision, hasEvidence = data.evidence !== null, hasIntervals = "low" in data.measures.geh;
const hasStable = data.stable !== null;  // beside decisions about held-out labels
const hasTrueInterval = hasEvidence && "true_low" in data.evidence;
const level = `${Number((100 * data.level).toPrecision(3))} %`;
const SIGNS = { "1": "positive", "-1": "negative", "0": "neither" };
// Numbers in units of the output, which can be divided by its standard deviation.
const SCORES = new Set(["mean", "std", "low", "high", "low50", "high50", "supported", "true_low", "true_high"]);

const factor = () => (state.unit === "std" ? 1 / data.output_std : 1);

// As join_names of the package does, so that no two pairs look the same.
const quoted = (name) => (/×|^"/.test(name) ? `"${name.replaceAll('"', '""')}"` : name);

// One object for each pair of a measure.
function makeRows(measure, scale) {
  const { accepted, ...numbers } = data.measures[measure === "supported" ? "geh" : measure];
  return numbers.mean.map((_, pair) => {
    const first = data.pairs.first[pair], second = data.pairs.second[pair];
    const row = { pair, first: data.names[first], second: data.names[second], short_first: quoted(data.short_names[first]),
      short_second: quoted(data.short_names[second]), brief_first: quoted(data.brief_names[first]), brief_second: quoted(data.brief_names[second]), label: data.pairs.label[pair], short: data.pairs.short[pair],
      sign: SIGNS[data.majority[pair]], unsure: false, decision: "", band: 0, stable: hasStable ? data.stable[pair] : null,
      share: data.shares[pair]?.[0] ?? null };
    for (const [name, values] of Object.entries({ ...numbers, ...data.evidence })) {
      row[name] = values[pair] === null || !SCORES.has(name) ? values[pair] : scale * values[pair];
    }
    if (accepted !== null) {
      row.unsure = !accepted[pair];
      // A pair that was not tested is not decided about.
      row.decision = hasEvidence && row.p === null ? "" : accepted[pair] ? "yes" : "no";
    }
    row.unstable = hasStable ? !row.stable : row.unsure;
    row.strength = measure === "supported" ? row.supported ?? 0 : row.mean;
    if (measure === "supported") row.band = row.mean;
    return row;
  });
}

let made = {};
function pairs() {
  made[state.measure] ??= makeRows(state.measure, factor());
  return made[state.measure];
}

const scoreName = () => (state.measure === "supported" ? "GEH" : state.measure.toUpperCase());
const decisionWords = (row) => (words === null ? "" : hasEvidence && row.p === null ? "not tested" : row.unsure ? words.other : words.label);
const largest = () => pairs().reduce((max, row) => Math.max(max, row.strength, row.band), 0);
const minimum = () => (state.threshold / 100) * pairs().reduce((max, row) => Math.max(max, row.strength), 0);
const byStrength = (rows) => [...rows].sort((a, b) => b.strength - a.strength || a.pair - b.pair);

// Numbers with three significant digits, as a column of them shows; and without zeros at the end, for axes.
function format(value, digits = 3) {
  if (value === undefined || value === null) return "";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-4 || size >= 1e6) return value.toExponential(Math.max(0, digits - 2)).replace("e+", "e").replaceAll("-", "−");
  const decimals = Math.min(6, Math.max(0, digits - 1 - Math.floor(Math.log10(size) + 1e-9)));
  return value.toFixed(decimals).replace("-", "−");
}
const breakable = (name) => name.replaceAll("…", "…\u200b");  // a line may end where a name was cut
const longNames = data.names.map((name, unit) => [name, data.short_names[unit]]).filter(([name, short]) => name !== short).sort(([a], [b]) => b.length - a.length);
const shorten = (text) => longNames.reduce((words, [name, short]) => words.replaceAll(name, () => short), text);
const pen = document.createElement("canvas").getContext("2d");
const textWidth = (text, font) => {
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
};
const percent = (share) => (share === null || share === undefined ? "" : `${(100 * share).toFixed(1).replace(/^-(0\.0)$/, "$1").replace("-", "−")}\u00a0%`);
const plain = (value) => Number(value.toPrecision(3)).toString();
const range = (low, high) => (low === null || low === undefined ? "" : `${format(low)}${low < 0 ? " to " : "–"}${format(high)}`);
const signed = (value) => (value > 0 ? `+${format(value)}` : format(value));
const shortP = (p) => (p === null || p === undefined ? "" : p < 0.001 ? "<0.001" : format(p));

function isShown(row) {
  if (row.strength < minimum() || (state.accepted && row.unsure)) return false;
  return !state.search || row.first.toLowerCase().includes(state.search) || row.second.toLowerCase().includes(state.search);
}

function shownRows() {
  const rows = pairs().filter(isShown), key = state.sort, direction = state.up ? 1 : -1;
  const known = rows.filter((row) => row[key] !== null && row[key] !== ""), unknown = rows.filter((row) => row[key] === null || row[key] === "");
  const compare = typeof known[0]?.[key] === "string" ? (a, b) => a[key].localeCompare(b[key]) : (a, b) => a[key] - b[key];
  return [...known.sort((a, b) => direction * compare(a, b) || a.pair - b.pair), ...unknown];  // unknown numbers last
}

// Elements.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// A part of a track from one place to another, both between 0 and 1.
function part(tag, from, to, className = "") {
  const [left, right] = [from, to].map((place) => 100 * Math.min(1, Math.max(0, place))).sort((a, b) => a - b);
  return make(tag, { class: className, style: { left: `${left.toFixed(2)}%`, width: `${(right - left).toFixed(2)}%` } });
}

function decisionMark(row) {
  const meaning = decisionWords(row), kind = row.decision === "yes" ? "yes" : row.decision === "no" ? "no" : "untested";
  return [make("span", { class: `mark ${kind}`, title: meaning, "aria-hidden": "true" }), make("span", { class: "hidden", text: meaning })];
}

// Round steps of an axis from 0 to at least ``end``.
function niceStep(end, count) {
  const rough = end / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((step) => step * power >= rough * 0.999);
}
