"""The page of a comparison, in a real browser without a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pytest

from converters.comparison import Comparison, compare
from converters.comparison_html import fragment, page, write_html

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.conftest import Offline

Array = npt.NDArray[Any]
HOSTILE = [
    "</script><img src=http://127.0.0.1:9/x onerror=alert(1)>",
    "\"><script>document.title='stolen'</script>",
    "$data ${data} $$ &lt;b&gt; %s {0}",
    "<!--<script>",
    "a\x1b]8;;http://x\x07\u202e\u2028\udc80",
    "'; DROP TABLE",
    "#tensor=x&y?z%20",
]


def stages(count: int = 12) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        f"layer{i // 4 + 1}.{i % 4}": rng.normal(size=(8, 30)).astype(np.float32)
        for i in range(count)
    }


def faulty(golden: Mapping[str, Array]) -> dict[str, Array]:
    """From the sixth stage on wrong, one frame late at first; one of another shape."""
    names = list(golden)
    ours = {
        name: value + 1e-5 if i < 5 else value + 0.5
        for i, (name, value) in enumerate(golden.items())
    }
    ours[names[5]] = np.roll(golden[names[5]], 1, 1)
    ours[names[7]] = golden[names[7]][:, :-1]
    return ours


@pytest.fixture
def shown(offline: Offline, tmp_path: Path) -> Callable[..., Page]:
    """The page of a comparison, open."""

    def make(found: Comparison, fragment: str = "", **options: Any) -> Page:
        write_html(found, tmp_path / "report.html")
        return offline.open(tmp_path / "report.html", fragment, **options)

    return make


@pytest.fixture
def found() -> Comparison:
    golden = stages()
    return compare(golden, faulty(golden))


def settled(page: Page) -> None:
    """Until the heat map of the chosen tensor is drawn."""
    page.wait_for_function("document.getElementById('cell').textContent !== ''")


def pixels(page: Page) -> int:
    """How many colours the heat map has."""
    count: int = page.evaluate(
        """() => {
          const map = document.getElementById("map");
          const bytes = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
          return new Set(new Uint32Array(bytes.buffer)).size;
        }"""
    )
    return count


class TestWhatIsSaid:
    def test_first_the_first_wrong_tensor_and_why(
        self, shown: Callable[..., Page], found: Comparison
    ) -> None:
        page = shown(found)
        assert page.locator("h1").inner_text() == "5 of 12 tensors are right, 7 wrong"
        first = page.locator(".first").inner_text()
        assert "First wrong: layer2.1" in first
        assert "number 6 of 12 in the goldens' order, in block layer2" in first
        assert "hint: ours is the golden 1 frame later" in first

    def test_every_tensor_has_a_bar_with_its_bound_and_a_row(
        self, shown: Callable[..., Page], found: Comparison
    ) -> None:
        page = shown(found)
        assert page.locator(".bar").count() == page.locator("#tensors tbody tr").count() == 12
        assert page.locator(".bar.wrong .mark").all_text_contents() == ["▼", *"✗" * 6]
        assert page.locator(".bar .bound").count() == 11  # one has another shape
        cells = page.locator("#tensors tbody tr").nth(5).locator("td").all_inner_texts()
        row = found.rows[5]
        assert row.difference is not None
        assert cells[:3] == ["✗", "layer2.1", "[8, 30]"]
        assert float(cells[3]) == pytest.approx(row.difference.max_abs, rel=5e-3)
        assert cells[4] == str(list(row.difference.at))
        assert cells[-1] == row.problem

    def test_blocks_and_what_has_no_counterpart(self, shown: Callable[..., Page]) -> None:
        golden = stages()
        ours = {name: value for name, value in golden.items() if name != "layer1.2"}
        page = shown(compare(golden, ours | {"scratch": np.zeros(2)}))
        assert page.locator(".bar .mark").all_text_contents() == ["▼"]
        text = page.locator("main").inner_text()
        assert re.search(r"layer1\s+4\s+0\s+\? 1", text)
        assert "Goldens without a tensor of ours\nlayer1.2" in text.replace("\n\n", "\n")
        assert "Tensors of ours without a golden\nscratch" in text.replace("\n\n", "\n")

    def test_all_right(self, shown: Callable[..., Page]) -> None:
        page = shown(compare(stages(), stages()))
        assert page.locator("h1").inner_text() == "all 12 tensors are right"
        assert page.locator("#first").is_disabled()
        assert page.locator("#chosen-title").inner_text() == "layer1.0"

    def test_without_scripts_the_summary_stands(
        self, shown: Callable[..., Page], found: Comparison
    ) -> None:
        page = shown(found, java_script_enabled=False)
        assert "first wrong: layer2.1" in page.locator("pre").inner_text()
        assert not page.locator("#bars").is_visible()


class TestTheChosenTensor:
    def test_is_the_first_wrong_one_and_has_a_map(
        self, shown: Callable[..., Page], found: Comparison
    ) -> None:
        page = shown(found)
        settled(page)
        assert page.locator("#chosen-title").inner_text() == "layer2.1"
        assert page.locator("#map-title").inner_text() == (
            "|d| over channels (axis 0) and time (axis 1)"
        )
        assert pixels(page) > 20
        row = found.rows[5]
        assert row.difference is not None
        channel = row.difference.at[0]
        assert page.locator("#channel").inner_text().startswith(f"Largest: channel {channel} (")

    def test_is_chosen_by_bar_row_link_and_button(
        self, shown: Callable[..., Page], found: Comparison
    ) -> None:
        page = shown(found, "#tensor=layer1.3")
        title = page.locator("#chosen-title")
        assert title.inner_text() == "layer1.3"
        page.locator(".bar").nth(9).click()
        assert title.inner_text() == "layer3.1"
        assert page.url.endswith("#tensor=layer3.1")
        page.get_by_role("button", name="layer1.0", exact=True).click()
        assert title.inner_text() == "layer1.0"
        page.locator(".first a").click()
        assert title.inner_text() == "layer2.1"
        page.get_by_role("button", name="Next wrong").click()
        assert title.inner_text() == "layer2.2"
        page.get_by_role("button", name="Previous wrong").click()
        assert title.inner_text() == "layer2.1"
        assert page.locator("#previous").is_disabled()

    def test_is_chosen_by_keys(self, shown: Callable[..., Page], found: Comparison) -> None:
        page = shown(found)
        page.locator("#bars").focus()
        for key, name in [
            ("ArrowRight", "layer2.2"),
            ("ArrowLeft", "layer2.1"),
            ("Home", "layer1.0"),
            ("ArrowLeft", "layer1.0"),
            ("End", "layer3.3"),
        ]:
            page.keyboard.press(key)
            assert page.locator("#chosen-title").inner_text() == name

    def test_cells_are_read_by_pointer_and_keys(
        self, shown: Callable[..., Page], found: Comparison
    ) -> None:
        page = shown(found)
        settled(page)
        golden = stages()["layer2.1"]
        apart = np.abs(golden - np.roll(golden, 1, 1))
        page.locator("#map").scroll_into_view_if_needed()
        box = page.locator("#map").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 2.5 * box["width"] / 30, box["y"] + 3.5 * box["height"] / 8)
        said = page.locator("#cell").inner_text()
        assert said.startswith("channel 3, time 2: |d| ")
        assert float(said.split()[-1]) == pytest.approx(apart[3, 2], rel=0.06)
        page.locator("#map").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowUp")
        assert page.locator("#cell").inner_text().startswith("channel 2, time 3: |d| ")

    def test_linear_colours_are_other_ones(
        self, shown: Callable[..., Page], found: Comparison
    ) -> None:
        page = shown(found)
        settled(page)
        before = page.evaluate("document.getElementById('map').toDataURL()")
        page.get_by_label("linear").check()
        assert page.evaluate("document.getElementById('map').toDataURL()") != before
        assert page.locator("#legend-ticks span").first.inner_text() == "0"

    def test_without_a_fitting_shape_says_so(
        self, shown: Callable[..., Page], found: Comparison
    ) -> None:
        page = shown(found, "#tensor=layer2.3")
        assert "The shapes do not fit" in page.locator("#no-map").inner_text()
        assert not page.locator("#chosen-map").is_visible()

    @pytest.mark.parametrize(
        ("shape", "title"),
        [
            ((40,), "|d| over axis 0"),
            ((3, 4, 5), "|d| over channels (axis 0) and time (axis 2); the largest over axis 1"),
            (
                (2, 2000),
                "|d| over channels (axis 0) and time (axis 1); "
                "a cell is the largest of its neighbourhood",
            ),
            ((), "|d| over axis 0"),
        ],
    )
    def test_of_any_shape(
        self, shown: Callable[..., Page], shape: tuple[int, ...], title: str
    ) -> None:
        golden = np.asarray(np.random.default_rng(0).normal(size=shape))
        page = shown(compare({"x": golden}, {"x": golden + 1.0}))
        settled(page)
        assert page.locator("#map-title").inner_text() == title

    def test_nan_codes_and_zeros(self, shown: Callable[..., Page]) -> None:
        golden = {
            "nan": np.ones((3, 4)),
            "zeros": np.zeros((3, 4)),
            "codes": np.zeros((2, 4), np.int32),
            "codes_margin": np.ones((2, 4)),
            "empty": np.zeros((0, 4)),
        }
        broken = np.ones((3, 4))
        broken[1, 2] = np.nan
        page = shown(compare(golden, golden | {"nan": broken, "codes": np.ones((2, 4), np.int32)}))
        settled(page)
        assert "1 value is NaN" in page.locator("#chosen-problem").inner_text()
        assert "red: not finite" in page.locator("#legend-ticks").inner_text()
        page.locator(".bar").nth(2).click()
        assert "codes differ" in page.locator("#chosen-problem").inner_text()


class TestHostileNames:
    def test_are_shown_and_not_run(self, shown: Callable[..., Page]) -> None:
        """That no request was made and nothing failed is checked for every page."""
        golden = {name: np.ones((2, 3)) for name in HOSTILE}
        page = shown(compare(golden, {name: np.zeros((2, 3)) for name in HOSTILE} | {"<b>": 1}))
        settled(page)
        assert page.locator("img").count() == page.locator("b b").count() == 0
        assert page.title().startswith("0 of 7 tensors are right")
        names = page.locator("#tensors tbody button").all_inner_texts()
        assert names[:4] == HOSTILE[:4]
        for name in HOSTILE[:4] + HOSTILE[5:]:
            page.goto(page.url.split("#")[0] + f"#tensor={quote(name, safe='')}")
            assert page.locator("#chosen-title").inner_text() == name
        page.goto(page.url.split("#")[0] + "#tensor=%E0%A4%A")
        assert page.locator("#chosen-title").inner_text() == HOSTILE[-1]

    def test_in_a_notebook_too(self) -> None:
        golden = {name: np.ones(3) for name in HOSTILE}
        text = fragment(compare(golden, {name: np.zeros(3) for name in HOSTILE}))
        assert "<img" not in text
        assert "<script" not in text
        text.encode()


@pytest.fixture(scope="module")
def many() -> Comparison:
    rng = np.random.default_rng(0)
    golden = {
        f"/encoder/layers.{i // 20}/op{i % 20}/Add_output_0": rng.normal(size=(80, 200))
        for i in range(500)
    }
    ours = {
        name: value + (1e-5 if i < 300 else 0.1) * rng.normal(size=value.shape)
        for i, (name, value) in enumerate(golden.items())
    }
    return compare(golden, ours)


class TestSize:
    def test_of_500_tensors_is_bounded_and_the_same_every_time(self, many: Comparison) -> None:
        text = page(many)
        assert len(text) < 5_000_000
        assert text == page(many)
        assert "left out" not in text.split("<script")[0]

    def test_500_tensors_are_readable(self, many: Comparison, shown: Callable[..., Page]) -> None:
        page = shown(many, viewport={"width": 1280, "height": 900})
        settled(page)
        assert page.locator(".bar").count() == 500
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        chosen = page.locator(".bar.chosen .hit").bounding_box()
        box = page.locator("#bars").bounding_box()
        assert chosen is not None
        assert box is not None
        assert box["x"] <= chosen["x"] <= box["x"] + box["width"]
        page.locator("#only-wrong").check()
        assert page.locator("#count").inner_text() == "200 of 500"
        page.locator("#filter").fill("LAYERS.20/")
        assert page.locator("#count").inner_text() == "20 of 500"

    def test_a_narrow_screen_scrolls_only_what_is_wide(
        self, found: Comparison, shown: Callable[..., Page]
    ) -> None:
        page = shown(found, viewport={"width": 360, "height": 700})
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360

    def test_maps_that_have_no_room_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("converters.comparison_html._BUDGET", 1000)
        golden = stages()
        text = page(compare(golden, {name: value[:, ::-1] for name, value in golden.items()}))
        assert re.search(r"\d+ heat maps are left out to keep the page small", text)


class TestFile:
    def test_the_command_writes_it(self, graphtools: Callable[..., Any], tmp_path: Path) -> None:
        golden = stages()
        np.savez(tmp_path / "a.npz", **golden)
        np.savez(tmp_path / "b.npz", **faulty(golden))
        graphtools("compare", "a.npz", "b.npz", "--html", "report.html", code=1)
        first = (tmp_path / "report.html").read_bytes()
        graphtools("compare", "a.npz", "b.npz", "--html", "report.html", "--json", code=1)
        assert (tmp_path / "report.html").read_bytes() == first
        assert b"golden <b>a.npz</b>" in first
        graphtools("compare", "a.npz", "b.npz", "--html", "absent/report.html", code=5)
        refused = graphtools("compare", "a.npz", "b.npz", "--html", "b.npz", code=2)
        assert "would replace an input" in refused.err

    def test_it_asks_nothing_of_the_network(self, found: Comparison) -> None:
        text = page(found)
        assert "default-src 'none'" in text
        urls = set(re.findall(r"https?://[^\"'\s)]+", text))
        assert urls == {"http://www.w3.org/2000/svg"}  # a namespace, not an address


class TestNotebook:
    def test_any_number_can_stand_in_one_page(
        self, offline: Offline, tmp_path: Path, found: Comparison
    ) -> None:
        text = found._repr_html_()
        assert " id=" not in text
        assert "<style" not in text
        (tmp_path / "notebook.html").write_text(f"<meta charset=utf-8>{text}{text}")
        page = offline.open(tmp_path / "notebook.html")
        assert (
            page.locator("strong").all_inner_texts() == ["5 of 12 tensors are right, 7 wrong"] * 2
        )
        assert page.locator("table").count() == 4
