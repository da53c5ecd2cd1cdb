// What stands around the graph: title, legend, buttons, help.
"use strict";

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

function fillPage(model) {
  const { data } = model;
  document
    .getElementById("title")
    .replaceChildren(data.title, ...(data.title === data.file ? [] : [h("small", {}, data.file)]));
  const used = new Set(model.items.filter((i) => i.type === "op").map((i) => kindOf(i.op)));
  const legend = [...Object.entries(KINDS), ["other", ["other"]]]
    .filter(([kind]) => used.has(kind))
    .map(([kind, [name]]) => h("span", {}, h("i", { class: kind }), name));
  if (model.tensors.some((t) => isShapeLike(t) && t.producer >= 0 && t.readers.length))
    legend.push(h("span", {}, h("i", { class: "dotted" }), "int64, mostly shapes"));
  if (Object.keys(data.errors).length) {
    const scale = {
      right: "✓ right",
      near: "✓ near the bound",
      wrong: "✗ differs",
      far: "✗ ten times the bound",
      absent: "? missing",
    };
    legend.push(
      ...Object.entries(scale).map(([kind, name]) =>
        h("span", {}, h("i", { class: `swatch ${kind}` }), name),
      ),
    );
  }
  document.getElementById("legend").replaceChildren(...legend);
  const keys = [
    ["/", "search"],
    ["↑ ↓ ← →", "to the nearest box or operation"],
    ["Enter", "unfold or fold; for an operation: to its details"],
    ["Esc", "fold, then out to the box around, then nothing chosen"],
    ["+  −  0", "larger, smaller, all"],
    ["?", "these keys"],
    ["click", "unfold, choose; the arrow in a corner folds"],
    ["drag, wheel", "move; with Ctrl the wheel makes larger"],
  ];
  document.getElementById("help").replaceChildren(
    h("h2", {}, "Keys"),
    h(
      "table",
      {},
      keys.map(([key, what]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, what))),
    ),
    h("form", { method: "dialog" }, h("button", {}, "Close")),
  );
}

function setUpButtons(explorer) {
  const at = (id) => document.getElementById(id);
  const zoom = {
    in: () => explorer.view.scale(1.25),
    out: () => explorer.view.scale(0.8),
    fit: () => explorer.fit(),
  };
  at("zoom").addEventListener("click", (event) => zoom[event.target.dataset.zoom]?.());
  at("ask").addEventListener("click", () => at("help").showModal());
  at("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  });
  setUpSearch(explorer.model, at("query"), at("found"), (item) => {
    explorer.go(item);
    explorer.graph.focus();
  });
}
