// The data of the page as items: boxes, operations, and the graph's inputs and outputs.
//
// An item's id is its place in `items`. `containers[box]` has what is drawn when the box is
// unfolded: edges between its children, and the tensors that enter and leave it.
"use strict";

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// The kinds of operations; the name says the same as the colour.
const KINDS = {
  weighted: [
    "weights",
    "Conv ConvTranspose Gemm MatMul Einsum LSTM GRU RNN Attention FusedConv " +
      "ConvInteger MatMulInteger QLinearConv QLinearMatMul MatMulNBits",
  ],
  norm: [
    "normalisation",
    "BatchNormalization InstanceNormalization LayerNormalization " +
      "GroupNormalization LpNormalization SkipLayerNormalization SimplifiedLayerNormalization",
  ],
  active: [
    "activation",
    "Relu LeakyRelu PRelu Elu Selu Celu Sigmoid HardSigmoid HardSwish Tanh " +
      "Softmax LogSoftmax Softplus Softsign Gelu Erf Clip Mish Silu Swish ThresholdedRelu",
  ],
  pool: [
    "pooling",
    "MaxPool AveragePool GlobalMaxPool GlobalAveragePool LpPool ReduceMean " +
      "ReduceSum ReduceMax ReduceMin ReduceProd ReduceL2 ReduceSumSquare ReduceLogSumExp TopK " +
      "ArgMax ArgMin CumSum",
  ],
  arith: [
    "arithmetic",
    "Add Sub Mul Div Pow Sqrt Exp Log Neg Abs Sum Mean Max Min Mod " +
      "Reciprocal Floor Ceil Round Sign Sin Cos Equal Greater Less GreaterOrEqual LessOrEqual " +
      "And Or Not Where",
  ],
  flow: ["control flow", "If Loop Scan SequenceMap Inputs"],
  layout: [
    "layout, shapes",
    "Reshape Transpose Squeeze Unsqueeze Flatten Identity Cast Dropout " +
      "Concat Split Slice Gather GatherElements GatherND Expand Tile Pad Shape Size Range " +
      "ConstantOfShape Resize Upsample DepthToSpace SpaceToDepth ScatterND ScatterElements",
  ],
};
const KIND_OF = new Map(
  Object.entries(KINDS).flatMap(([kind, [, ops]]) => ops.split(" ").map((op) => [op, kind])),
);

function kindOf(op) {
  return KIND_OF.get(op.split(".").pop()) || "other";
}

// Inputs of the graph that are drawn beside one another, and outputs; the rest is a box. A decoder
// has two of each for every layer.
const MOST_ENDS = 5;

function readModel(data) {
  const items = [],
    tensors = data.tensors.map(([name, dtype, shape, size]) => ({
      name,
      dtype,
      shape,
      size,
      producer: -1,
      readers: [],
      weight: null,
    }));
  const boxes = data.boxes.map(([name, kind, , stage]) => add({ type: "box", name, kind, stage }));
  const nodes = data.nodes.map(([place, op, name, inputs, outputs, attributes, label, reads]) =>
    add({ type: "op", place, op, name, inputs, outputs, attributes, label, reads, children: [] }),
  );
  function add(item) {
    item.id = items.length;
    items.push(item);
    return item;
  }
  data.boxes.forEach(([, , children], at) => {
    boxes[at].children = children.map((child) => (child < 0 ? nodes[~child] : boxes[child]));
    boxes[at].children.forEach((child) => {
      child.parent = boxes[at];
    });
  });
  const root = boxes[0];
  root.parent = null;
  for (const [type, listed] of [
    ["input", data.inputs],
    ["output", data.outputs],
  ]) {
    const ends = listed.map((tensor) =>
      add({ type, name: tensors[tensor].name, tensor, children: [], parent: root }),
    );
    if (ends.length > MOST_ENDS) {
      const kind = `${type}s`;
      const children = ends.splice(MOST_ENDS - 1);
      const more = { type: "box", name: `more ${kind}`, kind, stage: "", children, parent: root };
      for (const child of children) child.parent = more;
      ends.push(add(more));
    }
    type === "input" ? root.children.unshift(...ends) : root.children.push(...ends);
  }
  for (const item of items) {
    if (item.type === "op") {
      item.outputs.forEach((t) => {
        if (t >= 0) tensors[t].producer = item.id;
      });
      [...item.inputs, ...item.reads].forEach((t) => {
        if (t >= 0) tensors[t].readers.push(item.id);
      });
    } else if (item.type === "input") tensors[item.tensor].producer = item.id;
    else if (item.type === "output") tensors[item.tensor].readers.push(item.id);
  }
  for (const [tensor, weight] of data.weights) tensors[tensor].weight = weight;
  const model = { data, items, tensors, root, containers: new Map() };
  for (const item of items) {
    item.depth = item.parent ? -1 : 0;
  }
  for (const item of items) depth(item);
  count(model, root);
  connect(model);
  for (const item of items) item.golden = goldenOf(model, item);
  judge(model, root);
  model.golden = new Map(items.filter((item) => item.golden).map((item) => [item.golden, item]));
  model.firstWrong = model.golden.get(data.first_wrong) || null;
  model.marked = (data.mark && items.find((item) => item.place === data.mark[0])) || null;
  model.names = new Map();
  for (const item of [...items].reverse())
    for (const name of namesOf(model, item)) model.names.set(name, item);
  for (const { name, weight, readers } of tensors)
    if (weight && !model.names.has(name)) model.names.set(name, items[readers[0]]);
  return model;
}

function depth(item) {
  if (item.depth < 0) item.depth = depth(item.parent) + 1;
  return item.depth;
}

// Operations and parameters inside; a weight that is read twice counts once.
function count(model, box) {
  const weights = new Set();
  box.ops = 0;
  for (const child of box.children) {
    if (child.type === "box") {
      count(model, child);
      child.weights.forEach((t) => weights.add(t));
      box.ops += child.ops;
    } else if (child.type === "op") {
      box.ops += 1;
      for (const t of [...child.inputs, ...child.reads])
        if (t >= 0 && model.tensors[t].size > 1 && isFloat(model.tensors[t])) weights.add(t);
    }
  }
  box.weights = weights;
  box.parameters = [...weights].reduce((sum, t) => sum + model.tensors[t].size, 0);
}

function isFloat(tensor) {
  return /^(b?f)\d/.test(tensor.dtype);
}

function isShapeLike(tensor) {
  return tensor.dtype === "i64";
}

// Every read of a tensor as an edge in the box that holds both ends, a port in the boxes between.
function connect(model) {
  for (const item of model.items) {
    if (item.type === "box")
      model.containers.set(item.id, { edges: new Map(), ins: new Map(), outs: new Map() });
  }
  model.tensors.forEach((tensor, t) => {
    if (tensor.producer < 0) return;
    for (const reader of tensor.readers) {
      let from = model.items[tensor.producer],
        to = model.items[reader];
      while (from.parent !== to.parent) {
        if (from.depth >= to.depth) {
          add(model.containers.get(from.parent.id).outs, t, from.id);
          from = from.parent;
        } else {
          add(model.containers.get(to.parent.id).ins, t, to.id);
          to = to.parent;
        }
      }
      if (from !== to) add(model.containers.get(from.parent.id).edges, `${from.id}>${to.id}`, t);
    }
  });
  function add(map, key, value) {
    if (!map.has(key)) map.set(key, new Set());
    map.get(key).add(value);
  }
}

// The golden of an item: a box's stage, or the tensor that an operation gives.
function goldenOf({ data, tensors }, item) {
  if (item.type === "box") return item.stage;
  if (item.type !== "op") return "";
  const names = item.outputs.filter((t) => t >= 0).map((t) => tensors[t].name);
  return names.find((name) => name in data.errors || name in data.goldens) || "";
}

// What a comparison says of an item: of its own golden, else the worst inside.
const WORST = ["", "right", "near", "absent", "wrong", "far"]; // absent: the engine lacks it
function judge(model, box) {
  const error = box.golden ? model.data.errors[box.golden] : undefined;
  box.verdict = error ? verdict(error) : "";
  box.compared = error ? 1 : 0;
  box.missing = error && error.missing ? 1 : 0;
  box.wrong = error && error.problem && !error.missing ? 1 : 0;
  for (const child of box.children) {
    judge(model, child);
    box.wrong += child.wrong;
    box.missing += child.missing;
    box.compared += child.compared;
    if (WORST.indexOf(child.verdict) > WORST.indexOf(box.verdict)) box.verdict = child.verdict;
  }
}

function verdict(error) {
  if (error.missing) return "absent";
  if (!error.problem) return error.ratio > 0.1 ? "near" : "right";
  return error.max_abs === null || error.ratio > 10 ? "far" : "wrong";
}

// --- names ---------------------------------------------------------------------------------

function ancestors(item) {
  const found = [];
  for (let at = item.parent; at; at = at.parent) found.unshift(at);
  return found;
}

function pathOf(item) {
  return [...ancestors(item).slice(1), item].map(shown).join(" / ");
}

function shown(item) {
  if (item.type !== "op") return item.name;
  return item.label || shortName(item) || item.op;
}

// The same with the operation before its name.
function titled(item) {
  const name = shown(item);
  return item.type === "op" && name !== item.op ? `${item.op} ${name}` : name;
}

// The module that an operation came from: the name without the exporter's counter of the op.
function shortName(item) {
  const parts = item.name.split("/").filter(Boolean);
  const last = parts.pop() || "";
  const bare = last.replace(/_\d+$/, "");
  return bare === item.op.split(".").pop() && parts.length ? parts.pop() : last;
}

// What a link may call an item; the first that is no other item's is used.
function namesOf(model, item) {
  if (item.type === "box") return [item.stage, pathOf(item), `box ${item.id}`].filter(Boolean);
  if (item.type === "op") {
    const outputs = item.outputs.filter((t) => t >= 0).map((t) => model.tensors[t].name);
    return [item.name, ...outputs, item.place].filter(Boolean);
  }
  return [item.name, `${item.type} ${item.name}`];
}

function linkName(model, item) {
  return namesOf(model, item).find((name) => model.names.get(name) === item);
}
