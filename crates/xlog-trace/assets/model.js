// The recording, from the compact lists in the page to arrays that can be drawn and searched.

const data = JSON.parse(document.getElementById("data").textContent);

/** Running sums: times are stored as differences to the one before. */
function sums(differences) {
  const values = new Float64Array(differences.length);
  let sum = 0;
  for (let index = 0; index < differences.length; index += 1) {
    sum += differences[index];
    values[index] = sum;
  }
  return values;
}

/** A row of the timeline: spans that do not overlap, in order. */
function lane(kind, label, spans) {
  spans.sort((one, other) => one.begin - other.begin);
  const count = spans.length;
  const row = {
    kind,
    label,
    begin: new Float64Array(count),
    end: new Float64Array(count),
    item: new Int32Array(count),
    busy: new Float64Array(count + 1),
  };
  spans.forEach((span, index) => {
    row.begin[index] = span.begin;
    row.end[index] = span.end;
    row.item[index] = span.item;
    row.busy[index + 1] = row.busy[index] + (span.end - span.begin);
  });
  return row;
}

/** The first index whose value is above `limit`; `values` ascend. */
function firstAbove(values, limit, from = 0) {
  let low = from;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

const KINDS = ["kernel", "copy to device", "copy to host", "copy on device", "fill"];
const ACCESSES = ["reads", "writes", "reads and writes"];

const model = (() => {
  const operations = data.operations;
  const count = operations.name.length;
  const begin = sums(operations.begin);
  const call = sums(operations.call);
  const timed = (index) => operations.length[index] >= 0;
  const end = begin.map((at, index) => at + Math.max(0, operations.length[index]));

  const byStream = data.streams.map(() => []);
  const byThread = data.threads.map(() => []);
  for (let item = 0; item < count; item += 1) {
    if (timed(item)) {
      byStream[operations.stream[item]].push({ begin: begin[item], end: end[item], item });
    }
    const from = call[item];
    byThread[operations.thread[item]]
      .push({ begin: from, end: from + operations.callLength[item], item });
  }
  const calls = data.calls;
  const callBegin = sums(calls.begin);
  callBegin.forEach((at, index) => {
    byThread[calls.thread[index]]
      .push({ begin: at, end: at + calls.length[index], item: -1 - index });
  });
  const lanes = [];
  const laneOfStream = new Int32Array(data.streams.length).fill(-1);
  const laneOfThread = new Int32Array(data.threads.length).fill(-1);
  for (const stream of data.order) {
    if (byStream[stream].length > 0) {
      laneOfStream[stream] = lanes.length;
      lanes.push(lane("stream", data.streams[stream], byStream[stream]));
    }
  }
  byThread.forEach((spans, thread) => {
    if (spans.length === 0) return;
    laneOfThread[thread] = lanes.length;
    lanes.push(lane("host", data.threads[thread], spans));
  });

  // Where the uses of each operation and the reasons of each wait begin in their flat lists.
  const useStart = sums(operations.uses);
  const reasonStart = sums(data.waits.reasons);

  const kernels = data.names.map((name, index) => ({ name, index, count: 0, total: 0, most: 0 }));
  let launches = 0;
  for (let item = 0; item < count; item += 1) {
    const kernel = kernels[operations.name[item]];
    const took = end[item] - begin[item];
    kernel.count += 1;
    kernel.total += took;
    kernel.most = Math.max(kernel.most, took);
    kernel.kind = operations.kind[item];
    if (operations.kind[item] === 0) launches += 1;
  }
  // The most expensive get the colours that tell best; what moves bytes has one of its own.
  const colours = new Int32Array(data.names.length).fill(8);
  kernels.filter((kernel) => kernel.kind === 0)
    .sort((one, other) => other.total - one.total)
    .forEach((kernel, rank) => { colours[kernel.index] = rank % 8; });
  kernels.filter((kernel) => kernel.kind !== 0)
    .forEach((kernel) => { colours[kernel.index] = -1; });

  return {
    count, begin, end, call, timed, calls, callBegin, lanes, laneOfStream, laneOfThread,
    useStart, reasonStart, kernels, colours, launches,
    waits: data.waits.stream.length,
    waitAt: sums(data.waits.at),
    end_: Math.max(1, data.end),
    device: begin.some((_, index) => timed(index)),
  };
})();

/** The uses that an operation declared. */
function usesOf(item) {
  const end = model.useStart[item];
  const uses = [];
  for (let at = end - data.operations.uses[item]; at < end; at += 1) {
    uses.push({ block: data.uses.block[at], access: data.uses.access[at] });
  }
  return uses;
}

/** A block, in words. */
function blockName(block) {
  return `${data.tags[data.blocks.tag[block]]} (generation ${data.blocks.generation[block]})`;
}

/** Why a wait was needed, a line for each reason. */
function reasonsOf(wait) {
  const cause = data.waits.cause[wait];
  if (cause === 1) return ["the host waits for every stream at once"];
  if (cause === 2) return ["nobody said: no declared use needs it"];
  const end = model.reasonStart[wait];
  const lines = [];
  for (let at = end - data.waits.reasons[wait]; at < end; at += 1) {
    const { dependency, block, earlierBlock, earlier } = data.reasons;
    let line = data.dependencies[dependency[at]];
    line += block[at] < 0 ? " of a driver allocation" : ` of block ${blockName(block[at])}`;
    if (earlierBlock[at] >= 0) {
      line += `, which has memory of block ${blockName(earlierBlock[at])}`;
    }
    if (earlier[at] >= 0) {
      line += `: follows ${data.names[data.operations.name[earlier[at]]]}`;
      line += ` on ${data.streams[data.operations.stream[earlier[at]]]}`;
    }
    lines.push(line);
  }
  const more = data.waits.all[wait] - lines.length;
  if (more > 0) lines.push(`and ${more} more`);
  return lines;
}

/** Nanoseconds, with a unit that suits them. */
function duration(nanoseconds) {
  const size = Math.abs(nanoseconds);
  if (size < 1e3) return `${nanoseconds.toFixed(0)} ns`;
  if (size < 1e6) return `${(nanoseconds / 1e3).toPrecision(4)} µs`;
  if (size < 1e9) return `${(nanoseconds / 1e6).toPrecision(4)} ms`;
  return `${(nanoseconds / 1e9).toPrecision(4)} s`;
}

/** A time, with as many digits as it takes to tell places of a range `width` wide apart. */
function moment(nanoseconds, width) {
  const [unit, name] = nanoseconds < 1e6 ? [1e3, "µs"] : nanoseconds < 1e9
    ? [1e6, "ms"] : [1e9, "s"];
  const digits = Math.ceil(Math.log10(unit / Math.max(1, width))) + 2;
  return `${(nanoseconds / unit).toFixed(Math.min(9, Math.max(0, digits)))} ${name}`;
}

/** Bytes, with a unit that suits them. */
function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toPrecision(value < 1000 ? 3 : 4)} ${units[unit]}`;
}

const number = (value) => value.toLocaleString("en");
