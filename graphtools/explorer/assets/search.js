// Search by name, operation, shape, weight and key: every word has to occur.
"use strict";

const MOST_FOUND = 60;

// One text per item to look in; shapes are there as "1x80x200" and as "1, 80, 200".
function haystacks(model) {
  const facts = model.data.facts.map(([name, value, , meaning]) => [
    { type: "fact", name, value },
    `${name}\n${value}\n${meaning}`.toLowerCase(),
  ]);
  const items = model.items
    .filter((item) => item !== model.root)
    .map((item) => {
      const words = [shown(item)];
      if (item.type === "box") words.push(pathOf(item), item.stage || "", item.kind);
      if (item.type === "op") {
        words.push(item.name, item.op, item.place);
        for (const t of [...item.inputs, ...item.outputs]) {
          const tensor = t >= 0 && model.tensors[t];
          if (!tensor || !(tensor.weight || item.outputs.includes(t))) continue;
          words.push(tensor.name, shapes(tensor.shape));
          for (const [key, index, name] of tensor.weight ? tensor.weight.carried : [])
            words.push(index === null ? key : `${key}[${index}]`, name);
        }
      }
      if (item.tensor !== undefined)
        words.push(item.type, shapes(model.tensors[item.tensor].shape));
      return [item, words.join("\n").toLowerCase()];
    });
  return [...items, ...facts];
}

function shapes(shape) {
  return ["×", "x", ", ", ","].map((between) => shape.replaceAll("×", between)).join(" ");
}

function searched(model, query) {
  model.haystacks ??= haystacks(model);
  // A shape in brackets is one word, also while the second bracket is not typed yet.
  const words = query.toLowerCase().match(/\[[^\]]*\]?|\S+/g) || [];
  const wanted = words.map((word) => word.replace(/^\[([^\]]*)\]?$/, "$1").trim()).filter(Boolean);
  if (!wanted.length) return [];
  const found = model.haystacks.filter(([, text]) => wanted.every((word) => text.includes(word)));
  // Whole names first, then boxes, then the order of the network.
  const rank = ([item]) =>
    shown(item).toLowerCase() === wanted[0] ? 0 : item.type === "box" ? 1 : 2;
  return found
    .map((entry, at) => [rank(entry), at, entry[0]])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1])
    .map(([, , item]) => item);
}

function setUpSearch(model, input, list, go) {
  let found = [],
    at = 0;
  function show() {
    const all = searched(model, input.value);
    found = all.slice(0, MOST_FOUND);
    at = Math.min(at, Math.max(0, found.length - 1));
    const open = Boolean(input.value.trim());
    list.hidden = !open;
    input.setAttribute("aria-expanded", String(open));
    list.replaceChildren(
      ...found.map((item, i) =>
        h(
          "li",
          { role: "option", id: `found-${i}`, "aria-selected": String(i === at), "data-at": i },
          titled(item),
          h("small", {}, describe(item)),
        ),
      ),
    );
    if (open && !found.length) list.append(h("li", {}, "nothing has that"));
    if (all.length > found.length)
      list.append(h("li", {}, h("small", {}, `.. and ${all.length - found.length} more`)));
    input.setAttribute("aria-activedescendant", found.length ? `found-${at}` : "");
    list.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }
  function describe(item) {
    if (item.type === "fact") return `value of the model · ${item.value}`;
    const shape =
      item.type === "op" && item.outputs.length && item.outputs[0] >= 0
        ? model.tensors[item.outputs[0]].shape
        : "";
    const what = item.type === "box" ? summary(item) : item.type === "op" ? shape : item.type;
    return [what, pathOf(item)].filter(Boolean).join(" · ");
  }
  function close() {
    input.value = "";
    show();
    input.blur();
  }
  function choose(item) {
    close();
    if (item) go(item);
  }
  input.addEventListener("input", () => {
    at = 0;
    show();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at = Math.max(0, Math.min(found.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
      show();
    } else if (event.key === "Enter") choose(found[at]);
    else if (event.key === "Escape") choose(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  list.addEventListener("mousedown", (event) => {
    const entry = event.target.closest("[data-at]");
    if (entry) choose(found[Number(entry.dataset.at)]);
    event.preventDefault();
  });
  document.addEventListener("mousedown", (event) => {
    if (!event.target.closest("#search")) {
      list.hidden = true;
    }
  });
}
