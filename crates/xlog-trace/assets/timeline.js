// Streams and host threads over time, and the waits between streams.
//
// Spans narrower than a pixel are drawn together, a pixel at a time: how dark it is says how busy
// the row was. So the cost of a frame follows from the size of the screen, not of the recording.

const AXIS = 24;
const ROWS = { stream: { height: 26, gap: 7 }, host: { height: 13, gap: 5 } };
const MOST_ARROWS = 1500;

const timeline = {
  canvas: document.getElementById("timeline"),
  tops: [],
  height: 0,
  /** Arrows drawn one by one, for pointing at them. */
  arrows: [],
  drawn: { spans: 0, columns: 0, arrows: 0 },
  drag: null,
};

{
  let top = AXIS + 6;
  let before = null;
  for (const row of model.lanes) {
    if (before === "stream" && row.kind === "host") top += 12;
    before = row.kind;
    timeline.tops.push(top);
    top += ROWS[row.kind].height + ROWS[row.kind].gap;
  }
  timeline.height = top + 4;
}

const middleOf = (row) => timeline.tops[row] + ROWS[model.lanes[row].kind].height / 2;

/** Waits as arrows: from the end of work to the beginning of work. */
const arrows = (() => {
  const list = [];
  for (let wait = 0; wait < model.waits; wait += 1) {
    const from = data.waits.from[wait];
    const to = data.waits.to[wait];
    if (from < 0 || to < 0 || !model.timed(from) || !model.timed(to)) continue;
    list.push({
      wait,
      begin: model.end[from],
      end: model.begin[to],
      source: model.laneOfStream[data.operations.stream[from]],
      target: model.laneOfStream[data.operations.stream[to]],
    });
  }
  return list;
})();

function colourOf(item) {
  if (item < 0) return data.calls.kind[-1 - item] < 3 ? paint.await : paint.call;
  const colour = model.colours[data.operations.name[item]];
  return colour < 0 ? paint.copy : paint.series[colour];
}

function isFound(item) {
  return item >= 0 && search.found !== null && search.found[item] === 1;
}

function drawRow(context, row, top, { x, time, perPixel }) {
  const { height } = ROWS[row.kind];
  const count = row.begin.length;
  const searching = search.found !== null;
  let index = firstAbove(row.end, view.from);
  while (index < count && row.begin[index] < view.to) {
    const left = x(row.begin[index]);
    const right = x(row.end[index]);
    const item = row.item[index];
    if (right - left >= 1.2) {
      const from = Math.max(GUTTER, left);
      const width = Math.min(context.canvas.clientWidth, right) - from;
      context.globalAlpha = searching && !isFound(item) ? 0.22 : row.kind === "host" ? 0.75 : 1;
      context.fillStyle = colourOf(item);
      context.fillRect(from, top, Math.max(1, width - (width > 3 ? 0.6 : 0)), height);
      if (row.kind === "stream" && width > 34) {
        context.globalAlpha = searching && !isFound(item) ? 0.5 : 1;
        context.fillStyle = paint["on-colour"];
        const text = clipped(context, data.names[data.operations.name[item]], width - 10);
        context.fillText(text, from + 5, top + height / 2 + 0.5);
      }
      timeline.drawn.spans += 1;
      index += 1;
      continue;
    }
    const column = Math.max(GUTTER, Math.floor(left));
    let next = Math.max(index + 1, firstAbove(row.begin, time(column + 1), index));
    // The last one that begins in this pixel may be long enough to be seen by itself.
    if (next - 1 > index && x(row.end[next - 1]) - x(row.begin[next - 1]) >= 1.2) next -= 1;
    const busy = Math.min(1, (row.busy[next] - row.busy[index]) / perPixel);
    const found = !searching || (row.hits[next] - row.hits[index]) > 0;
    context.globalAlpha = found ? 0.35 + 0.65 * busy : 0.14;
    context.fillStyle = searching && found ? paint.found : colourOf(item);
    context.fillRect(column, top, 1, height);
    timeline.drawn.columns += 1;
    index = next;
  }
  context.globalAlpha = 1;
}

function drawFrame(context, width, steps, x) {
  context.font = FONT;
  context.textBaseline = "middle";
  model.lanes.forEach((row, index) => {
    const { height } = ROWS[row.kind];
    context.fillStyle = paint.lane;
    context.fillRect(GUTTER, timeline.tops[index], width - GUTTER, height);
  });
  drawGrid(context, timeline.height, x, steps);
  context.fillStyle = paint.faint;
  for (const at of steps.list) {
    const left = x(at) + 4;
    if (left + 60 < width) context.fillText(tickLabel(at, steps.step), left, AXIS / 2);
  }
}

function drawLabels(context) {
  context.clearRect(0, 0, GUTTER, timeline.height);
  model.lanes.forEach((row, index) => {
    context.fillStyle = row.kind === "stream" ? paint.text : paint.faint;
    context.font = row.kind === "stream" ? FONT : FONT.replace("12px", "11px");
    const label = clipped(context, row.label, GUTTER - 14);
    context.fillText(label, 2, middleOf(index) + 0.5);
  });
  context.font = FONT;
}

/** The curve of an arrow: leaves to the right, arrives from the left. */
function curve({ begin, end, source, target }, x) {
  const from = { x: x(begin), y: middleOf(source) };
  const to = { x: x(end), y: middleOf(target) };
  const bend = Math.min(60, Math.max(10, Math.abs(to.x - from.x) / 2));
  return { from, to, bend };
}

function strokeCurve(context, { from, to, bend }, head) {
  context.beginPath();
  context.moveTo(from.x, from.y);
  context.bezierCurveTo(from.x + bend, from.y, to.x - bend, to.y, to.x, to.y);
  context.stroke();
  if (!head) return;
  context.beginPath();
  context.moveTo(to.x, to.y);
  context.lineTo(to.x - 7, to.y - 3.5);
  context.lineTo(to.x - 7, to.y + 3.5);
  context.fill();
}

function drawArrows(context, width, { x }) {
  const shown = arrows.filter((arrow) => arrow.end >= view.from && arrow.begin <= view.to);
  timeline.arrows = [];
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - GUTTER, timeline.height);
  context.clip();
  context.strokeStyle = paint.arrow;
  context.fillStyle = paint.arrow;
  if (shown.length <= MOST_ARROWS) {
    context.lineWidth = 1.2;
    context.globalAlpha = shown.length > 300 ? 0.45 : 0.8;
    for (const arrow of shown) {
      const line = curve(arrow, x);
      timeline.arrows.push({ arrow, line });
      strokeCurve(context, line, shown.length <= 300);
    }
  } else {
    // Too many to tell apart: those between the same rows and places become one.
    const bundles = new Map();
    for (const arrow of shown) {
      const place = Math.round(x(arrow.end) / 12);
      const key = (arrow.source * 4096 + arrow.target) * 1e6 + place;
      const bundle = bundles.get(key);
      if (bundle === undefined) bundles.set(key, { arrow, count: 1 });
      else bundle.count += 1;
    }
    let most = 1;
    for (const { count } of bundles.values()) most = Math.max(most, count);
    for (const { arrow, count } of bundles.values()) {
      const line = curve(arrow, x);
      context.globalAlpha = 0.1 + 0.3 * (count / most);
      context.lineWidth = 1 + 1.5 * (count / most);
      strokeCurve(context, line, false);
    }
  }
  timeline.drawn.arrows = shown.length;
  const chosen = view.selected?.wait;
  if (chosen !== undefined) {
    const arrow = arrows.find(({ wait }) => wait === chosen);
    if (arrow) {
      context.globalAlpha = 1;
      context.lineWidth = 3;
      strokeCurve(context, curve(arrow, x), true);
    }
  }
  context.restore();
}

function drawSelection(context, { x }) {
  const item = view.selected?.item;
  if (item === undefined || !model.timed(item)) return;
  const row = model.laneOfStream[data.operations.stream[item]];
  const left = x(model.begin[item]);
  const width = Math.max(4, x(model.end[item]) - left);
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, context.canvas.clientWidth - GUTTER, timeline.height);
  context.clip();
  context.strokeStyle = paint.text;
  context.lineWidth = 2;
  context.strokeRect(left - 1, timeline.tops[row] - 2, width + 2, ROWS.stream.height + 4);
  context.restore();
}

view.painters.push(() => {
  const { context, width } = prepare(timeline.canvas, timeline.height);
  const scaled = scale(width);
  timeline.drawn = { spans: 0, columns: 0, arrows: 0 };
  drawFrame(context, width, ticks(scaled.perPixel), scaled.x);
  model.lanes.forEach((row, index) => drawRow(context, row, timeline.tops[index], scaled));
  drawArrows(context, width, scaled);
  drawSelection(context, scaled);
  drawLabels(context);
  const { drag } = timeline;
  if (drag?.range) {
    context.fillStyle = paint.shade;
    context.fillRect(Math.min(drag.start, drag.at), 0,
      Math.abs(drag.at - drag.start), timeline.height);
  }
});

/** What is at a place of the canvas: work, a call or a wait. */
function itemAt(left, top) {
  for (const { arrow, line } of timeline.arrows) {
    if (isNear(line, left, top)) return { wait: arrow.wait };
  }
  const row = timeline.tops.findIndex((at, index) =>
    top >= at && top <= at + ROWS[model.lanes[index].kind].height);
  if (row < 0 || left < GUTTER) return null;
  const { time, perPixel } = scale(timeline.canvas.clientWidth);
  const found = model.lanes[row];
  const at = time(left);
  const index = firstAbove(found.end, at - 2 * perPixel);
  if (index >= found.begin.length || found.begin[index] > at + 2 * perPixel) return null;
  const item = found.item[index];
  return item < 0 ? { call: -1 - item } : { item };
}

/** Whether a place is within some pixels of a curve. */
function isNear({ from, to, bend }, left, top) {
  if (top < Math.min(from.y, to.y) - 5 || top > Math.max(from.y, to.y) + 5) return false;
  if (left < Math.min(from.x, to.x) - 64 || left > Math.max(from.x, to.x) + 64) return false;
  for (let step = 1; step < 40; step += 1) {
    const t = step / 40;
    const s = 1 - t;
    const x = s * s * s * from.x + 3 * s * s * t * (from.x + bend)
      + 3 * s * t * t * (to.x - bend) + t * t * t * to.x;
    const y = s * s * s * from.y + 3 * s * s * t * from.y + 3 * s * t * t * to.y
      + t * t * t * to.y;
    if (Math.abs(x - left) < 5 && Math.abs(y - top) < 5) return true;
  }
  return false;
}
