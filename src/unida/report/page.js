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
regroup();
setUpTheme();
setUpDialog();
drawSummary();
setUpMap();
setUpGalleries();
setUpUndo();
setUpCategories();
drawTraining();
drawConfusion();
drawCalibration();
drawRest();
setUpNav();
connect();
// For tests and the curious: where a mark is on the screen, and how often the map was drawn.
window.unidaReport = { where: i => [screenX(i), screenY(i)], draws: () => map.draws, over: () => map.over };
