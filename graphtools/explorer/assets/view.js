// Which part of the scene is seen, and how large.
"use strict";

const LEAST_SCALE = 0.08;
const MOST_SCALE = 3;

class View {
  constructor(graph, scene) {
    this.graph = graph;
    this.scene = scene;
    this.x = this.y = 0;
    this.k = 1;
    this.dragged = false;
    this.wheel();
    this.drag();
  }

  get size() {
    return this.graph.getBoundingClientRect();
  }

  to({ x = this.x, y = this.y, k = this.k }) {
    Object.assign(this, { x, y, k });
    const numbers = [x.toFixed(2), y.toFixed(2), k.toFixed(4)];
    this.scene.setAttribute(
      "transform",
      `translate(${numbers[0]} ${numbers[1]}) scale(${numbers[2]})`,
    );
  }

  // All of a place, if that can be read; else its beginning.
  fit(all) {
    const { width, height } = this.size;
    const k = Math.max(0.5, Math.min(1.1, width / all.w, height / all.h));
    this.to({ k, x: (width - all.w * k) / 2, y: Math.max(0, (height - all.h * k) / 2) });
  }

  center(place) {
    const { width, height } = this.size;
    const k = Math.max(0.85, Math.min(1, this.k));
    const tall = place.h * k > height - 60;
    const y = tall ? 40 - place.y * k : height / 2 - (place.y + place.h / 2) * k;
    this.to({ k, x: width / 2 - (place.x + place.w / 2) * k, y });
  }

  // After a box has changed its size: it stays where it was. One that reaches beyond the view is
  // moved up until its beginning is at the top.
  keep(before, after) {
    const { width, height } = this.size,
      { k } = this;
    let x = this.x + (before.x + before.w / 2 - after.x - after.w / 2) * k;
    let y = this.y + (before.y - after.y) * k;
    const top = after.y * k + y,
      bottom = top + after.h * k,
      left = after.x * k + x;
    if (top < 20) y += 20 - top;
    else if (bottom > height - 20) y -= Math.min(bottom - height + 20, top - 20);
    const beside = left < 10 || left + after.w * k > width - 10;
    if (after.w * k < width && beside) x = (width - after.w * k) / 2 - after.x * k;
    this.to({ x, y });
  }

  // A point of the scene that is at the border or outside comes to the middle.
  show(at) {
    const { width, height } = this.size;
    const x = at.x * this.k + this.x,
      y = at.y * this.k + this.y;
    this.to({
      x: x < 80 || x > width - 80 ? this.x + width / 2 - x : this.x,
      y: y < 60 || y > height - 60 ? this.y + height / 2 - y : this.y,
    });
  }

  // Larger or smaller; the point `at` of the screen stays, by default the middle.
  scale(factor, at) {
    const { width, height } = this.size;
    const { x, y } = at || { x: width / 2, y: height / 2 };
    const k = Math.max(LEAST_SCALE, Math.min(MOST_SCALE, this.k * factor));
    this.to({ k, x: x - (x - this.x) * (k / this.k), y: y - (y - this.y) * (k / this.k) });
  }

  wheel() {
    this.graph.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const step = event.deltaMode ? 24 : 1;
        if (event.ctrlKey || event.metaKey) {
          const { left, top } = this.size;
          const at = { x: event.clientX - left, y: event.clientY - top };
          this.scale(Math.exp(-event.deltaY * step * 0.005), at);
          return;
        }
        const sideways = event.shiftKey && !event.deltaX;
        const dx = sideways ? event.deltaY : event.deltaX,
          dy = sideways ? 0 : event.deltaY;
        this.to({ x: this.x - dx * step, y: this.y - dy * step });
      },
      { passive: false },
    );
  }

  // `dragged` is true until the click that ends a drag has been seen.
  drag() {
    let from = null;
    this.graph.addEventListener("pointerdown", (event) => {
      this.dragged = false;
      if (event.button === 0) from = { px: event.clientX, py: event.clientY, x: this.x, y: this.y };
    });
    addEventListener("pointermove", (event) => {
      if (!from) return;
      const dx = event.clientX - from.px,
        dy = event.clientY - from.py;
      this.dragged ||= Math.hypot(dx, dy) > 4;
      if (this.dragged) this.to({ x: from.x + dx, y: from.y + dy });
    });
    for (const end of ["pointerup", "pointercancel"])
      addEventListener(end, () => {
        from = null;
      });
  }
}
