// What is unfolded and chosen, where the view is, and the keys. The address holds both of the
// first, so that back, forward and a link restore them.
"use strict";

const FIRST_BOXES = 12, LEAST_SCALE = 0.08, MOST_SCALE = 3;

class Explorer {
  constructor(model) {
    this.model = model;
    this.open = new Set();
    this.cache = new Map();
    this.chosen = null;
    this.view = { x: 0, y: 0, k: 1 };
    this.graph = document.getElementById("graph");
    this.scene = document.getElementById("scene");
    this.first = this.firstOpen();
  }

  // Where the model has but one or two boxes, the largest are unfolded while all fits on a screen.
  firstOpen() {
    const open = new Set(), { root } = this.model;
    let shown = root.children.filter((c) => c.type === "box" || c.type === "op");
    while (shown.length < 5) {
      const room = FIRST_BOXES - shown.length;
      const next = shown.filter((c) => c.type === "box" && !open.has(c.id) && c.children.length <= room)
        .sort((a, b) => b.ops - a.ops)[0];
      if (!next) break;
      open.add(next.id);
      shown = [...shown, ...next.children];
    }
    return open;
  }

  start() {
    this.buttons();
    this.pointer();
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => this.restore());
    addEventListener("resize", () => this.move());
    this.restore(true);
  }

  // --- state and address -------------------------------------------------------------------

  restore(first = false) {
    if (!first && location.hash === this.hash) return;
    this.hash = location.hash;
    const asked = new URLSearchParams(location.hash.slice(1));
    const named = asked.get("node");
    const special = first && !named ? this.model.firstWrong || this.model.marked || null : null;
    const item = named === null ? special : this.model.names.get(named) || null;
    const open = asked.get("open");
    this.open = open === null ? new Set(this.first) : new Set(open.split(".").filter(Boolean).map(Number)
      .filter((id) => this.model.items[id]?.type === "box" && id !== this.model.root.id));
    if (item) this.reveal(item);
    this.cache.clear();
    this.chosen = item;
    this.draw();
    first && !item ? this.fit() : item ? this.center(item) : this.move();
    if (named !== null && !item) this.say(`nothing here is called ${named}`);
  }

  remember() {
    const parts = [];
    if (this.chosen) parts.push(`node=${encodeURIComponent(linkName(this.model, this.chosen))}`);
    parts.push(`open=${[...this.open].sort((a, b) => a - b).join(".")}`);
    const hash = `#${parts.join("&")}`;
    if (hash !== location.hash) location.hash = this.hash = hash;
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

  // Choose an item that may be hidden, and bring it into view.
  go(item) {
    this.reveal(item);
    this.choose(item);
    this.center(item);
  }

  choose(item) {
    this.chosen = item;
    this.draw();
    this.remember();
    this.say(item ? spoken(this.model, item) : "nothing chosen");
  }

  toggle(box) {
    const before = this.places.get(box.id), open = !this.open.has(box.id);
    this.setOpen(box, open);
    this.choose(box);
    const after = this.places.get(box.id), { view } = this;
    // The box stays where it was; one that is larger than the view shows its beginning.
    view.x += (before.x + before.w / 2 - after.x - after.w / 2) * view.k;
    view.y += (before.y - after.y) * view.k;
    const { width, height } = this.graph.getBoundingClientRect();
    const top = after.y * view.k + view.y, bottom = top + after.h * view.k;
    if (bottom > height - 20) view.y -= Math.min(bottom - height + 20, Math.max(0, top - 20));
    if (top < 20) view.y += 20 - top;
    const left = after.x * view.k + view.x;
    if (after.w * view.k < width && (left < 10 || left + after.w * view.k > width - 10)) {
      view.x = (width - after.w * view.k) / 2 - after.x * view.k;
    }
    this.move();
  }

  say(text) {
    document.getElementById("said").textContent = text;
  }

  crumbs() {
    const chain = this.chosen ? [...ancestors(this.chosen), this.chosen] : [this.model.root];
    document.getElementById("crumbs").replaceChildren(...chain.flatMap((item, i) => [
      i ? "›" : "", h("button", { type: "button", onclick: () => item === this.model.root ? (this.choose(null), this.fit()) : this.go(item) },
        item === this.model.root ? this.model.data.file : titled(item))]));
  }

  // --- the view ----------------------------------------------------------------------------

  move() {
    const { x, y, k } = this.view;
    this.scene.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${k.toFixed(4)})`);
  }

  fit() {
    const { width, height } = this.graph.getBoundingClientRect(), all = this.places.get(this.model.root.id);
    const k = Math.max(0.5, Math.min(1.1, width / all.w, height / all.h));
    this.view = { k, x: (width - all.w * k) / 2, y: Math.max(0, (height - all.h * k) / 2) };
    this.move();
  }

  center(item) {
    const { width, height } = this.graph.getBoundingClientRect(), place = this.places.get(item.id);
    const k = Math.max(0.7, Math.min(1, this.view.k));
    const tall = place.h * k > height - 60;
    this.view = { k, x: width / 2 - (place.x + place.w / 2) * k, y: tall ? 40 - place.y * k : height / 2 - (place.y + place.h / 2) * k };
    this.move();
  }

  scale(factor, at) {
    const { width, height } = this.graph.getBoundingClientRect(), { view } = this;
    const { x, y } = at || { x: width / 2, y: height / 2 };
    const k = Math.max(LEAST_SCALE, Math.min(MOST_SCALE, view.k * factor));
    this.view = { k, x: x - (x - view.x) * (k / view.k), y: y - (y - view.y) * (k / view.k) };
    this.move();
  }

  pointer() {
    const { graph } = this;
    let from = null;
    graph.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = graph.getBoundingClientRect(), step = event.deltaMode ? 24 : 1;
      if (event.ctrlKey || event.metaKey) {
        this.scale(Math.exp(-event.deltaY * step * 0.005), { x: event.clientX - box.left, y: event.clientY - box.top });
      } else {
        const sideways = event.shiftKey && !event.deltaX;
        this.view.x -= (sideways ? event.deltaY : event.deltaX) * step;
        this.view.y -= (sideways ? 0 : event.deltaY) * step;
        this.move();
      }
    }, { passive: false });
    graph.addEventListener("pointerdown", (event) => {
      if (event.button === 0) from = { x: event.clientX, y: event.clientY, view: { ...this.view }, moved: false };
    });
    addEventListener("pointermove", (event) => {
      if (!from) return;
      const dx = event.clientX - from.x, dy = event.clientY - from.y;
      from.moved ||= Math.hypot(dx, dy) > 4;
      if (from.moved) {
        this.view.x = from.view.x + dx;
        this.view.y = from.view.y + dy;
        this.move();
      }
    });
    addEventListener("pointerup", () => { if (from && !from.moved) from = null; else setTimeout(() => { from = null; }); });
    graph.addEventListener("click", (event) => { if (!from?.moved) this.click(event); });
    graph.addEventListener("dblclick", (event) => {
      const item = this.itemAt(event);
      if (item?.type === "box" && this.open.has(item.id) && event.detail === 2 && !this.justOpened) this.toggle(item);
    });
  }

  itemAt(event) {
    const element = event.target.closest("[data-id]");
    return element ? this.model.items[Number(element.dataset.id)] : null;
  }

  // A click unfolds; on what is unfolded it chooses, and the arrow in its corner folds it.
  click(event) {
    const item = this.itemAt(event);
    if (event.detail > 1) return;
    this.justOpened = item?.type === "box" && !this.open.has(item.id);
    if (!item) this.choose(null);
    else if (this.justOpened || (item.type === "box" && event.target.closest("[data-fold]"))) this.toggle(item);
    else this.choose(item);
  }

  // --- keys --------------------------------------------------------------------------------

  key(event) {
    const dialog = document.getElementById("help");
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("input")) return;
    if (dialog.open) return;
    const inPanel = event.target.closest?.("#panel, button");
    if (event.key.startsWith("Arrow") && !event.target.closest?.("#panel")) this.step(event.key);
    else if (event.key === "Enter" && !inPanel) this.enter();
    else if (event.key === "Escape") this.escape();
    else if (event.key === "/") document.getElementById("query").focus();
    else if (event.key === "?") dialog.showModal();
    else if (event.key === "+" || event.key === "=") this.scale(1.25);
    else if (event.key === "-") this.scale(0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  enter() {
    if (!this.chosen) return;
    this.chosen.type === "box" ? this.toggle(this.chosen) : document.getElementById("panel").focus();
  }

  // Out: fold what is chosen, then to the box around it, then nothing.
  escape() {
    const { chosen } = this;
    if (document.activeElement?.closest("#panel")) this.graph.focus();
    else if (!chosen) return;
    else if (chosen.type === "box" && this.open.has(chosen.id)) this.toggle(chosen);
    else if (chosen.parent && chosen.parent !== this.model.root) this.go(chosen.parent);
    else this.choose(null);
  }

  // The nearest item in that direction; into and out of unfolded boxes.
  step(key) {
    const visible = [...this.places].filter(([id]) => id !== this.model.root.id).map(([id, p]) => [this.model.items[id], p]);
    if (!this.chosen) return this.seen(visible.sort((a, b) => a[1].y - b[1].y)[0]?.[0]);
    const from = this.middle(this.chosen), vertical = key === "ArrowDown" || key === "ArrowUp";
    const sign = key === "ArrowDown" || key === "ArrowRight" ? 1 : -1;
    let best = null, least = Infinity;
    for (const [item] of visible) {
      if (item === this.chosen) continue;
      const at = this.middle(item);
      const along = sign * (vertical ? at.y - from.y : at.x - from.x);
      const across = Math.abs(vertical ? at.x - from.x : at.y - from.y);
      if (along < 4 || (!vertical && across > 60)) continue;
      const distance = along + across * (vertical ? 0.6 : 3);
      if (distance < least) [best, least] = [item, distance];
    }
    return best && this.seen(best);
  }

  // What is unfolded is stepped onto at its title.
  middle(item) {
    const p = this.places.get(item.id);
    const high = this.open.has(item.id) ? SIZES.title : p.h;
    return { x: p.x + p.w / 2, y: p.y + high / 2 };
  }

  seen(item) {
    if (!item) return;
    this.choose(item);
    const { width, height } = this.graph.getBoundingClientRect(), { view } = this, at = this.middle(item);
    const x = at.x * view.k + view.x, y = at.y * view.k + view.y;
    if (x < 80 || x > width - 80) view.x += width / 2 - x;
    if (y < 60 || y > height - 60) view.y += height / 2 - y;
    this.move();
  }

  buttons() {
    const zoom = { in: () => this.scale(1.25), out: () => this.scale(0.8), fit: () => this.fit() };
    document.getElementById("zoom").addEventListener("click", (event) => zoom[event.target.dataset.zoom]?.());
    document.getElementById("ask").addEventListener("click", () => document.getElementById("help").showModal());
    document.getElementById("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
    setUpSearch(this.model, document.getElementById("query"), document.getElementById("found"), (item) => { this.go(item); this.graph.focus(); });
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

function fillPage(model) {
  const { data } = model;
  document.getElementById("title").replaceChildren(data.title, ...(data.title === data.file ? [] : [h("small", {}, data.file)]));
  const used = new Set(model.items.filter((i) => i.type === "op").map((i) => kindOf(i.op)));
  const legend = [...Object.entries(KINDS), ["other", ["other"]]].filter(([kind]) => used.has(kind))
    .map(([kind, [name]]) => h("span", {}, h("i", { class: kind }), name));
  if (Object.keys(data.errors).length) {
    const scale = { right: "✓ right", near: "✓ near the bound", wrong: "✗ differs", far: "✗ ten times the bound" };
    legend.push(...Object.entries(scale).map(([kind, name]) => h("span", {}, h("i", { class: `swatch ${kind}` }), name)));
  }
  document.getElementById("legend").replaceChildren(...legend);
  const keys = [["/", "search"], ["↑ ↓ ← →", "to the nearest box or operation"], ["Enter", "unfold or fold; for an operation: to its details"],
    ["Esc", "fold, then out to the box around, then nothing chosen"], ["+  −  0", "larger, smaller, all"], ["?", "these keys"],
    ["click", "unfold, choose; the arrow in a corner folds"], ["drag, wheel", "move; with Ctrl the wheel makes larger"]];
  document.getElementById("help").replaceChildren(h("h2", {}, "Keys"),
    h("table", {}, keys.map(([key, what]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, what)))),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
}

(async () => {
  const started = performance.now();
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  const model = readModel(await unpacked(document.getElementById("data").textContent));
  model.stages = new Map(model.items.filter((i) => i.stage).map((i) => [i.stage, i]));
  model.firstWrong = model.stages.get(model.data.first_wrong) || null;
  model.marked = model.data.mark ? model.items.find((i) => i.index === model.data.mark[0]) || null : null;
  fillPage(model);
  window.explorer = new Explorer(model);
  window.explorer.start();
  window.explorer.readyMs = performance.now() - started;
  document.documentElement.dataset.ready = "";
})();
