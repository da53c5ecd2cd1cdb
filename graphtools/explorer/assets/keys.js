// The keyboard. A step with an arrow changes the address without an entry in the history.
"use strict";

class Keys {
  constructor(explorer) {
    this.explorer = explorer;
    addEventListener("keydown", (event) => this.key(event));
  }

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
    else if (event.key === "+" || event.key === "=") this.explorer.view.scale(1.25);
    else if (event.key === "-") this.explorer.view.scale(0.8);
    else if (event.key === "0") this.explorer.fit();
    else return;
    event.preventDefault();
  }

  enter() {
    if (!this.explorer.chosen) return;
    this.explorer.chosen.type === "box"
      ? this.explorer.toggle(this.explorer.chosen)
      : document.getElementById("panel").focus();
  }

  // Out: fold what is chosen, then to the box around it, then nothing.
  escape() {
    const { chosen } = this.explorer;
    if (document.activeElement?.closest("#panel")) this.explorer.graph.focus();
    else if (!chosen) return;
    else if (chosen.type === "box" && this.explorer.open.has(chosen.id))
      this.explorer.toggle(chosen);
    else if (chosen.parent && chosen.parent !== this.explorer.model.root)
      this.explorer.go(chosen.parent);
    else this.explorer.choose(null);
  }

  // The nearest item in that direction; into and out of unfolded boxes.
  step(key) {
    const visible = [...this.explorer.places]
      .filter(([id]) => id !== this.explorer.model.root.id)
      .map(([id, p]) => [this.explorer.model.items[id], p]);
    if (!this.explorer.chosen) return this.seen(visible.sort((a, b) => a[1].y - b[1].y)[0]?.[0]);
    const from = this.middle(this.explorer.chosen);
    const vertical = key === "ArrowDown" || key === "ArrowUp";
    const sign = key === "ArrowDown" || key === "ArrowRight" ? 1 : -1;
    let best = null;
    let least = Infinity;
    for (const [item] of visible) {
      if (item === this.explorer.chosen) continue;
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
    const p = this.explorer.places.get(item.id);
    const high = this.explorer.open.has(item.id) ? SIZES.title : p.h;
    return { x: p.x + p.w / 2, y: p.y + high / 2 };
  }

  seen(item) {
    if (!item) return;
    this.explorer.choose(item, true);
    this.explorer.view.show(this.middle(item));
  }
}
