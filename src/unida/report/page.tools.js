// The report of a run. All data come from the JSON block and are shown as text (textContent),
// never as markup: names of files and classes may be anything. The parts page.*.js are one function.
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
