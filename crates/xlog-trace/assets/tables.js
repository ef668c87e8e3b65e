// Summary, details, legends and tables. Everything that came with the data is set as text.

const MOST_SLOW = 16;

/** An element with text and children. */
function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

function swatch(colour) {
  const made = element("i");
  made.style.background = `var(--${colour})`;
  return made;
}

const colourName = (name) => (model.colours[name] < 0 ? "copy" : `c${model.colours[name]}`);

function showSummary() {
  const used = model.lanes.filter((row) => row.kind === "stream").length;
  const busy = model.lanes.filter((row) => row.kind === "stream")
    .reduce((sum, row) => sum + row.busy[row.busy.length - 1], 0);
  const cards = [
    ["launches", number(model.launches)],
    ["copies and fills", number(model.count - model.launches)],
    ["streams", number(used)],
    ["waits between streams", number(model.waits)],
    ["events recorded", number(data.records)],
    ["peak memory in use", bytes(tagMemory.peak)],
    ["busy, all streams", duration(busy)],
  ];
  if (data.hazards !== null) cards.push(["hazards", number(data.hazards.length)]);
  if (data.leftOut > 0) cards.push(["notes left out", number(data.leftOut)]);
  const place = document.getElementById("summary");
  for (const [label, value] of cards) {
    const card = element("div", null, element("b", value), element("span", label));
    card.className = "card";
    card.dataset.label = label;
    card.classList.toggle("bad", (label === "hazards" && data.hazards.length > 0)
      || label === "notes left out");
    place.append(card);
  }
  const without = model.device ? "" : " · this device keeps no time: only host calls are shown";
  document.getElementById("subtitle").textContent =
    `${data.device} · ${duration(data.end)}${without}`;
}

function showHazards() {
  if (data.hazards === null || data.hazards.length === 0) return;
  document.getElementById("hazards").hidden = false;
  const list = document.getElementById("hazard-list");
  for (const { title, text } of data.hazards) {
    list.append(element("li", null, element("b", title), element("pre", text)));
  }
}

function showLegends() {
  const legend = document.getElementById("legend");
  const shown = model.kernels.filter((kernel) => kernel.kind === 0)
    .sort((one, other) => other.total - one.total).slice(0, 8);
  for (const kernel of shown) {
    legend.append(element("span", null, swatch(colourName(kernel.index)), kernel.name));
  }
  legend.append(element("span", null, swatch("copy"), "copies and fills"));
  if (model.waits > 0) legend.append(element("span", null, swatch("arrow"), "waits"));
  legend.append(element("span", null, swatch("await"), "the host waits"));
  const tags = document.getElementById("memory-legend");
  tagMemory.series.forEach((tag, rank) => {
    tags.append(element("span", null, swatch(`c${rank % 9}`), tag));
  });
  const inPool = document.getElementById("pool-legend");
  const reserved = swatch("c0");
  reserved.style.opacity = "0.35";
  inPool.append(
    element("span", null, reserved, "reserved from the driver"),
    element("span", null, swatch("c0"), "in use"),
    element("span", null, swatch("c1"), "largest free range"),
  );
}

/** A table from headings and rows of cells: text, or a node. */
function fillTable(table, headings, rows) {
  const cell = (name, content, numeric) => {
    const made = typeof content === "string" ? element(name, content)
      : element(name, null, content);
    if (numeric) made.className = "number";
    return made;
  };
  const head = element("tr");
  for (const [label, numeric] of headings) head.append(cell("th", label, numeric));
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    row.forEach((content, index) => line.append(cell("td", content, headings[index][1])));
    body.append(line);
  }
  table.replaceChildren(element("thead", null, head), body);
}

/** The end of a long path: the file and the line tell most. */
function shortPlace(place) {
  const parts = place.split("/");
  return parts.length > 3 ? `…/${parts.slice(-3).join("/")}` : place;
}

/** A name that can be clicked, with its colour. */
function jump(name, act) {
  const button = element("button", data.names[name]);
  button.type = "button";
  button.addEventListener("click", act);
  return element("span", null, swatch(colourName(name)), button);
}

function showTables() {
  const { operations } = data;
  const launches = [];
  for (let item = 0; item < model.count; item += 1) {
    if (operations.kind[item] === 0 && model.timed(item)) launches.push(item);
  }
  launches.sort((one, other) => operations.length[other] - operations.length[one]);
  const total = model.kernels.reduce((sum, kernel) => sum + kernel.total, 0);
  fillTable(
    document.getElementById("slowest"),
    [["kernel"], ["stream"], ["began", true], ["took", true], ["launched at"]],
    launches.slice(0, MOST_SLOW).map((item) => [
      jump(operations.name[item], () => goTo({ item })),
      data.streams[operations.stream[item]],
      duration(model.begin[item]),
      duration(operations.length[item]),
      operations.place[item] < 0 ? "–" : shortPlace(data.places[operations.place[item]]),
    ]),
  );
  const kernels = [...model.kernels].sort((one, other) => other.total - one.total);
  fillTable(
    document.getElementById("kernels"),
    [["kernel"], ["times", true], ["in all", true], ["share", true], ["longest", true]],
    kernels.slice(0, MOST_SLOW).map((kernel) => [
      jump(kernel.index, () => search.start(kernel.name)),
      number(kernel.count),
      duration(kernel.total),
      total > 0 ? `${((100 * kernel.total) / total).toFixed(1)} %` : "–",
      duration(kernel.most),
    ]),
  );
}

/** How often each reason made a stream wait; a wait for several blocks counts for each. */
function showReasons() {
  const rows = new Map();
  const count = (what, tag, wait) => {
    const key = `${what}\n${tag}`;
    const row = rows.get(key) ?? { what, tag, times: 0, first: wait, last: -1 };
    if (row.last !== wait) row.times += 1;
    row.last = wait;
    rows.set(key, row);
  };
  for (let wait = 0; wait < model.waits; wait += 1) {
    const cause = data.waits.cause[wait];
    if (cause !== 0) count(cause === 1 ? "fence of the host" : "not declared", "", wait);
    const end = model.reasonStart[wait];
    for (let at = end - data.waits.reasons[wait]; at < end; at += 1) {
      const block = data.reasons.block[at];
      const tag = block < 0 ? "" : data.tags[data.blocks.tag[block]];
      count(data.dependencies[data.reasons.dependency[at]], tag, wait);
    }
  }
  document.getElementById("wait-panel").hidden = rows.size === 0;
  const sorted = [...rows.values()].sort((one, other) => other.times - one.times);
  fillTable(
    document.getElementById("reasons"),
    [["reason"], ["of blocks"], ["waits", true]],
    sorted.slice(0, MOST_SLOW).map(({ what, tag, times, first }) => {
      const button = element("button", what);
      button.type = "button";
      button.addEventListener("click", () => goTo({ wait: first }));
      return [button, tag, number(times)];
    }),
  );
}

/** Selects something and brings it into view. */
function goTo(what) {
  view.select(what);
  if (what.item !== undefined) {
    const timed = model.timed(what.item);
    view.reveal(timed ? model.begin[what.item] : model.call[what.item],
      timed ? model.end[what.item] : model.call[what.item]);
  } else if (what.wait !== undefined) {
    const { from, to } = data.waits;
    const end = to[what.wait] < 0 ? model.waitAt[what.wait] : model.begin[to[what.wait]];
    const begin = from[what.wait] < 0 ? end : model.end[from[what.wait]];
    view.reveal(Math.min(begin, end), Math.max(begin, end) + 1);
  }
}

function pairs(list) {
  const made = element("dl");
  for (const [label, value] of list) made.append(element("dt", label), element("dd", value));
  return made;
}

/** What is known of the selected work, call or wait. */
function showDetails(what) {
  const box = document.getElementById("details");
  if (what === null) {
    const hint = element("p", "Click work or an arrow to see its details here.");
    hint.className = "hint";
    box.replaceChildren(hint);
    return;
  }
  const [heading, lines] = describe(what);
  if (what.item === undefined) {
    const list = element("ul");
    for (const line of lines) list.append(element("li", line));
    box.replaceChildren(element("h3", heading), list);
    return;
  }
  const { item } = what;
  const { operations } = data;
  const facts = [["stream", data.streams[operations.stream[item]]]];
  if (model.timed(item)) {
    facts.push(["took", duration(operations.length[item])]);
    facts.push(["began", duration(model.begin[item])]);
    const waited = model.begin[item] - model.call[item];
    facts.push(["after its enqueue", duration(Math.max(0, waited))]);
  }
  facts.push(operations.kind[item] === 0
    ? ["threads", data.dims[operations.size[item]]]
    : ["bytes", bytes(operations.size[item])]);
  facts.push(["enqueued by", data.threads[operations.thread[item]]]);
  if (operations.place[item] >= 0) facts.push(["launched at", data.places[operations.place[item]]]);
  for (const { block, access } of usesOf(item)) {
    facts.push([ACCESSES[access], `${blockName(block)}, ${bytes(data.blocks.bytes[block])}`]);
  }
  for (let wait = 0; wait < model.waits; wait += 1) {
    if (data.waits.to[wait] !== item) continue;
    const source = data.waits.source[wait];
    facts.push([`waits for ${source < 0 ? "nothing" : data.streams[source]}`,
      reasonsOf(wait).join("; ")]);
  }
  box.replaceChildren(element("h3", heading), pairs(facts));
}
