// What is written on boxes and operations, and how wide it is.
"use strict";

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif';
const BOLD = "600 13px";
const SMALL = "400 11.5px";
const BADGE = "600 11.5px";
const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();

function textWidth(text, font) {
  const key = font + text;
  if (!widths.has(key)) {
    ruler.font = `${font} ${FONT}`;
    widths.set(key, ruler.measureText(text).width);
  }
  return widths.get(key);
}

// The text, or as much of its begin and end as fits.
function clipped(text, font, room) {
  if (textWidth(text, font) <= room) return text;
  let low = 1,
    high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    textWidth(cut(text, middle), font) <= room ? (low = middle) : (high = middle - 1);
  }
  return cut(text, low);
}

function cut(text, length) {
  const head = Math.ceil(length * 0.4);
  return `${text.slice(0, head)}…${text.slice(text.length - (length - head))}`;
}

// Characters that are not seen, or that turn the order of others around, as their codes.
const UNSEEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

function visible(text) {
  return text.replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function lines(model, item) {
  return linesOf(model, item).map(visible);
}

function linesOf(model, item) {
  if (item.type === "box") return [item.name, summary(item)];
  if (item.type === "op") return [item.op, caption(item)];
  const tensor = model.tensors[item.tensor];
  const shape = clipped(visible(tensor.shape), BOLD, SIZES.label);
  return [`${item.name}\u2002${tensor.dtype} ${shape}`, ""];
}

// What an operation is called within its box: without what the box says already.
function caption(op) {
  const name = shown(op),
    { parent } = op;
  if (name === op.op || name === parent.name) return "";
  return op.label.startsWith(`${parent.name}.`) ? name.slice(parent.name.length + 1) : name;
}

function summary(box) {
  if (box.kind === "inputs" || box.kind === "outputs") return `${box.children.length} of the graph`;
  const ops = `${box.ops} op${box.ops === 1 ? "" : "s"}`;
  return box.parameters ? `${ops} · ${amount(box.parameters)} parameters` : ops;
}

function amount(number) {
  if (number >= 1e9) return `${(number / 1e9).toFixed(2)} G`;
  if (number >= 1e6) return `${(number / 1e6).toFixed(2)} M`;
  return number >= 1e4 ? `${(number / 1e3).toFixed(1)} k` : String(number);
}
