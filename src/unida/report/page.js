"use strict";
// The report of a run. All data come from the JSON block and are shown as text (textContent),
// never as markup: names of files and classes may be anything.
(() => {
const D = JSON.parse(document.getElementById("data").textContent);
const R = D.run, T = D.target, S = D.source;
const N = T.path.length, M = S.path.length, K = R.classes.length, UNKNOWN = K;
const FIRST = 12, MORE = 48;  // pictures of a shelf at first, and more at a time
const $ = id => document.getElementById(id);

// ---------- small tools ----------
function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") node.className = value;
    else if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}
function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") node.textContent = value; else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
const whole = number => number.toLocaleString("en-GB");
const percent = (part, digits = 0) => `${(100 * part).toFixed(digits)}%`;
const short = value => typeof value !== "number" ? "–"
  : Number.isInteger(value) ? whole(value)
  : Math.abs(value) >= 1000 || Math.abs(value) < 0.001 ? value.toExponential(2) : value.toPrecision(3);
const className = k => k === UNKNOWN ? "unknown" : R.classes[k];
const plural = (n, one, many) => `${whole(n)} ${n === 1 ? one : many}`;
function whenIdle(work, wait) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(work, wait); };
}

// ---------- corrections: names of categories, labels of images ----------
const KEY = `unida:${R.id}:${D.categories ? D.categories.id : ""}`;
const corrections = { names: {}, labels: {} };
let served = false, saved = {};  // what the server has of this page; another may be open
let conflict = "";  // with another page, shown until the next change
function readLocal() {
  try { return JSON.parse(localStorage.getItem(KEY)) || {}; } catch { return {}; }
}
function setCorrections(state) {
  for (const part of ["names", "labels"]) {
    const found = state && typeof state[part] === "object" && state[part] || {};
    corrections[part] = Object.assign(Object.create(null), found);
  }
}
function showState(text, bad = false) {
  $("saved").textContent = text;
  $("saved").classList.toggle("bad", bad);
}
// Takes over what the server has by now; returns what was changed here too, and differently.
function adopt(base, state) {
  const lost = [];
  for (const part of ["names", "labels"]) {
    const then = base[part] || {}, now = state[part] || {}, own = corrections[part];
    for (const key of new Set([...Object.keys(then), ...Object.keys(now)])) {
      if (now[key] === then[key]) continue;
      if (own[key] !== then[key] && own[key] !== now[key]) {
        lost.push(`${part === "names" ? `category ${key}` : key} is “${now[key] || ""}”`);
      }
      if (key in now) own[key] = now[key]; else delete own[key];
    }
  }
  saved = { names: state.names, labels: state.labels };
  if (lost.length) document.activeElement?.blur();  // or its field would keep what was typed
  refreshNames();
  refreshLabels();
  return lost;
}
async function send() {
  const sent = { names: { ...corrections.names }, labels: { ...corrections.labels } };
  try {
    const answer = await fetch("/save", {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...sent, base: saved }),
    });
    const reply = await answer.json();
    const told = answer.status === 409;
    const lost = told ? adopt(saved, reply.saved) : answer.ok ? adopt(sent, reply) : [];
    if (lost.length) conflict = `saved in another window: ${lost.join(", ")}; change it again if it is wrong`;
    if (told) post();  // the other changes
    const state = answer.ok ? "saved" : told ? "saving …" : `not saved: ${reply.error || answer.status}`;
    showState(conflict || state, Boolean(conflict) || !answer.ok && !told);
  } catch { showState("not saved: unida review does not respond", true); }
}
let sending = Promise.resolve();  // one after the other: each is based on the one before
const post = whenIdle(() => { sending = sending.then(send); }, 350);
function keep() {
  conflict = "";
  if (served) { showState("saving …"); post(); return; }
  try {
    localStorage.setItem(KEY, JSON.stringify(corrections));
    showState("kept in this browser");
  } catch { showState("cannot be kept: export before you leave", true); }
}
async function connect() {
  if (!location.protocol.startsWith("http")) return;
  try {
    const answer = await fetch("/saved");
    if (!answer.ok) return;
    const state = await answer.json();
    served = true;
    saved = state;
    setCorrections(state);
    showState("changes are saved to the run");
    refreshNames();
    refreshLabels();
    const first = await fetch("/first");
    if (first.ok) showFirst(await first.json());
  } catch { /* another server: the page works by itself */ }
}
const fullPath = i => R.root + T.path[i];
const labelOf = i => corrections.labels[fullPath(i)];
function groupName(id) {
  const category = D.categories.found.find(one => one.id === id);
  return corrections.names[id] || category && category.name || "";
}
const groupTitle = id => groupName(id) || `category ${id}`;

// ---------- CSV ----------
// A name that is not valid UTF-8 has its odd bytes as half signs U+DC80 to U+DCFF (as in Python).
function toBytes(text) {
  const parts = [], encoder = new TextEncoder();
  for (const piece of text.split(/([\udc80-\udcff](?<![\ud800-\udbff].))/)) {
    const odd = piece.length === 1 && piece >= "\udc80" && piece <= "\udcff";
    parts.push(odd ? new Uint8Array([piece.charCodeAt(0) - 0xdc00]) : encoder.encode(piece));
  }
  return parts;
}
function download(name, rows) {
  const number = /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$/i;
  // A spreadsheet must not take it for a formula; unida reads it without the apostrophe.
  const plain = text => /^'*[=+\-@\t\r]/.test(text) && !number.test(text) ? `'${text}` : text;
  const cell = text => /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  const text = rows.map(row => row.map(value => cell(plain(String(value)))).join(",") + "\n").join("");
  const url = URL.createObjectURL(new Blob(toBytes(text), { type: "text/csv;charset=utf-8" }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// ---------- colours and marks ----------
// Okabe and Ito's colours without yellow, brighter on dark; after the last, the shape changes.
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195"];
const DARK = ["#4ba3e3", "#ff8a4c", "#2fc79b", "#ef9fcb", "#f5bd48", "#9ad8fb", "#b79ae6"];
const SHAPES = ["circle", "square", "triangle", "diamond"];
const dark = () => document.documentElement.dataset.theme === "dark";
function styleOf(k, none) {
  if (k === none) return { colour: dark() ? "#98a2af" : "#7d8590", shape: "circle" };
  const palette = dark() ? DARK : LIGHT;
  return { colour: palette[k % palette.length], shape: SHAPES[Math.floor(k / palette.length) % SHAPES.length] };
}
function trace(pen, shape, x, y, r) {
  pen.beginPath();
  if (shape === "circle") pen.arc(x, y, r, 0, 7);
  else if (shape === "square") pen.rect(x - .88 * r, y - .88 * r, 1.76 * r, 1.76 * r);
  else if (shape === "diamond") {
    pen.moveTo(x, y - 1.25 * r); pen.lineTo(x + 1.1 * r, y); pen.lineTo(x, y + 1.25 * r); pen.lineTo(x - 1.1 * r, y);
  } else {
    pen.moveTo(x, y - 1.15 * r); pen.lineTo(x + 1.1 * r, y + .85 * r); pen.lineTo(x - 1.1 * r, y + .85 * r);
  }
  pen.closePath();
}
function stamp({ colour, shape }, r, hollow) {
  const ratio = window.devicePixelRatio || 1, side = Math.ceil(2 * (1.35 * r + 2));
  const canvas = el("canvas");
  canvas.width = canvas.height = Math.ceil(side * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  trace(pen, shape, side / 2, side / 2, hollow ? r - .2 : r);
  if (hollow) { pen.strokeStyle = colour; pen.lineWidth = Math.max(1.2, .42 * r); pen.stroke(); }
  else {
    pen.fillStyle = colour; pen.fill();
    pen.strokeStyle = dark() ? "rgba(18,22,28,.75)" : "rgba(255,255,255,.8)"; pen.lineWidth = .8; pen.stroke();
  }
  return { canvas, side };
}
const marks = [];  // legends that must be drawn again when the theme changes
function mark(k, none) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  const draw = () => {
    const drawn = stamp(styleOf(k, none), 5, false);
    canvas.width = canvas.height = 28;
    canvas.getContext("2d").drawImage(drawn.canvas, 0, 0, drawn.canvas.width, drawn.canvas.height, 14 - drawn.side, 14 - drawn.side, 2 * drawn.side, 2 * drawn.side);
  };
  draw();
  marks.push({ canvas, draw });
  return canvas;
}

// ---------- pictures ----------
const { side: SIDE, across: ACROSS } = D.sprites;
const BARE = D.sprites.sheets.length === 0;  // no image could be read: their names stand for them
const PER_SHEET = ACROSS * ACROSS, missing = new Set(D.sprites.missing);
const urls = [], sheets = [];
function sheetUrl(s) {
  if (!urls[s]) {
    const text = atob(D.sprites.sheets[s].split(",")[1]);
    const bytes = Uint8Array.from(text, sign => sign.charCodeAt(0));
    urls[s] = URL.createObjectURL(new Blob([bytes], { type: "image/webp" }));
  }
  return urls[s];
}
function sheetImage(s, then) {
  if (!sheets[s]) {
    const image = new Image();
    sheets[s] = { image, ready: false, waiting: [] };
    image.onload = () => {
      sheets[s].ready = true;
      sheets[s].waiting.splice(0).forEach(call => call());
    };
    image.src = sheetUrl(s);
  }
  if (!sheets[s].ready) { if (!sheets[s].waiting.includes(then)) sheets[s].waiting.push(then); return null; }
  return sheets[s].image;
}
const shapeOf = i => D.sprites.shapes[i] / 100;
function paint(pen, i, x, y, width, height, then) {
  const place = i % PER_SHEET, image = BARE ? null : sheetImage(Math.floor(i / PER_SHEET), then);
  if (image) pen.drawImage(image, place % ACROSS * SIDE, Math.floor(place / ACROSS) * SIDE, SIDE, SIDE, x, y, width, height);
  else { pen.fillStyle = "#969696"; pen.fillRect(x, y, width, height); }
}
function thumb(i, height, widest = 2.2) {
  const ratio = Math.min(shapeOf(i), widest), width = Math.round(height * ratio);
  const s = Math.floor(i / PER_SHEET), place = i % PER_SHEET;
  const inSheet = Math.min(PER_SHEET, N + M - s * PER_SHEET);
  const columns = Math.min(ACROSS, inSheet), rows = Math.ceil(inSheet / ACROSS);
  const node = el("span", { class: "thumb" });
  node.style.width = `${width}px`;
  node.style.height = `${height}px`;
  if (BARE) {
    node.style.cssText += "overflow: hidden; overflow-wrap: anywhere; font-size: 11px";
    node.textContent = pathOf(i).split("/").pop();
    return node;
  }
  node.style.backgroundSize = `${columns * width}px ${rows * height}px`;
  node.style.backgroundPosition = `${-(place % ACROSS) * width}px ${-Math.floor(place / ACROSS) * height}px`;
  node.draw = () => { node.style.backgroundImage = `url("${sheetUrl(s)}")`; };
  whenNear.observe(node);
  return node;
}
const whenNear = new IntersectionObserver(entries => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) { whenNear.unobserve(target); target.draw(); }
  }
}, { rootMargin: "600px" });
function canvasOf(canvas, i, most, alt) {
  const ratio = shapeOf(i), width = Math.round(ratio >= 1 ? most : most * ratio);
  const height = Math.round(width / ratio), dense = window.devicePixelRatio || 1;
  canvas.width = width * dense;
  canvas.height = height * dense;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.setAttribute("aria-label", alt);
  const pen = canvas.getContext("2d");
  pen.imageSmoothingQuality = "high";
  const again = () => paint(pen, i, 0, 0, canvas.width, canvas.height, again);
  again();
  return canvas;
}

// ---------- facts about one image ----------
const isSource = i => i >= N;
const pathOf = i => isSource(i) ? S.path[i - N] : T.path[i];
const classOf = i => isSource(i) ? S.label[i - N] : T.label[i];
function facts(i) {
  if (isSource(i)) return [["Domain", "source"], ["Class", className(classOf(i))]];
  const label = T.label[i], rows = [["Domain", "target"], ["Prediction", className(label)]];
  if (label === UNKNOWN && D.map) rows.push(["Nearest known class", className(T.best[i])]);
  rows.push(["Confidence", percent(T.confidence[i] / 1000)], ["Unknown score", short(T.score[i])]);
  rows.push(["Threshold", short(R.rule.threshold)], ["Doubt", percent(T.doubt[i] / 1000)]);
  if (T.category[i]) rows.push(["Category", groupTitle(T.category[i])]);
  if (T.truth && T.truth[i] !== null) rows.push(["True class", T.truth[i]]);
  if (missing.has(i)) rows.push(["Image", "the file could not be read"]);
  return rows;
}
function describe(i) {
  if (isSource(i)) return `source, ${className(classOf(i))}`;
  const confidence = percent(T.confidence[i] / 1000);
  return T.label[i] === UNKNOWN ? `unknown (nearest: ${className(T.best[i])}, ${confidence})` : `${className(T.label[i])}, confidence ${confidence}`;
}
function isRight(i) {
  if (!T.truth || T.truth[i] === null) return null;
  const known = R.classes.includes(T.truth[i]);
  return known ? T.truth[i] === R.classes[T.label[i]] : T.label[i] === UNKNOWN;
}

// ---------- one image, opened ----------
const opened = { i: -1, list: [], from: null };
function open(i, list) {
  opened.i = i;
  opened.list = list;
  const dialog = $("picture");
  canvasOf($("picture-canvas"), i, 224, pathOf(i));
  $("picture-title").textContent = pathOf(i);
  $("facts").replaceChildren(...facts(i).flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]));
  $("correct").hidden = isSource(i);
  if (!isSource(i)) fillLabels(i);
  const at = list.indexOf(i);
  $("previous").disabled = at <= 0;
  $("next").disabled = at < 0 || at >= list.length - 1;
  if (!dialog.open) { opened.from = document.activeElement; dialog.showModal(); }
}
function step(by) {
  const next = opened.list[opened.list.indexOf(opened.i) + by];
  if (next !== undefined) open(next, opened.list);
}
function ownLabels() {
  const known = new Set([...R.classes, "unknown"]);
  return [...new Set(Object.values(corrections.labels))].filter(name => !known.has(name)).sort();
}
function fillLabels(i) {
  const select = $("label-select"), now = labelOf(i);
  const names = [...R.classes, "unknown", ...ownLabels()];
  select.replaceChildren(
    el("option", { value: "", text: `as predicted: ${className(T.label[i])}` }),
    ...names.map((name, k) => el("option", { value: `=${k}`, text: name })),
    el("option", { value: "new", text: "a new name …" }));
  select.value = now === undefined ? "" : `=${names.indexOf(now)}`;
  select.onchange = () => {
    $("label-new").hidden = select.value !== "new";
    if (select.value === "new") { $("label-new").value = ""; $("label-new").focus(); return; }
    correct(i, select.value === "" ? null : names[Number(select.value.slice(1))]);
  };
  $("label-new").hidden = true;
  $("label-new").onchange = () => {
    const name = $("label-new").value.trim();
    if (name) { correct(i, name); fillLabels(i); }
  };
}
function correct(i, name) {
  if (name === null) delete corrections.labels[fullPath(i)]; else corrections.labels[fullPath(i)] = name;
  keep();
  refreshLabels();
}
function setUpDialog() {
  $("previous").onclick = () => step(-1);
  $("next").onclick = () => step(1);
  $("picture").addEventListener("keydown", event => {
    if (["SELECT", "INPUT"].includes(event.target.tagName)) return;
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  $("picture").addEventListener("click", event => { if (event.target === $("picture")) $("picture").close(); });
  $("picture").addEventListener("close", () => {
    const tile = [...document.querySelectorAll(`.tile[data-i="${opened.i}"]`)].find(one => one.offsetParent);
    (tile || opened.from)?.focus?.();
  });
}

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

// ---------- map ----------
const map = { zoom: 1, x: .5, y: .5, over: -1, only: new Set(), by: "class", stamps: new Map(), draws: 0, scheduled: false, list: [], pictures: new Map() };
const X = D.map ? Float32Array.from(D.map.x, v => v / 65535) : [];
const Y = D.map ? Float32Array.from(D.map.y, v => v / 65535) : [];
const CELLS = 64, cells = new Map();
const cellOf = value => Math.min(CELLS - 1, Math.max(0, Math.floor(value * CELLS)));
function groupOf(i) {
  if (map.by === "class") return classOf(i);
  return isSource(i) ? -1 : T.category[i];
}
const none = () => map.by === "class" ? UNKNOWN : 0;
function styleOfGroup(group) {
  if (map.by === "class") return styleOf(group, UNKNOWN);
  return group > 0 ? styleOf(group - 1, -1) : styleOf(0, 0);
}
const HIDDEN = 0, FADED = 1, LIT = 2;
const state = new Uint8Array(N + M), groups = new Int32Array(N + M);  // of every mark
const active = i => state[i] === LIT;
function updateStates() {
  const target = $("show-target").checked, source = $("show-source").checked;
  for (let i = 0; i < N + M; i++) {
    const shown = isSource(i) ? source : target;
    state[i] = !shown ? HIDDEN : map.only.size === 0 || map.only.has(groups[i]) ? LIT : FADED;
  }
}
const span = values => Math.max(values.reduce((a, b) => Math.max(a, b), 0) - values.reduce((a, b) => Math.min(a, b), 1), .05);
const WIDE = D.map ? span(X) : 1, HIGH = D.map ? span(Y) : 1;
function scale() { return Math.min((map.width - 90) / WIDE, (map.height - 40) / HIGH) * map.zoom; }
const screenX = i => (X[i] - map.x) * scale() + map.width / 2;
const screenY = i => (Y[i] - map.y) * scale() + map.height / 2;
function redraw() {
  if (map.scheduled || !D.map) return;
  map.scheduled = true;
  requestAnimationFrame(() => { map.scheduled = false; draw(); });
}
function radius() {
  const base = N + M < 400 ? 5.5 : N + M < 2500 ? 4 : 2.8;
  const small = Math.min(1, Math.max(.6, Math.min(map.width, map.height) / 560));
  return Math.min(base * small * Math.pow(map.zoom, .3), 9);
}
function stampOf(group, hollow) {
  const r = Math.round(2 * radius()) / 2, key = `${group}/${hollow}/${r}/${dark()}/${map.by}`;
  if (!map.stamps.has(key)) map.stamps.set(key, stamp(styleOfGroup(group), r, hollow));
  return map.stamps.get(key);
}
function draw() {
  const canvas = $("canvas"), pen = canvas.getContext("2d"), dense = window.devicePixelRatio || 1;
  map.draws += 1;
  pen.setTransform(1, 0, 0, 1, 0, 0);  // whole pixels, not scaled: the quickest way to draw a stamp
  pen.clearRect(0, 0, canvas.width, canvas.height);
  const pictures = $("show-pictures").checked, k = scale(), dx = map.width / 2, dy = map.height / 2;
  const stamps = new Map();
  for (const now of map.only.size ? [FADED, LIT] : [LIT]) {
    pen.globalAlpha = now === FADED ? .09 : pictures ? .35 : .88;
    for (const i of map.order) {
      if (state[i] !== now) continue;
      const x = (X[i] - map.x) * k + dx, y = (Y[i] - map.y) * k + dy;
      if (x < -9 || y < -9 || x > map.width + 9 || y > map.height + 9) continue;
      const key = groups[i] * 2 + (i >= N);
      let drawn = stamps.get(key);
      if (!drawn) stamps.set(key, drawn = stampOf(groups[i], i >= N));
      const half = drawn.canvas.width / 2;
      pen.drawImage(drawn.canvas, Math.round(dense * x - half), Math.round(dense * y - half));
    }
  }
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.globalAlpha = 1;
  if (pictures) drawPictures(pen);
  drawOver();
}
const ROOM = 46;
const squareOf = (x, y) => Math.floor(x / ROOM) * 1000 + Math.floor(y / ROOM);
function drawPictures(pen) {
  // One picture for each square of the screen that has any: the first of them.
  map.pictures.clear();
  for (let n = map.order.length - 1; n >= 0; n--) {
    const i = map.order[n];
    if (!active(i)) continue;
    const x = screenX(i), y = screenY(i);
    if (x < 0 || y < 0 || x > map.width || y > map.height) continue;
    const key = squareOf(x, y);
    if (map.pictures.has(key)) continue;
    map.pictures.set(key, i);
    const ratio = shapeOf(i), width = ratio >= 1 ? ROOM - 8 : (ROOM - 8) * ratio, height = width / ratio;
    const left = (Math.floor(x / ROOM) + .5) * ROOM - width / 2, top = (Math.floor(y / ROOM) + .5) * ROOM - height / 2;
    pen.fillStyle = styleOfGroup(groups[i]).colour;
    pen.fillRect(left - 2, top - 2, width + 4, height + 4);
    paint(pen, i, left, top, width, height, redraw);
  }
}
function drawOver() {
  // On a canvas of its own: pointing does not draw all marks again.
  const pen = $("over").getContext("2d"), dense = window.devicePixelRatio || 1;
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, map.width, map.height);
  if (map.over < 0) return;
  trace(pen, "circle", screenX(map.over), screenY(map.over), radius() + 4);
  pen.strokeStyle = dark() ? "#fff" : "#111";
  pen.lineWidth = 2;
  pen.stroke();
}
function nearest(x, y, reach = 16) {
  const picture = $("show-pictures").checked ? map.pictures.get(squareOf(x, y)) : undefined;
  if (picture !== undefined) return picture;
  const k = scale(), wx = (x - map.width / 2) / k + map.x, wy = (y - map.height / 2) / k + map.y, r = reach / k;
  let best = -1, least = reach * reach;
  for (let a = cellOf(wx - r); a <= cellOf(wx + r); a++) {
    for (let b = cellOf(wy - r); b <= cellOf(wy + r); b++) {
      for (const i of cells.get(a * CELLS + b) || []) {
        const far = (screenX(i) - x) ** 2 + (screenY(i) - y) ** 2;
        if (far < least && active(i)) { least = far; best = i; }
      }
    }
  }
  return best;
}
function hover(i, speak = false) {
  if (i === map.over) return;
  map.over = i;
  $("canvas").classList.toggle("over", i >= 0);
  drawOver();
  const tip = $("tip");
  tip.hidden = i < 0;
  if (i < 0) return;
  const canvas = canvasOf(el("canvas", { role: "img" }), i, 168, pathOf(i));
  const lines = [el("b", { text: describe(i) })];
  if (!isSource(i) && T.category[i]) lines.push(el("div", { text: groupTitle(T.category[i]) }));
  if (!isSource(i) && labelOf(i) !== undefined) lines.push(el("div", { text: `corrected: ${labelOf(i)}` }));
  tip.replaceChildren(canvas, ...lines, el("div", { class: "faint", text: pathOf(i) }));
  const x = screenX(i), y = screenY(i), width = tip.offsetWidth, height = tip.offsetHeight;
  const left = x + 18 + width > map.width ? x - 18 - width : x + 18;
  const top = Math.min(Math.max(6, y - height / 2), Math.max(6, map.height - height - 6));
  tip.style.transform = `translate(${Math.min(Math.max(4, left), Math.max(4, map.width - width - 4))}px, ${top}px)`;
  if (speak) $("map-live").textContent = `${pathOf(i)}: ${describe(i)}`;
}
function zoomBy(factor, x = map.width / 2, y = map.height / 2) {
  const before = scale();
  map.zoom = Math.min(200, Math.max(.5, map.zoom * factor));
  const after = scale();
  map.x += (x - map.width / 2) * (1 / before - 1 / after);
  map.y += (y - map.height / 2) * (1 / before - 1 / after);
  hover(-1);
  redraw();
}
function pan(dx, dy) {
  map.x -= dx / scale();
  map.y -= dy / scale();
  hover(-1);
  redraw();
}
function showEverything() {
  Object.assign(map, { zoom: 1, x: .5, y: .5 });
  hover(-1);
  redraw();
}
function fit() {
  const canvas = $("canvas"), dense = window.devicePixelRatio || 1, box = $("stage").getBoundingClientRect();
  map.width = box.width - 2;
  map.height = box.height - 2;
  $("over").width = canvas.width = Math.round(map.width * dense);
  $("over").height = canvas.height = Math.round(map.height * dense);
  map.stamps.clear();
  redraw();
}
function stepOnMap(by) {
  if (!map.list.length) map.list = map.order.filter(active).sort((a, b) => a - b);
  if (!map.list.length) return;
  const at = map.list.indexOf(map.over), n = map.list.length;
  const i = map.list[at < 0 ? (by > 0 ? 0 : n - 1) : (at + by + n) % n];
  const x = screenX(i), y = screenY(i);
  if (x < 20 || y < 20 || x > map.width - 20 || y > map.height - 20) { map.x = X[i]; map.y = Y[i]; redraw(); }
  hover(i, true);
}
function neighbours(i) {
  const list = map.order.filter(active), near = j => (X[j] - X[i]) ** 2 + (Y[j] - Y[i]) ** 2;
  return list.map(j => [near(j), j]).sort((a, b) => a[0] - b[0]).slice(0, 60).map(pair => pair[1]);
}
function isolate(group, more = false) {
  if (map.only.has(group) && (more || map.only.size === 1)) map.only.delete(group);
  else { if (!more) map.only.clear(); map.only.add(group); }
  afterFilter();
}
function afterFilter() {
  updateStates();
  map.list = [];
  hover(-1);
  for (const button of $("legend").children) {
    button.setAttribute("aria-pressed", map.only.has(Number(button.dataset.group)));
  }
  $("show-all").disabled = map.only.size === 0;
  const n = map.order.filter(active).length;
  $("map-live").textContent = `${plural(n, "image", "images")} shown`;
  redraw();
}
function showClass(k) {
  if (D.map) {
    if (map.by !== "class") { $("colour").value = "class"; recolour("class"); }
    map.only.clear();
    isolate(k);
    $("map").scrollIntoView();
    $("canvas").focus({ preventScroll: true });
  } else { $("which").value = String(k); drawGalleries(); $("gallery").scrollIntoView(); }
}
function drawLegend() {
  const counts = new Map();
  for (let i = 0; i < N + M; i++) {
    const pair = counts.get(groupOf(i)) || [0, 0];
    pair[isSource(i) ? 1 : 0] += 1;
    counts.set(groupOf(i), pair);
  }
  counts.delete(-1);
  const groups = [...counts.keys()].sort((a, b) => (a === none()) - (b === none()) || a - b);
  const title = group => map.by === "class" ? className(group) : group ? groupTitle(group) : "no category";
  $("legend").replaceChildren(...groups.map(group => {
    const [target, source] = counts.get(group);
    const of = map.by === "class" && source ? `${whole(target)} · ${whole(source)}` : whole(target);
    return el("button", {
      type: "button", "data-group": group, "aria-pressed": "false", title: `${title(group)}: ${target} target, ${source} source images`,
      onclick: event => isolate(group, event.shiftKey || event.ctrlKey || event.metaKey),
    }, map.by === "class" ? mark(group, UNKNOWN) : group ? mark(group - 1, -1) : mark(0, 0),
    el("span", { class: "name", text: title(group) }), el("span", { class: "value", text: of }));
  }));
  $("legend-search").hidden = groups.length < 12;
  $("legend-search").value = "";
}
function recolour(by) {
  map.by = by;
  for (let i = 0; i < N + M; i++) groups[i] = groupOf(i);
  map.only.clear();
  map.stamps.clear();
  sortOrder();
  drawLegend();
  afterFilter();
}
function sortOrder() {
  // What is drawn last lies on top: source below, then what belongs to nothing, then the rest.
  const rank = i => isSource(i) ? 0 : groupOf(i) === none() ? 1 : 2;
  map.order = [...Array(N + M).keys()].sort((a, b) => rank(a) - rank(b));
}
function setUpMap() {
  if (!D.map) return;
  $("map").hidden = false;
  $("map-how").textContent = `Every mark is an image, placed by ${D.map.how}. Counts in the list are of target\u00a0·\u00a0source.`;
  for (let i = 0; i < N + M; i++) {
    const key = cellOf(X[i]) * CELLS + cellOf(Y[i]);
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push(i);
  }
  const colours = [["class", "by class"]];
  if (D.categories) colours.push(["category", "by discovered category"]);
  $("colour").replaceChildren(...colours.map(([value, text]) => el("option", { value, text })));
  $("colour-field").hidden = colours.length < 2;
  $("colour").onchange = () => recolour($("colour").value);
  for (const id of ["show-target", "show-source"]) $(id).onchange = afterFilter;
  $("show-pictures").onchange = redraw;
  $("show-all").onclick = () => { map.only.clear(); afterFilter(); };
  $("zoom-in").onclick = () => zoomBy(1.6);
  $("zoom-out").onclick = () => zoomBy(1 / 1.6);
  $("zoom-all").onclick = showEverything;
  $("legend-search").oninput = () => {
    const wanted = $("legend-search").value.toLowerCase();
    for (const button of $("legend").children) {
      button.hidden = !button.querySelector(".name").textContent.toLowerCase().includes(wanted);
    }
  };
  recolour("class");
  setUpPointer();
  setUpKeys();
  new ResizeObserver(fit).observe($("stage"));
  fit();
}
function setUpPointer() {
  const canvas = $("canvas"), down = new Map();
  let moved = 0, kept = -1;
  const at = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("pointerdown", event => {
    down.set(event.pointerId, at(event));
    moved = 0;
    kept = map.over;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    const [x, y] = at(event), last = down.get(event.pointerId);
    if (!last) { hover(nearest(x, y)); return; }
    if (down.size === 2) pinch(down, event.pointerId, [x, y]);
    else if (moved + Math.hypot(x - last[0], y - last[1]) > 4) pan(x - last[0], y - last[1]);
    else { return; }
    moved += Math.hypot(x - last[0], y - last[1]) + 4;
    canvas.classList.add("dragged");
    down.set(event.pointerId, [x, y]);
  });
  const up = event => {
    if (!down.delete(event.pointerId)) return;
    canvas.classList.remove("dragged");
    if (moved > 4 || event.type !== "pointerup") return;
    const i = nearest(...at(event), event.pointerType === "touch" ? 24 : 16);
    const first = event.pointerType === "touch" && i !== kept;  // a finger cannot hover: tap twice
    if (first || i < 0) hover(i); else open(i, neighbours(i));
  };
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, up);
  canvas.addEventListener("pointerleave", () => { if (!down.size) hover(-1); });
  canvas.addEventListener("wheel", event => {
    if (document.activeElement !== canvas && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomBy(Math.exp(-Math.max(-80, Math.min(80, event.deltaY)) / 240), ...at(event));
  }, { passive: false });
}
function pinch(down, id, now) {
  const [other] = [...down].filter(([key]) => key !== id).map(pair => pair[1]), last = down.get(id);
  const before = Math.hypot(last[0] - other[0], last[1] - other[1]), after = Math.hypot(now[0] - other[0], now[1] - other[1]);
  if (before > 0) zoomBy(after / before, (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
}
function setUpKeys() {
  const far = 60;
  const keys = {
    ArrowLeft: () => pan(far, 0), ArrowRight: () => pan(-far, 0), ArrowUp: () => pan(0, far), ArrowDown: () => pan(0, -far),
    "+": () => zoomBy(1.4), "=": () => zoomBy(1.4), "-": () => zoomBy(1 / 1.4), "0": showEverything,
    n: () => stepOnMap(1), p: () => stepOnMap(-1),
    Enter: () => { if (map.over >= 0) open(map.over, neighbours(map.over)); },
    Escape: () => { map.only.clear(); afterFilter(); },
  };
  $("canvas").addEventListener("keydown", event => {
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
}

// ---------- galleries ----------
function tile(i, list) {
  const meter = el("i");
  meter.style.width = `${T.doubt[i] / 10}%`;
  const node = el("button", { type: "button", class: "tile", "data-i": i, tabindex: "-1", onclick: () => open(i, list) },
    thumb(i, 84), el("span", { class: "meter" }, meter), el("span", { class: "under" }));
  dress(node, i);
  return node;
}
function dress(node, i) {
  const now = labelOf(i), right = isRight(i);
  const value = T.label[i] === UNKNOWN ? short(T.score[i]) : percent(T.confidence[i] / 1000);
  node.classList.toggle("changed", now !== undefined);
  const under = node.querySelector(".under");
  under.replaceChildren(el("span", { text: now === undefined ? value : `→ ${now}` }));
  under.style.maxWidth = node.querySelector(".thumb").style.width;
  if (right !== null) under.append(el("span", { class: right ? "right" : "wrong", text: right ? "✓" : "✗" }));
  const truth = right === false ? `, true class ${T.truth[i]}` : "";
  node.setAttribute("aria-label", `${T.path[i]}: ${describe(i)}${truth}${now === undefined ? "" : `, corrected to ${now}`}`);
  node.title = `${T.path[i]}\n${describe(i)}${truth}`;
}
function fillPictures(box, list, upTo) {
  for (let n = box.children.length; n < Math.min(upTo, list.length); n++) box.append(tile(list[n], list));
  if (box.firstChild && !box.querySelector('[tabindex="0"]')) box.firstChild.tabIndex = 0;
}
function pictures(list, label) {
  // One stop of the Tab key for all pictures; the arrows move between them.
  const box = el("div", { class: "pictures", role: "group", "aria-label": label });
  box.addEventListener("keydown", event => {
    const all = [...box.children], at = all.indexOf(document.activeElement);
    if (at < 0) return;
    const across = Math.max(1, all.filter(one => one.offsetTop === all[0].offsetTop).length);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + across, ArrowUp: at - across, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined || !all[to]) return;
    event.preventDefault();
    all[at].tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
  });
  return box;
}
function growing(list, label) {
  // Pictures with a button for more: `grow(n)` shows n of them, or as many as there already are.
  const box = pictures(list, label), more = el("button", { type: "button", class: "quiet" });
  const grow = upTo => {
    fillPictures(box, list, upTo);
    const left = list.length - box.children.length;
    more.hidden = left <= 0;
    more.textContent = left > MORE ? `Show ${MORE} more of ${whole(left)}` : `Show the other ${left}`;
  };
  more.onclick = () => {
    const at = box.children.length;
    grow(at + MORE);
    box.children[at].focus();
  };
  return { box, foot: el("div", {}, more), grow, all: () => box.children.length === list.length };
}
function ragged(box) {
  // A last row that is not full looks as if it were the end.
  const tiles = [...box.children], last = box.lastChild.offsetTop;
  return box.firstChild.offsetTop < last ? tiles.filter(one => one.offsetTop === last) : [];
}
function place(holder, made, first) {
  // Every tile takes its place now and its picture when it is near: the page never moves under
  // a hand. Rows are measured before any of them is cut, so that the page is laid out once.
  holder.replaceChildren(...made.map(one => one.node));
  for (const one of made) one.grow(first);
  if (first > FIRST) return;
  const cut = made.map(one => one.all() ? [] : ragged(one.box));
  cut.flat().forEach(node => node.remove());
  for (const one of made) one.grow(0);
}
function shelf(k) {
  const sign = $("order").value === "least" ? 1 : -1;
  const list = byClass[k].slice().sort((a, b) => sign * (T.doubt[a] - T.doubt[b]));
  const made = growing(list, `Pictures of ${className(k)}`);
  const of = R.counts[k] === list.length ? plural(list.length, "image", "images") : `${whole(list.length)} of ${plural(R.counts[k], "image", "images")} shown`;
  const node = el("div", { class: "shelf", "data-class": k },
    el("div", { class: "shelf-head" }, mark(k, UNKNOWN), el("h3", { text: className(k) }), el("span", { class: "faint small", text: of })),
    made.box, made.foot);
  return { ...made, node };
}
function showFirst(paths) {
  // The images of `unida review --budget`, above all others.
  const row = new Map(T.path.map((_, i) => [fullPath(i), i]));
  const list = paths.map(path => row.get(path)).filter(i => i !== undefined);
  if (!list.length) return;
  const box = pictures(list, "Images to label first");
  fillPictures(box, list, list.length);
  $("first").replaceChildren(el("div", { class: "shelf" },
    el("div", { class: "shelf-head" }, el("h3", { text: "Label these first" }), el("span", { class: "faint small", text: plural(list.length, "image", "images") })), box));
  refreshLabels();
  $("gallery").scrollIntoView();
}
const byClass = Array.from({ length: K + 1 }, () => []);
function drawGalleries() {
  const which = $("which").value;
  const groups = which === "all" ? [UNKNOWN, ...Array(K).keys()].filter(k => byClass[k].length) : [Number(which)];
  place($("galleries"), groups.map(shelf), which === "all" ? FIRST : MORE);
}
function setUpGalleries() {
  for (let i = 0; i < N; i++) byClass[T.label[i]].push(i);
  const found = [UNKNOWN, ...Array(K).keys()].filter(k => byClass[k].length);
  $("which").replaceChildren(el("option", { value: "all", text: "all classes" }),
    ...found.map(k => el("option", { value: k, text: `${className(k)} (${whole(R.counts[k])})` })));
  $("which").onchange = $("order").onchange = drawGalleries;
  $("export-labels").onclick = () => download("corrections.csv", [["path", "label"], ...Object.entries(corrections.labels)]);
  drawGalleries();
  refreshLabels();
}
function refreshLabels() {
  for (const node of document.querySelectorAll(".tile")) dress(node, Number(node.dataset.i));
  const n = Object.keys(corrections.labels).length;
  $("corrected").textContent = n ? plural(n, "label corrected", "labels corrected") : "no label corrected";
  $("export-labels").disabled = n === 0;
}

// ---------- categories ----------
function groupCard(group) {
  const members = [];
  for (let i = 0; i < N; i++) if (T.category[i] === group.id) members.push(i);
  const first = new Map((group.representatives || []).map((path, n) => [path, n]));
  const rank = i => first.has(T.path[i]) ? first.get(T.path[i]) : first.size + T.doubt[i] / 1000;
  members.sort((a, b) => rank(a) - rank(b));
  const made = growing(members, `Pictures of category ${group.id}`);
  const input = el("input", {
    type: "text", maxlength: "200", "data-id": group.id, "aria-label": `Name of category ${group.id}`,
    placeholder: group.name ? `${group.name} (suggested)` : `Name category ${group.id}`, spellcheck: "false",
    oninput: () => {
      const name = input.value.trim();
      if (name) corrections.names[group.id] = name; else delete corrections.names[group.id];
      keep();
      renamed();
    },
    onkeydown: event => { if (event.key === "Enter") input.blur(); },
  });
  input.value = corrections.names[group.id] || "";
  const node = el("div", { class: "card group" },
    el("div", { class: "group-head" }, mark(group.id - 1, -1), input, el("span", { class: "faint small", text: plural(group.size, "image", "images") })),
    made.box, made.foot);
  return { ...made, node };
}
function setUpCategories() {
  if (!D.categories) return;
  $("categories").hidden = false;
  const { found, count, method } = D.categories;
  const range = count && count.low !== undefined && count.high !== undefined && count.low !== count.high ? ` Between ${count.low} and ${count.high} are likely.` : "";
  $("categories-how").textContent = `Clusters of the images called unknown${method ? ` (${method})` : ""}.${range} Names are part of the export.`;
  place($("groups"), found.map(groupCard), FIRST);
  $("export-names").onclick = exportNames;
  renamed();
}
function exportNames() {
  const rows = [["path", "category", "name"]];
  for (let i = 0; i < N; i++) if (T.category[i]) rows.push([fullPath(i), T.category[i], groupName(T.category[i])]);
  const { path, category } = D.categories.others;
  path.forEach((one, n) => rows.push([R.root + one, category[n], groupName(category[n])]));
  download("categories.csv", rows);
}
const renamedLater = whenIdle(() => { if (D.map && map.by === "category") { drawLegend(); afterFilter(); } }, 300);
function renamed() {
  const n = D.categories.found.filter(group => corrections.names[group.id]).length;
  $("named").textContent = `${n} of ${D.categories.found.length} named`;
  renamedLater();
}
function refreshNames() {
  for (const input of document.querySelectorAll(".group input")) {
    if (document.activeElement !== input) input.value = corrections.names[input.dataset.id] || "";
  }
  if (D.categories) renamed();
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

// ---------- theme, navigation ----------
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", `Use the ${theme === "dark" ? "light" : "dark"} theme`);
  for (let n = marks.length - 1; n >= 0; n--) {
    if (marks[n].canvas.isConnected) marks[n].draw(); else marks.splice(n, 1);
  }
  for (const fill of document.querySelectorAll(".bars .fill")) fill.style.background = styleOf(Number(fill.dataset.k), UNKNOWN).colour;
  map.stamps.clear();
  redraw();
}
function setUpTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let own = null;
  try { own = localStorage.getItem("unida:theme"); } catch { /* not kept, then */ }
  const follow = () => setTheme(own || (system.matches ? "dark" : "light"));
  system.addEventListener("change", follow);
  $("theme").onclick = () => {
    own = dark() ? "light" : "dark";
    try { localStorage.setItem("unida:theme", own); } catch { /* not kept, then */ }
    follow();
  };
  follow();
}
function setUpNav() {
  const sections = [...document.querySelectorAll("main > section")].filter(one => !one.hidden);
  const links = new Map(sections.map(one => [one, el("a", { href: `#${one.id}`, text: one.dataset.title })]));
  $("nav").replaceChildren(...links.values());
  const now = () => {
    const line = 140, current = sections.filter(one => one.getBoundingClientRect().top < line).pop() || sections[0];
    for (const [section, link] of links) {
      if (section !== current) { link.removeAttribute("aria-current"); continue; }
      if (link.hasAttribute("aria-current")) continue;
      link.setAttribute("aria-current", "true");
      $("nav").scrollLeft = link.offsetLeft - $("nav").offsetLeft - 40;
    }
  };
  let scheduled = false;
  addEventListener("scroll", () => {
    if (!scheduled) { scheduled = true; requestAnimationFrame(() => { scheduled = false; now(); }); }
  }, { passive: true });
  now();
}

setCorrections(readLocal());
setUpTheme();
setUpDialog();
drawSummary();
setUpMap();
setUpGalleries();
setUpCategories();
drawTraining();
drawConfusion();
drawCalibration();
drawRest();
setUpNav();
connect();
// For tests and the curious: where a mark is on the screen, and how often the map was drawn.
window.unidaReport = { where: i => [screenX(i), screenY(i)], draws: () => map.draws, over: () => map.over };
})();
