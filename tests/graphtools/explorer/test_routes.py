"""Where edges are drawn: beside items, and to every place where a tensor enters or leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from fixtures import catalog
from fixtures.synthetic import tangle
from graphtools.graph import Graph, build
from graphtools.onnx_file import load
from graphtools.recover import Recovered, recover

if TYPE_CHECKING:
    from playwright.sync_api import Page

Show = Callable[..., "Page"]

ALL_OPEN = """() => {
  const { model } = explorer;
  for (const item of model.items)
    if (item.type === "box" && item !== model.root) explorer.setOpen(item, true);
  explorer.draw();
}"""

# Items that an edge beside them runs below, and ports on an unfolded box's border that no edge
# outside reaches. The edges of a box are drawn after the box itself.
FAULTS = """() => {
  const { model, places } = explorer, below = new Set(), loose = new Set();
  for (const edges of document.querySelectorAll("#scene g[aria-hidden]")) {
    const paths = [...edges.querySelectorAll("path.edge")].map((path) => {
      const points = [], length = path.getTotalLength();
      for (let at = 0; at < length; at += 4) points.push(path.getPointAtLength(at));
      return [...points, path.getPointAtLength(length)];
    });
    if (!paths.length) continue;
    const holder = edges.previousElementSibling;
    const box = holder ? model.items[Number(holder.dataset.id)] : model.root;
    const ends = paths.flatMap((points) => [points[0], points[points.length - 1]]);
    for (const child of box.children) {
      const p = places.get(child.id);
      const inside = ({ x, y }) =>
        x > p.x + 3 && x < p.x + p.w - 3 && y > p.y + 3 && y < p.y + p.h - 3;
      if (paths.flat().some(inside)) below.add(child.name);
      const drawn = document.querySelector(`[data-id="${child.id}"]`);
      for (const port of drawn.querySelectorAll(":scope > circle.port")) {
        const x = p.x + Number(port.getAttribute("cx"));
        const reached = ends.some((end) => Math.abs(end.x - x) < 1 &&
          (Math.abs(end.y - p.y) < 1 || Math.abs(end.y - p.y - p.h) < 1));
        if (!reached) loose.add(child.name);
      }
    }
  }
  return [[...below], [...loose]];
}"""


def scoped(path: Path, scope: Callable[[int], str]) -> Graph:
    """A tangle whose nodes have names in the scopes that `scope` gives by place."""
    model = onnx.load(tangle(path, 60))
    for place, node in enumerate(model.graph.node):
        node.name = f"{scope(place)}/{node.op_type}_{place}"
    onnx.save(model, path)
    return build(load(path))


def test_of_a_family(show: Show) -> None:
    net = recover(build(load(catalog.path("eres2net_tiny"))))
    assert isinstance(net, Recovered)
    page = show(net.graph, net)
    page.evaluate(ALL_OPEN)
    assert page.evaluate(FAULTS) == [[], []]


@pytest.mark.parametrize(
    "scope",
    [
        pytest.param(lambda place: f"/m{place // 15}/n{place // 5}", id="in order"),
        pytest.param(lambda place: f"/m{place // 8 % 3}", id="modules called again"),
    ],
)
def test_of_any_network(scope: Callable[[int], str], show: Show, tmp_path: Path) -> None:
    page = show(scoped(tmp_path / "tangle.onnx", scope))
    page.evaluate(ALL_OPEN)
    assert page.evaluate(FAULTS) == [[], []]
