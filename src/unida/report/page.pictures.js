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
  if (groupNow[i] !== NONE) rows.push(["Category", groupTitle(groupNow[i])]);
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
  change(`label of ${T.path[i]}`, [["labels", fullPath(i), name]]);
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
