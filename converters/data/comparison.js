"use strict";
// The page of one comparison. Every name in it is another program's: only textContent shows one.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  // Numbers that JSON lacks stand as "Infinity" and the like.
  const numeric = ["max_abs", "mean_abs", "relative", "cosine", "snr_db", "length", "bound"];
  const rows = data.rows.map((row) => {
    const plain = { ...row };
    for (const key of numeric) plain[key] = row[key] == null ? null : Number(row[key]);
    return plain;
  });
  const wrong = rows.flatMap((row, i) => (row.problem && row.ours ? [i] : []));
  const shown = (value, digits = 3) => {
    if (value === null) return "-";
    if (Number.isNaN(value)) return "NaN";
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
    const size = Math.abs(value);
    if (size > 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(digits - 1);
    return Number(value.toPrecision(digits)).toString();
  };
  const rough = (value) => shown(value, 2); // what a map holds is rounded to a few bits
  const coded = (row) => row.max_abs !== null && row.bound === null;

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function draw(tag, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  // --- the bars: one for each tensor ---------------------------------------------------------

  const HEIGHT = 220, TOP = 22;

  function decades() {
    const values = rows.flatMap((row) => [row.max_abs, row.bound])
      .filter((v) => v !== null && v > 0 && Number.isFinite(v));
    if (!values.length) return [-6, 0];
    const high = Math.ceil(Math.log10(Math.max(...values)) + 1e-9);
    const low = Math.floor(Math.log10(Math.min(...values)));
    return [Math.max(low, high - 12), Math.max(high, low + 1)];
  }

  function bars() {
    const [low, high] = decades();
    const y = (value) => {
      if (value === Infinity) return TOP;
      const part = value > 0 ? (Math.log10(value) - low) / (high - low) : 0;
      return TOP + HEIGHT * (1 - Math.min(1, Math.max(0.004, part)));
    };
    const room = byId("bars").clientWidth;
    const pitch = Math.min(34, Math.max(7, Math.floor(room / rows.length)));
    const names = pitch >= 15;
    const below = names ? 96 : 24;
    const width = Math.max(room, pitch * rows.length + (names ? 40 : 0));
    const chart = draw("svg", { width, height: TOP + HEIGHT + below });
    const scale = byId("scale");
    scale.replaceChildren();
    scale.setAttribute("height", TOP + HEIGHT + below);
    const axis = scale.clientWidth;
    const step = Math.ceil((high - low) / 7);
    for (let d = low; d <= high; d += step) {
      const at = TOP + HEIGHT * (1 - (d - low) / (high - low));
      chart.append(draw("line", { class: "grid", x1: 0, x2: width, y1: at, y2: at }));
      scale.append(draw("text", { class: "label", x: axis - 6, y: at + 4, "text-anchor": "end" }, `1e${d}`));
    }
    scale.append(draw("text", { class: "label", x: axis - 6, y: 10, "text-anchor": "end" }, "max|d|"));
    rows.forEach((row, i) => {
      const group = bar(row, i, pitch, y);
      chart.append(group);
      if (!names) return;
      const place = `translate(${i * pitch + pitch / 2 - 3} ${TOP + HEIGHT + 12}) rotate(50)`;
      group.append(draw("text", { class: "label", transform: place }, cut(row.stage || row.name, 16)));
    });
    if (!names) chart.append(...blockLabels(pitch));
    byId("bars").replaceChildren(chart);
  }

  // Names of blocks where there is no room for those of tensors; neighbours of one block are a run.
  function blockLabels(pitch) {
    const starts = [...rows.keys()].filter((i) => i === 0 || rows[i].block !== rows[i - 1].block);
    return starts.flatMap((from, at) => {
      const x = from * pitch, length = Math.floor((((starts[at + 1] ?? rows.length) - from) * pitch - 6) / 6.5);
      const line = draw("line", { class: "grid", x1: x, x2: x, y1: TOP, y2: TOP + HEIGHT + 20 });
      if (length < 4) return [line];
      return [line, draw("text", { class: "label", x: x + 3, y: TOP + HEIGHT + 16 }, cut(data.blocks[rows[from].block], length))];
    });
  }

  function bar(row, i, pitch, y) {
    const x = i * pitch, wide = Math.max(2, pitch - 3), middle = x + pitch / 2;
    const group = draw("g", { class: row.problem ? "bar wrong" : "bar", "data-row": i });
    group.append(draw("title", {}, `${row.name}: ${numbersInWords(row)}`),
      draw("rect", { class: "hit", x, y: 0, width: pitch, height: TOP + HEIGHT }));
    let top = TOP; // of what is drawn
    if (!row.ours) {
      top = TOP + HEIGHT;
    } else if (row.max_abs === null || coded(row)) {
      if (row.problem) group.append(draw("rect", { class: "none", x: x + 1.5, y: TOP, width: wide, height: HEIGHT }));
    } else {
      top = y(row.max_abs);
      group.append(draw("rect", { class: "value", x: x + 1.5, y: top, width: wide, height: TOP + HEIGHT - top }));
      if (row.bound > 0) {
        const at = y(row.bound);
        group.append(draw("line", { class: "bound", x1: x, x2: x + pitch, y1: at, y2: at }));
      }
    }
    if (row.problem) {
      const label = i === data.first ? "▼" : row.ours ? "✗" : "?";
      group.append(draw("text", { class: "mark", x: middle, y: Math.max(12, top - 5) }, label));
    }
    return group;
  }

  function numbersInWords(row) {
    if (row.max_abs === null || coded(row)) return row.problem || row.note || "equal";
    return `max|d| ${shown(row.max_abs)}, bound ${shown(row.bound)}${row.problem ? `; ${row.problem}` : ""}`;
  }

  function cut(text, length) {
    const letters = [...text];
    if (letters.length <= length) return text;
    const head = Math.floor((length - 1) / 2);
    return `${letters.slice(0, head).join("")}…${letters.slice(head + 1 - length).join("")}`;
  }

  // --- the table -----------------------------------------------------------------------------

  const columns = [
    ["", () => "", ""], ["tensor", (r) => r.name, "t name"], ["shape", (r) => `[${r.shape.join(", ")}]`, "t n"],
    ["max|d|", (r) => shown(r.max_abs), "n"], ["at", (r) => (r.at ? `[${r.at.join(", ")}]` : "-"), "t n"],
    ["bound", (r) => shown(r.bound), "n"], ["mean|d|", (r) => shown(r.mean_abs), "n"],
    ["relative", (r) => shown(r.relative), "n"],
    ["cosine", (r) => (r.cosine === null ? "-" : r.cosine.toFixed(6)), "n"],
    ["SNR dB", (r) => (r.snr_db === null || !Number.isFinite(r.snr_db) ? shown(r.snr_db) : r.snr_db.toFixed(1)), "n"],
    ["", (r) => r.problem || r.note, "t note"],
  ];
  let lines = [];

  function table() {
    const head = make("tr", {}, ...columns.map(([title, , kind]) => make("th", { class: kind, scope: "col" }, title)));
    head.firstChild.append(make("span", { "aria-label": "wrong" }));
    lines = rows.map((row, i) => {
      const line = make("tr", { class: row.problem ? "wrong" : "", "data-row": i });
      columns.forEach(([, value, kind], column) => {
        const cell = make("td", { class: kind });
        if (column === 0 && row.problem) cell.append(mark(row));
        else if (column === 1) cell.append(named(row));
        else cell.append(coded(row) && kind.endsWith("n") && column > 2 ? "-" : value(row));
        line.append(cell);
      });
      return line;
    });
    byId("tensors").replaceChildren(make("thead", {}, head), make("tbody", {}, ...lines));
    sift();
  }

  function mark(row) {
    return make("span", { role: "img", "aria-label": row.ours ? "wrong" : "not there" }, row.ours ? "✗" : "?");
  }

  function named(row) {
    const cell = make("span", {}, make("button", { type: "button" }, row.name));
    if (row.stage && row.stage !== row.name) cell.append(` (stage ${row.stage})`);
    if (row.ours && row.ours !== row.name) cell.append(` ← ${row.ours}`);
    return cell;
  }

  function sift() {
    const text = byId("filter").value.toLowerCase(), only = byId("only-wrong").checked;
    let count = 0;
    rows.forEach((row, i) => {
      const fits = (!only || row.problem !== "") && `${row.name}\n${row.ours}\n${row.stage}`.toLowerCase().includes(text);
      lines[i].hidden = !fits;
      count += fits;
    });
    byId("count").textContent = `${count} of ${rows.length}`;
  }

  // --- the chosen tensor ---------------------------------------------------------------------

  let chosen = -1, map = null;

  function choose(i, { scroll = true } = {}) {
    if (!(i >= 0 && i < rows.length)) return;
    chosen = i;
    for (const old of document.querySelectorAll(".chosen")) old.classList.remove("chosen");
    const group = byId("bars").querySelector(`[data-row="${i}"]`);
    group.classList.add("chosen");
    lines[i].classList.add("chosen");
    if (scroll) reveal(group);
    const box = byId("tensors").parentElement, top = lines[i].offsetTop;
    if (top < box.scrollTop + 40 || top > box.scrollTop + box.clientHeight - 60) box.scrollTop = top - box.clientHeight / 2;
    const row = rows[i];
    byId("chosen-title").textContent = row.name;
    byId("chosen-problem").textContent = row.problem ? `${row.ours ? "✗" : "?"} ${row.problem}` : row.note || "right";
    byId("chosen-numbers").replaceChildren(...facts(row).map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    byId("previous").disabled = !wrong.some((w) => w < i);
    byId("next").disabled = !wrong.some((w) => w > i);
    const hash = `#tensor=${encodeURIComponent(row.name)}`;
    if (location.hash !== hash) history.replaceState(null, "", hash);
    showMap(i);
  }

  function reveal(group) {
    const box = byId("bars"), at = group.querySelector(".hit");
    const x = Number(at.getAttribute("x")), width = Number(at.getAttribute("width"));
    if (x < box.scrollLeft + width || x + 2 * width > box.scrollLeft + box.clientWidth)
      box.scrollLeft = x - box.clientWidth / 2;
  }

  function facts(row) {
    const list = [["place", `${chosen + 1} of ${rows.length}`], ["block", data.blocks[row.block]],
      ["shape", `[${row.shape.join(", ")}]`]];
    if (row.stage && row.stage !== row.name) list.push(["stage", row.stage]);
    if (row.ours && row.ours !== row.name) list.push(["ours is called", row.ours]);
    if (row.max_abs !== null && !coded(row)) {
      for (const [title, value] of columns.slice(3, 10)) list.push([title, value(row)]);
      list.push(["ours / golden, length", shown(row.length)]);
      const worst = data.maps[chosen]?.worst ?? [];
      worst.forEach((value, i) => list.push([`${i ? "ours" : "golden"} there`, shown(Number(value), 6)]));
    }
    if (row.weights.length) list.push(["weights", row.weights.join(", ")]);
    return list;
  }

  async function showMap(i) {
    const packed = data.maps[i];
    byId("chosen-map").hidden = !packed;
    byId("no-map").textContent = packed ? "" : data.left_out[i] || "";
    map = null;
    if (!packed) return;
    const values = await unpack(packed.data);
    if (chosen !== i) return;
    const count = packed.cells[0] * packed.cells[1], channels = (values.length - count) / 2;
    map = { ...packed, row: rows[i], values: values.subarray(0, count),
      most: values.subarray(count, count + channels), mean: values.subarray(count + channels) };
    paint();
  }

  // As `HeatMap.packed` writes it: bits 15 to 30 of float32, low bytes before high ones.
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const planes = new Uint8Array(await new Response(stream).arrayBuffer());
    const count = planes.length / 2, words = new Uint32Array(count);
    for (let i = 0; i < count; i++) words[i] = ((planes[count + i] << 8) | planes[i]) << 15;
    return new Float32Array(words.buffer);
  }

  // viridis: equal steps look equal, with any colour vision and in grey.
  const COLOURS = ["440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725"]
    .map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));

  function colour(part) {
    const at = part * (COLOURS.length - 1), low = Math.min(Math.floor(at), COLOURS.length - 2);
    return COLOURS[low].map((from, c) => from + (COLOURS[low + 1][c] - from) * (at - low));
  }

  // |d| to 0..1: linear from zero, or logarithmic over the decades that matter.
  function scaleOf(map) {
    let most = 0, least = Infinity;
    for (const v of map.values) {
      if (Number.isFinite(v)) most = Math.max(most, v);
      if (v > 0) least = Math.min(least, v);
    }
    const linear = document.querySelector("[name=scale]:checked").value === "linear" || most === 0;
    const high = most || 1, low = linear ? 0 : Math.max(Math.min(least, high / 10), high * 1e-6);
    const part = (v) => {
      if (!(v > 0)) return 0;
      const raw = linear ? v / high : Math.log(v / low) / Math.log(high / low);
      return Math.min(1, Math.max(0, raw));
    };
    return { part, low, high, linear };
  }

  function paint() {
    if (!map) return;
    const scale = scaleOf(map), canvas = byId("map"), [height, width] = map.cells;
    canvas.width = width;
    canvas.height = height;
    const image = new ImageData(width, height);
    map.values.forEach((v, i) => image.data.set(v === Infinity ? [255, 0, 60, 255] : [...colour(scale.part(v)), 255], 4 * i));
    canvas.getContext("2d").putImageData(image, 0, 0);
    canvas.style.height = `${Math.min(420, Math.max(height === 1 ? 36 : 120, height * 8))}px`;
    const [rowAxis, columnAxis] = axisNames(map);
    const folded = map.folded.length ? `; the largest over axis ${map.folded.join(" and ")}` : "";
    const coarse = height < map.size[0] || width < map.size[1] ? "; a cell is the largest of its neighbourhood" : "";
    byId("map-title").textContent = `|d| over ${map.size[0] > 1 || map.axes[0] >= 0 ? `${rowAxis} and ` : ""}${columnAxis}${folded}${coarse}`;
    canvas.setAttribute("aria-label", `Heat map of |d|; arrow keys read single cells`);
    ticks("row-ticks", map.axes[0] < 0 ? [] : ends(map.size[0]));
    ticks("column-ticks", ends(map.size[1], columnAxis));
    legend(scale);
    ring();
    byId("cell").textContent = "Point at a cell to read it.";
    channels(scale);
  }

  function axisNames(map) {
    if (map.axes[0] < 0) return ["", `axis ${map.axes[1]}`];
    return [`channels (axis ${map.axes[0]})`, `time (axis ${map.axes[1]})`];
  }

  const ends = (size, name = "") => (size > 1 ? ["0", name, String(size - 1)].filter(Boolean) : ["0"]);

  function ticks(id, texts) {
    byId(id).replaceChildren(...texts.map((text) => make("span", {}, text)));
  }

  function legend(scale) {
    const canvas = byId("legend"), image = new ImageData(256, 1);
    for (let i = 0; i < 256; i++) image.data.set([...colour(i / 255), 255], 4 * i);
    canvas.getContext("2d").putImageData(image, 0, 0);
    const middle = scale.linear ? scale.high / 2 : Math.sqrt(scale.low * scale.high);
    const texts = [scale.linear ? "0" : `≤ ${rough(scale.low)}`, rough(middle), rough(scale.high)];
    if (map.values.every((v) => v === 0)) texts.splice(1);
    if (map.values.includes(Infinity)) texts.push("red: not finite");
    ticks("legend-ticks", texts);
  }

  function place(marker, cell) {
    const [height, width] = map.cells;
    marker.style.left = `${(100 * ((cell % width) + 0.5)) / width}%`;
    marker.style.top = `${(100 * (Math.floor(cell / width) + 0.5)) / height}%`;
  }

  function ring() {
    let worst = 0;
    map.values.forEach((v, i) => { if (v > map.values[worst]) worst = i; });
    byId("ring").hidden = !(map.values[worst] > 0);
    byId("cursor").hidden = true;
    place(byId("ring"), worst);
    map.cursor = worst;
  }

  function range(cell, cells, size) {
    const from = Math.floor((cell * size) / cells), to = Math.floor(((cell + 1) * size) / cells) - 1;
    return from === to ? String(from) : `${from}–${to}`;
  }

  function read(cell) {
    const [height, width] = map.cells;
    const column = range(cell % width, width, map.size[1]), row = range(Math.floor(cell / width), height, map.size[0]);
    const where = map.axes[0] < 0 ? `element ${column}` : `channel ${row}, time ${column}`;
    byId("cell").textContent = `${where}: |d| ${rough(map.values[cell])}`;
    map.cursor = cell;
  }

  // Bars of the largest |d| of each channel, and a step for its mean.
  function channels(scale) {
    const count = map.most.length, chart = byId("channels");
    const of = map.axes[0] < 0 ? "element" : "channel";
    byId("channels-title").textContent = `Error per ${of}: largest |d| as bars, mean |d| as marks`;
    chart.setAttribute("viewBox", `0 0 ${count} 1`);
    const gap = count > 200 ? 0 : 0.15, height = (v) => Math.max(v > 0 ? 0.01 : 0, scale.part(v));
    const bound = map.row.bound;
    const paths = { most: "", over: "", mean: "" };
    for (let i = 0; i < count; i++) {
      const tall = height(map.most[i]), kind = bound !== null && map.most[i] > bound ? "over" : "most";
      paths[kind] += `M${i + gap} 1v${-tall}h${1 - 2 * gap}v${tall}z`;
      const at = 1 - scale.part(map.mean[i]);
      paths.mean += `M${i + gap} ${at}h${1 - 2 * gap}v-0.015h${2 * gap - 1}z`;
    }
    chart.replaceChildren(...Object.entries(paths).map(([kind, d]) => draw("path", { class: kind, d })));
    if (bound > 0 && bound < scale.high && (scale.linear || bound > scale.low)) {
      const at = 1 - scale.part(bound);
      chart.append(draw("line", { class: "bound", x1: 0, x2: count, y1: at, y2: at }));
    }
    const order = [...map.most.keys()].sort((a, b) => map.most[b] - map.most[a]).slice(0, 5);
    const size = map.axes[0] < 0 ? map.size[1] : map.size[0];
    const said = order.map((i) => `${range(i, count, size)} (${rough(map.most[i])})`).join(", ");
    byId("channel").textContent = count > 1 ? `Largest: ${of} ${said}` : "";
    chart.setAttribute("aria-label", `Error per ${of}. Largest: ${said}`);
    ticks("channel-ticks", ends(size, `${of}s`));
    map.channels = { count, size, of, rest: byId("channel").textContent };
  }

  // --- what people do ------------------------------------------------------------------------

  function rowOf(event) {
    const found = event.target.closest("[data-row]");
    return found ? Number(found.dataset.row) : -1;
  }

  function listen() {
    byId("bars").addEventListener("click", (event) => choose(rowOf(event), { scroll: false }));
    byId("bars").addEventListener("keydown", (event) => {
      const to = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Home: 0, End: rows.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      choose(to);
    });
    byId("tensors").addEventListener("click", (event) => {
      const row = rowOf(event);
      if (row < 0) return;
      choose(row);
      byId("chosen").scrollIntoView({ block: "nearest" });
    });
    byId("first").addEventListener("click", () => choose(data.first));
    byId("previous").addEventListener("click", () => choose(wrong.filter((w) => w < chosen).at(-1)));
    byId("next").addEventListener("click", () => choose(wrong.find((w) => w > chosen)));
    byId("filter").addEventListener("input", sift);
    byId("only-wrong").addEventListener("change", sift);
    for (const input of document.querySelectorAll("[name=scale]")) input.addEventListener("change", paint);
    byId("map").addEventListener("pointermove", (event) => {
      if (!map) return;
      const box = byId("map").getBoundingClientRect(), [height, width] = map.cells;
      const at = (part, cells) => Math.min(cells - 1, Math.max(0, Math.floor(part * cells)));
      read(at((event.clientY - box.top) / box.height, height) * width + at((event.clientX - box.left) / box.width, width));
    });
    byId("map").addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -map?.cells[1], ArrowDown: map?.cells[1] }[event.key];
      if (!by) return;
      event.preventDefault();
      const to = map.cursor + by;
      if (to < 0 || to >= map.values.length) return;
      read(to);
      byId("cursor").hidden = false;
      place(byId("cursor"), to);
    });
    byId("channels").addEventListener("pointermove", (event) => {
      if (!map) return;
      const box = byId("channels").getBoundingClientRect(), { count, size, of } = map.channels;
      const i = Math.min(count - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * count)));
      byId("channel").textContent = `${of} ${range(i, count, size)}: largest |d| ${rough(map.most[i])}, mean ${rough(map.mean[i])}`;
    });
    byId("channels").addEventListener("pointerleave", () => { if (map) byId("channel").textContent = map.channels.rest; });
    window.addEventListener("hashchange", () => choose(asked()));
    window.addEventListener("resize", () => { bars(); choose(chosen); });
  }

  function asked() {
    const name = /^#tensor=(.*)$/.exec(location.hash);
    if (!name) return -1;
    try {
      const wanted = decodeURIComponent(name[1]);
      return rows.findIndex((row) => row.name === wanted);
    } catch {
      return -1; // not one of our links
    }
  }

  for (const section of document.querySelectorAll(".scripted")) section.hidden = false;
  byId("first").disabled = data.first < 0;
  bars();
  table();
  listen();
  const link = asked();
  choose(link >= 0 ? link : Math.max(data.first, 0));
})();
