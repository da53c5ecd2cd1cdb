"""Rows by block of the network: prefixes of names, or the stages they lead to."""

from __future__ import annotations

from converters.blocks import blocks
from converters.comparison import Row


def row(name: str, stage: str = "", problem: str = "") -> Row:
    return Row(name, name, (1,), None, None, problem, stage=stage)


def found(*rows: Row, first: Row | None = None, most: int = 15) -> dict[str, int]:
    return {block.name: len(block.rows) for block in blocks(rows, first, most)}


def test_stage_names_are_cut_at_dots() -> None:
    names = ["stem", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "pooled"]
    assert found(*map(row, names)) == {"stem": 1, "layer1": 2, "layer2": 2, "pooled": 1}


def test_scopes_are_cut_at_slashes() -> None:
    names = [f"/encoder/layers.{i}/{op}" for i in range(3) for op in ("MatMul", "Add")]
    assert found(*map(row, names)) == {f"/encoder/layers.{i}": 2 for i in range(3)}


def test_blocks_are_in_execution_order_and_hold_every_row() -> None:
    names = ["b/1", "a/1", "b/2", "a/2"]
    listed = blocks([row(name) for name in names])
    assert [block.name for block in listed] == ["b", "a"]
    assert sorted(r.name for block in listed for r in block.rows) == sorted(names)


def test_there_are_never_more_than_asked_for() -> None:
    rows = [row(f"{i}/{j}/{k}") for i in range(7) for j in range(9) for k in range(3)]
    for most in (1, 2, 5, 15, 40):
        listed = blocks(rows, rows[100], most)
        assert len(listed) <= most
        assert sum(len(block.rows) for block in listed) == len(rows)


def test_neighbours_share_a_block_where_there_are_too_many() -> None:
    rows = [row(f"layers.{i}.{op}") for i in range(30) for op in ("conv", "norm")]
    listed = found(*rows)
    assert list(listed)[:2] == ["layers.0 .. 1", "layers.2 .. 3"]
    assert set(listed.values()) == {4}


def test_the_block_of_the_first_wrong_row_is_the_finest() -> None:
    rows = [row(f"{i}/{j}/{k}") for i in "ab" for j in range(4) for k in range(3)]
    assert found(*rows, first=rows[14], most=5) == {"a": 12, "b/0": 3, "b/1": 3, "b/2": 3, "b/3": 3}


def test_names_without_meaning_belong_to_the_next_stage() -> None:
    rows = [row("101"), row("102", "stem"), row("103"), row("104", "layer1.0"), row("105")]
    assert found(*rows) == {"stem": 2, "layer1.0": 2, "105": 1}


def test_a_block_of_one_row_has_its_whole_name() -> None:
    names = ["a/1", "a/2", "head/out/Gemm"]
    assert list(found(*map(row, names))) == ["a", "head/out/Gemm"]


def test_a_block_counts_what_is_wrong_and_what_is_missing() -> None:
    missing = Row("a/3", "", (1,), None, None, "ours has no such tensor")
    (block,) = blocks([row("a/1"), row("a/2", problem="shape"), missing], most=1)
    assert (block.wrong, block.missing, block.excess, block.cosine) == (1, 1, None, None)
    assert blocks([]) == ()
