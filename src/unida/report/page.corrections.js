// ---------- corrections: names of groups, labels of images, merged groups, moved images ----------
const KEY = `unida:${R.id}:${D.categories ? D.categories.id : ""}`;
const PARTS = ["names", "labels", "merges", "moves"];
const corrections = { names: {}, labels: {}, merges: {}, moves: {} };
let served = false, saved = {};  // what the server has of this page; another may be open
let conflict = "";  // with another page, shown until the next change
const copyOf = state => Object.fromEntries(PARTS.map(part => [part, { ...(state && state[part]) }]));
function readLocal() {
  try { return JSON.parse(localStorage.getItem(KEY)) || {}; } catch { return {}; }
}
function setCorrections(state) {
  for (const part of PARTS) {
    const found = state && typeof state[part] === "object" && state[part] || {};
    corrections[part] = Object.assign(Object.create(null), found);
  }
}
function showState(text, bad = false) {
  $("saved").textContent = text;
  $("saved").classList.toggle("bad", bad);
}
function refreshAll() {
  refreshGroups();
  refreshNames();
  refreshLabels();
}
function inWords(part, key, value) {
  if (part === "labels") return `${key} is “${value || ""}”`;
  if (part === "names") return `category ${key} is “${value || ""}”`;
  if (part === "moves") return `${key} is in ${value ? groupTitle(value) : "its category"}`;
  return `category ${key} is ${value === NONE ? "discarded" : value ? `part of ${groupTitle(value)}` : "apart"}`;
}
// Takes over what the server has by now; returns what was changed here too, and differently.
function adopt(base, state) {
  const lost = [];
  for (const part of PARTS) {
    const then = base[part] || {}, now = state[part] || {}, own = corrections[part];
    for (const key of new Set([...Object.keys(then), ...Object.keys(now)])) {
      if (now[key] === then[key]) continue;
      if (own[key] !== then[key] && own[key] !== now[key]) lost.push(inWords(part, key, now[key]));
      if (key in now) own[key] = now[key]; else delete own[key];
    }
  }
  saved = copyOf(state);
  return lost;
}
// Edits that contradict those of another page: that page's stand.
function giveUpGroups(state) {
  for (const part of ["names", "merges", "moves"]) corrections[part] = Object.assign(Object.create(null), state[part]);
  return ["the groups were edited there too, and the last change here is not kept"];
}
async function send() {
  const sent = copyOf(corrections);
  try {
    const answer = await fetch("/save", {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...sent, base: saved }),
    });
    const reply = await answer.json();
    const told = answer.status === 409;
    const lost = told ? adopt(saved, reply.saved) : answer.ok ? adopt(sent, reply) : [];
    if (told && reply.groups) lost.push(...giveUpGroups(reply.saved));
    if (lost.length) {
      document.activeElement?.blur();  // or its field would keep what was typed
      conflict = `saved in another window: ${lost.join(", ")}; change it again if it is wrong`;
    }
    if (told) post();  // the other changes
    if (told || answer.ok) refreshAll();
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
    saved = copyOf(state);
    setCorrections(state);
    showState("changes are saved to the run");
    refreshAll();
    const first = await fetch("/first");
    if (first.ok) showFirst(await first.json());
  } catch { /* another server: the page works by itself */ }
}

// ---------- undo ----------
// A step is what it is called and its edits: part, key, value before, value after (null for none).
// The steps of this tab survive a reload; a step is undone only if nobody has changed its values.
const STEPS = 100, MOST_KEPT = 2e6;
const undo = { done: [], undone: [] };
const valueOf = (part, key) => corrections[part][key] ?? null;
function setValue(part, key, value) {
  if (value === null) delete corrections[part][key]; else corrections[part][key] = value;
}
// Makes edits [part, key, value]; typing into one field is one step, by its `field`.
function change(words, edits, field = "") {
  const made = edits.map(([part, key, value]) => [part, key, valueOf(part, key), value]).filter(edit => edit[2] !== edit[3]);
  if (!made.length) return false;
  for (const [part, key, , value] of made) setValue(part, key, value);
  const last = undo.done[undo.done.length - 1];
  if (field && last && last.field === field && !undo.undone.length) last.edits[0][3] = made[0][3];
  else undo.done.push({ words, field, edits: made });
  undo.undone = [];
  changed();
  return true;
}
function changed() {
  keep();
  rememberSteps();
  refreshUndo();
}
function stepBack(from, to, before, after, verb) {
  const step = from.pop();
  if (!step) return;
  if (step.edits.every(edit => valueOf(edit[0], edit[1]) === edit[after])) {
    for (const edit of step.edits) setValue(edit[0], edit[1], edit[before]);
    to.push({ ...step, field: "" });
    changed();
    refreshAll();
    say(`${verb}: ${step.words}`);
  } else {
    rememberSteps();
    refreshUndo();
    say(`Changed elsewhere since, so left as it is: ${step.words}`);
  }
}
const undoStep = () => stepBack(undo.done, undo.undone, 2, 3, "Undone");
const redoStep = () => stepBack(undo.undone, undo.done, 3, 2, "Done again");
const rememberSteps = whenIdle(() => {
  undo.done = undo.done.slice(-STEPS);
  let text = JSON.stringify(undo);
  while (text.length > MOST_KEPT && undo.done.length > 1) {
    undo.done = undo.done.slice(Math.ceil(undo.done.length / 2));
    text = JSON.stringify(undo);
  }
  try { sessionStorage.setItem(KEY, text); } catch { /* they end with the page, then */ }
}, 100);
function readSteps() {
  try { Object.assign(undo, JSON.parse(sessionStorage.getItem(KEY)) || {}); } catch { /* none */ }
}
function refreshUndo() {
  for (const [id, steps, verb] of [["undo", undo.done, "Undo"], ["redo", undo.undone, "Redo"]]) {
    const last = steps[steps.length - 1];
    $(id).disabled = !last;
    $(id).title = last ? `${verb}: ${last.words}` : `Nothing to ${verb.toLowerCase()}`;
  }
}
function say(text) {
  $("groups-live").textContent = "";
  $("groups-live").textContent = text;
  $("group-words").textContent = text;
}
function setUpUndo() {
  readSteps();
  $("undo").onclick = undoStep;
  $("redo").onclick = redoStep;
  document.addEventListener("keydown", event => {
    if (!event.ctrlKey && !event.metaKey || event.altKey || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    if (key === "z" && !event.shiftKey) undoStep(); else redoStep();
  });
  refreshUndo();
}

// ---------- groups: categories as they were edited ----------
const NONE = "0";  // of an image in no group, and of what is discarded
const fullPath = i => R.root + T.path[i];
const labelOf = i => corrections.labels[fullPath(i)];
const groupNow = Array(N).fill(NONE);  // of each image shown
const members = new Map();  // by group: `shown` images, and numbers `others` in D.categories.others
function finalGroup(id) {
  for (let n = 0; id in corrections.merges && n < 10000; n++) id = corrections.merges[id];
  return id;
}
function groupFrom(path, category) {
  const moved = corrections.moves[path];
  return finalGroup(moved === undefined ? String(category) : moved);
}
function regroup() {
  members.clear();
  if (!D.categories) return;
  const add = (id, kind, n) => {
    if (!members.has(id)) members.set(id, { shown: [], others: [] });
    members.get(id)[kind].push(n);
  };
  for (let i = 0; i < N; i++) {
    groupNow[i] = groupFrom(fullPath(i), T.category[i]);
    if (T.label[i] === UNKNOWN || groupNow[i] !== NONE) add(groupNow[i], "shown", i);
  }
  const { path, category } = D.categories.others;
  path.forEach((one, n) => add(groupFrom(R.root + one, category[n]), "others", n));
}
const sizeOf = id => { const m = members.get(id); return m ? m.shown.length + m.others.length : 0; };
const categoryOf = id => D.categories && D.categories.found.find(one => String(one.id) === String(id));
function groupName(id) {
  const category = categoryOf(id);
  return corrections.names[id] || category && category.name || "";
}
const groupTitle = id => id === NONE ? "no group" : groupName(id) || (id.startsWith("new.") ? `new group ${id.slice(4)}` : `category ${id}`);
const numbers = new Map([[NONE, 0]]), groupIds = [NONE];  // a number for each group: colours, the map
function numberOf(id) {
  if (!numbers.has(id)) { numbers.set(id, groupIds.length); groupIds.push(id); }
  return numbers.get(id);
}
if (D.categories) for (const one of D.categories.found) numberOf(String(one.id));
