"""``graphtools lint`` on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Make = Callable[..., Any]


def test_a_clean_file(files: Make, invoke: Make) -> None:
    ran = invoke("lint", files("resnet"), code=0)
    assert ran.out == "no findings: 29 keys and 75 tensors, against the schema of " + (
        "wespeaker_resnet34\n"
    )
    assert invoke("lint", files("resnet"), "--json", code=0).json["clean"] is True


def test_one_finding_a_line(planted: Make, invoke: Make) -> None:
    path = planted("resnet", lambda f: f.drop("voicedetect.resnet.var_eps"))
    ran = invoke("lint", path, code=1)
    first, note, last = ran.out.splitlines()
    assert first == (
        "K101 missing key: voicedetect.resnet.var_eps: expected f32 (added to the variance in the "
        "pooling), found no such key; fix: convert the model again with graphtools convert"
    )
    assert note.startswith("note: not checked until this is mended: ")
    assert last.startswith("1 finding: 28 keys")
    shown = invoke("lint", path, "--json", code=1).json
    assert [f["code"] for f in shown["findings"]] == ["K101"]


def test_a_file_of_others(files: Make, invoke: Make) -> None:
    ran = invoke("lint", files("foreign"), code=0)
    assert "note: general.architecture 'llama' is none of ours: only ggml's limits" in ran.out
    assert ran.out.endswith("no findings: 3 keys and 3 tensors, against ggml's limits\n")


def test_names_move_no_cursor(planted: Make, files: Make, invoke: Make) -> None:
    def change(file: Any) -> None:
        file.add("voicedetect.\x1b[2J\nK999", "u32", 1)
        file.tensors[0].name = "\x1b[31mred"

    ran = invoke("lint", planted("eres2net", change), code=1)
    assert "\x1b" not in ran.out
    assert "\nK999" not in ran.out
    ran = invoke("diff", files("eres2net"), planted("eres2net", change), code=1)
    assert r"\x1b[31mred" in ran.out
    assert "\x1b" not in ran.out
    assert "\nK999" not in ran.out


def test_wrong_calls(invoke: Make) -> None:
    invoke("lint", code=2)
    invoke("lint", "absent.gguf", code=2)
