// The chosen pair: its numbers, its effects by group and between levels, its surface, its images; and the gallery.
const MIN_OTHERS = 3, SHORT_TABLE = 20, EXACT = 95;
async function drawChosen() {
  const row = pairs()[state.chosen];
  byId("pair").textContent = row.label;
  const effects = groupEffects(row.pair), unsigned = data.unsigned.includes(row.pair);
  byId("badges").replaceChildren(...badgesOf(row).map(([kind, question, answer]) => make("li", {},
    make("span", { class: `mark ${kind}`, "aria-hidden": "true" }), `${question}: `, make("b", { text: answer }))));
  byId("pair-words").textContent = unsigned ? "" : signWords(effects);
  byId("numbers").replaceChildren(...numbersOf(row).map(([name, value, small]) => make("div", {},
    make("dt", { text: name }), make("dd", { text: value }, ...(small ? [make("small", { text: small })] : [])))));
  byId("groups-caption").textContent = unsigned
    ? "Size of the effect in each group of points; differences between levels have signs of their own" : "Signed effect in each group of points";
  fillEffects(byId("groups"), effects, byId("groups-figure"), unsigned);
  fillEffects(byId("levels"), (data.levels[row.pair] ?? []).map(([title, ...ends]) => {
    const [mean, low, high] = ends.map((value) => (value === null ? null : factor() * value));
    return { title, mean, low, high };
  }), byId("levels-figure"));
  const surface = data.surfaces.find(({ pair }) => pair === row.pair);
  byId("surface-figure").hidden = surface === undefined;
  const columns = imagesOf(row);
  byId("images-figure").hidden = columns.length === 0;
  byId("images").replaceChildren(...columns.map(imageColumn));
  fillOthers(row, MIN_OTHERS);
  if (surface) await drawSurface(surface);
}

// The strongest other pairs of both units, at most ``count`` of each; a short table shows them anyway.
function fillOthers(row, count) {
  const ends = (pair) => [data.pairs.first[pair], data.pairs.second[pair]], rows = byStrength(pairs());
  const lists = (pairs().length <= SHORT_TABLE ? [] : ends(row.pair)).map((unit) => [unit, rows.filter(({ pair }) => pair !== row.pair && ends(pair).includes(unit)).slice(0, count)]).filter(([, found]) => found.length);
  byId("others-figure").hidden = lists.length === 0;
  byId("others").replaceChildren(...lists.map(([unit, found]) => make("div", {},
    make("h3", { text: breakable(data.short_names[unit]), title: data.names[unit] }),
    make("ul", {}, ...found.map((other) => {
      const partner = ends(other.pair).find((each) => each !== unit);
      const button = make("button", { type: "button", title: other.label, text: `× ${breakable(data.brief_names[partner])}`, "aria-label": `Choose ${other.label}` });
      button.addEventListener("click", () => choose(other.pair));
      return make("li", { class: other.unsure ? "unsure" : "" }, ...(words === null ? [] : decisionMark(other)), button, make("span", { text: format(other.strength) }));
    })))));
}

// What is known about a pair: the kind of its mark, the question, the answer.
function badgesOf(row) {
  const kind = row.decision === "yes" ? "yes" : row.decision === "no" ? "no" : "untested";
  const question = hasEvidence ? "held-out labels" : "network";
  return [
    ...(words === null ? [] : [[kind, question, decisionWords(row)]]),
    ...(hasStable ? [[row.stable ? "square yes" : "square no", "network", row.stable ? "stable" : "not stable"]] : []),
  ];
}

// The signs of a pair in plain words, and in which groups; a sign is clear if the interval of the effect excludes 0.
function signWords(effects) {
  const groups = { larger: [], smaller: [], unclear: [] };
  for (const effect of effects) {
    const clear = effect.mean !== 0 && (effect.low === null || effect.low > 0 || effect.high < 0);
    groups[!clear ? "unclear" : effect.mean > 0 ? "larger" : "smaller"].push(effect);
  }
  const [first, ...others] = Object.keys(groups).filter((word) => groups[word].length);
  if (first === undefined) return "";
  if (first === "unclear") return "Whether increasing both gives a larger or a smaller output than the sum of their separate effects is not clear.";
  const where = (found) => (found.length === 1 && found[0].agreement ? `${found[0].agreement < EXACT ? "mostly " : ""}where ${shorten(found[0].title)}` : `in ${found.length} of ${effects.length} groups`);
  const part = others.length ? `, ${where(groups[first])}; ` : effects.length > 1 ? " in all groups" : "";
  return `Increasing both gives a ${first} output than the sum of their separate effects${part}${others.map((word) => `${word} ${where(groups[word])}`).join(", ")}.`;
}

// Name, value and small print of each number.
function numbersOf(row) {
  const interval = row.low !== undefined && row.low !== null ? `${level} interval ${range(row.low, row.high).replace("–", "\u2060–\u2060")}` : "";
  const share = data.shares[row.pair];
  return [
    [state.unit === "std" ? `${scoreName()} / output's spread` : scoreName(), format(row.mean), interval],
    ...(data.output_std !== null && state.unit === "output" ? [["Relative size", format(row.mean / data.output_std), "times the output's standard deviation"]] : []),
    ...(share ? [["Share of variance", percent(share[0]), `of the output, ${percent(share[1]).replace("\u00a0%", "")} to ${percent(share[2])}`]] : []),
    ...(row.supported !== undefined ? [["Supported", format(row.supported), row.p === null ? "not tested: half of GEH" : "by held-out labels"]] : []),
    ...(hasEvidence && row.slope !== null ? [["Slope", `${format(row.slope)} ± ${format(row.slope_se, 2)}`, "1: labels contain it at this size"]] : []),
    ...(hasTrueInterval && row.true_low !== null ? [["True GEH", range(row.true_low, row.true_high), `${level} interval from the labels`]] : []),
    ...(row.p !== undefined && row.p !== null ? [["p-value", shortP(row.p), hasEvidence ? "one-sided" : ""]] : []),
  ];
}

function groupEffects(pair) {
  const { mean, half } = data.group_effects;
  if (pair >= mean.length) return [];
  const { names, sizes, descriptions } = data.groups.by_pair?.[pair] ?? data.groups;
  const joined = (words) => words.replace(/ (<|≥) /g, "\u00a0$1\u00a0");
  return names.flatMap((name, group) => {
    if (sizes[group] === 0) return [];
    const [rule, agreement] = descriptions?.[group] ?? [names.length === 1 ? "all points" : `group ${name}`, null];
    const about = agreement === null ? "" : `, ${agreement} % agreement`;
    const number = descriptions && names.length > 1 && !data.groups.by_pair ? `group ${name}, ` : "";
    const small = `${number}${sizes[group].toLocaleString("en")} point${sizes[group] === 1 ? "" : "s"}${about}`;
    const value = factor() * mean[pair][group], width = half === null || half[pair][group] === null ? null : factor() * half[pair][group];
    return { title: joined(rule), agreement, small, mean: value, low: width === null ? null : value - width, high: width === null ? null : value + width };
  });
}

// Signed effects as words, bars and numbers; pale where the interval contains 0.
function fillEffects(list, effects, figure, unsigned = false) {
  figure.hidden = effects.length === 0;
  const ends = effects.flatMap(({ mean, low, high }) => [0, mean, low ?? mean, high ?? mean]);
  const low = Math.min(...ends), span = Math.max(...ends) - low || 1, place = (value) => 0.01 + 0.98 * (value - low) / span;
  list.replaceChildren(...effects.map((effect) => {
    const sign = unsigned ? "plain" : effect.mean > 0 ? "up" : effect.mean < 0 ? "down" : "plain";
    const clear = effect.low === null || effect.low > 0 || effect.high < 0;
    const number = make("span", { class: `number ${clear ? `${sign}-word` : ""}`, text: unsigned ? format(effect.mean) : signed(effect.mean) });
    if (effect.low !== null) number.append(make("small", { text: `${format(effect.low)} to ${format(effect.high)}` }));
    const track = make("div", { class: "track", "aria-hidden": "true" }, part("i", place(0), place(effect.mean), sign),
      ...(effect.low === null ? [] : [part("b", place(effect.low), place(effect.high))]), make("u", { style: { left: `${100 * place(0)}%` } }));
    const short = shorten(effect.title), name = make("span", { text: breakable(short), ...(short === effect.title ? {} : { title: effect.title }) });
    if (effect.small) name.append(make("small", { text: effect.small + (clear ? "" : "; sign not clear") }));
    return make("li", { class: clear ? "" : "unclear", "data-mean": effect.mean }, name, track, number);
  }));
  // Long lists scroll, with the keyboard too.
  if (list.scrollHeight > list.clientHeight + 1) list.tabIndex = 0;
  else list.removeAttribute("tabindex");
}

function imagesOf(row) {
  const units = [[row.first, row.short_first], [row.second, row.short_second]].filter(([name]) => Object.hasOwn(data.images, name));
  const columns = units.map(([name, short]) => ({
    name, short, image: data.images[name], painted: data.painted[name], words: `Inputs with the highest activation of ${name}`,
  }));
  const both = units.length === 2 ? data.joint[row.pair] : undefined;
  if (both) columns.push({ name: row.label, short: "both", image: both[0], painted: both[1], words: `Inputs that activate both ${row.first} and ${row.second}` });
  return columns;
}

function imageColumn({ name, short, image, painted, words: meaning }) {
  const box = make("div", {}, make("span", { text: breakable(short), title: name }), make("img", { src: image, alt: meaning }));
  if (painted) box.append(make("img", { src: painted, alt: `Input by gradient ascent for ${name}` }));
  return box;
}

// All pairs of the gallery, where it has more than one.
function fillGallery() {
  const shown = Object.keys(data.joint).map(Number);
  byId("gallery").hidden = shown.length < 2;
  if (shown.length < 2) return;
  byId("gallery-pairs").replaceChildren(...shown.map((pair) => {
    const row = pairs()[pair], button = make("button", { type: "button", text: breakable(row.short), title: row.label });
    button.addEventListener("click", () => { choose(pair); byId("chosen").scrollIntoView({ block: "nearest" }); });
    const facts = [`${scoreName()} ${format(row.mean)}`, SIGNS[data.majority[pair]], decisionWords(row)].filter((word) => word && word !== "neither");
    return make("div", { class: "card" }, button, make("p", { class: "small" }, ...(words === null ? [] : decisionMark(row).slice(0, 1)), facts.join(" · ")),
      make("div", { class: "images" }, ...imagesOf(row).map(imageColumn)));
  }));
}
