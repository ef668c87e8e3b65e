// Wheel, drag and hover over the timeline and the overview.

const tooltip = document.getElementById("tooltip");

/** Shows text by the pointer: a heading and lines. Text only, never markup. */
function showTooltip(event, heading, lines) {
  tooltip.replaceChildren();
  const title = document.createElement("b");
  title.textContent = heading;
  tooltip.append(title);
  for (const line of lines) {
    const part = document.createElement("div");
    part.textContent = line;
    tooltip.append(part);
  }
  tooltip.hidden = false;
  const { offsetWidth, offsetHeight } = tooltip;
  const left = Math.min(event.clientX + 14, window.innerWidth - offsetWidth - 8);
  const below = event.clientY + 16;
  const fits = below + offsetHeight < window.innerHeight;
  tooltip.style.left = `${Math.max(8, left)}px`;
  tooltip.style.top = `${fits ? below : Math.max(8, event.clientY - offsetHeight - 10)}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}

/** The first lines about what is under the pointer. */
function describe(what) {
  if (what.wait !== undefined) {
    const { source, stream, to } = data.waits;
    const from = source[what.wait] < 0 ? "nothing" : data.streams[source[what.wait]];
    const next = to[what.wait];
    const who = next < 0 ? "" : `${data.names[data.operations.name[next]]} on `;
    return [`${who}${data.streams[stream[what.wait]]} waits for ${from}`, reasonsOf(what.wait)];
  }
  if (what.call !== undefined) {
    const took = data.calls.length[what.call];
    return [data.callKinds[data.calls.kind[what.call]], [`took ${duration(took)}`]];
  }
  const { item } = what;
  const { operations } = data;
  const lines = [];
  if (model.timed(item)) {
    lines.push(`${duration(operations.length[item])} on ${data.streams[operations.stream[item]]}`);
  }
  lines.push(operations.kind[item] === 0
    ? `${data.dims[operations.size[item]]}` : bytes(operations.size[item]));
  for (const { block, access } of usesOf(item).slice(0, 6)) {
    lines.push(`${ACCESSES[access]} ${blockName(block)}`);
  }
  return [data.names[operations.name[item]], lines];
}

function place(event, canvas) {
  const box = canvas.getBoundingClientRect();
  return { left: event.clientX - box.left, top: event.clientY - box.top };
}

timeline.canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
  const by = sideways && event.deltaX === 0 ? event.deltaY : event.deltaX;
  if (sideways) {
    view.pan(by / timeline.canvas.clientWidth);
    return;
  }
  const { left } = place(event, timeline.canvas);
  const { time } = scale(timeline.canvas.clientWidth);
  view.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.004), time(left));
}, { passive: false });

timeline.canvas.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  const { left } = place(event, timeline.canvas);
  timeline.canvas.setPointerCapture(event.pointerId);
  timeline.drag = {
    start: left, at: left, range: event.shiftKey, moved: false, from: view.from, to: view.to,
  };
  timeline.canvas.classList.toggle("dragging", !event.shiftKey);
  hideTooltip();
});

timeline.canvas.addEventListener("pointermove", (event) => {
  const { left, top } = place(event, timeline.canvas);
  const { drag } = timeline;
  if (drag === null) {
    const what = itemAt(left, top);
    if (what === null) hideTooltip();
    else showTooltip(event, ...describe(what));
    return;
  }
  drag.at = left;
  drag.moved ||= Math.abs(left - drag.start) > 3;
  if (drag.range) {
    view.draw();
  } else if (drag.moved) {
    const perPixel = (drag.to - drag.from) / Math.max(1, timeline.canvas.clientWidth - GUTTER);
    const by = (drag.start - left) * perPixel;
    view.show(drag.from + by, drag.to + by);
  }
});

timeline.canvas.addEventListener("pointerup", (event) => {
  const { drag } = timeline;
  timeline.drag = null;
  timeline.canvas.classList.remove("dragging");
  if (drag === null) return;
  const { left, top } = place(event, timeline.canvas);
  if (!drag.moved) {
    view.select(itemAt(left, top));
  } else if (drag.range) {
    const { time } = scale(timeline.canvas.clientWidth);
    view.show(time(Math.min(drag.start, left)), time(Math.max(drag.start, left)));
  }
  view.draw();
});

timeline.canvas.addEventListener("pointercancel", () => { timeline.drag = null; });
timeline.canvas.addEventListener("pointerleave", hideTooltip);
timeline.canvas.addEventListener("dblclick", (event) => {
  const { left, top } = place(event, timeline.canvas);
  const what = itemAt(left, top);
  if (what?.item !== undefined && model.timed(what.item)) {
    const width = model.end[what.item] - model.begin[what.item];
    view.show(model.begin[what.item] - width, model.end[what.item] + width);
  }
});

// The overview: how busy the streams are over the whole recording, and what is shown of it.

const overview = { canvas: document.getElementById("overview"), shares: null, width: 0 };

/** How many streams are busy, on average, in each pixel. */
function busyShares(count) {
  const shares = new Float64Array(count);
  const perPixel = model.end_ / count;
  for (const row of model.lanes) {
    if (row.kind !== "stream") continue;
    for (let index = 0; index < row.begin.length; index += 1) {
      const last = Math.min(count - 1, Math.floor(row.end[index] / perPixel));
      let column = Math.floor(row.begin[index] / perPixel);
      for (; column <= last; column += 1) {
        const from = Math.max(row.begin[index], column * perPixel);
        const to = Math.min(row.end[index], (column + 1) * perPixel);
        shares[column] += Math.max(0, to - from) / perPixel;
      }
    }
  }
  return shares;
}

view.painters.push(() => {
  const { context, width, height } = prepare(overview.canvas, 34);
  const room = Math.max(1, Math.floor(width - GUTTER));
  if (overview.width !== room) {
    overview.shares = busyShares(room);
    overview.width = room;
  }
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillStyle = paint.faint;
  context.fillText("busy streams", 2, height / 2);
  context.fillStyle = paint.lane;
  context.fillRect(GUTTER, 0, room, height);
  const most = Math.max(1, ...overview.shares);
  context.fillStyle = paint.series[0];
  overview.shares.forEach((share, column) => {
    const tall = (share / most) * (height - 4);
    context.fillRect(GUTTER + column, height - tall, 1, tall);
  });
  const x = (time) => GUTTER + (time / model.end_) * room;
  context.fillStyle = paint.panel;
  context.globalAlpha = 0.72;
  context.fillRect(GUTTER, 0, x(view.from) - GUTTER, height);
  context.fillRect(x(view.to), 0, GUTTER + room - x(view.to), height);
  context.globalAlpha = 1;
  context.strokeStyle = paint.accent;
  context.lineWidth = 1.5;
  const wide = Math.max(3, x(view.to) - x(view.from) - 1.5);
  context.strokeRect(x(view.from) + 0.75, 0.75, wide, height - 1.5);
});

function centreOverview(event) {
  const { left } = place(event, overview.canvas);
  const at = ((left - GUTTER) / Math.max(1, overview.width)) * model.end_;
  const half = (view.to - view.from) / 2;
  view.show(at - half, at + half);
}
overview.canvas.addEventListener("pointerdown", (event) => {
  overview.canvas.setPointerCapture(event.pointerId);
  centreOverview(event);
});
overview.canvas.addEventListener("pointermove", (event) => {
  if (event.buttons === 1) centreOverview(event);
});
