// ---------- map ----------
const map = { zoom: 1, x: .5, y: .5, over: -1, only: new Set(), by: "class", stamps: new Map(), draws: 0, scheduled: false, list: [], pictures: new Map() };
const X = D.map ? Float32Array.from(D.map.x, v => v / 65535) : [];
const Y = D.map ? Float32Array.from(D.map.y, v => v / 65535) : [];
const CELLS = 64, cells = new Map();
const cellOf = value => Math.min(CELLS - 1, Math.max(0, Math.floor(value * CELLS)));
function groupOf(i) {
  if (map.by === "class") return classOf(i);
  return isSource(i) ? -1 : numberOf(groupNow[i]);
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
  if (!isSource(i) && groupNow[i] !== NONE) lines.push(el("div", { text: groupTitle(groupNow[i]) }));
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
  const title = group => map.by === "class" ? className(group) : group ? groupTitle(groupIds[group]) : "no category";
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
