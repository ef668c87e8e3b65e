// Search, keys, theme, and the start of it all.

const search = {
  box: document.getElementById("search"),
  status: document.getElementById("matches"),
  /** One for each operation: whether it matches. Null without a search. */
  found: null,
  list: [],
  at: -1,

  /** Looks for work by kernel name, or by the tag of a block it uses. */
  run(text) {
    const wanted = text.trim().toLowerCase();
    search.list = [];
    search.at = -1;
    search.found = null;
    if (wanted !== "") {
      const named = data.names.map((name) => name.toLowerCase().includes(wanted));
      const tagged = data.tags.map((tag) => tag.toLowerCase().includes(wanted));
      const found = new Uint8Array(model.count);
      for (let item = 0, at = 0; item < model.count; item += 1) {
        const end = model.useStart[item];
        let hit = named[data.operations.name[item]];
        for (; at < end; at += 1) hit ||= tagged[data.blocks.tag[data.uses.block[at]]];
        if (hit) {
          found[item] = 1;
          search.list.push(item);
        }
      }
      search.list.sort((one, other) => model.begin[one] - model.begin[other]);
      search.found = found;
      for (const row of model.lanes) {
        row.hits = new Int32Array(row.item.length + 1);
        row.item.forEach((item, index) => {
          row.hits[index + 1] = row.hits[index] + (item >= 0 ? found[item] : 0);
        });
      }
    }
    search.say();
    view.draw();
  },

  say() {
    const { list, at } = search;
    search.status.textContent = search.found === null ? ""
      : list.length === 0 ? "not found"
        : `${at < 0 ? "–" : number(at + 1)} of ${number(list.length)}`;
  },

  /** Goes to the next match, or the one before. */
  step(by) {
    const { list } = search;
    if (list.length === 0) return;
    if (search.at < 0) {
      // From what is shown on, not from the beginning.
      const next = list.findIndex((item) => model.begin[item] >= view.from);
      search.at = by > 0 ? Math.max(0, next) : (next <= 0 ? list.length : next) - 1;
    } else {
      search.at = (search.at + by + list.length) % list.length;
    }
    search.say();
    goTo({ item: list[search.at] });
  },

  start(text) {
    search.box.value = text;
    search.run(text);
    search.step(1);
  },
};

search.box.addEventListener("input", () => search.run(search.box.value));
search.box.addEventListener("keydown", (event) => {
  if (event.key === "Enter") search.step(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") {
    search.box.value = "";
    search.run("");
    timeline.canvas.focus();
  }
  if (event.key === "Enter" || event.key === "Escape") event.preventDefault();
});

/** The next wait from the selected one, or from what is shown. */
function stepWait(by) {
  if (arrows.length === 0) return;
  const chosen = arrows.findIndex(({ wait }) => wait === view.selected?.wait);
  const first = Math.max(0, arrows.findIndex(({ end }) => end >= view.from));
  const next = chosen < 0 ? first : (chosen + by + arrows.length) % arrows.length;
  goTo({ wait: arrows[next].wait });
}

/** The next work on the stream of the selected one. */
function stepWork(by) {
  const item = view.selected?.item ?? (model.lanes.find((row) => row.kind === "stream")?.item[0]);
  if (item === undefined || !model.timed(item)) return;
  if (view.selected?.item === undefined) {
    goTo({ item });
    return;
  }
  const row = model.lanes[model.laneOfStream[data.operations.stream[item]]];
  const next = row.item[row.item.indexOf(item) + by];
  if (next !== undefined) goTo({ item: next });
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readColours();
  view.draw();
}

const help = document.getElementById("help");
const KEYS = [
  [["+", "="], "zoom in", () => view.zoom(0.6)],
  [["-", "_"], "zoom out", () => view.zoom(1 / 0.6)],
  [["ArrowLeft"], "move left", () => view.pan(-0.2)],
  [["ArrowRight"], "move right", () => view.pan(0.2)],
  [["0", "Home"], "show everything", () => view.fit()],
  [["/"], "search", () => search.box.focus()],
  [["n"], "next match", () => search.step(1)],
  [["N"], "previous match", () => search.step(-1)],
  [["w"], "next wait", () => stepWait(1)],
  [["W"], "previous wait", () => stepWait(-1)],
  [["]"], "next work on the stream", () => stepWork(1)],
  [["["], "previous work on the stream", () => stepWork(-1)],
  [["Escape"], "clear the selection", () => view.select(null)],
  [["t"], "dark or light", () => document.getElementById("theme").click()],
  [["?"], "these keys", () => help.showModal()],
];

for (const [keys, label] of KEYS) {
  const shown = element("dt");
  keys.forEach((key, index) => {
    if (index > 0) shown.append(" ");
    shown.append(element("kbd", key.replace("Arrow", "")));
  });
  document.getElementById("keys").append(shown, element("dd", label));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.target instanceof HTMLInputElement) return;
  const found = KEYS.find(([keys]) => keys.includes(event.key));
  if (found === undefined) return;
  event.preventDefault();
  found[2]();
});

const click = (id, act) => document.getElementById(id).addEventListener("click", act);
click("zoom-in", () => view.zoom(0.6));
click("zoom-out", () => view.zoom(1 / 0.6));
click("fit", () => view.fit());
click("next", () => search.step(1));
click("previous", () => search.step(-1));
click("help-button", () => help.showModal());
click("theme", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
});

const dark = window.matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
window.addEventListener("resize", () => view.draw());

showSummary();
showHazards();
showLegends();
showTables();
showReasons();
setTheme(dark.matches ? "dark" : "light");
view.drawNow();

// For tests, and for whoever opens the console.
window.report = { data, model, view, search, timeline, arrows, itemAt };
