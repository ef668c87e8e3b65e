// Which part of the recording is shown, and everything that is drawn of it.

const GUTTER = 138;

const view = {
  from: 0,
  to: model.end_,
  selected: null,
  painters: [],
  drawMilliseconds: 0,
  pending: false,

  /** Shows a range, as far as there is one. */
  show(from, to) {
    const least = Math.min(20, model.end_);
    const width = Math.min(model.end_, Math.max(least, to - from));
    const at = Math.min(Math.max(0, from), model.end_ - width);
    view.from = at;
    view.to = at + width;
    view.draw();
  },

  /** Makes the range `factor` times as wide around a time, which stays where it is. */
  zoom(factor, around = (view.from + view.to) / 2) {
    view.show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  },

  /** Moves by a share of what is shown. */
  pan(share) {
    const by = (view.to - view.from) * share;
    view.show(view.from + by, view.to + by);
  },

  fit() {
    view.show(0, model.end_);
  },

  /** Brings a span into view, with room around it. */
  reveal(begin, end) {
    const width = view.to - view.from;
    const wanted = Math.max((end - begin) * 8, 2000);
    const shown = end >= view.from && begin <= view.to;
    const tiny = (end - begin) / width < 0.004;
    if (shown && !tiny) {
      view.draw();
      return;
    }
    const next = tiny ? wanted : width;
    const middle = (begin + end) / 2;
    view.show(middle - next / 2, middle + next / 2);
  },

  /** Selects work (`{item}`), a call (`{call}`) or a wait (`{wait}`); nothing clears. */
  select(what) {
    view.selected = what;
    showDetails(what);
    view.draw();
  },

  draw() {
    if (view.pending) return;
    view.pending = true;
    requestAnimationFrame(view.drawNow);
  },

  drawNow() {
    view.pending = false;
    const started = performance.now();
    for (const paint of view.painters) paint();
    view.drawMilliseconds = performance.now() - started;
    const width = view.to - view.from;
    document.getElementById("range").textContent =
      `${moment(view.from, width)} – ${moment(view.to, width)} (${duration(width)})`;
  },
};

/** A canvas sized for the screen, ready to draw in CSS pixels. */
function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** From times to pixels and back, right of the labels. */
function scale(width) {
  const room = Math.max(1, width - GUTTER);
  const perPixel = (view.to - view.from) / room;
  return {
    perPixel,
    x: (time) => GUTTER + (time - view.from) / perPixel,
    time: (x) => view.from + (x - GUTTER) * perPixel,
  };
}

/** The colours of the theme, read once after each change of it. */
let paint = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  paint = { series: [] };
  const names = ["page", "panel", "line", "grid", "lane", "text", "faint", "accent", "arrow",
    "shade", "found", "copy", "await", "call", "on-colour"];
  for (const name of names) paint[name] = read(name);
  for (let index = 0; index < 9; index += 1) paint.series.push(read(`c${index}`));
}

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** Round steps of time for an axis: about one in 110 pixels. */
function ticks(perPixel) {
  const wanted = perPixel * 110;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= wanted);
  const list = [];
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) list.push(at);
  return { step, list };
}

/** A time on an axis whose steps are `step` long. */
function tickLabel(time, step) {
  const unit = step < 1e3 ? [1, "ns"] : step < 1e6 ? [1e3, "µs"] : step < 1e9
    ? [1e6, "ms"] : [1e9, "s"];
  return `${number(Math.round(time / unit[0]))} ${unit[1]}`;
}

function drawGrid(context, height, x, { list }) {
  context.strokeStyle = paint.grid;
  context.lineWidth = 1;
  context.beginPath();
  for (const at of list) {
    const column = Math.round(x(at)) + 0.5;
    context.moveTo(column, 0);
    context.lineTo(column, height);
  }
  context.stroke();
}

/** Text that fits into `width`, with an ellipsis where it was cut. */
function clipped(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? `${text.slice(0, low)}…` : "";
}
