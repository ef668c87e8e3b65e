// Device memory by tag, and how full the pool is, over the range that is shown.

const MOST_TAGS = 8;
const CHECKPOINT = 2048;

/** Bytes by tag after each change; where there are many tags, the small ones are one. */
const tagMemory = (() => {
  const at = sums(data.tagChanges.at);
  const peaks = new Float64Array(data.tags.length);
  const now = new Float64Array(data.tags.length);
  data.tagChanges.tag.forEach((tag, index) => {
    now[tag] += data.tagChanges.change[index];
    peaks[tag] = Math.max(peaks[tag], now[tag]);
  });
  const order = [...data.tags.keys()].filter((tag) => peaks[tag] > 0)
    .sort((one, other) => peaks[other] - peaks[one]);
  const few = order.length <= MOST_TAGS + 1;
  const series = few ? order.map((tag) => data.tags[tag])
    : [...order.slice(0, MOST_TAGS).map((tag) => data.tags[tag]),
      `${order.length - MOST_TAGS} other tags`];
  const place = new Int32Array(data.tags.length).fill(series.length - 1);
  order.slice(0, few ? order.length : MOST_TAGS).forEach((tag, rank) => { place[tag] = rank; });
  // How it stood after every so many changes, so that a range needs no walk from the start.
  const checkpoints = [];
  const state = new Float64Array(series.length);
  let peak = 0;
  let total = 0;
  at.forEach((_, index) => {
    if (index % CHECKPOINT === 0) checkpoints.push(state.slice());
    state[place[data.tagChanges.tag[index]]] += data.tagChanges.change[index];
    total += data.tagChanges.change[index];
    peak = Math.max(peak, total);
  });
  return { at, series, place, checkpoints, peak };
})();

/** For each pixel, the bytes of each series when they were most in all. */
function tagColumns(columns, perPixel) {
  const { at, series, place, checkpoints } = tagMemory;
  const first = firstAbove(at, view.from);
  const state = (checkpoints[Math.floor(first / CHECKPOINT)]
    ?? new Float64Array(series.length)).slice();
  const apply = (index) => {
    state[place[data.tagChanges.tag[index]]] += data.tagChanges.change[index];
    return data.tagChanges.change[index];
  };
  const from = Math.floor(first / CHECKPOINT) * CHECKPOINT;
  if (checkpoints.length > 0 && from / CHECKPOINT >= checkpoints.length) {
    // Right behind the last change, where a checkpoint would be next.
    state.set(checkpoints[checkpoints.length - 1]);
    for (let index = from - CHECKPOINT; index < first; index += 1) apply(index);
  } else {
    for (let index = from; index < first; index += 1) apply(index);
  }
  let total = state.reduce((sum, bytesNow) => sum + bytesNow, 0);
  const list = [];
  let index = first;
  for (let column = 0; column < columns; column += 1) {
    const limit = view.from + (column + 1) * perPixel;
    let most = total;
    let best = state.slice();
    while (index < at.length && at[index] <= limit) {
      total += apply(index);
      if (total > most) {
        most = total;
        best = state.slice();
      }
      index += 1;
    }
    list.push(best);
  }
  return list;
}

function drawBytesAxis(context, width, height, most) {
  context.font = FONT;
  context.textBaseline = "middle";
  context.strokeStyle = paint.grid;
  const step = niceBytes(most / 3);
  context.textAlign = "right";
  for (let value = 0; value <= most; value += step) {
    const y = Math.round(height - (value / most) * (height - 14)) - 0.5;
    context.beginPath();
    context.moveTo(GUTTER, y);
    context.lineTo(width, y);
    context.stroke();
    context.fillStyle = paint.faint;
    context.fillText(bytes(value), GUTTER - 8, Math.max(8, Math.min(height - 7, y)));
  }
  context.textAlign = "left";
}

/** A power of two, or one and a half times one, at least as large. */
function niceBytes(least) {
  let size = 1;
  while (size < least) size *= 2;
  return size;
}

const memoryCanvas = document.getElementById("memory");

view.painters.push(() => {
  const { context, width, height } = prepare(memoryCanvas, 170);
  const scaled = scale(width);
  const columns = Math.max(1, Math.floor(width - GUTTER));
  const most = Math.max(1, tagMemory.peak) * 1.02;
  context.fillStyle = paint.lane;
  context.fillRect(GUTTER, 0, columns, height);
  drawBytesAxis(context, width, height, most);
  const list = tagColumns(columns, scaled.perPixel);
  const tall = (value) => (value / most) * (height - 14);
  const base = new Float64Array(columns);
  tagMemory.series.forEach((_, rank) => {
    context.fillStyle = paint.series[rank % paint.series.length];
    context.beginPath();
    context.moveTo(GUTTER, height - tall(base[0]));
    const lower = base.slice();
    for (let column = 0; column < columns; column += 1) {
      base[column] += list[column][rank];
      const y = height - tall(base[column]);
      context.lineTo(GUTTER + column, y);
      context.lineTo(GUTTER + column + 1, y);
    }
    for (let column = columns - 1; column >= 0; column -= 1) {
      const y = height - tall(lower[column]);
      context.lineTo(GUTTER + column + 1, y);
      context.lineTo(GUTTER + column, y);
    }
    context.fill();
  });
});

memoryCanvas.addEventListener("pointermove", (event) => {
  const { left } = place(event, memoryCanvas);
  if (left < GUTTER) return;
  const { time, perPixel } = scale(memoryCanvas.clientWidth);
  const columns = Math.floor(left - GUTTER) + 1;
  const now = tagColumns(columns, perPixel)[columns - 1];
  const lines = tagMemory.series.map((tag, rank) => [tag, now[rank]])
    .filter(([, size]) => size > 0)
    .map(([tag, size]) => `${tag}: ${bytes(size)}`);
  const total = now.reduce((sum, size) => sum + size, 0);
  showTooltip(event, `${bytes(total)} at ${duration(time(left))}`, lines);
});
memoryCanvas.addEventListener("pointerleave", hideTooltip);

// The pool: what the driver gave, what is in use of it, the longest free range.

const pool = { at: sums(data.memory.at), canvas: document.getElementById("pool") };
pool.most = data.memory.reserved.reduce((most, size) => Math.max(most, size), 1) * 1.02;

/** Most reserved and in use, and the least largest free range, of each pixel. */
function poolColumns(columns, perPixel) {
  const { reserved, inUse, largestFree } = data.memory;
  let index = firstAbove(pool.at, view.from) - 1;
  const list = [];
  const sample = (at) => (at < 0 ? [0, 0, 0] : [reserved[at], inUse[at], largestFree[at]]);
  for (let column = 0; column < columns; column += 1) {
    const limit = view.from + (column + 1) * perPixel;
    const values = sample(index);
    while (index + 1 < pool.at.length && pool.at[index + 1] <= limit) {
      index += 1;
      values[0] = Math.max(values[0], reserved[index]);
      values[1] = Math.max(values[1], inUse[index]);
      values[2] = Math.min(values[2], largestFree[index]);
    }
    list.push(values);
  }
  return list;
}

view.painters.push(() => {
  const { context, width, height } = prepare(pool.canvas, 120);
  const { perPixel } = scale(width);
  const columns = Math.max(1, Math.floor(width - GUTTER));
  context.fillStyle = paint.lane;
  context.fillRect(GUTTER, 0, columns, height);
  drawBytesAxis(context, width, height, pool.most);
  const list = poolColumns(columns, perPixel);
  const tall = (value) => height - (value / pool.most) * (height - 14);
  const area = (series, colour, alpha) => {
    context.globalAlpha = alpha;
    context.fillStyle = colour;
    context.beginPath();
    context.moveTo(GUTTER, height);
    list.forEach((values, column) => {
      context.lineTo(GUTTER + column, tall(values[series]));
      context.lineTo(GUTTER + column + 1, tall(values[series]));
    });
    context.lineTo(GUTTER + columns, height);
    context.fill();
    context.globalAlpha = 1;
  };
  area(0, paint.series[0], 0.22);
  area(1, paint.series[0], 0.85);
  context.strokeStyle = paint.series[1];
  context.lineWidth = 1.5;
  context.beginPath();
  list.forEach((values, column) => {
    context.lineTo(GUTTER + column, tall(values[2]));
    context.lineTo(GUTTER + column + 1, tall(values[2]));
  });
  context.stroke();
});

pool.canvas.addEventListener("pointermove", (event) => {
  const { left } = place(event, pool.canvas);
  if (left < GUTTER) return;
  const { time, perPixel } = scale(pool.canvas.clientWidth);
  const columns = Math.floor(left - GUTTER) + 1;
  const [reserved, inUse, largest] = poolColumns(columns, perPixel)[columns - 1];
  const free = Math.max(0, reserved - inUse);
  const scattered = free > 0 ? `${Math.round(100 * (1 - Math.min(1, largest / free)))} %` : "0 %";
  showTooltip(event, `At ${duration(time(left))}`, [
    `reserved from the driver: ${bytes(reserved)}`,
    `in use: ${bytes(inUse)}`,
    `largest free range: ${bytes(largest)}`,
    `free memory outside of it: ${scattered}`,
  ]);
});
pool.canvas.addEventListener("pointerleave", hideTooltip);
