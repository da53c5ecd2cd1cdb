// What is unfolded and chosen, and what a pointer does. The address holds both of the first, so
// that back, forward and a link restore them.
"use strict";

const FIRST_BOXES = 12;

class Explorer {
  constructor(model) {
    this.model = model;
    this.open = new Set();
    this.cache = new Map();
    this.chosen = null;
    this.graph = document.getElementById("graph");
    this.scene = document.getElementById("scene");
    this.view = new View(this.graph, this.scene);
    this.first = this.firstOpen();
  }

  // Where the model has but one or two boxes, the largest are unfolded while all fits on a screen.
  firstOpen() {
    const open = new Set();
    const { root } = this.model;
    let shown = root.children.filter((c) => c.ops || c.type === "op");
    while (shown.length < 5) {
      const room = FIRST_BOXES - shown.length;
      const next = shown
        .filter((c) => c.type === "box" && !open.has(c.id) && c.children.length <= room)
        .sort((a, b) => b.ops - a.ops)[0];
      if (!next) break;
      open.add(next.id);
      shown = [...shown, ...next.children];
    }
    return open;
  }

  start() {
    setUpButtons(this);
    this.graph.addEventListener("click", (event) => this.click(event));
    this.graph.addEventListener("dblclick", (event) => this.doubleClick(event));
    this.keys = new Keys(this);
    addEventListener("hashchange", () => this.restore());
    this.restore(true);
  }

  // --- state and address -------------------------------------------------------------------

  restore(first = false) {
    if (!first && location.hash === this.hash) return;
    this.hash = location.hash;
    const asked = new URLSearchParams(location.hash.slice(1));
    const named = asked.get("node");
    const special =
      first && !location.hash ? this.model.firstWrong || this.model.marked || null : null;
    const item = named === null ? special : this.model.names.get(named) || null;
    const open = asked.get("open");
    this.open =
      open === null
        ? new Set(this.first)
        : new Set(
            open
              .split(".")
              .filter(Boolean)
              .map(Number)
              .filter((id) => this.model.items[id]?.type === "box" && id !== this.model.root.id),
          );
    if (item) this.reveal(item);
    this.cache.clear();
    this.chosen = item;
    this.draw();
    if (item) this.center(item);
    else if (first) this.fit();
    if (named !== null && !item) this.say(`nothing here is called ${named}`);
  }

  remember(step) {
    const parts = [`open=${[...this.open].sort((a, b) => a - b).join(".")}`];
    if (this.chosen) parts.unshift(`node=${encodeURIComponent(linkName(this.model, this.chosen))}`);
    const hash = `#${parts.join("&")}`;
    // The whole address: in a notebook's frame "#.." alone would be relative to the notebook.
    if (hash !== location.hash && step) location.replace(location.href.split("#")[0] + hash);
    else if (hash !== location.hash) location.hash = hash;
    this.hash = location.hash;
  }

  reveal(item) {
    for (const box of ancestors(item).slice(1)) this.setOpen(box, true);
  }

  setOpen(box, open) {
    if (this.open.has(box.id) === open) return;
    open ? this.open.add(box.id) : this.open.delete(box.id);
    for (let at = box; at; at = at.parent) this.cache.delete(at.id);
  }

  draw() {
    const started = performance.now();
    this.places = drawScene(this.model, this.scene, this.open, this.cache, this.chosen);
    showPanel(this.model, document.getElementById("panel"), this.chosen, (item) => this.go(item));
    this.crumbs();
    this.drawMs = performance.now() - started;
  }

  // Choose an item that may be hidden, and bring it into view; a value of the model is shown.
  go(item) {
    if (item.type === "fact") {
      this.choose(null);
      const shown = [...document.querySelectorAll("#panel .fact")].find(
        (f) => f.dataset.name === item.name,
      );
      shown?.scrollIntoView({ block: "center" });
      return;
    }
    this.reveal(item);
    this.choose(item);
    this.center(item);
  }

  // `step`: the address changes without a new entry in the history.
  choose(item, step = false) {
    this.chosen = item;
    this.draw();
    this.remember(step);
    this.say(item ? spoken(this.model, item) : "nothing chosen");
  }

  toggle(box) {
    const before = this.places.get(box.id);
    this.setOpen(box, !this.open.has(box.id));
    this.choose(box);
    this.view.keep(before, this.places.get(box.id));
  }

  fit() {
    this.view.fit(this.places.get(this.model.root.id));
  }

  center(item) {
    this.view.center(this.places.get(item.id));
  }

  say(text) {
    document.getElementById("said").textContent = text;
  }

  crumbs() {
    const chain = this.chosen ? [...ancestors(this.chosen), this.chosen] : [this.model.root];
    document.getElementById("crumbs").replaceChildren(
      ...chain.flatMap((item, i) => [
        i ? "›" : "",
        h(
          "button",
          {
            type: "button",
            onclick: () =>
              item === this.model.root ? (this.choose(null), this.fit()) : this.go(item),
          },
          item === this.model.root ? this.model.data.file : titled(item),
        ),
      ]),
    );
  }

  itemAt(event) {
    const element = event.target.closest("[data-id]");
    return element ? this.model.items[Number(element.dataset.id)] : null;
  }

  // A click unfolds; on what is unfolded it chooses, and the arrow in its corner folds it.
  click(event) {
    const item = this.itemAt(event);
    if (event.detail > 1 || this.view.dragged) return;
    this.justOpened = item?.type === "box" && !this.open.has(item.id);
    if (!item) this.choose(null);
    else if (this.justOpened || (item.type === "box" && event.target.closest("[data-fold]")))
      this.toggle(item);
    else this.choose(item);
  }

  // The second click of a pair that began by unfolding does not fold again.
  doubleClick(event) {
    const item = this.itemAt(event);
    if (item?.type === "box" && this.open.has(item.id) && !this.justOpened) this.toggle(item);
  }
}

async function start() {
  const started = performance.now();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  const model = readModel(await unpacked(document.getElementById("data").textContent));
  fillPage(model);
  window.explorer = new Explorer(model);
  window.explorer.start();
  window.explorer.readyMs = performance.now() - started;
  document.documentElement.dataset.ready = "";
}

start().catch((error) => {
  document.getElementById("panel").textContent =
    `The page cannot be shown (${error.message}). It needs a browser of 2023 or later.`;
  throw error;
});
