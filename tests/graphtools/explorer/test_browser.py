"""The page in a real browser, from disk, without a network: what a person does with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from fixtures import catalog
from fixtures.synthetic import tangle
from graphtools.explorer import Carried, Error, Fact, Golden, Mark, Overlays, inline
from graphtools.graph import Graph, build
from graphtools.hierarchy import hierarchy
from graphtools.onnx_file import load
from graphtools.recover import Recovered, recover
from graphtools.subgraphs import opened

if TYPE_CHECKING:
    from playwright.sync_api import Page

Show = Callable[..., "Page"]
Parse = Callable[..., Graph]

TINY = catalog.names(committed=True)
# What a first view may hold; inputs and outputs stand beside.
MOST_BOXES = 15


@cache
def recovered(name: str) -> Recovered:
    found = recover(build(load(catalog.path(name))))
    assert isinstance(found, Recovered)
    return found


def family(show: Show, name: str, overlays: Overlays | None = None, fragment: str = "") -> Page:
    net = recovered(name)
    return show(net.graph, net, overlays, fragment)


def names(page: Page) -> list[str]:
    """What is drawn, from top to bottom."""
    found: list[str] = page.eval_on_selector_all(
        ".item.box, .item.op",
        "items => items.map(i => [i.getBoundingClientRect().top, i.querySelector('.name')"
        ".textContent]).sort((a, b) => a[0] - b[0]).map(([, name]) => name)",
    )
    return found


def box(page: Page, name: str) -> Any:
    return page.locator(".item", has=page.locator(f'text.name:text-is("{name}")')).first


def title(page: Page) -> str:
    return page.locator("#panel h2").inner_text()


class TestFirstView:
    @pytest.mark.parametrize("name", TINY)
    def test_has_the_stages_on_one_screen(self, name: str, show: Show) -> None:
        net = recovered(name)
        page = show(net.graph, net)
        assert names(page) == [child.name for child in hierarchy(net.graph, net).children]
        screen = page.locator("#graph").bounding_box()
        for item in page.locator(".item").all():
            place = item.bounding_box()
            assert place["y"] >= screen["y"] - 1
            assert place["y"] + place["height"] <= screen["y"] + screen["height"] + 6

    @pytest.mark.parametrize("name", TINY)
    def test_has_few_boxes_where_no_family_is_known(self, name: str, show: Show) -> None:
        page = show(build(load(catalog.path(name))))
        assert 4 <= len(names(page)) <= MOST_BOXES

    def test_has_few_boxes_at_any_size(self, show: Show, tmp_path: Path) -> None:
        page = show(build(load(tangle(tmp_path / "tangle.onnx", 5000))))
        assert 4 <= len(names(page)) <= MOST_BOXES

    def test_has_few_inputs_and_outputs(self, show: Show, parse: Parse) -> None:
        """A decoder has its keys and values of every layer as inputs and as outputs."""
        layers = range(20)
        graph = parse(f"""
            g ({", ".join(f"float[2] past{i}" for i in layers)})
              => ({", ".join(f"float[2] now{i}" for i in layers)})
            {{ {" ".join(f"now{i} = Relu(past{i})" for i in layers)} }}
        """)
        page = show(graph)
        ends = page.locator(".item.io, .item.box", has_text=re.compile("past|now|more"))
        assert ends.count() == 10
        assert "16 of the graph" in box(page, "more inputs").text_content()
        page.evaluate("location.hash = 'node=output now19'")
        page.wait_for_function("explorer.chosen?.name === 'now19'")
        assert ends.count() == 10 + 16
        assert "Relu" in page.locator("#panel").inner_text()

    def test_edges_carry_shapes(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        labels = page.locator("svg text.label").all_text_contents()
        assert labels[0] == "B\u00d7T\u00d780"
        assert any(label.startswith("B\u00d732\u00d710") for label in labels)

    @pytest.mark.parametrize("name", ["eres2net_tiny", "resnet34_tiny"])
    def test_dotted_edges_are_in_the_legend(self, name: str, show: Show) -> None:
        page = family(show, name)
        page.evaluate(
            "explorer.model.items.filter(i => i.type === 'box' && i.parent)"
            ".forEach(box => explorer.setOpen(box, true)), explorer.draw()"
        )
        dotted = page.locator("path.edge.shape").count() > 0
        assert dotted == ("int64" in page.locator("#legend").inner_text())

    def test_a_long_shape_is_cut(self, show: Show, parse: Parse) -> None:
        """Inference calls axes by the names of tensors, which may be whole paths."""
        axis = "_".join(["sequence"] * 20)
        page = show(parse(f"g (float[{axis}, 9] x) => (float[{axis}, 9] y) {{ y = Relu(x) }}"))
        widths = "texts => texts.map(text => text.getBBox().width)"
        assert max(page.eval_on_selector_all("svg text", widths)) < 250
        assert f"f32 [{axis}, 9]" in page.locator("#panel").inner_text()
        ends = page.locator(".item.io .name").all_text_contents()
        assert [end.split("\u2026")[0] for end in ends] == [
            "x\u2002f32 sequen",
            "y\u2002f32 sequen",
        ]

    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_a_shape_stands_out_from_the_box_that_it_is_in(self, theme: str, show: Show) -> None:
        net = recovered("resnet34_tiny")
        page = show(net.graph, net, None, "#node=layer2.0.conv1", color_scheme=theme)
        page.evaluate("explorer.go(explorer.model.names.get('onnx::Conv_388'))")
        halos = page.eval_on_selector_all(
            "svg text.label",
            "labels => labels.map(label => { const holder = label.parentNode.className.baseVal;"
            " const box = document.querySelector(`.item.open.${holder} > rect.body`);"
            " return [getComputedStyle(label).stroke, box ? getComputedStyle(box).fill"
            " : getComputedStyle(document.body).backgroundColor]; })",
        )
        assert len({halo for halo, _ in halos}) == 3
        assert all(halo == behind for halo, behind in halos)

    @pytest.mark.parametrize("name", ["resnet34_tiny", "eres2net_tiny"])
    def test_nothing_overlaps_when_all_is_unfolded(self, name: str, show: Show) -> None:
        boxes = list(range(1, len(list(hierarchy(recovered(name).graph, recovered(name)).boxes()))))
        page = family(show, name, fragment=f"#open={'.'.join(map(str, boxes))}")
        assert page.locator(".item.op").count() > 100
        assert page.evaluate(_OVERLAPS) == []


# Pairs of items of one box that are drawn over one another, and items outside of their box.
_OVERLAPS = """() => {
  const { places, model } = explorer, found = [];
  const items = [...places.keys()].map((id) => model.items[id]);
  for (const a of items) {
    const p = places.get(a.id);
    for (const b of a.children.filter((child) => places.has(child.id))) {
      const q = places.get(b.id);
      if (q.x < p.x || q.y < p.y || q.x + q.w > p.x + p.w || q.y + q.h > p.y + p.h)
        found.push([a.name, b.name]);
      for (const c of a.children.filter((child) => child.id > b.id && places.has(child.id))) {
        const r = places.get(c.id);
        if (q.x < r.x + r.w && r.x < q.x + q.w && q.y < r.y + r.h && r.y < q.y + q.h)
          found.push([b.name, c.name]);
      }
    }
  }
  return found;
}"""


class TestUnfolding:
    def test_a_click_unfolds_and_the_corner_folds(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        folded = names(page)
        box(page, "layer2").click()
        assert page.eval_on_selector("#graph", "g => getComputedStyle(g).outlineStyle") == "none"
        assert set(names(page)) - set(folded) == {f"layer2.{i}" for i in range(4)}
        assert title(page) == "layer2"
        box(page, "layer2.0").click()
        assert {"Conv", "Add", "Relu"} <= set(names(page))
        box(page, "layer2").locator(".fold").first.click()
        assert names(page) == folded

    def test_an_operation_is_shown_in_the_panel(self, show: Show) -> None:
        page = family(show, "resnet34_tiny", fragment="#node=/model/layer2/layer2.0/conv1/Conv")
        panel = page.locator("#panel")
        assert title(page) == "Conv"
        text = panel.inner_text()
        for shown in ("kernel_shape\t[3, 3]", "strides\t[2, 2]", "f32 B\u00d78\u00d740"):
            assert shown in text, shown
        assert "/model/layer1/layer1.2/Relu_1_output_0" in text

    def test_values_in_the_panel_are_numpys(self, show: Show) -> None:
        proto = onnx.load(catalog.path("resnet34_tiny"))
        (node,) = (n for n in proto.graph.node if n.name == "/model/layer4/layer4.0/conv1/Conv")
        weights = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
        page = family(show, "resnet34_tiny", fragment=f"#node={node.name}")
        for name in node.input[1:]:
            values = weights[name].astype(np.float64)
            card = page.locator(f'[data-tensor="{name}"]')
            wanted = {"min": values.min(), "max": values.max(), "mean": values.mean()}
            for label, value in (wanted | {"std": values.std()}).items():
                assert card.locator(f'[data-figure="{label}"]').inner_text() == f"{value:.6g}"
            assert card.locator('[aria-label="histogram"] rect').count() == 32
            strip = card.locator('[aria-label="range of every channel"] rect')
            assert strip.count() == min(64, len(values))

    def test_a_scalar_is_told_from_an_unknown_shape(self, show: Show, parse: Parse) -> None:
        page = show(
            parse("""
            g (float[2] x) => (float y)
            { s = ReduceSum<keepdims = 0>(x) u = com.microsoft.None(s) y = Mul(s, u) }
            """),
            fragment="#node=y",
        )
        cards = page.locator("#panel .tensor").all_inner_texts()
        assert ["f32 scalar" in card for card in cards] == [True, False, True]
        assert ["shape unknown" in card for card in cards] == [False, True, False]

    def test_a_weight_that_is_read_twice_has_both_places(self, show: Show, parse: Parse) -> None:
        graph = parse("g (float[3, 9] x) => (float[3, 9] y) <float[9] w> { y = Clip(x, w, w) }")
        (card,) = show(graph, fragment="#node=y").locator("#panel .weight").all_inner_texts()
        assert "input 1, 2 \u00b7 f32 9" in card

    def test_a_branch_is_a_box(self, show: Show, parse: Parse) -> None:
        graph = parse("""
            g (float[3, 9] x, bool c) => (float[3, 9] y) <float[3, 9] w>
            { y = If (c) <then_branch = a () => (float[3, 9] p) { p = Add(x, w) },
                          else_branch = b () => (float[3, 9] q) { q = Identity(w) }> }
            """)
        page = show(opened(graph))
        panel = page.locator("#panel")
        assert "1, and 2 in the graphs of control flow" in panel.inner_text()
        assert "27 parameters" in panel.inner_text()
        assert sorted(names(page)[:-1]) == ["Add", "Identity", "else_branch", "then_branch"]
        assert names(page)[-1] == "If"
        page.evaluate("location.hash = 'node=p'")
        page.locator('#panel .weight[data-tensor="w"]').wait_for()
        assert "node 0 of then_branch of node 0" in panel.inner_text()
        page.evaluate("location.hash = 'node=y'")
        panel.get_by_text("Results of its graphs").wait_for()
        assert "then_branch\ta graph that gives p" in panel.inner_text()
        page.evaluate("location.hash = 'node=then_branch'")
        panel.get_by_text("graph of an attribute").wait_for()

    def test_a_weight_that_a_branch_gives_is_one_of_the_operation(
        self, show: Show, parse: Parse
    ) -> None:
        graph = parse("""
            g (float[3, 9] x, bool c) => (float[3, 9] y) <float[3, 9] w>
            { y = If (c) <then_branch = a () => (float[3, 9] w) { },
                          else_branch = b () => (float[3, 9] q) { q = Identity(x) }> }
            """)
        page = show(opened(graph), fragment="#node=y")
        card = page.locator('#panel .weight[data-tensor="w"]')
        card.wait_for()
        assert "result of a graph" in card.inner_text()
        assert card.locator('[data-figure="max"]').count() == 1


class TestMoving:
    def test_a_drag_moves_and_chooses_nothing(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        before = box(page, "layer2").bounding_box()
        page.mouse.move(before["x"] + 20, before["y"] + 20)
        page.mouse.down()
        page.mouse.move(before["x"] + 80, before["y"] + 50, steps=4)
        page.mouse.up()
        after = box(page, "layer2").bounding_box()
        moved = (after["x"] - before["x"], after["y"] - before["y"])
        assert moved == pytest.approx((60, 30), abs=1)
        assert page.evaluate("explorer.chosen") is None

    def test_the_wheel_moves_and_with_ctrl_it_scales(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        before = box(page, "layer2").bounding_box()
        page.mouse.move(before["x"], before["y"])
        page.mouse.wheel(0, 40)
        page.wait_for_function("explorer.view.y < 0")
        after = box(page, "layer2").bounding_box()
        assert after["y"] == pytest.approx(before["y"] - 40, abs=1)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -100)
        page.keyboard.up("Control")
        page.wait_for_function("explorer.view.k > 1.2")
        assert box(page, "layer2").bounding_box()["width"] > 1.2 * before["width"]

    def test_a_box_that_is_unfolded_stays_in_view(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        for name in ("layer4", "layer4.2"):
            box(page, name).click()
            place, screen = box(page, name).bounding_box(), page.locator("#graph").bounding_box()
            whole = place["y"] + place["height"] <= screen["y"] + screen["height"]
            assert screen["y"] <= place["y"]
            assert whole or place["y"] <= screen["y"] + 25, name
        page.keyboard.press("0")
        assert box(page, "stem").bounding_box()["y"] > 0


class TestKeyboard:
    def test_slash_searches_and_enter_goes_there(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        page.keyboard.press("/")
        page.keyboard.type("layer3.1 add")
        page.keyboard.press("Enter")
        assert title(page) == "Add"
        assert "layer3.1" in page.locator("#crumbs").inner_text()
        assert page.evaluate("document.activeElement.id") == "graph"

    def test_arrows_choose_and_enter_unfolds(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        for _ in range(3):
            page.keyboard.press("ArrowDown")
        assert title(page) == "layer1"
        page.keyboard.press("Enter")
        assert "layer1.0" in names(page)
        page.keyboard.press("ArrowDown")
        assert title(page) == "layer1.0"
        page.keyboard.press("ArrowUp")
        assert title(page) == "layer1"

    def test_escape_goes_out(self, show: Show) -> None:
        page = family(show, "resnet34_tiny", fragment="#node=layer1.0")
        page.keyboard.press("Escape")
        assert title(page) == "layer1"
        page.keyboard.press("Escape")
        assert "layer1.0" not in names(page)
        page.keyboard.press("Escape")
        assert page.evaluate("explorer.chosen") is None

    def test_a_question_mark_shows_the_keys(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        page.keyboard.press("?")
        assert page.locator("#help").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("#help").is_visible()

    def test_letters_in_the_search_are_no_commands(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        page.keyboard.press("/")
        page.keyboard.type("/conv?0-")
        assert page.locator("#query").input_value() == "/conv?0-"
        assert not page.locator("#help").is_visible()


class TestSearch:
    def found(self, page: Page, query: str) -> list[str]:
        page.fill("#query", query)
        return [str(text).split("\n")[0] for text in page.locator("#found li").all_inner_texts()]

    def test_by_name_op_and_shape(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        assert self.found(page, "layer4")[0] == "layer4"
        assert self.found(page, "reducemean") == ["ReduceMean pool"] * 3
        assert self.found(page, "conv 8x4x3x3") == ["Conv conv1"]
        assert self.found(page, "conv [8, 4, 3, 3]") == self.found(page, "conv 8x4x3x3")
        assert self.found(page, "conv [8, 4, 3, 3") == self.found(page, "conv 8x4x3x3")
        assert self.found(page, "[b, 80, t]") == ["Transpose model"]
        assert self.found(page, "nowhere to be found") == ["nothing has that"]

    def test_by_key(self, show: Show) -> None:
        net = recovered("resnet34_tiny")
        weight = net.binding.layers["layer2.0.conv1"].tensors["weight"].name
        carried = {weight: (Carried("a.list", 3, "stored", weight),)}
        page = show(net.graph, net, Overlays(carried=carried))
        assert len(self.found(page, "a.list[3]")) == 1
        page.keyboard.press("Enter")
        text = page.locator("#panel").inner_text()
        assert "a.list[3]" in text
        assert "stored as stored" in text

    def test_by_a_value_of_the_model(self, show: Show) -> None:
        net = recovered("resnet34_tiny")
        facts = tuple(Fact(f"a.key{i}", str(i), "somewhere", "some meaning") for i in range(60))
        page = show(net.graph, net, Overlays(facts=facts), "#node=layer2")
        assert self.found(page, "a.key47") == ["a.key47"]
        page.keyboard.press("Enter")
        place = page.locator('.fact[data-name="a.key47"]').bounding_box()
        panel = page.locator("#panel").bounding_box()
        assert panel["y"] < place["y"] < panel["y"] + panel["height"]


class TestAddress:
    def test_a_link_restores_the_view(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        box(page, "layer3").click()
        box(page, "layer3.2").click()
        seen, link = names(page), page.evaluate("location.hash")
        assert "node=layer3.2" in link
        again = family(show, "resnet34_tiny", fragment=link)
        assert names(again) == seen
        assert title(again) == "layer3.2"

    def test_back_and_forward(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        folded = names(page)
        box(page, "layer3").click()
        box(page, "layer3.2").click()
        seen = names(page)
        page.go_back()
        page.wait_for_function("explorer.chosen?.name === 'layer3'")
        page.go_back()
        page.wait_for_function("explorer.chosen === null")
        assert names(page) == folded
        page.go_forward()
        page.go_forward()
        page.wait_for_function("explorer.chosen?.name === 'layer3.2'")
        assert names(page) == seen

    def test_arrows_are_no_history(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        box(page, "layer3").click()
        for _ in range(3):
            page.keyboard.press("ArrowDown")
        assert "node=layer3.2" in page.evaluate("location.hash")
        page.go_back()
        page.wait_for_function("explorer.chosen === null")

    @pytest.mark.parametrize(
        "link",
        [
            *("layer2.0", "layer2 / layer2.0"),
            *("/model/layer2/layer2.0/conv1/Conv_output_0", "onnx::Conv_388"),
        ],
    )
    def test_any_name_can_be_linked_to(self, link: str, show: Show) -> None:
        page = family(show, "resnet34_tiny", fragment=f"#node={link}")
        assert title(page) == ("Conv" if "Conv" in link else "layer2.0")
        assert page.locator(".item.chosen").count() == 1

    def test_a_name_that_is_not_there_is_said(self, show: Show) -> None:
        page = family(show, "resnet34_tiny", fragment="#node=nowhere&open=x.99999.-1")
        assert "nowhere" in page.locator("#said").inner_text()
        assert "layer1" in names(page)


class TestComparison:
    def overlays(self) -> Overlays:
        right, wrong = Error(1e-6, 1e-3, 1.0, ""), Error(0.5, 1e-3, 0.9, "max|d| 0.5 above 0.001")
        stages = list(recovered("resnet34_tiny").binding.stages)
        first = stages.index("layer3.1")
        return Overlays(
            errors={stage: right if i < first else wrong for i, stage in enumerate(stages)},
            goldens={"layer3.1": Golden((16, 20, 75), 0.0, 1.5, 0.25, 0.5, 1e-6)},
            first_wrong="layer3.1",
        )

    def test_the_first_that_differs_is_marked_and_seen(self, show: Show) -> None:
        page = family(show, "resnet34_tiny", self.overlays())
        assert title(page) == "layer3.1"
        flagged = page.locator(".item:has(> .flag)")
        assert flagged.count() == 1
        assert "first that differs" in flagged.text_content()
        place, screen = flagged.bounding_box(), page.locator("#graph").bounding_box()
        assert screen["y"] <= place["y"] <= screen["y"] + screen["height"] - place["height"]
        text = page.locator("#panel").inner_text()
        assert "max|d| 0.5 above 0.001" in text
        assert page.locator('#panel [data-figure="std"]').inner_text() == "0.5"

    def test_colour_is_never_alone(self, show: Show) -> None:
        page = family(show, "resnet34_tiny", self.overlays(), fragment="#node=stem")
        for item in page.locator(".item.box").all():
            classes = set((item.get_attribute("class") or "").split())
            mark = item.locator(".badge").first.text_content()
            assert mark[0] == ("\u2717" if classes & {"wrong", "far"} else "\u2713"), mark
        assert "\u2717 5 of 6" in box(page, "layer3").text_content()
        assert "\u2713 3 of 3" in box(page, "layer1").text_content()

    def test_what_is_missing_is_told_from_what_is_wrong(self, show: Show) -> None:
        missing = Error(None, None, None, "ours has no such tensor", missing=True)
        shape = Error(None, 0.1, None, "shape [2] where [3] should be")
        errors = {"stem": missing, "layer1.0": missing, "layer1.1": Error(0.0, 0.1, 1.0, "")}
        overlays = Overlays(errors={**errors, "layer2.0": shape, "pooled": shape})
        page = family(show, "resnet34_tiny", overlays, "#open=")
        marks = {"stem": "? missing", "layer1": "? 1 of 2 missing", "layer2": "\u2717 1 of 1"}
        for name, mark in {**marks, "pooled": "\u2717 shape"}.items():
            assert mark in box(page, name).text_content()
        assert "2 of 5 tensors differ, 2 missing" in page.locator("#panel").inner_text()

    def test_the_table_leads_to_the_stages(self, show: Show) -> None:
        page = family(show, "resnet34_tiny", self.overlays(), fragment="#open=")
        page.locator("#comparison button", has_text="layer4.0").click()
        assert title(page) == "layer4.0"
        assert "layer4.0" in names(page)

    def test_goldens_alone_are_a_table(self, show: Show) -> None:
        goldens = {
            "fbank": Golden((80, 9), 0, 1, 0.5, 0.25),
            "stem": Golden((4, 80, 9), 0, 1, 2, 3),
        }
        page = family(show, "resnet34_tiny", Overlays(goldens=goldens))
        rows = page.locator("#goldens tr").all_inner_texts()
        assert rows[1:] == ["fbank\t80\u00d79\t0.5\t0.25", "stem\t4\u00d780\u00d79\t2\t3"]
        page.locator("#goldens button").click()
        assert title(page) == "stem"

    def test_where_a_family_ended_is_marked(self, show: Show) -> None:
        graph = recovered("resnet34_tiny").graph
        (at,) = (n.index for n in graph.model.nodes if n.name == "/model/pool/Sqrt")
        page = show(graph, None, Overlays(mark=Mark(at, "expected this, found that")))
        assert title(page) == "Sqrt"
        assert "agreement ends here" in page.locator(".item:has(> .flag)").text_content()
        assert "expected this, found that" in page.locator("#panel").inner_text()


class TestHostileNames:
    IMG = "</script><img src=x onerror=\"window.ran='img'\">"
    SVG = "\"><svg onload=window.ran='svg'></svg><script>window.ran='script'</script>"

    def graph(self, tmp_path: Path) -> Graph:
        value = helper.make_tensor_value_info(self.IMG, onnx.TensorProto.FLOAT, [f"B{self.SVG}", 9])
        out = helper.make_tensor_value_info("y'-->", onnx.TensorProto.FLOAT, None)
        weight = numpy_helper.from_array(np.eye(9, dtype=np.float32), f"w{self.SVG}")
        nodes = [
            helper.make_node("MatMul", [self.IMG, weight.name], ["{{css}}"], name=self.IMG),
            helper.make_node(
                f"Op{self.SVG}", ["{{css}}"], ["y'-->"], name="b", domain="evil", a="<b>"
            ),
        ]
        graph = helper.make_graph(nodes, "g", [value], [out], [weight])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("evil", 1)]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        proto.metadata_props.add(key=self.IMG, value=self.SVG)
        path = tmp_path / "<img src=x onerror=window.ran=1>.onnx"
        onnx.save(proto, path)
        return build(load(path))

    def test_are_shown_and_not_run(self, show: Show, tmp_path: Path) -> None:
        graph = self.graph(tmp_path)
        overlays = Overlays(
            title=self.IMG,
            notes=(self.SVG,),
            facts=(Fact(self.IMG, self.SVG, self.IMG, self.SVG),),
            labels={0: self.SVG},
            carried={f"w{self.SVG}": (Carried(self.IMG, 0, self.SVG, self.IMG),)},
        )
        page = show(graph, None, overlays)
        assert self.SVG in page.locator("#panel").inner_text()
        for item in page.locator(".item").all():
            item.click()
        page.fill("#query", "img")
        assert page.locator("#found li").count() > 0
        page.keyboard.press("Escape")
        page.evaluate(
            "location.hash = '#node=' + encodeURIComponent(explorer.model.data.nodes[0][2])"
        )
        page.wait_for_function("explorer.chosen?.op === 'MatMul'")
        assert self.IMG in page.locator("#panel").inner_text()
        assert page.evaluate("window.ran") is None
        assert page.locator("body img, main svg svg svg").count() == 0

    def test_what_turns_text_around_is_shown_as_its_code(self, show: Show, parse: Parse) -> None:
        graph = parse("g (float[2] x) => (float[2] y) { [named] y = Relu(x) }")
        name = "\u202egnol\u202c \x7f"
        node = replace(graph.model.nodes[0], name=name)
        page = show(build(replace(graph.model, nodes=(node,))), fragment="#node=y")
        for part in ("#panel", "#crumbs", "#scene"):
            text = page.locator(part).text_content()
            assert "\\u202egnol\\u202c \\u007f" in text, part
            assert not set(text) & set("\u202e\u202c\x7f"), part

    def test_the_policy_stops_what_would_slip_through(self, show: Show, tmp_path: Path) -> None:
        """Even markup that reached the page could neither run nor load anything."""
        page = show(self.graph(tmp_path))
        policy = page.locator("meta[http-equiv]").get_attribute("content")
        assert policy is not None
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "unsafe-inline'; style" not in policy
        assert re.findall(r"https?:|\*", policy) == []


class TestLooks:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_text_can_be_read(self, scheme: str, show: Show) -> None:
        """Contrast of at least 4.5 (WCAG AA), of every text on what it stands on."""
        net = recovered("resnet34_tiny")
        page = show(
            net.graph, net, TestComparison().overlays(), "#node=layer3.0", color_scheme=scheme
        )
        poor = page.evaluate(_CONTRAST)
        assert poor == []

    def test_the_button_changes_the_scheme(self, show: Show) -> None:
        page = family(show, "resnet34_tiny")
        colour = "getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(colour)
        page.click("#theme")
        assert page.evaluate(colour) != before

    def test_a_narrow_window_has_everything(self, show: Show) -> None:
        net = recovered("resnet34_tiny")
        page = show(
            net.graph, net, TestComparison().overlays(), viewport={"width": 400, "height": 800}
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        for part in ("#title", "#query", "#theme", "#ask", "#zoom", "#panel"):
            place = page.locator(part).bounding_box()
            assert place["width"] > 20, part
            assert place["x"] + place["width"] <= 400, part


# Text colours against the fills of items and the backgrounds of the panel.
_CONTRAST = """() => {
  const channel = (v) => (v /= 255, v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05); };
  const poor = [];
  const check = (text, on, what) => {
    if (ratio(text, on) < 4.5) poor.push([what, text, on, ratio(text, on)]);
  };
  for (const item of document.querySelectorAll(".item.box, .item.op")) {
    const on = getComputedStyle(item.querySelector("rect.body")).fill;
    for (const text of item.querySelectorAll(":scope > text, :scope > g:not(.flag) > text"))
      check(getComputedStyle(text).fill, on, text.textContent);
  }
  for (const flag of document.querySelectorAll(".flag"))
    check(getComputedStyle(flag.querySelector("text")).fill,
          getComputedStyle(flag.querySelector("path")).fill, "flag");
  const page = getComputedStyle(document.body).backgroundColor;
  const card = getComputedStyle(document.getElementById("panel")).backgroundColor;
  for (const text of document.querySelectorAll("#panel .soft, #panel .bad, #panel .go, #panel h3"))
    check(getComputedStyle(text).color, card, text.textContent);
  for (const text of document.querySelectorAll("#legend span, #crumbs button"))
    check(getComputedStyle(text).color, page, text.textContent);
  return poor;
}"""


class TestNotebook:
    def test_a_frame_works_in_a_page(self, offline: Any, tmp_path: Path) -> None:
        net = recovered("resnet34_tiny")
        file = tmp_path / "notebook.html"
        file.write_text(f"<p>cell</p>{inline(net.graph, hierarchy(net.graph, net))}", "utf-8")
        page = offline.open(file)
        frame = page.frame_locator("iframe")
        frame.locator("html[data-ready]").wait_for(state="attached")
        frame.locator(".item", has_text="layer2").first.click()
        assert frame.locator("#panel h2").inner_text() == "layer2"
        assert frame.locator('.item:has-text("layer2.3")').count() > 0

    def test_two_frames_have_keys_and_copies_of_their_own(
        self, offline: Any, tmp_path: Path
    ) -> None:
        """An arrow changes the frame's address: the notebook never opens in its own frame."""
        net = recovered("resnet34_tiny")
        file = tmp_path / "notebook.html"
        file.write_text(f"<p>cell</p>{2 * inline(net.graph, hierarchy(net.graph, net))}", "utf-8")
        page = offline.open(file)
        for frame in page.frames[1:]:
            frame.wait_for_selector("html[data-ready]", state="attached")
            frame.locator(".item", has_text="layer2").first.click()
            page.keyboard.press("ArrowDown")
            frame.wait_for_selector('.item.chosen:has-text("layer2.0")')
            assert frame.url.startswith("about:srcdoc#node=layer2.0&open=")
            frame.locator("button.copy").first.click()
            frame.wait_for_selector("text=copied")
        assert [frame.url.split("#")[0] for frame in page.frames[1:]] == 2 * ["about:srcdoc"]
