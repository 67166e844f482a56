// ---------- summary ----------
function tileNumber(value, name) {
  return el("div", { class: "tile-number" }, el("b", { text: value }), el("span", { text: name }));
}
function drawSummary() {
  document.title = `${R.name} · unida report`;
  $("title").textContent = R.name;
  $("subtitle").textContent = `${R.method} (${R.paper})`;
  const unknown = R.counts[UNKNOWN], found = R.counts.slice(0, K).filter(count => count).length;
  const doubtful = T.doubt.filter(doubt => doubt >= 750).length;
  const tiles = [
    [whole(R.total), "target images"], [`${found} / ${K}`, "known classes found"],
    [percent(unknown / R.total), "called unknown"], [percent(doubtful / N), "doubtful predictions"]];
  if (D.categories) tiles.push([whole(D.categories.found.length), D.categories.found.length === 1 ? "category discovered" : "categories discovered"]);
  if (D.skipped.count) tiles.push([whole(D.skipped.count), "files skipped"]);
  $("tiles").replaceChildren(...tiles.map(pair => tileNumber(...pair)));
  $("words").replaceChildren(...D.summary.map(text => el("p", { text })));
  const warnings = (D.diagnostics && D.diagnostics.warnings || []).map(one =>
    el("p", { class: "note" }, el("b", { text: `${one.what} ` }), one.advice || ""));
  const notes = D.notes.map(text => el("p", { class: "note plain", text }));
  $("warnings").replaceChildren(...warnings, ...notes);
  drawBars();
  drawScores();
  drawEstimates();
}
function drawBars() {
  const order = [...R.counts.keys()].filter(k => R.counts[k] || K <= 30);
  order.sort((a, b) => (a === UNKNOWN) - (b === UNKNOWN) || R.counts[b] - R.counts[a]);
  const most = Math.max(...R.counts, 1);
  $("predictions").replaceChildren(...order.map(k => {
    const fill = el("span", { class: "fill" });
    fill.style.width = percent(R.counts[k] / most, 2);
    fill.style.background = styleOf(k, UNKNOWN).colour;
    fill.hidden = R.counts[k] === 0;
    fill.dataset.k = k;
    return el("button", { type: "button", onclick: () => showClass(k) },
      el("span", { class: "name", text: className(k), title: className(k) }),
      el("span", { class: "track" }, fill), el("span", { class: "value", text: whole(R.counts[k]) }));
  }));
}
function drawScores() {
  $("scores-card").hidden = !D.scores;
  if (!D.scores) return;
  const { counts, edges, threshold } = D.scores, W = 480, H = 200, base = H - 24, top = Math.max(...counts);
  const x = value => (value - edges[0]) / (edges[edges.length - 1] - edges[0]) * W;
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Histogram of unknown scores; the threshold is ${short(threshold)}` });
  counts.forEach((count, b) => {
    const height = count ? Math.max(1.5, count / top * (base - 22)) : 0;
    const rejected = (edges[b] + edges[b + 1]) / 2 >= threshold;
    const bar = svg("rect", { x: x(edges[b]) + .6, y: base - height, width: Math.max(.5, W / counts.length - 1.2), height, rx: 1.5, class: rejected ? "unknown-bar" : "known-bar" });
    bar.append(svg("title", { text: `${short(edges[b])} to ${short(edges[b + 1])}: ${plural(count, "image", "images")}` }));
    picture.append(bar);
  });
  const at = x(threshold);
  picture.append(
    svg("line", { x1: 0, x2: W, y1: base, y2: base, class: "axis" }),
    svg("line", { x1: at, x2: at, y1: 14, y2: base, class: "limit" }),
    svg("text", { x: Math.min(Math.max(at, 60), W - 60), y: 10, "text-anchor": "middle", text: `threshold ${short(threshold)}` }),
    svg("text", { x: 0, y: H - 6, text: `known  ${short(edges[0])}` }),
    svg("text", { x: W, y: H - 6, "text-anchor": "end", text: `${short(edges[edges.length - 1])}  unknown` }));
  $("scores").replaceChildren(picture);
}
function drawEstimates() {
  const diagnostics = D.diagnostics;
  const rows = Object.entries(diagnostics && diagnostics.estimates || {}).filter(([, value]) => value !== null);
  if (!rows.length) return;
  const about = diagnostics.about || {};
  const value = one => typeof one === "object" ? JSON.stringify(one) : short(one);
  $("estimates").replaceChildren(el("figure", { class: "card" },
    el("figcaption", {}, "Estimates ", el("span", { class: "faint", text: "made without target labels" })),
    table(["", "value", "meaning"], rows.map(([name, one]) => [name.replace(/_/g, " "), value(one), about[name] || ""]), [1])));
}
function table(head, rows, numbers = []) {
  const cells = row => row.map((text, c) => el("td", { text, class: numbers.includes(c) ? "number" : "" }));
  return el("table", { class: "plain-table" },
    el("thead", {}, el("tr", {}, ...head.map((text, c) => el("th", { text, scope: "col", class: numbers.includes(c) ? "number" : "" })))),
    el("tbody", {}, ...rows.map(row => el("tr", {}, ...cells(row)))));
}

// ---------- training ----------
function curve(name, steps, values) {
  const W = 280, H = 120, left = 4, right = W - 4, top = 8, base = H - 18;
  const points = steps.map((step, n) => [step, values[n]]).filter(([, value]) => typeof value === "number");
  const low = Math.min(...points.map(p => p[1])), high = Math.max(...points.map(p => p[1]));
  const x = step => left + (step - steps[0]) / (steps[steps.length - 1] - steps[0] || 1) * (right - left);
  const y = value => base - (high > low ? (value - low) / (high - low) : .5) * (base - top);
  const last = points[points.length - 1][1];
  const read = el("span", { class: "faint", text: short(last) });
  const dot = svg("circle", { r: 4.5, class: "at", visibility: "hidden" });
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${name}: from ${short(points[0][1])} to ${short(last)}, lowest ${short(low)}, highest ${short(high)}` },
    svg("line", { x1: left, x2: right, y1: base, y2: base, class: "axis" }),
    svg("polyline", { class: "curve", points: points.map(([s, v]) => `${x(s).toFixed(1)},${y(v).toFixed(1)}`).join(" ") }),
    dot, svg("text", { x: left, y: H - 4, text: `step ${whole(steps[0])}` }), svg("text", { x: right, y: H - 4, "text-anchor": "end", text: whole(steps[steps.length - 1]) }));
  picture.addEventListener("pointermove", event => {
    const box = picture.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * W;
    const [s, v] = points.reduce((a, b) => Math.abs(x(b[0]) - at) < Math.abs(x(a[0]) - at) ? b : a);
    dot.setAttribute("cx", x(s));
    dot.setAttribute("cy", y(v));
    dot.setAttribute("visibility", "visible");
    read.textContent = `${short(v)} at ${whole(s)}`;
  });
  picture.addEventListener("pointerleave", () => { dot.setAttribute("visibility", "hidden"); read.textContent = short(last); });
  return el("figure", { class: "card" }, el("figcaption", {}, name.replace(/_/g, " "), read), picture);
}
function drawTraining() {
  if (!D.curves) return;
  const names = Object.keys(D.curves.values);
  const late = name => /^(lr|.*per_second|.*seconds|.*memory.*)$/.test(name) ? 1 : 0;
  names.sort((a, b) => (b === "loss") - (a === "loss") || late(a) - late(b));
  $("training").hidden = names.length === 0;
  $("curves").replaceChildren(...names.map(name => curve(name, D.curves.step, D.curves.values[name])));
}

// ---------- against labels ----------
const SCORE_TITLES = { known: "known classes right", unknown: "unknown found", h: "H, of both", balanced_h: "balanced H", h3: "H³, with categories" };
function drawConfusion() {
  const evaluation = D.evaluation;
  if (!evaluation || !evaluation.rules) return;
  $("confusion").hidden = false;
  $("confusion-how").textContent = `${plural(evaluation.images, "image", "images")} with labels in ${evaluation.labels}. Classes that the source does not have count as unknown; labels selected nothing in this run.`;
  const names = Object.keys(evaluation.rules);
  $("rule").replaceChildren(...names.map(name => el("option", { value: name, text: name })));
  $("rule").value = names.includes(R.reject) ? R.reject : names[0];
  $("rule").onchange = drawRule;
  drawRule();
}
function drawRule() {
  const rule = D.evaluation.rules[$("rule").value], names = D.evaluation.classes, counts = rule.confusion;
  const scores = Object.entries(SCORE_TITLES).filter(([name]) => typeof rule.scores[name] === "number");
  $("marks").replaceChildren(...scores.map(([name, words]) => tileNumber(percent(rule.scores[name], 1), words)));
  const sums = counts.map(row => row.reduce((a, b) => a + b, 0));
  const wrong = [];
  counts.forEach((row, a) => row.forEach((count, b) => { if (a !== b && count) wrong.push([count, a, b]); }));
  wrong.sort((a, b) => b[0] - a[0]);
  $("mistakes").replaceChildren(wrong.length
    ? table(["true class", "predicted", "images"], wrong.slice(0, 12).map(([count, a, b]) => [names[a], names[b], `${whole(count)} of ${whole(sums[a])}`]), [2])
    : el("p", { text: "There are none." }));
  $("matrix").replaceChildren(names.length <= 90 ? matrix(names, counts, sums)
    : el("p", { class: "faint", text: `${names.length} classes are too many for a table: evaluation.json has it all.` }));
}
function matrix(names, counts, sums) {
  const shown = names.map((name, k) => k).filter(k => sums[k] || counts.some(row => row[k]));
  const body = shown.map(a => el("tr", {}, el("th", { text: names[a], title: names[a], scope: "row" }), ...shown.map(b => {
    const part = sums[a] ? counts[a][b] / sums[a] : 0;
    const cell = el("td", { text: whole(counts[a][b]), class: `${a === b ? "right-cell" : ""} ${counts[a][b] ? "" : "zero"}`, title: `true ${names[a]}, predicted ${names[b]}: ${counts[a][b]} (${percent(part)})` });
    if (counts[a][b]) cell.style.background = a === b ? `rgba(var(--shade), ${(.1 + .5 * part).toFixed(3)})` : `rgba(213, 94, 0, ${(.1 + .65 * part).toFixed(3)})`;
    return cell;
  })));
  return el("table", { class: "matrix" }, el("thead", {}, el("tr", {}, el("th"), ...shown.map(k => el("th", { text: names[k], title: names[k], scope: "col" })))), el("tbody", {}, ...body));
}

// ---------- calibration ----------
function reliability(title, error, bins) {
  const W = 320, H = 260, left = 34, base = H - 30, size = base - 12, x = v => left + v * (W - left - 10), y = v => base - v * size;
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}: expected calibration error ${short(error)}` });
  const most = Math.max(...bins.map(bin => bin.count), 1), width = (W - left - 10) / Math.max(bins.length, 10) * .8;
  for (const bin of bins) {
    if (!bin.count || typeof bin.accuracy !== "number") continue;
    const bar = svg("rect", { x: x(bin.confidence) - width / 2, y: y(bin.accuracy), width, height: Math.max(1, base - y(bin.accuracy)), rx: 2, class: "known-bar", opacity: (.35 + .65 * Math.sqrt(bin.count / most)).toFixed(2) });
    const gap = svg("rect", { x: x(bin.confidence) - width / 2, y: Math.min(y(bin.accuracy), y(bin.confidence)), width, height: Math.abs(y(bin.accuracy) - y(bin.confidence)), class: "gap" });
    bar.append(svg("title", { text: `confidence ${percent(bin.confidence)}, right ${percent(bin.accuracy)}, ${plural(bin.count, "image", "images")}` }));
    picture.append(bar, gap);
  }
  for (const v of [0, .5, 1]) picture.append(svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end", text: percent(v) }), svg("text", { x: x(v), y: base + 15, "text-anchor": "middle", text: percent(v) }));
  picture.append(svg("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "ideal" }), svg("line", { x1: x(0), y1: base, x2: x(1), y2: base, class: "axis" }), svg("text", { x: x(1), y: H - 2, "text-anchor": "end", text: "confidence; bars: accuracy" }));
  return el("figure", { class: "card" }, el("figcaption", {}, title, el("span", { class: "faint", text: `expected error ${short(error)}` })), picture);
}
function drawCalibration() {
  const found = D.calibration;
  if (!found) return;
  const parts = [["As trained", found.ece_before, found.bins_before], ["Calibrated", found.ece_after, found.bins]].filter(part => part[2] && part[2].length);
  $("calibration").hidden = false;
  $("calibration-how").textContent = [found.note ? `Confidence: ${found.note}.` : `Confidence is calibrated by the temperature ${short(found.temperature)}.`, "A bar on the dashed line means that confidence equals accuracy, on held-out source images."].slice(0, parts.length ? 2 : 1).join(" ");
  $("reliability").replaceChildren(...parts.map(part => reliability(...part)));
}

// ---------- skipped, reproduce ----------
function drawRest() {
  $("skipped").hidden = D.skipped.count === 0;
  $("skipped-how").textContent = `${plural(D.skipped.count, "file was", "files were")} left out of the run.${D.skipped.files.length < D.skipped.count ? ` The first ${whole(D.skipped.files.length)} are listed; skipped.csv has all.` : ""}`;
  $("skipped-rows").replaceChildren(table(["file", "reason"], D.skipped.files));
  $("command").textContent = R.command;
  $("versions").textContent = `Page written by ${Object.entries(R.versions).map(pair => pair.join(" ")).join(", ")}. The same seed, data and versions give the same run.`;
  const list = (title, values) => el("div", {}, el("h3", { text: title }), table(["", ""], Object.entries(values)));
  $("settings").replaceChildren(list("Run", R.config), list(`Method: ${R.method}`, R.settings));
  $("copy").onclick = async () => {
    try { await navigator.clipboard.writeText(R.command); $("copy").textContent = "Copied"; }
    catch {
      getSelection().selectAllChildren($("command"));
      $("copy").textContent = "Press Ctrl+C";
    }
  };
}
