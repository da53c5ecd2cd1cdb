// The ways of the edges. dagre places what stands in one row by its middle, and a line from it to
// a low item would run below a tall one beside that. So lines are upright within a row, and slope
// in the gaps between rows alone.
"use strict";

const STUB = 6; // a line leaves and enters an item upright
const ROUND = 22; // of a corner

function rowsOf(at) {
  const rows = [];
  for (const { y, h } of at.values()) {
    const row = rowAt(rows, y + h / 2);
    if (!row) rows.push({ middle: y + h / 2, top: y, bottom: y + h });
    else Object.assign(row, { top: Math.min(row.top, y), bottom: Math.max(row.bottom, y + h) });
  }
  return rows;
}

function rowAt(rows, y) {
  return rows.find((row) => Math.abs(row.middle - y) < 0.5);
}

// One way for every pair of ports that the edge's tensors take, so that no port of an unfolded
// box leads nowhere.
function routes(laid, rows, edge) {
  const found = new Map();
  for (const tensor of edge.tensors) {
    const leaves = portAt(laid, edge.from, "out", tensor),
      enters = portAt(laid, edge.to, "in", tensor);
    const key = `${leaves} ${enters}`;
    if (!found.has(key)) found.set(key, route(laid, rows, edge, leaves, enters));
  }
  return [...found.values()];
}

// Where along an unfolded box a tensor leaves or enters it; null of any other item.
function portAt(laid, id, side, tensor) {
  const inner = laid.inner.get(Number(id));
  const port = inner && (inner.at.get(`${side} ${tensor}`) || inner.at.get(`${side} all`));
  return port ? laid.at.get(id).x + port.x + port.w / 2 : null;
}

function route(laid, rows, { from, to, points }, leaves, enters) {
  const last = points.length - 1;
  const between = points.slice(1, last).flatMap((point, i) => {
    const row = rowAt(rows, point.y);
    if (!row) return [point];
    const upright = [row.top, row.bottom].map((y) => ({ x: point.x, y }));
    return points[i + 2].y < points[i].y ? upright.reverse() : upright;
  });
  const after = between[0] || points[last],
    before = between[between.length - 1] || points[0];
  return [
    ...end(laid.at.get(from), rows, 1, leaves, points[0].x, after),
    ...between,
    ...end(laid.at.get(to), rows, -1, enters, points[last].x, before).reverse(),
  ];
}

// From an item's border to the gap beside its row. `down` is 1 where it begins below the item and
// -1 where above; with a port it has to, without one it begins where it goes on.
function end(place, rows, down, port, x, next) {
  const row = rowAt(rows, place.y + place.h / 2);
  const ahead = (next.y - row.middle) * down > 0;
  if (!ahead && port === null) return end(place, rows, -down, port, x, next);
  const least = place.x + Math.min(14, place.w / 2),
    most = place.x + place.w - Math.min(14, place.w / 2);
  const at = port ?? Math.max(least, Math.min(most, x));
  const edge = down > 0 ? row.bottom : row.top,
    other = down > 0 ? row.top : row.bottom;
  const gap = edge + down * (ahead ? Math.min(STUB, Math.abs(next.y - edge) / 2) : STUB);
  const way = [
    { x: at, y: down > 0 ? place.y + place.h : place.y },
    { x: at, y: gap },
  ];
  if (ahead) return way;
  // Around the item, back to where it came from.
  const beside = next.x < place.x + place.w / 2 ? place.x - 10 : place.x + place.w + 10;
  return [...way, { x: beside, y: gap }, { x: beside, y: other }];
}

// A line through the points with round corners.
function curve(points) {
  const [first, ...rest] = points.filter(
    (p, i) => !i || Math.hypot(p.x - points[i - 1].x, p.y - points[i - 1].y) > 0.1,
  );
  let d = `M${f(first)}`,
    at = first;
  rest.forEach((corner, i) => {
    const next = rest[i + 1];
    if (!next) d += `L${f(corner)}`;
    else d += `L${f(toward(corner, at))}Q${f(corner)} ${f(toward(corner, next))}`;
    at = corner;
  });
  return d;

  function toward(from, to) {
    const length = Math.hypot(to.x - from.x, to.y - from.y),
      share = Math.min(ROUND / length, 0.5);
    return { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share };
  }
  function f(p) {
    return `${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
  }
}
