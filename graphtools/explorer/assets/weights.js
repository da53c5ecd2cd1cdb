// A weight in the panel: its figures, two pictures, and where it went.
"use strict";

// `places`: the operands it is; none where a graph inside the operation reads it.
function weightCard(tensor, places) {
  const { weight } = tensor;
  return h(
    "div",
    { class: "card weight", "data-tensor": tensor.name },
    named(tensor.name),
    h(
      "div",
      { class: "soft" },
      `${places.length ? `input ${places.join(", ")}` : "result of a graph"} · ` +
        `${tensor.dtype} ${tensor.shape}`,
    ),
    weight.value ? h("div", { class: "mono" }, weight.value) : null,
    weight.figures ? four(weight.figures) : null,
    weight.strange
      ? h("p", { class: "bad" }, `✗ ${weight.strange} values that are NaN or infinite`)
      : null,
    weight.histogram ? histogram(weight) : null,
    weight.strip ? strip(weight) : null,
    weight.carried.map(([key, index, name, origin]) =>
      h(
        "div",
        { class: "carried" },
        key
          ? h(
              "div",
              { class: "line" },
              h("code", {}, index === null ? key : `${key}[${index}]`),
              copyButton(key),
            )
          : null,
        h(
          "div",
          { class: "line" },
          h("span", {}, "stored as ", h("code", {}, name)),
          copyButton(name),
        ),
        h("div", { class: "soft" }, origin === tensor.name ? "as it is" : `from ${origin}`),
      ),
    ),
  );
}

const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

function levels(text) {
  return [...text].map((c) => LEVELS.indexOf(c) / 63);
}

function histogram(weight) {
  const bars = levels(weight.histogram),
    wide = 100 / bars.length;
  const picture = svg("svg", {
    viewBox: "0 0 100 40",
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": "histogram",
  });
  bars.forEach((bar, i) =>
    picture.appendChild(
      svg("rect", { x: i * wide, y: 40 - bar * 38, width: wide * 0.86, height: bar * 38 }),
    ),
  );
  return h(
    "figure",
    {},
    picture,
    h("figcaption", {}, `histogram, ${weight.figures[0]} to ${weight.figures[1]}`),
  );
}

function strip(weight) {
  const ends = levels(weight.strip),
    wide = 200 / ends.length;
  const picture = svg("svg", {
    viewBox: "0 0 100 40",
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": "range of every channel",
  });
  for (let i = 0; i < ends.length; i += 2) {
    picture.appendChild(
      svg("rect", {
        x: (i / 2) * wide,
        y: 39 - ends[i + 1] * 38,
        width: wide * 0.86,
        height: Math.max(0.8, (ends[i + 1] - ends[i]) * 38),
      }),
    );
  }
  return h("figure", {}, picture, h("figcaption", {}, "range of each channel (axis 0)"));
}
