"""Reading GGUF files: ours, damaged ones, and ones made to hurt."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from converters import gguf_file
from fixtures import catalog
from graphtools.errors import NotAModelError, StorageError, UsageError
from graphtools.tensors import DType

Make = Callable[..., Any]

READ = """
import sys
from pathlib import Path
from converters import gguf_file
from graphtools.errors import Error
for name in sys.argv[1:]:
    print("reading", name, flush=True)
    try:
        manifest = gguf_file.read(Path(name))
        for tensor in manifest.tensors:
            if tensor.dtype.itemsize is not None:
                tensor.read()
        print("read", flush=True)
    except Error as error:
        print(type(error).__name__, error.cause, flush=True)
"""


class TestRead:
    def test_gives_back_what_was_emitted(self, small: Make, written: Make, tmp_path: Path) -> None:
        manifest = small()
        back = gguf_file.read(written(manifest, tmp_path / "x.gguf"))
        assert back.architecture == "voicedetect"
        assert back.name == "some model"
        assert [(e.key, e.type, e.value) for e in back.entries] == [
            (e.key, e.type, e.value) for e in manifest.entries
        ]
        assert all(e.value.__class__ in (str, bool, int, float, tuple) for e in back.entries)
        assert [(t.name, t.shape, t.dtype) for t in back.tensors] == [
            (t.name, t.shape, t.dtype) for t in manifest.tensors
        ]
        for ours, theirs in zip(back.tensors, manifest.tensors, strict=True):
            np.testing.assert_array_equal(ours.read(), theirs.read())

    def test_loads_no_tensor_and_knows_where_its_bytes_are(
        self, small: Make, written: Make, tmp_path: Path
    ) -> None:
        path = written(small(), tmp_path / "x.gguf")
        for tensor in gguf_file.read(path).tensors:
            span = tensor.span()
            assert span is not None
            assert span.path == path
            data = path.read_bytes()[span.offset : span.offset + span.length]
            assert data == tensor.read().tobytes()

    def test_takes_a_string_path(self, small: Make, written: Make, tmp_path: Path) -> None:
        assert gguf_file.read(str(written(small(), tmp_path / "x.gguf"))).name == "some model"

    def test_reads_what_other_writers_wrote(self, tmp_path: Path) -> None:
        writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
        writer.add_uint16("k.u16", 7)
        writer.add_int8("k.i8", -7)
        writer.add_float64("k.f64", 0.1)
        writer.add_array("k.flags", [True, False])
        writer.add_tensor("half", np.array([[1.5, 2.5]], np.float16))
        writer.add_tensor("long", np.array([1, 2, 3], np.int64))
        writer.add_tensor(
            "q", np.zeros((2, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0
        )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        back = gguf_file.read(tmp_path / "x.gguf")
        types = {e.key: (e.type, e.value) for e in back.entries}
        assert types["k.u16"] == ("u16", 7)
        assert types["k.i8"] == ("i8", -7)
        assert types["k.f64"] == ("f64", 0.1)
        assert types["k.flags"] == ("[bool]", (True, False))
        assert back.name == ""
        dtypes = {t.name: (t.dtype, t.shape) for t in back.tensors}
        assert dtypes == {
            "half": (DType.F16, (1, 2)),
            "long": (DType.I64, (3,)),
            "q": (DType.OTHER, (2, 32)),
        }
        np.testing.assert_array_equal(back.by_name["half"].read(), [[1.5, 2.5]])
        np.testing.assert_array_equal(back.by_name["long"].read(), [1, 2, 3])

    def test_a_missing_file_is_a_wrong_call(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no such file"):
            gguf_file.read(tmp_path / "absent.gguf")

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises((UsageError, NotAModelError)):
            gguf_file.read(tmp_path)

    @pytest.mark.parametrize("content", [b"", b"GG", b"GGUf....", b"\0" * 64, b"text\n" * 10])
    def test_a_file_without_the_magic_is_not_gguf(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "x.gguf"
        path.write_bytes(content)
        assert not gguf_file.is_gguf(path)
        with pytest.raises(NotAModelError, match="not a GGUF file"):
            gguf_file.read(path)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_that_may_not_be_read(self, small: Make, written: Make, tmp_path: Path) -> None:
        path = written(small(), tmp_path / "x.gguf")
        path.chmod(0)
        with pytest.raises((StorageError, NotAModelError)):
            gguf_file.read(path)

    def test_is_gguf_looks_at_the_bytes(self, small: Make, written: Make, tmp_path: Path) -> None:
        assert gguf_file.is_gguf(written(small(), tmp_path / "x.onnx"))
        assert not gguf_file.is_gguf(tmp_path / "absent")
        assert not gguf_file.is_gguf(tmp_path)
        assert not gguf_file.is_gguf(catalog.path("resnet34_tiny"))


class TestCut:
    def test_a_file_cut_anywhere_is_refused_or_whole(
        self, small: Make, written: Make, bounded: Make, tmp_path: Path
    ) -> None:
        path = written(small(), tmp_path / "x.gguf")
        data = path.read_bytes()
        last = gguf.GGUFReader(path).tensors[-1]
        end = int(last.data_offset + last.n_bytes)
        cuts = []
        for length in range(len(data)):
            cuts.append(tmp_path / f"{length}.gguf")
            cuts[-1].write_bytes(data[:length])
        ran = bounded(READ, *cuts)
        assert ran.code == 0, f"{ran.err[-2000:]}\n{ran.out.splitlines()[-1]}"
        results = ran.out.splitlines()[1::2]
        assert len(results) == len(data)
        for length, result in enumerate(results):
            wanted = "read" if length >= end else "NotAModelError"
            assert result.startswith(wanted), f"{length} of {len(data)} bytes: {result}"

    @pytest.mark.parametrize("name", catalog.names(committed=True))
    def test_a_real_manifest_cut_at_many_lengths(
        self, name: str, manifest_of: Make, written: Make, bounded: Make, tmp_path: Path
    ) -> None:
        path = written(manifest_of(catalog.path(name)), tmp_path / "x.gguf")
        size = path.stat().st_size
        header = gguf.GGUFReader(path).data_offset
        rng = np.random.default_rng(5)
        lengths = {*rng.integers(0, header, 40).tolist(), *rng.integers(header, size, 10).tolist()}
        data = path.read_bytes()
        cuts = []
        for length in sorted(lengths):
            cuts.append(tmp_path / f"{length}.gguf")
            cuts[-1].write_bytes(data[:length])
        ran = bounded(READ, *cuts)
        assert ran.code == 0, f"{ran.err[-2000:]}\n{ran.out.splitlines()[-1]}"
        results = ran.out.splitlines()[1::2]
        assert len(results) == len(cuts)
        assert {r.split()[0] for r in results} == {"NotAModelError"}

    def test_the_message_says_what_to_do(self, small: Make, written: Make, tmp_path: Path) -> None:
        path = written(small(), tmp_path / "x.gguf")
        path.write_bytes(path.read_bytes()[:-40])
        with pytest.raises(NotAModelError) as caught:
            gguf_file.read(path)
        assert caught.value.file == str(path)
        assert caught.value.todo
        assert "again" in caught.value.todo


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def header(tensors: int, keys: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)


STRING, U32, ARRAY, I32 = 8, 4, 9, 5
ARCHITECTURE = text("general.architecture") + struct.pack("<I", STRING) + text("a")
HUGE = 2**61
HOSTILE = {
    "keys": header(0, HUGE) + ARCHITECTURE,
    "tensors": header(HUGE, 1) + ARCHITECTURE,
    "key length": header(0, 1) + struct.pack("<Q", HUGE) + b"k",
    "string length": header(0, 1) + text("k") + struct.pack("<IQ", STRING, HUGE) + b"v",
    "numbers in an array": header(0, 1) + text("k") + struct.pack("<IIQi", ARRAY, I32, HUGE, 1),
    "strings in an array": header(0, 1)
    + text("k")
    + struct.pack("<IIQ", ARRAY, STRING, HUGE)
    + text("v"),
    "most items an array can have": header(0, 1)
    + text("k")
    + struct.pack("<IIQi", ARRAY, I32, 2**64 - 1, 1),
    "arrays in arrays": header(0, 1)
    + text("k")
    + struct.pack("<I", ARRAY)
    + struct.pack("<IQ", ARRAY, 1) * 20_000
    + struct.pack("<IQi", I32, 1, 1),
    "axes": header(1, 1) + ARCHITECTURE + text("w") + struct.pack("<IQ", 2**32 - 1, 4),
    "elements": header(1, 1)
    + ARCHITECTURE
    + text("w")
    + struct.pack("<IQIQ", 1, HUGE, 0, 0)
    + bytes(64),
    "elements beyond 64 bits": header(1, 1)
    + ARCHITECTURE
    + text("w")
    + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0)
    + bytes(64),
    "offset": header(1, 1)
    + ARCHITECTURE
    + text("w")
    + struct.pack("<IQIQ", 1, 4, 0, 2**64 - 32)
    + bytes(64),
    "version": b"GGUF" + struct.pack("<IQQ", 99, 0, 0),
    "other byte order": b"GGUF" + struct.pack(">IQQ", 3, 0, HUGE),
    "unknown key type": header(0, 1) + text("k") + struct.pack("<II", 77, 1),
    "unknown tensor type": header(1, 1)
    + ARCHITECTURE
    + text("w")
    + struct.pack("<IQIQ", 1, 4, 999, 0)
    + bytes(64),
    "name that is not utf-8": header(0, 1)
    + struct.pack("<Q", 2)
    + b"\xff\xfe"
    + struct.pack("<II", U32, 1),
    "text that is not utf-8": header(0, 1)
    + text("k")
    + struct.pack("<IQ", STRING, 2)
    + b"\xff\xfe",
    "repeated key": header(0, 2) + 2 * (text("k") + struct.pack("<II", U32, 1)),
    "repeated tensor": header(2, 1)
    + ARCHITECTURE
    + 2 * (text("w") + struct.pack("<IQIQ", 1, 4, 0, 0))
    + bytes(64),
    "alignment": header(0, 1) + text("general.alignment") + struct.pack("<II", U32, 0),
    "a reserved name": header(0, 1) + text("GGUF.version") + struct.pack("<II", U32, 1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_that_declares_what_it_has_not_is_refused_at_once(
    what: str, bounded: Make, tmp_path: Path
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(HOSTILE[what])
    ran = bounded(READ, path, seconds=10)
    assert ran.code == 0, ran.err[-2000:]
    assert ran.out.splitlines()[1].startswith("NotAModelError")
