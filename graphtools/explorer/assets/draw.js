// The scene: what is visible, as SVG. Names reach it as text only, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = visible(text);
  return element;
}

// What a comparison says, as a mark and a number: colour is never alone.
function badgeOf(model, item) {
  if (!item.compared) return null;
  const error = item.golden ? model.data.errors[item.golden] : null;
  if (error) {
    const value = error.missing ? "missing" : error.max_abs === null ? "shape" : error.max_abs_text;
    return { text: `${markOf(error)} ${value}`, tone: toneOf(error) };
  }
  if (item.wrong) return { text: `✗ ${item.wrong} of ${item.compared}`, tone: "bad" };
  if (item.missing)
    return { text: `? ${item.missing} of ${item.compared} missing`, tone: "unknown" };
  return { text: `✓ ${item.compared} of ${item.compared}`, tone: "good" };
}

function markOf(error) {
  return error.missing ? "?" : error.problem ? "✗" : "✓";
}

function toneOf(error) {
  return error.missing ? "unknown" : error.problem ? "bad" : "good";
}

// Draws everything that is visible; places: Map id -> absolute {x, y, w, h}.
function drawScene(model, scene, open, cache, chosen) {
  const places = new Map(),
    laid = layoutBox(model, model.root, open, cache);
  places.set(model.root.id, { x: 0, y: 0, w: laid.w, h: laid.h });
  const all = document.createDocumentFragment();
  drawInside(model, model.root, laid, 0, 0, all, places, chosen);
  scene.replaceChildren(all);
  return places;
}

function drawInside(model, box, laid, x, y, into, places, chosen) {
  const edges = into.appendChild(svg("g", { "aria-hidden": "true" }));
  for (const edge of laid.edges) drawEdge(model, edge, x, y, edges, chosen);
  for (const child of box.children) {
    const place = laid.at.get(`${child.id}`);
    const absolute = { x: x + place.x, y: y + place.y, w: place.w, h: place.h };
    places.set(child.id, absolute);
    const inner = laid.inner.get(child.id);
    into.appendChild(drawItem(model, child, absolute, inner, chosen));
    if (inner) drawInside(model, child, inner, absolute.x, absolute.y, into, places, chosen);
  }
  const level = box.parent ? levelOf(box) : "outermost";
  const labels = into.appendChild(svg("g", { class: level, "aria-hidden": "true" }));
  for (const edge of laid.edges) {
    if (!edge.label) continue;
    labels.appendChild(
      svg(
        "text",
        { class: "label", x: x + edge.at.x - edge.at.w / 2 + 5, y: y + edge.at.y + 4 },
        edge.label,
      ),
    );
  }
}

function drawEdge(model, edge, x, y, into, chosen) {
  const tensors = edge.tensors.map((t) => model.tensors[t]);
  const lit = chosen && [edge.from, edge.to].includes(String(chosen.id));
  const shape = tensors.every(isShapeLike);
  const title = tensors
    .slice(0, 12)
    .map((t) => `${t.name}  ${t.dtype} ${t.shape}`)
    .join("\n");
  for (const points of edge.routes) {
    const path = svg("path", {
      class: `edge${shape ? " shape" : ""}${lit ? " lit" : ""}`,
      d: curve(points.map((p) => ({ x: p.x + x, y: p.y + y }))),
      ...(edge.to.startsWith("out") ? {} : { "marker-end": "url(#arrow)" }),
    });
    path.appendChild(svg("title", {}, title));
    into.appendChild(path);
  }
}

// Unfolded boxes inside one another have two colours by turns.
function levelOf(box) {
  return box.depth % 2 ? "odd" : "even";
}

// Where tensors enter and leave an unfolded box: a dot, and a line to its border.
function drawPorts(inner, into) {
  for (const [id, place] of inner.at) {
    if (!/^(in|out) /.test(id)) continue;
    const x = place.x + place.w / 2,
      y = place.y + place.h / 2,
      border = id.startsWith("in") ? 0 : inner.h;
    into.appendChild(svg("path", { class: "edge", d: `M${x} ${border}L${x} ${y}` }));
    into.appendChild(svg("circle", { class: "port", cx: x, cy: y, r: 3 }));
  }
}

// `inner` is the layout of an unfolded box.
function drawItem(model, item, { x, y, w, h }, inner, chosen) {
  const badge = badgeOf(model, item),
    open = Boolean(inner);
  const classes = ["item", item.type === "box" || item.type === "op" ? item.type : "io"];
  if (open) classes.push("open", levelOf(item));
  else if (item.verdict) classes.push(item.verdict);
  if (item === chosen) classes.push("chosen");
  const group = svg("g", {
    class: classes.join(" "),
    transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`,
    "data-id": item.id,
    role: "button",
    "aria-label": spoken(model, item),
    ...(item.type === "box" ? { "aria-expanded": open } : {}),
  });
  if (item.type === "box" && !open) {
    group.appendChild(svg("rect", { class: "stack", x: 3, y: 3, width: w, height: h, rx: 8 }));
  }
  group.appendChild(
    svg("rect", {
      class: "body",
      width: w,
      height: h,
      rx: item.type === "op" ? 5 : item.type === "box" ? 8 : 14,
    }),
  );
  if (item.type === "op") {
    group.appendChild(
      svg("rect", { class: kindOf(item.op), x: 0, y: 4, width: 4, height: h - 8, rx: 2 }),
    );
  }
  if (inner) drawPorts(inner, group);
  const flag = flagOf(model, item),
    high = flag ? SIZES.flag : 0;
  if (flag) group.appendChild(drawFlag(flag, w));
  const below = flag ? group.appendChild(svg("g", { transform: `translate(0 ${high})` })) : group;
  drawText(model, item, below, w, h - high, open, badge);
  if (item.type === "box") below.appendChild(chevron(open, w));
  return group;
}

function drawText(model, item, group, w, h, open, badge) {
  const [first, second] = lines(model, item);
  const right = item.type === "box" ? 30 : 12;
  const taken = badge ? textWidth(badge.text, BADGE) + 10 : 0;
  const middle = item.type === "input" || item.type === "output";
  const baseline = open ? 22 : second && !middle ? h / 2 - 4 : h / 2 + 4.5;
  group.appendChild(
    svg(
      "text",
      { class: open ? "name title" : "name", x: 14, y: baseline },
      clipped(first, BOLD, w - 14 - right - taken),
    ),
  );
  if (second && !open)
    group.appendChild(
      svg("text", { class: "soft", x: 14, y: baseline + 17 }, clipped(second, SMALL, w - 28)),
    );
  if (badge)
    group.appendChild(
      svg(
        "text",
        {
          class: `badge ${badge.tone}`,
          x: w - right,
          y: baseline,
          "text-anchor": "end",
        },
        badge.text,
      ),
    );
}

function chevron(open, w) {
  const group = svg("g", { class: "fold", "data-fold": "" });
  group.appendChild(svg("rect", { x: w - 30, y: 0, width: 30, height: 34 }));
  group.appendChild(
    svg("path", { d: open ? `M${w - 20} 15l4.5 4.5 4.5-4.5` : `M${w - 18} 13l4.5 4.5-4.5 4.5` }),
  );
  return group;
}

function flagOf(model, item) {
  if (item === model.firstWrong) return "first that differs";
  if (item === model.marked) return "agreement ends here";
  return "";
}

// A strip along the top of the item.
function drawFlag(text, w) {
  const group = svg("g", { class: "flag" }),
    h = SIZES.flag;
  group.appendChild(svg("path", { d: `M0 ${h}V8a8 8 0 0 1 8-8H${w - 8}a8 8 0 0 1 8 8V${h}z` }));
  group.appendChild(svg("text", { x: 14, y: 14 }, text));
  return group;
}

function spoken(model, item) {
  const [first, second] = lines(model, item),
    badge = badgeOf(model, item);
  return [first, second, badge ? badge.text : "", flagOf(model, item)].filter(Boolean).join(", ");
}
