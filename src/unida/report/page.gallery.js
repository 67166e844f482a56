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
