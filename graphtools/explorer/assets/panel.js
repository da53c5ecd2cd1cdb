// The side panel: what is known of the item that is chosen, or of the whole model.
"use strict";

// An element; children are elements or text. Nothing is ever parsed as HTML.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    name === "onclick" ? element.addEventListener("click", value) : element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

function showPanel(model, panel, item, go) {
  const parts = !item || item === model.root ? modelPart(model, go)
    : item.type === "box" ? boxPart(model, item, go)
    : item.type === "op" ? opPart(model, item, go) : ioPart(model, item, go);
  panel.replaceChildren(...parts.flat().filter(Boolean));
  panel.scrollTop = 0;
}

function named(text) {
  return h("div", { class: "line" }, h("code", {}, text), copyButton(text));
}

function copyButton(text) {
  const button = h("button", { class: "copy", type: "button", title: `Copy ${text}`, onclick: async () => {
    button.textContent = await copied(text) ? "copied" : "not copied";
    setTimeout(() => { button.textContent = "copy"; }, 1200);
  } }, "copy");
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function link(item, text, go) {
  return h("button", { class: "go", type: "button", onclick: () => go(item) }, text);
}

function rows(pairs) {
  return h("table", {}, pairs.map(([name, ...value]) => h("tr", {}, h("th", {}, name), h("td", {}, ...value))));
}

function section(title, ...content) {
  return [h("h3", {}, title), ...content.flat()];
}

// --- the model -----------------------------------------------------------------------------

function modelPart(model, go) {
  const { data } = model;
  return [
    h("h2", {}, data.title),
    h("p", { class: "soft" }, `${summary(model.root)} · ${data.file}`),
    data.notes.map((note) => h("p", { class: "note" }, note)),
    model.marked ? h("p", { class: "note bad" }, "The known family and this graph part at ",
      link(model.marked, titled(model.marked), go), `: ${data.mark[1]}`) : null,
    comparison(model, go),
    data.facts.length ? section("Values", data.facts.map(fact)) : null,
    section("File", rows(data.about)),
  ];
}

function fact([name, value, origin, meaning]) {
  return h("div", { class: "fact" },
    h("div", { class: "line" }, h("code", {}, name), copyButton(name)),
    h("div", {}, h("b", {}, value), " ", h("span", { class: "soft" }, meaning)),
    origin ? h("div", { class: "soft" }, `from ${origin}`) : null);
}

function comparison(model, go) {
  const names = Object.keys(model.data.errors);
  if (!names.length) return null;
  const wrong = names.filter((name) => model.data.errors[name].problem).length;
  return section("Comparison",
    h("p", { class: wrong ? "bad" : "good" }, wrong
      ? `✗ ${wrong} of ${names.length} tensors differ` : `✓ all ${names.length} tensors are right`),
    h("table", { id: "comparison" },
      h("tr", {}, ["tensor", "max|d|", "bound", ""].map((t) => h("th", {}, t))),
      names.map((name) => {
        const error = model.data.errors[name], box = model.stages.get(name);
        return h("tr", { title: error.problem || error.note },
          h("td", {}, box ? link(box, name, go) : name),
          h("td", { class: "num" }, error.max_abs_text), h("td", { class: "num" }, error.bound),
          h("td", { class: error.problem ? "bad" : "good" }, error.problem ? "✗" : "✓"));
      })));
}

// --- a box, an operation, an input or output -----------------------------------------------

const BOX_KINDS = { network: "network", stage: "stage", island: "weight-free region", scope: "module",
  part: "part, by its structure", repeat: "repeated part" };

function boxPart(model, box, go) {
  const { ins, outs } = model.containers.get(box.id);
  const ops = new Map();
  const walk = (item) => item.type === "op" ? ops.set(item.op, (ops.get(item.op) || 0) + 1) : item.children.forEach(walk);
  walk(box);
  const counts = [...ops].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  return [
    h("h2", {}, box.name),
    h("p", { class: "soft" }, `${BOX_KINDS[box.kind]} · ${summary(box)}`),
    named(box.stage || pathOf(box)),
    errorPart(model, box.stage),
    box.wrong && !box.stage ? h("p", { class: "note bad" }, `${box.wrong} of ${box.compared} stages inside differ.`) : null,
    goldenPart(model, box.stage),
    section("Enters", tensorList(model, [...ins.keys()], go)),
    section("Leaves", tensorList(model, [...outs.keys()], go)),
    section("Operations", rows(counts.map(([op, n]) => [op, String(n)]))),
    section("Holds", box.children.filter((c) => c.type !== "input" && c.type !== "output").map((child) => h("div", {}, link(child, titled(child), go), " ",
      h("span", { class: "soft" }, child.type === "box" ? summary(child) : "")))),
    box.weights.size ? section(`Weights (${box.weights.size})`, [...box.weights].slice(0, 100).map((t) =>
      h("div", {}, link(model.items[model.tensors[t].readers[0]], model.tensors[t].name, go), " ", h("span", { class: "soft" }, model.tensors[t].shape)))) : null,
  ];
}

function errorPart(model, stage) {
  const error = stage && model.data.errors[stage];
  if (!error) return null;
  return section("Against the golden",
    h("p", { class: `note ${error.problem ? "bad" : ""}` }, error.problem ? `✗ ${error.problem}` : `✓ right ${error.note}`),
    rows([["max|d|", error.max_abs_text], ["bound", error.bound], ["cosine", error.cosine]]));
}

function goldenPart(model, stage) {
  const golden = stage && model.data.goldens[stage];
  if (!golden) return null;
  return section("Golden", rows([["tensor", stage], ["shape", golden.shape]]), four(golden.figures),
    golden.noise ? h("p", { class: "soft" }, `known to ${golden.noise}`) : null);
}

function four(figures) {
  return h("dl", { class: "four" }, ["min", "max", "mean", "std"].map((name, i) => [h("dt", {}, name), h("dd", { "data-figure": name }, figures[i])]));
}

function opPart(model, op, go) {
  const weights = op.inputs.filter((t) => t >= 0 && model.tensors[t].weight);
  const flowing = op.inputs.map((t, slot) => [t, slot]).filter(([t]) => t >= 0 && !model.tensors[t].weight);
  return [
    h("h2", {}, op.op),
    h("p", { class: "soft" }, [op.label, `node ${op.index}`].filter(Boolean).join(" · ")),
    op.name ? named(op.name) : null,
    op === model.marked ? h("p", { class: "note bad" }, model.data.mark[1]) : null,
    op.attributes.length ? section("Attributes", rows(pairs(op.attributes))) : null,
    section("Inputs", tensorList(model, flowing.map(([t]) => t), go)),
    op.reads.length ? section("Read inside", tensorList(model, op.reads.filter((t) => t >= 0), go)) : null,
    section("Outputs", tensorList(model, op.outputs.filter((t) => t >= 0), go)),
    weights.length ? section("Weights and constants", weights.map((t) => weightCard(model.tensors[t], op.inputs.indexOf(t)))) : null,
  ];
}

function pairs(flat) {
  return flat.reduce((found, value, i) => (i % 2 ? found[found.length - 1].push(value) : found.push([value]), found), []);
}

function ioPart(model, item, go) {
  const tensor = model.tensors[item.tensor];
  const others = item.type === "input" ? tensor.readers : [tensor.producer];
  return [
    h("h2", {}, item.name), h("p", { class: "soft" }, `${item.type} of the graph`), named(item.name),
    section("Tensor", rows([["dtype", tensor.dtype], ["shape", tensor.shape || "unknown"]])),
    section(item.type === "input" ? "Read by" : "Made by", others.filter((i) => i >= 0).map((i) => h("div", {}, link(model.items[i], pathOf(model.items[i]), go)))),
  ];
}

function tensorList(model, tensors, go) {
  if (!tensors.length) return [h("p", { class: "soft" }, "nothing")];
  return tensors.slice(0, 60).map((t) => {
    const tensor = model.tensors[t];
    const ends = [tensor.producer, ...tensor.readers].filter((i) => i >= 0);
    return h("div", { class: "card tensor" },
      named(tensor.name), h("div", { class: "soft" }, `${tensor.dtype} ${tensor.shape || "shape unknown"}`),
      h("div", {}, ends.slice(0, 6).flatMap((i, at) => [at ? ", " : "", link(model.items[i], `${i === tensor.producer ? "from " : "to "}${titled(model.items[i])}`, go)])));
  });
}

function weightCard(tensor, slot) {
  const { weight } = tensor;
  return h("div", { class: "card weight", "data-tensor": tensor.name },
    named(tensor.name),
    h("div", { class: "soft" }, `input ${slot} · ${tensor.dtype} ${tensor.shape || "scalar"}`),
    weight.value ? h("div", { class: "mono" }, weight.value) : null,
    weight.figures ? four(weight.figures) : null,
    weight.strange ? h("p", { class: "bad" }, `✗ ${weight.strange} values that are not numbers`) : null,
    weight.histogram ? histogram(weight) : null,
    weight.strip ? strip(weight) : null,
    weight.carried.map(([key, index, name, origin]) => h("div", { class: "carried" },
      key ? h("div", { class: "line" }, h("code", {}, index === null ? key : `${key}[${index}]`), copyButton(key)) : null,
      h("div", { class: "line" }, h("span", {}, "stored as ", h("code", {}, name)), copyButton(name)),
      h("div", { class: "soft" }, origin === tensor.name ? "as it is" : `from ${origin}`))));
}

const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

function levels(text) {
  return [...text].map((c) => LEVELS.indexOf(c) / 63);
}

function histogram(weight) {
  const bars = levels(weight.histogram), wide = 100 / bars.length;
  const picture = svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": "histogram" });
  bars.forEach((bar, i) => picture.appendChild(svg("rect", { x: i * wide, y: 40 - bar * 38, width: wide * 0.86, height: bar * 38 })));
  return h("figure", {}, picture, h("figcaption", {}, `histogram, ${weight.figures[0]} to ${weight.figures[1]}`));
}

function strip(weight) {
  const ends = levels(weight.strip), wide = 200 / ends.length;
  const picture = svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": "range of every channel" });
  for (let i = 0; i < ends.length; i += 2) {
    picture.appendChild(svg("rect", { x: (i / 2) * wide, y: 39 - ends[i + 1] * 38, width: wide * 0.86, height: Math.max(0.8, (ends[i + 1] - ends[i]) * 38) }));
  }
  return h("figure", {}, picture, h("figcaption", {}, "range of each channel (axis 0)"));
}
