"""Files that end too early or were changed anywhere: an answer, and never a traceback."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from converters import gguf_file
from converters.gguf_diff import gguf_diff
from converters.gguf_header import Header
from converters.lint import lint
from graphtools.errors import Error, NotAModelError, UsageError

Make = Callable[..., Any]


class TestTruncated:
    """How many bytes are missing is said, by every command that reads a GGUF."""

    def test_in_its_data_the_number_is_exact(self, kind: str, files: Make, tmp_path: Path) -> None:
        whole = files(kind).read_bytes()
        header = Header.read(files(kind))
        needed = max(header.span(info).offset + (info.nbytes or 0) for info in header.tensors)
        for length in {header.end, header.data, (header.data + needed) // 2, needed - 1}:
            path = tmp_path / "cut.gguf"
            path.write_bytes(whole[:length])
            for read in (lint, gguf_file.read):
                with pytest.raises(NotAModelError) as caught:
                    read(path)
                assert f"{needed - length} bytes are missing" in caught.value.cause
                assert caught.value.found == f"{length} bytes"
                assert str(caught.value.expected).startswith(f"{needed} bytes")

    def test_everywhere_in_its_header_there_is_a_least_number(
        self, files: Make, tmp_path: Path
    ) -> None:
        whole = files("foreign").read_bytes()
        end = Header.read(files("foreign")).end
        path = tmp_path / "cut.gguf"
        for length in range(end):
            path.write_bytes(whole[:length])
            with pytest.raises(NotAModelError) as caught:
                lint(path)
            if length < 4:
                assert "not a GGUF" in caught.value.cause
                continue
            found = str(caught.value.found)
            least = int(found.split("at least ")[1].split()[0])
            assert 0 < least <= end - length, found
            assert caught.value.where
            assert caught.value.todo

    @pytest.mark.parametrize("command", ["lint", "inspect", "diff"])
    def test_from_the_command_line(
        self, command: str, files: Make, invoke: Make, tmp_path: Path
    ) -> None:
        path = tmp_path / "cut.gguf"
        path.write_bytes(files("resnet").read_bytes()[:-1000])
        more = [files("resnet")] if command == "diff" else []
        ran = invoke(command, path, *more, code=3)
        assert ran.out == ""
        # The last tensor, [32] f32, needs no padding.
        assert "1000 bytes are missing" in ran.err

    def test_no_file_and_no_gguf(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no such file"):
            lint(tmp_path / "absent.gguf")
        (tmp_path / "text").write_text("text")
        with pytest.raises(NotAModelError, match="not a GGUF"):
            lint(tmp_path / "text")


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_anywhere_in_the_header(
    kind: str, seed: int, files: Make, tmp_path: Path
) -> None:
    """Clean, findings or one of our errors; and soon."""
    rng = random.Random(f"{kind} {seed}")
    whole = files(kind).read_bytes()
    end = Header.read(files(kind)).data
    path = tmp_path / "flipped.gguf"
    errors: list[Error] = []
    started = time.monotonic()
    for _ in range(12):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            data[rng.randrange(4, end)] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        for read in (lint, gguf_file.read, lambda path: gguf_diff(files(kind), path)):
            try:
                read(path)
            except Error as error:
                errors.append(error)
    assert [str(e) for e in errors if e.file != str(path)] == []
    assert time.monotonic() - started < 60


def test_every_byte_of_a_small_header_as_every_kind_of_wrong(files: Make, tmp_path: Path) -> None:
    whole = files("foreign").read_bytes()
    end = Header.read(files("foreign")).data
    path = tmp_path / "changed.gguf"
    answers = set()
    for place in range(4, end):
        for value in (0, 0xFF, whole[place] ^ 1):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                answers.add(bool(lint(path)))
            except Error:
                answers.add(None)
    assert answers == {True, False, None}
