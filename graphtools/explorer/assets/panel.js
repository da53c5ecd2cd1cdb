// The side panel: what is known of the item that is chosen, or of the whole model.
"use strict";

// An element; children are elements or text. Nothing is ever parsed as HTML.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    name === "onclick"
      ? element.addEventListener("click", value)
      : element.setAttribute(name, value);
  }
  element.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== "")
      .map((child) => (typeof child === "string" ? visible(child) : child)),
  );
  return element;
}

function showPanel(model, panel, item, go) {
  const parts =
    !item || item === model.root
      ? modelPart(model, go)
      : item.type === "box"
        ? boxPart(model, item, go)
        : item.type === "op"
          ? opPart(model, item, go)
          : ioPart(model, item, go);
  panel.replaceChildren(...parts.flat().filter(Boolean));
  panel.scrollTop = 0;
}

function named(text) {
  return h("div", { class: "line" }, h("code", {}, text), copyButton(text));
}

function copyButton(text) {
  const button = h(
    "button",
    {
      class: "copy",
      type: "button",
      title: `Copy ${text}`,
      onclick: async () => {
        button.textContent = (await copied(text)) ? "copied" : "not copied";
        setTimeout(() => {
          button.textContent = "copy";
        }, 1200);
      },
    },
    "copy",
  );
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
  return h(
    "table",
    {},
    pairs.map(([name, ...value]) => h("tr", {}, h("th", {}, name), h("td", {}, ...value))),
  );
}

function section(title, ...content) {
  return [h("h3", {}, title), ...content.flat()];
}

function modelPart(model, go) {
  const { data } = model;
  return [
    h("h2", {}, data.title),
    h("p", { class: "soft" }, `${summary(model.root)} · ${data.file}`),
    data.notes.map((note) => h("p", { class: "note" }, note)),
    model.marked
      ? h(
          "p",
          { class: "note bad" },
          "The known family and this graph part at ",
          link(model.marked, titled(model.marked), go),
          `: ${data.mark[1]}`,
        )
      : null,
    comparison(model, go) || goldens(model, go),
    data.facts.length ? section("Values", data.facts.map(fact)) : null,
    section("File", rows(data.about)),
  ];
}

function fact([name, value, origin, meaning]) {
  return h(
    "div",
    { class: "fact", "data-name": name },
    h("div", { class: "line" }, h("code", {}, name), copyButton(name)),
    h("div", {}, h("b", {}, value), " ", h("span", { class: "soft" }, meaning)),
    origin ? h("div", { class: "soft" }, `from ${origin}`) : null,
  );
}

function comparison(model, go) {
  const names = Object.keys(model.data.errors);
  if (!names.length) return null;
  const { errors } = model.data;
  const missing = names.filter((name) => errors[name].missing).length;
  const wrong = names.filter((name) => errors[name].problem).length - missing;
  const lacking = missing ? `, ${missing} missing` : "";
  return section(
    "Comparison",
    h(
      "p",
      { class: wrong ? "bad" : "good" },
      wrong
        ? `✗ ${wrong} of ${names.length} tensors differ${lacking}`
        : `✓ ${names.length - missing} of ${names.length} tensors are right${lacking}`,
    ),
    h(
      "table",
      { id: "comparison" },
      h(
        "tr",
        {},
        h("th", {}, "tensor"),
        h("th", { class: "num" }, "max|d|"),
        h("th", { class: "num" }, "bound"),
        h("th", {}),
      ),
      names.map((name) => {
        const error = errors[name];
        const box = model.golden.get(name);
        return h(
          "tr",
          { title: error.problem || error.note },
          h("td", {}, box ? link(box, name, go) : name),
          h("td", { class: "num" }, error.max_abs_text),
          h("td", { class: "num" }, error.bound),
          h("td", { class: toneOf(error) }, markOf(error)),
        );
      }),
    ),
  );
}

function goldens(model, go) {
  const names = Object.keys(model.data.goldens);
  if (!names.length) return null;
  return section(
    "Goldens",
    h(
      "table",
      { id: "goldens" },
      h(
        "tr",
        {},
        ["tensor", "shape", "mean", "std"].map((t) => h("th", {}, t)),
      ),
      names.map((name) => {
        const { shape, figures } = model.data.goldens[name];
        const box = model.golden.get(name);
        return h(
          "tr",
          {},
          h("td", {}, box ? link(box, name, go) : name),
          h("td", {}, shape),
          h("td", { class: "num" }, figures[2]),
          h("td", { class: "num" }, figures[3]),
        );
      }),
    ),
  );
}
