// What the panel says of a box, an operation, or an input or output of the graph.
"use strict";

const BOX_KINDS = {
  network: "network",
  stage: "stage",
  island: "weight-free region",
  scope: "module",
  part: "part, by its structure",
  repeat: "repeated part",
  flow: "control flow",
  subgraph: "graph of an attribute",
  inputs: "inputs",
  outputs: "outputs",
};

function boxPart(model, box, go) {
  const { ins, outs } = model.containers.get(box.id);
  const ops = new Map();
  const walk = (item) =>
    item.type === "op"
      ? ops.set(item.op, (ops.get(item.op) || 0) + 1)
      : item.children.forEach(walk);
  walk(box);
  const counts = [...ops].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  return [
    h("h2", {}, box.name),
    h("p", { class: "soft" }, `${BOX_KINDS[box.kind]} · ${summary(box)}`),
    named(box.stage || pathOf(box)),
    errorPart(model, box.golden),
    box.wrong && !box.golden
      ? h("p", { class: "note bad" }, `${box.wrong} of ${box.compared} goldens inside differ.`)
      : null,
    goldenPart(model, box.golden),
    section("Enters", tensorList(model, [...ins.keys()], go)),
    section("Leaves", tensorList(model, [...outs.keys()], go)),
    counts.length
      ? section("Operations", rows(counts.map(([op, n]) => [op, String(n)])))
      : null,
    section(
      "Holds",
      box.children.map((child) =>
        h(
          "div",
          {},
          link(child, titled(child), go),
          " ",
          h("span", { class: "soft" }, child.type === "box" ? summary(child) : ""),
        ),
      ),
    ),
    box.weights.size
      ? section(
          `Weights (${box.weights.size})`,
          [...box.weights]
            .slice(0, 100)
            .map((t) =>
              h(
                "div",
                {},
                link(model.items[model.tensors[t].readers[0]], model.tensors[t].name, go),
                " ",
                h("span", { class: "soft" }, model.tensors[t].shape),
              ),
            ),
        )
      : null,
  ];
}

function errorPart(model, golden) {
  const error = golden && model.data.errors[golden];
  if (!error) return null;
  return section(
    "Against the golden",
    h(
      "p",
      { class: `note ${toneOf(error)}` },
      `${markOf(error)} ${error.problem || "right"} ${error.note}`,
    ),
    rows([
      ["max|d|", error.max_abs_text],
      ["bound", error.bound],
      ["cosine", error.cosine],
    ]),
  );
}

function goldenPart(model, name) {
  const golden = name && model.data.goldens[name];
  if (!golden) return null;
  return section(
    "Golden",
    rows([
      ["tensor", name],
      ["shape", golden.shape],
    ]),
    four(golden.figures),
    golden.noise ? h("p", { class: "soft" }, `known to ${golden.noise}`) : null,
  );
}

function four(figures) {
  return h(
    "dl",
    { class: "four" },
    ["min", "max", "mean", "std"].map((name, i) => [
      h("dt", {}, name),
      h("dd", { "data-figure": name }, figures[i]),
    ]),
  );
}

function opPart(model, op, go) {
  const isWeight = (t) => t >= 0 && model.tensors[t].weight;
  const weights = [...new Set([...op.inputs, ...op.reads].filter(isWeight))];
  const flowing = op.inputs
    .map((t, slot) => [t, slot])
    .filter(([t]) => t >= 0 && !isWeight(t));
  return [
    h("h2", {}, op.op),
    h("p", { class: "soft" }, [op.label, op.place].filter(Boolean).join(" · ")),
    op.name ? named(op.name) : null,
    op === model.marked ? h("p", { class: "note bad" }, model.data.mark[1]) : null,
    errorPart(model, op.golden),
    goldenPart(model, op.golden),
    op.attributes.length ? section("Attributes", rows(pairs(op.attributes))) : null,
    weights.length
      ? section(
          "Weights and constants",
          weights.map((t) =>
            weightCard(
              model.tensors[t],
              op.inputs.flatMap((input, slot) => (input === t ? [slot] : [])),
            ),
          ),
        )
      : null,
    section(
      "Inputs",
      tensorList(
        model,
        flowing.map(([t]) => t),
        go,
      ),
    ),
    op.reads.length
      ? section(
          "Results of its graphs",
          tensorList(
            model,
            op.reads.filter((t) => t >= 0 && !isWeight(t)),
            go,
          ),
        )
      : null,
    section(
      "Outputs",
      tensorList(
        model,
        op.outputs.filter((t) => t >= 0),
        go,
      ),
    ),
  ];
}

function pairs(flat) {
  return flat.reduce(
    (found, value, i) => (i % 2 ? found[found.length - 1].push(value) : found.push([value]), found),
    [],
  );
}

function ioPart(model, item, go) {
  const tensor = model.tensors[item.tensor];
  const others = item.type === "input" ? tensor.readers : [tensor.producer];
  return [
    h("h2", {}, item.name),
    h("p", { class: "soft" }, `${item.type} of the graph`),
    named(item.name),
    section(
      "Tensor",
      rows([
        ["dtype", tensor.dtype],
        ["shape", tensor.shape || "unknown"],
      ]),
    ),
    section(
      item.type === "input" ? "Read by" : "Made by",
      others
        .filter((i) => i >= 0)
        .map((i) => h("div", {}, link(model.items[i], pathOf(model.items[i]), go))),
    ),
  ];
}

function tensorList(model, tensors, go) {
  if (!tensors.length) return [h("p", { class: "soft" }, "nothing")];
  return tensors.slice(0, 60).map((t) => {
    const tensor = model.tensors[t];
    const ends = [tensor.producer, ...tensor.readers].filter((i) => i >= 0);
    return h(
      "div",
      { class: "card tensor" },
      named(tensor.name),
      h("div", { class: "soft" }, `${tensor.dtype} ${tensor.shape || "shape unknown"}`),
      h(
        "div",
        { class: "ends" },
        ends
          .slice(0, 6)
          .flatMap((i, at) => [
            at ? " " : "",
            link(
              model.items[i],
              `${i === tensor.producer ? "from " : "to "}${titled(model.items[i])}`,
              go,
            ),
          ]),
      ),
    );
  });
}
