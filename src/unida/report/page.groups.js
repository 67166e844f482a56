// ---------- the tree: merges above the categories, splits below ----------
// A place is the way from the root of the tree to an image: through the merges to its category, then
// through the splits below it. Places that begin alike are similar.
const TREE = D.categories && D.categories.tree;
const wayTo = wayToCategories();
function wayToCategories() {
  const ways = new Map();
  if (!TREE) return ways;
  const K0 = D.categories.found.length, merges = TREE.merges;
  const down = [[K0 + merges.length, ""]];
  while (down.length) {
    const [node, way] = down.pop();
    if (node <= K0) ways.set(node, way);
    else merges[node - K0 - 1].forEach((child, side) => down.push([child, way + "LR"[side]]));
  }
  return ways;
}
function placeOf(category, split) { return category ? wayTo.get(category) + split : null; }
function placesOf(id) {
  const { shown, others } = members.get(id) || { shown: [], others: [] }, rest = D.categories.others;
  return [
    ...shown.map(i => ({ path: fullPath(i), category: T.category[i], place: placeOf(T.category[i], TREE.splits[i]) })),
    ...others.map(n => ({ path: R.root + rest.path[n], category: rest.category[n], place: placeOf(rest.category[n], TREE.other_splits[n]) }))];
}
function sharedWay(places) {
  let way = places[0] || "";
  for (const place of places) {
    let n = 0;
    while (n < way.length && way[n] === place[n]) n++;
    way = way.slice(0, n);
  }
  return way;
}
function shared(a, b) {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

// ---------- cards of groups ----------
const view = { cards: new Map(), picked: new Set(), chosen: new Set(), ways: new Map() };
const living = () => [...members.keys()].filter(id => id !== NONE);
const oddOnes = new Set();
const orders = {
  size: (a, b) => sizeOf(b) - sizeOf(a) || numberOf(a) - numberOf(b),
  similar: (a, b) => (view.ways.get(a) || "").localeCompare(view.ways.get(b) || "") || numberOf(a) - numberOf(b),
  stability: (a, b) => stabilityOf(a) - stabilityOf(b) || numberOf(a) - numberOf(b),
};
// What was found about a category is said of the group that most of its images are from.
function mainCategory(id) {
  const counts = new Map();
  for (const i of members.get(id)?.shown || []) counts.set(T.category[i], (counts.get(T.category[i]) || 0) + 1);
  const [most, n] = [...counts].sort((a, b) => b[1] - a[1])[0] || [0, 0];
  return 2 * n > (members.get(id)?.shown.length || 0) ? categoryOf(String(most)) : undefined;
}
function stabilityOf(id) { return mainCategory(id)?.stability ?? 1; }
function findWays() {
  view.ways.clear();
  if (!TREE) return;
  for (const id of living()) view.ways.set(id, sharedWay(placesOf(id).map(one => one.place).filter(place => place !== null)));
}
function mostSimilar(id) {
  const way = view.ways.get(id) || "";
  const rest = living().filter(other => other !== id);
  rest.sort((a, b) => shared(view.ways.get(b) || "", way) - shared(view.ways.get(a) || "", way) || orders.size(a, b));
  return rest[0];
}
function picturesOf(id) {
  const first = new Map();
  for (const one of D.categories.found) for (const path of one.representatives || []) first.set(path, first.size);
  const rank = i => first.has(T.path[i]) ? first.get(T.path[i]) / 1e6 : oddOnes.has(i) ? 1 : 2 + T.doubt[i] / 1000;
  const ranks = new Map((members.get(id)?.shown || []).map(i => [i, rank(i)]));
  return [...ranks.keys()].sort((a, b) => ranks.get(a) - ranks.get(b));
}
function groupCard(id) {
  const list = picturesOf(id), made = growing(list, `Pictures of ${id === NONE ? "no group" : `category ${id}`}`);
  const grow = made.grow;
  made.grow = upTo => { grow(upTo); for (const node of made.box.children) dressPicture(node); };
  made.box.addEventListener("click", pickByMouse, true);
  const words = { size: el("span", { class: "faint small" }), facts: el("p", { class: "small faint" }), tools: el("div", { class: "group-tools" }) };
  const head = id === NONE ? noneHead(words) : nameHead(id, words);
  const node = el("div", { class: "card group", role: "group", tabindex: "-1", "data-group": id }, head, words.facts, words.tools, made.box, made.foot);
  for (const name of ["dragover", "dragleave", "drop"]) node.addEventListener(name, event => dropped(event, id, node));
  const card = { ...made, node, words, list, id };
  dressCard(card);
  return card;
}
function noneHead(words) {
  return el("div", { class: "group-head" }, el("h3", { class: "grow", text: "In no group" }), words.size);
}
function nameHead(id, words) {
  const suggested = categoryOf(id)?.name;
  const input = el("input", {
    type: "text", maxlength: "200", "data-id": id, "aria-label": `Name of category ${id}`,
    placeholder: suggested ? `${suggested} (suggested)` : `Name ${groupTitle(id)}`, spellcheck: "false",
    oninput: () => {
      change(`name of ${groupTitle(id)}`, [["names", id, input.value.trim() || null]], `name ${id}`);
      renamed();
    },
    onkeydown: event => { if (event.key === "Enter" || event.key === "Escape") view.cards.get(id)?.node.focus(); },
  });
  input.value = corrections.names[id] || "";
  const choose = el("button", { type: "button", class: "quiet pick", "aria-label": `Select category ${id}`, draggable: "true", onclick: () => chooseGroup(id) }, mark(numberOf(id) - 1, -1));
  choose.addEventListener("dragstart", event => event.dataTransfer.setData("text/plain", `group ${id}`));
  return el("div", { class: "group-head" }, choose, input, words.size);
}
function button(text, act, options = {}) { return el("button", { type: "button", class: "quiet", onclick: act, ...options, text }); }
function dressCard({ id, node, words, list }) {
  words.size.textContent = plural(sizeOf(id), "image", "images");
  node.setAttribute("aria-label", `${groupTitle(id)}, ${plural(sizeOf(id), "image", "images")}`);
  const chosen = view.chosen.has(id);
  node.classList.toggle("chosen", chosen);
  node.querySelector(".pick")?.setAttribute("aria-pressed", chosen);
  if (id === NONE) { dressNone(words); return; }
  const about = mainCategory(id), near = about?.nearest_known, facts = [];
  if (about && typeof about.stability === "number") facts.push(`stability ${percent(about.stability)}`);
  if (near) facts.push(`nearest known class ${near.name} (${near.similarity.toFixed(2)})`);
  words.facts.replaceChildren(facts.join(" · "));
  if (near?.mislabelled) words.facts.append(el("b", { class: "flag", text: `probably mislabelled ${near.name}` }));
  const odd = list.filter(i => oddOnes.has(i)), other = TREE && mostSimilar(id);
  words.tools.replaceChildren(
    ...(TREE ? [button("Split", () => splitGroup(id), { title: "Split in two (S)" })] : []),
    ...(other ? [button(`Merge with ${groupTitle(other)}`, () => mergeGroups([other, id], other), { title: "Merge with the most similar group (M)" })] : []),
    ...(odd.length ? [button(`Odd ones (${odd.length})`, () => pickOdd(id), { title: "Select the images far from the centre (O)" })] : []),
    button("Discard", () => discardGroups([id]), { title: "Discard the group (D)" }));
}
function dressNone(words) {
  const gone = Object.keys(corrections.merges).filter(id => corrections.merges[id] === NONE);
  words.facts.textContent = "Images that are in no category, were discarded, or are in a discarded group. Nothing is learned from them.";
  words.tools.replaceChildren(...gone.map(id => button(`Restore ${groupTitle(id)}`, () => restoreGroup(id))));
}
function dressPicture(node) {
  const i = Number(node.dataset.i);
  node.classList.toggle("picked", view.picked.has(i));
  node.classList.toggle("odd", oddOnes.has(i));
  node.setAttribute("aria-pressed", view.picked.has(i));
  if (node.draggable) return;
  node.draggable = true;
  node.addEventListener("dragstart", event => {
    if (!view.picked.has(i)) pickOnly([i]);
    event.dataTransfer.setData("text/plain", "pictures");
  });
}
function setUpCategories() {
  if (!D.categories) return;
  $("categories").hidden = false;
  const { found, count, method } = D.categories, odd = new Set(found.flatMap(one => one.odd || []));
  for (let i = 0; i < N; i++) if (T.category[i] && odd.has(T.path[i])) oddOnes.add(i);
  const range = count && count.low !== undefined && count.high !== undefined && count.low !== count.high ? ` Between ${count.low} and ${count.high} are likely.` : "";
  $("categories-how").textContent = `Clusters of the images called unknown${method ? ` (${method})` : ""}.${range} Names and edits stay in this browser, or in the run under \`unida review\`, and are part of the export.`;
  $("group-order").onchange = sortCards;
  $("picking").onclick = () => $("picking").setAttribute("aria-pressed", $("picking").getAttribute("aria-pressed") !== "true");
  $("export-names").onclick = exportNames;
  $("move-to").onchange = () => { if ($("move-to").value) moveTo($("move-to").value); };
  $("bar-merge").onclick = () => mergeChosen();
  $("bar-new").onclick = () => moveTo("new");
  $("bar-discard").onclick = () => discardSelection();
  $("bar-clear").onclick = clearSelection;
  $("categories").addEventListener("keydown", keyOfGroups);
  drawCards();
  renamed();
}
// In their order; what is in no group comes last.
function shownGroups() {
  const rest = members.has(NONE) || Object.values(corrections.merges).includes(NONE);
  return [...living().sort(orders[$("group-order").value]), ...(rest ? [NONE] : [])];
}
function drawCards() {
  findWays();
  const made = shownGroups().map(groupCard);
  view.cards = new Map(made.map(card => [card.id, card]));
  place($("groups"), made, FIRST);
  keepTabStop();
}
function sortCards() {
  $("groups").append(...shownGroups().map(id => view.cards.get(id).node));
}
// After an edit: cards whose images have changed are made again, the others stay where they are.
function refreshGroups() {
  if (!D.categories) return;
  const before = new Map([...members].map(([id, m]) => [id, [...m.shown, -1, ...m.others].join()]));
  const at = document.activeElement?.closest?.(".group")?.dataset.group;
  regroup();
  findWays();
  const ids = shownGroups();
  for (const [id, card] of view.cards) if (!ids.includes(id)) { card.node.remove(); view.cards.delete(id); view.chosen.delete(id); }
  for (const id of ids) {
    const m = members.get(id), same = m && before.get(id) === [...m.shown, -1, ...m.others].join();
    const old = view.cards.get(id);
    if (old && same) continue;
    const card = groupCard(id), shown = Math.max(FIRST, old ? old.box.children.length : 0);
    const near = view.cards.get(id.split(".")[0]);  // what it was split from
    if (old) old.node.replaceWith(card.node);
    else if (near) near.node.after(card.node);
    else $("groups").insertBefore(card.node, id === NONE ? null : view.cards.get(NONE)?.node || null);
    card.grow(shown);
    view.cards.set(id, card);
  }
  for (const card of view.cards.values()) dressCard(card);
  keepTabStop();
  if (at !== undefined && !document.activeElement?.closest?.(".group")) (view.cards.get(at) || view.cards.values().next().value)?.node.focus();
  refreshBar();
  renamed();
  if (D.map && map.by === "category") recolour("category");
}

// ---------- edits ----------
function edit(words, edits, focus) {
  if (!change(words, edits)) { say("Nothing to change."); return; }
  view.picked.clear();
  view.chosen.clear();
  refreshGroups();
  refreshNames();
  for (const node of document.querySelectorAll("#groups .tile.picked")) dressPicture(node);
  if (focus !== undefined) focusCard(focus);
  say(`${words}. Ctrl+Z undoes it.`);
}
function mergeGroups(ids, into) {
  const others = ids.filter(id => id !== into);
  if (!others.length) return;
  const edits = others.flatMap(id => [["merges", id, into], ["names", id, null]]);
  const name = others.map(id => corrections.names[id]).find(Boolean);
  if (!corrections.names[into] && name) edits.push(["names", into, name]);
  edit(`${others.map(groupTitle).join(", ")} merged into ${groupTitle(into)}`, edits, into);
}
function mergeChosen(at = "") {
  const ids = [...view.chosen];
  if (ids.length > 1) mergeGroups(ids, ids.find(id => corrections.names[id]) || ids[0]);
  else {
    const id = ids[0] || at, other = TREE && id && id !== NONE && mostSimilar(id);
    if (other) mergeGroups([other, id], other);
  }
}
function freeId(wanted) {
  const taken = id => members.has(id) || id in corrections.merges;
  while (!wanted || taken(wanted)) wanted = `new.${crypto.getRandomValues(new Uint32Array(1))[0] % 90000 + 10000}`;
  return wanted;
}
function splitGroup(id) {
  if (!TREE || id === NONE) return;
  const all = placesOf(id), way = sharedWay(all.map(one => one.place).filter(place => place !== null));
  const sides = new Map();
  for (const one of all) {
    if (one.place === null || one.place.length <= way.length) continue;
    const side = one.place[way.length];
    sides.set(side, [...sides.get(side) || [], one]);
  }
  if (sides.size < 2) { say(`${groupTitle(id)} cannot be split further: select pictures and move them.`); return; }
  const [small] = [...sides.values()].sort((a, b) => a.length - b.length);
  const categories = new Set(all.map(one => one.category));
  const below = way.replace(/[LR]/g, "") + small[0].place[way.length];
  const to = freeId(categories.size === 1 ? `${small[0].category}.${below}` : "");
  edit(`${groupTitle(id)} split: ${plural(small.length, "image", "images")} in ${groupTitle(to)}`, small.map(one => ["moves", one.path, to]), id);
}
function discardGroups(ids) {
  const some = ids.filter(id => id !== NONE);
  edit(`${some.map(groupTitle).join(", ")} discarded`, some.flatMap(id => [["merges", id, NONE], ["names", id, null]]), nextCard(some[0], some));
}
function restoreGroup(id) { edit(`${groupTitle(id)} restored`, [["merges", id, null]], id); }
function discardSelection(at = "") {
  if (view.picked.size) moveTo(NONE);
  else if (view.chosen.size || at) discardGroups(view.chosen.size ? [...view.chosen] : [at]);
}
function moveTo(id) {
  const list = [...view.picked], to = id === "new" ? freeId("") : id;
  if (!list.length) return;
  const home = i => to === String(T.category[i]) ? null : to;
  edit(`${plural(list.length, "image", "images")} moved to ${groupTitle(to)}`, list.map(i => ["moves", fullPath(i), home(i)]), to);
}

// ---------- selection, keys, dragging ----------
function refreshBar() {
  const pictures = view.picked.size, chosen = view.chosen.size;
  $("group-bar").hidden = !pictures && !chosen;
  $("bar-words").textContent = pictures ? `${plural(pictures, "image", "images")} selected` : `${plural(chosen, "group", "groups")} selected`;
  $("bar-merge").hidden = pictures > 0 || chosen < 2;
  for (const id of ["bar-move", "bar-new"]) $(id).hidden = !pictures;
  if (!pictures) return;
  const ids = living().sort(orders.size);
  $("move-to").replaceChildren(el("option", { value: "", text: "group …" }), ...ids.map(id => el("option", { value: id, text: `${groupTitle(id)} (${whole(sizeOf(id))})` })));
}
function pickOnly(list) {
  view.chosen.clear();
  view.picked = new Set(list);
  for (const node of document.querySelectorAll("#groups .tile")) dressPicture(node);
  for (const card of view.cards.values()) card.node.classList.remove("chosen");
  refreshBar();
}
function togglePicture(node) {
  const i = Number(node.dataset.i);
  if (view.chosen.size) pickOnly([]);
  if (!view.picked.delete(i)) view.picked.add(i);
  dressPicture(node);
  refreshBar();
}
let lastPicked = null;
function pickByMouse(event) {
  const node = event.target.closest(".tile"), mode = $("picking").getAttribute("aria-pressed") === "true";
  if (!node || !(mode || event.ctrlKey || event.metaKey || event.shiftKey)) return;
  event.preventDefault();
  event.stopPropagation();
  const all = [...node.parentNode.children], from = all.indexOf(lastPicked), to = all.indexOf(node);
  if (event.shiftKey && from >= 0) {
    for (const one of all.slice(Math.min(from, to), Math.max(from, to) + 1)) if (!view.picked.has(Number(one.dataset.i))) togglePicture(one);
  } else togglePicture(node);
  lastPicked = node;
}
function pickOdd(id) {
  const card = view.cards.get(id), odd = card.list.filter(i => oddOnes.has(i));
  if (!odd.length) { say(`${groupTitle(id)} has no odd ones.`); return; }
  card.grow(card.list.indexOf(odd[odd.length - 1]) + 1);
  pickOnly(odd);
  card.box.querySelector(".picked")?.scrollIntoView({ block: "center" });
  say(`${plural(odd.length, "odd image", "odd images")} of ${groupTitle(id)} selected`);
}
function chooseGroup(id) {
  if (view.picked.size) pickOnly([]);
  if (!view.chosen.delete(id)) view.chosen.add(id);
  dressCard(view.cards.get(id));
  refreshBar();
}
function clearSelection() {
  const chosen = [...view.chosen];
  pickOnly([]);
  for (const id of chosen) if (view.cards.has(id)) dressCard(view.cards.get(id));
}
function keepTabStop() {
  const cards = [...view.cards.values()];
  if (cards.length && !cards.some(card => card.node.tabIndex === 0)) cards[0].node.tabIndex = 0;
}
function focusCard(id) {
  const card = view.cards.get(id);
  if (!card) return;
  for (const one of view.cards.values()) one.node.tabIndex = -1;
  card.node.tabIndex = 0;
  card.node.focus();
}
function nextCard(id, gone = [], by = 1) {
  const order = [...$("groups").children].map(node => node.dataset.group);
  for (let n = order.indexOf(id) + by; n >= 0 && n < order.length; n += by) if (!gone.includes(order[n])) return order[n];
  return order.find(one => !gone.includes(one));
}
function keyOfGroups(event) {
  if (["INPUT", "SELECT"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const card = event.target.closest(".group"), id = card ? card.dataset.group : "", picture = event.target.closest(".tile");
  const acts = {
    j: () => focusCard(id ? nextCard(id) : nextCard("")), k: () => focusCard(nextCard(id, [], -1)),
    x: () => picture ? togglePicture(picture) : id && id !== NONE && chooseGroup(id),
    m: () => mergeChosen(id), s: () => splitGroup(id || NONE), d: () => discardSelection(picture ? "" : id),
    o: () => id && id !== NONE && pickOdd(id), n: () => card?.querySelector("input")?.focus(),
    v: () => { if (view.picked.size) $("move-to").focus(); }, g: () => moveTo("new"),
    u: () => undoStep(), U: () => redoStep(), Escape: clearSelection,
  };
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}
function dropped(event, id, node) {
  if (event.type !== "dragleave") event.preventDefault();
  node.classList.toggle("drop", event.type === "dragover");
  if (event.type !== "drop") return;
  const what = event.dataTransfer.getData("text/plain");
  if (what === "pictures") moveTo(id);
  else if (what.startsWith("group ") && id === NONE) discardGroups([what.slice(6)]);
  else if (what.startsWith("group ")) mergeGroups([id, what.slice(6)], id);
}

// ---------- names and export ----------
function exportNames() {
  const rows = [["path", "category", "name"]];
  for (let i = 0; i < N; i++) if (groupNow[i] !== NONE) rows.push([fullPath(i), groupNow[i], groupName(groupNow[i])]);
  const { path } = D.categories.others;
  for (const [id, { others }] of members) {
    if (id !== NONE) for (const n of others) rows.push([R.root + path[n], id, groupName(id)]);
  }
  download("categories.csv", rows);
}
const renamedLater = whenIdle(() => { if (D.map && map.by === "category") { drawLegend(); afterFilter(); } }, 300);
function renamed() {
  const ids = living();
  $("named").textContent = `${ids.filter(id => corrections.names[id]).length} of ${ids.length} named`;
  renamedLater();
}
function refreshNames() {
  for (const input of document.querySelectorAll(".group input")) {
    if (document.activeElement !== input) input.value = corrections.names[input.dataset.id] || "";
  }
  if (D.categories) renamed();
}
