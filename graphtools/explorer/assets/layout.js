// Where everything is drawn. Every unfolded box is laid out by itself by dagre, its unfolded
// children as large as they came out; what did not change is not laid out again.
"use strict";

const SIZES = { op: 42, box: 46, io: 28, title: 34, flag: 20, pad: 16, port: 8, widest: 250, label: 150 };
function sizeOf(model, item) {
  const [first, second] = lines(model, item),
    badge = badgeOf(model, item),
    flag = flagOf(model, item);
  const beside = item.type === "box" ? 48 : 30;
  const wide = Math.max(
    beside + textWidth(first, BOLD) + (badge ? textWidth(badge.text, BADGE) + 12 : 0),
    30 + textWidth(second, SMALL),
    flag ? 30 + textWidth(flag, BADGE) : 0,
  );
  const height = item.type === "op" ? SIZES.op : item.type === "box" ? SIZES.box : SIZES.io;
  const least = item.type === "box" ? 170 : 110,
    most = SIZES.widest + (badge ? 60 : 0);
  return {
    w: Math.round(Math.min(most, Math.max(least, wide))),
    h: height + (flag ? SIZES.flag : 0),
  };
}

// The layout of a box that is unfolded: its size, `at` (places of children and ports, by id), the
// edges with their routes, and `inner` (the layouts of unfolded children).
function layoutBox(model, box, open, cache) {
  const known = cache.get(box.id);
  if (known) return known;
  const { edges, ins, outs } = model.containers.get(box.id);
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 26, edgesep: 14, ranksep: 20 });
  const inner = new Map();
  for (const child of box.children) {
    let size = sizeOf(model, child);
    if (child.type === "box" && open.has(child.id)) {
      const laid = layoutBox(model, child, open, cache);
      inner.set(child.id, laid);
      size = laid;
    }
    graph.setNode(`${child.id}`, { width: size.w, height: size.h });
  }
  const drawn = [];
  for (const [key, tensors] of edges) {
    const [from, to] = key.split(">");
    const label = edgeLabel(model, [...tensors]);
    const width = label ? Math.round(textWidth(label, SMALL)) + 10 : 0;
    graph.setEdge(from, to, {
      width,
      height: label ? 14 : 0,
      labelpos: "r",
      labeloffset: 5,
      weight: 2,
    });
    drawn.push({ from, to, tensors: [...tensors], label });
  }
  drawn.push(...ports(graph, ins, "in"), ...ports(graph, outs, "out"));
  dagre.layout(graph);
  const laid = placed(model, box, graph, drawn, inner);
  cache.set(box.id, laid);
  return laid;
}

// Tensors that enter or leave: a dot each, one dot for all where there are many.
const MOST_PORTS = 6;
function ports(graph, tensors, side) {
  const drawn = [],
    merged = tensors.size > MOST_PORTS;
  if (!tensors.size) return drawn;
  const end = `${side} end`,
    several = tensors.size > 1 && !merged;
  if (several) graph.setNode(end, { width: 0, height: 0 });
  for (const [tensor, children] of tensors) {
    const port = merged ? `${side} all` : `${side} ${tensor}`;
    if (!graph.hasNode(port)) {
      graph.setNode(port, { width: SIZES.port, height: SIZES.port });
      // All ports in one row: they are pulled to the end harder than to their readers.
      const pull = side === "in" ? [end, port] : [port, end];
      if (several) graph.setEdge(...pull, { weight: 20 });
    }
    for (const child of children) {
      const [from, to] = side === "in" ? [port, `${child}`] : [`${child}`, port];
      const edge = drawn.find((e) => e.from === from && e.to === to);
      if (edge) edge.tensors.push(tensor);
      else drawn.push({ from, to, tensors: [tensor], label: "" });
      graph.setEdge(from, to, { weight: 2 });
    }
  }
  return drawn;
}

function edgeLabel(model, tensors) {
  if (tensors.length > 1) return `${tensors.length} tensors`;
  return clipped(visible(model.tensors[tensors[0]].shape), SMALL, SIZES.label);
}

function placed(model, box, graph, drawn, inner) {
  const top = box.parent ? SIZES.title + (flagOf(model, box) ? SIZES.flag : 0) : 0,
    pad = SIZES.pad;
  let left = Infinity,
    right = -Infinity,
    high = Infinity,
    low = -Infinity;
  const at = new Map();
  for (const id of graph.nodes()) {
    if (id.endsWith(" end")) continue;
    const { x, y, width, height } = graph.node(id);
    at.set(id, { x: x - width / 2, y: y - height / 2, w: width, h: height });
    left = Math.min(left, x - width / 2);
    right = Math.max(right, x + width / 2);
    high = Math.min(high, y - height / 2);
    low = Math.max(low, y + height / 2);
  }
  for (const edge of drawn) {
    const laid = graph.edge(edge.from, edge.to);
    edge.points = laid.points.map((p) => ({ x: p.x, y: p.y }));
    if (edge.label) {
      edge.at = { x: laid.x, y: laid.y, w: laid.width };
      left = Math.min(left, laid.x - laid.width / 2);
      right = Math.max(right, laid.x + laid.width / 2);
    }
    left = Math.min(left, ...edge.points.map((p) => p.x));
    right = Math.max(right, ...edge.points.map((p) => p.x));
  }
  const least = box.parent ? Math.min(SIZES.widest, textWidth(box.name, BOLD) + 120) : 0;
  const wide = Math.max(right - left, least);
  const dx = pad - left + (wide - (right - left)) / 2,
    dy = top + (box.parent ? 6 : pad) - high;
  for (const place of at.values()) {
    place.x += dx;
    place.y += dy;
  }
  for (const edge of drawn) {
    for (const p of edge.points) {
      p.x += dx;
      p.y += dy;
    }
    if (edge.at) {
      edge.at.x += dx;
      edge.at.y += dy;
    }
  }
  const laid = {
    w: wide + 2 * pad,
    h: low - high + top + (box.parent ? 6 + 10 : 2 * pad),
    at,
    edges: drawn,
    inner,
  };
  const rows = rowsOf(at);
  for (const edge of drawn) edge.routes = routes(laid, rows, edge);
  return laid;
}
