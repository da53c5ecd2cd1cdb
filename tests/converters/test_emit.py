"""The emitter: exact types, ggml's limits, same bytes, and nothing half-written.

What was written is read back with gguf's own reader, not with this package.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from converters import gguf_file, stream
from converters.emit import MAX_NAME_BYTES, emit
from converters.manifest import Entry, Manifest
from fixtures import catalog
from graphtools.errors import Error, StorageError, UnsupportedError
from graphtools.files import replacing
from graphtools.tensors import DType, FileSpan, Held, LazyTensor, Load

Array = npt.NDArray[Any]
Make = Callable[..., Any]


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


class TestTypes:
    def test_every_type_is_written_exactly(
        self, small: Make, written: Make, raw: Make, tmp_path: Path
    ) -> None:
        found = raw(written(small(), tmp_path / "x.gguf"))
        assert found.types == {
            "general.architecture": ["STRING"],
            "general.name": ["STRING"],
            "a.text": ["STRING"],
            "a.nothing": ["STRING"],
            "a.flag": ["BOOL"],
            "a.byte": ["UINT8"],
            "a.count": ["UINT32"],
            "a.long": ["UINT64"],
            "a.signed": ["INT32"],
            "a.wide": ["INT64"],
            "a.real": ["FLOAT32"],
            "a.names": ["ARRAY", "STRING"],
            "a.strides": ["ARRAY", "INT32"],
            "a.reals": ["ARRAY", "FLOAT32"],
        }
        assert found.values == {
            "general.architecture": "voicedetect",
            "general.name": "some model",
            "a.text": "povey",
            "a.nothing": "",
            "a.flag": True,
            "a.byte": 200,
            "a.count": 4_000_000_000,
            "a.long": 2**63,
            "a.signed": -5,
            "a.wide": -(2**62),
            "a.real": np.float32(0.97),
            "a.names": ["x", "", "ü"],
            "a.strides": [1, 2, -1],
            "a.reals": [0.5, -1.5],
        }

    def test_keys_and_tensors_keep_their_order(
        self, small: Make, written: Make, raw: Make, held: Make, tmp_path: Path
    ) -> None:
        tensors = [held(name) for name in ("z", "a", "m", "b")]
        found = raw(written(small(tensors=tensors), tmp_path / "x.gguf"))
        assert list(found.types)[2:] == [e.key for e in small().entries]
        assert list(found.tensors) == ["z", "a", "m", "b"]

    def test_tensors_are_f32_with_the_shape_reversed_and_aligned_to_32(
        self, small: Make, written: Make, held: Make, raw: Make, tmp_path: Path
    ) -> None:
        rng = np.random.default_rng(2)
        shapes = {"one": (1,), "odd": (7,), "two": (3, 5), "three": (2, 3, 5), "four": (2, 3, 1, 5)}
        values = {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}
        tensors = [held(n, v) for n, v in values.items()]
        path = written(small(tensors=tensors), tmp_path / "x.gguf")
        found = raw(path)
        for name, array in values.items():
            np.testing.assert_array_equal(found.tensors[name], array)
            assert found.kinds[name] == "F32"
        assert found.alignment == 32
        assert all(offset % 32 == 0 for offset in found.offsets.values())
        reader = gguf.GGUFReader(path)
        ne = {t.name: tuple(int(d) for d in t.shape) for t in reader.tensors}
        assert ne == {n: tuple(reversed(s)) for n, s in shapes.items()}

    @pytest.mark.parametrize("dtype", [DType.F16, DType.F64])
    def test_other_floats_are_widened_to_f32(
        self, small: Make, written: Make, raw: Make, tmp_path: Path, dtype: DType
    ) -> None:
        values = np.random.default_rng(3).normal(size=(4, 3)).astype(dtype.numpy)
        tensor = LazyTensor("w", (4, 3), dtype, Held("w", values))
        found = raw(written(small(tensors=[tensor]), tmp_path / "x.gguf"))
        assert found.kinds == {"w": "F32"}
        np.testing.assert_array_equal(found.tensors["w"], values.astype(np.float32))

    def test_bfloat16_is_widened_exactly(
        self, small: Make, written: Make, raw: Make, tmp_path: Path
    ) -> None:
        bits = np.array([0x3F80, 0xBF00, 0x4049, 0x0001], dtype="<u2")
        (tmp_path / "bits").write_bytes(bits.tobytes())
        load = Load("w", DType.BF16, FileSpan(tmp_path / "bits", 0, 8))
        tensor = LazyTensor("w", (4,), DType.BF16, load)
        found = raw(written(small(tensors=[tensor]), tmp_path / "x.gguf"))
        expected = (bits.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(found.tensors["w"], expected)

    def test_integers_are_refused(self, small: Make, tmp_path: Path) -> None:
        tensor = LazyTensor("w", (2,), DType.I8, Held("w", np.array([1, 2], np.int8)))
        with (
            pytest.raises(UnsupportedError, match="'w' is not float"),
            emit(small(tensors=[tensor]), tmp_path / "x.gguf"),
        ):
            pass
        assert names(tmp_path) == []

    def test_values_that_are_not_contiguous_are_written_in_c_order(
        self, small: Make, written: Make, raw: Make, tmp_path: Path
    ) -> None:
        values = np.arange(12, dtype=np.float32).reshape(3, 4).T
        tensor = LazyTensor("w", (4, 3), DType.F32, Held("w", values))
        found = raw(written(small(tensors=[tensor]), tmp_path / "x.gguf"))
        np.testing.assert_array_equal(found.tensors["w"], values)

    def test_values_that_are_not_finite_keep_their_bits(
        self, small: Make, written: Make, raw: Make, held: Make, tmp_path: Path
    ) -> None:
        values = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
        found = raw(written(small(tensors=[held("w", values)]), tmp_path / "x.gguf"))
        assert found.tensors["w"].tobytes() == values.tobytes()

    def test_a_manifest_without_tensors_is_written(
        self, small: Make, written: Make, raw: Make, tmp_path: Path
    ) -> None:
        found = raw(written(small(tensors=[]), tmp_path / "x.gguf"))
        assert found.tensors == {}
        assert found.values["a.count"] == 4_000_000_000


_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
_F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
_VALUES = st.one_of(
    st.tuples(st.just("string"), _TEXT),
    st.tuples(st.just("bool"), st.booleans()),
    st.tuples(st.just("u32"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("i32"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("u64"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("f32"), _F32),
    st.tuples(st.just("[string]"), st.lists(_TEXT, min_size=1, max_size=5).map(tuple)),
    st.tuples(
        st.just("[i32]"),
        st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=5).map(tuple),
    ),
    st.tuples(st.just("[f32]"), st.lists(_F32, min_size=1, max_size=5).map(tuple)),
)
_KEYS = st.text("abcdefghijklmnopqrstuvwxyz0123456789_.", min_size=1, max_size=30)


@settings(database=None, deadline=None, max_examples=60)
@given(name=_TEXT, values=st.dictionaries(_KEYS.map("k.{}".format), _VALUES, max_size=6))
def test_any_manifest_comes_back_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory, name: str, values: dict[str, tuple[str, Any]]
) -> None:
    entries = tuple(Entry(k, t, v, "test") for k, (t, v) in values.items())
    path = tmp_path_factory.mktemp("any") / "x.gguf"
    with emit(Manifest("any", name, entries, ()), path):
        pass
    back = gguf_file.read(path)
    assert (back.architecture, back.name) == ("any", name)
    assert [(e.key, e.type, e.value) for e in back.entries] == [
        (e.key, e.type, e.value) for e in entries
    ]


class TestLimits:
    @pytest.mark.parametrize("name", ["w" * 63, "é" * 31 + "w", "重" * 21])
    def test_names_of_63_bytes_are_written(
        self, small: Make, written: Make, raw: Make, held: Make, tmp_path: Path, name: str
    ) -> None:
        assert len(name.encode()) == MAX_NAME_BYTES == 63
        found = raw(written(small(tensors=[held(name)]), tmp_path / "x.gguf"))
        assert list(found.tensors) == [name]

    @pytest.mark.parametrize("name", ["w" * 64, "é" * 32, "重" * 21 + "w", "w" * 200, ""])
    def test_other_lengths_are_refused(
        self, small: Make, held: Make, tmp_path: Path, name: str
    ) -> None:
        with (
            pytest.raises(UnsupportedError, match="cannot be stored") as caught,
            emit(small(tensors=[held("fine"), held(name)]), tmp_path / "x.gguf"),
        ):
            pass
        assert str(caught.value.found).startswith(f"{len(name.encode())} bytes")
        assert names(tmp_path) == []

    @pytest.mark.parametrize("shape", [(), (1, 1, 1, 1, 1), (0,), (3, 0), (2, 2, 2, 2, 2)])
    def test_0_d_5_d_and_empty_tensors_are_refused(
        self, small: Make, held: Make, tmp_path: Path, shape: tuple[int, ...]
    ) -> None:
        with (
            pytest.raises(UnsupportedError, match="'w' cannot be stored") as caught,
            emit(small(tensors=[held("w", np.zeros(shape))]), tmp_path / "x.gguf"),
        ):
            pass
        assert caught.value.found == f"shape {list(shape)}"
        assert names(tmp_path) == []

    def test_a_repeated_key_is_refused(self, small: Make, tmp_path: Path) -> None:
        manifest = small(Entry("a.flag", "bool", True, "test"))
        with (
            pytest.raises(UnsupportedError, match=r"key 'a\.flag'.*twice"),
            emit(manifest, tmp_path / "x.gguf"),
        ):
            pass
        assert names(tmp_path) == []

    def test_a_repeated_tensor_is_refused(self, small: Make, held: Make, tmp_path: Path) -> None:
        manifest = small(tensors=[held("w"), held("b"), held("w")])
        with (
            pytest.raises(UnsupportedError, match=r"tensor 'w'.*twice"),
            emit(manifest, tmp_path / "x.gguf"),
        ):
            pass
        assert names(tmp_path) == []

    @pytest.mark.parametrize(
        ("key", "type", "value"),
        [
            ("general.name", "string", "another"),
            ("general.architecture", "string", "another"),
            ("general.alignment", "u32", 64),
        ],
    )
    def test_a_key_that_the_header_owns_is_refused_or_harmless(
        self, small: Make, raw: Make, tmp_path: Path, key: str, type: str, value: Any
    ) -> None:
        path = tmp_path / "x.gguf"
        try:
            with emit(small(Entry(key, type, value, "test")), path):
                pass
        except Error:
            assert names(tmp_path) == []
        else:
            np.testing.assert_array_equal(raw(path).tensors["b"], [1, 2, 3])

    @pytest.mark.parametrize(
        ("type", "value"),
        [
            ("[i32]", ()),
            ("[string]", ()),
            ("[i32]", (1, 2**31)),
            ("u32", -1),
            ("f32", float("nan")),
            ("f64", 1.0),
            ("bool", 1),
        ],
    )
    def test_a_value_that_its_type_cannot_hold_is_refused(
        self, small: Make, tmp_path: Path, type: str, value: Any
    ) -> None:
        with (
            pytest.raises(UnsupportedError, match=r"'bad\.key'"),
            emit(small(Entry("bad.key", type, value, "test")), tmp_path / "x.gguf"),
        ):
            pass
        assert names(tmp_path) == []

    @pytest.mark.parametrize("where", ["name", "value", "tensor"])
    def test_text_that_utf8_cannot_spell_is_refused(
        self, small: Make, held: Make, tmp_path: Path, where: str
    ) -> None:
        """A path whose bytes are not UTF-8 reaches us as lone surrogates."""
        text = "m\udcff.onnx"
        manifest = small()
        if where == "name":
            manifest = replace(manifest, name=text)
        elif where == "value":
            manifest = small(Entry("bad.key", "string", text, "test"))
        else:
            manifest = small(tensors=[held(text)])
        with pytest.raises(Error), emit(manifest, tmp_path / "x.gguf"):
            pass
        assert names(tmp_path) == []


class TestSameBytes:
    _SCRIPT = """
import hashlib, sys
from pathlib import Path
from converters.convert import convert
for name in sys.argv[2:]:
    target = Path(sys.argv[1]) / (name + ".gguf")
    convert(Path("fixtures") / (name + ".onnx"), target)
    for file in (target, Path(str(target) + ".proof.json")):
        print(file.name, hashlib.sha256(file.read_bytes()).hexdigest())
"""

    def test_two_processes_with_other_hash_seeds_write_the_same(
        self, tmp_path: Path, environment: Make
    ) -> None:
        outputs = []
        for seed in ("1", "2718281828"):
            folder = tmp_path / seed
            folder.mkdir()
            outputs.append(
                subprocess.run(
                    [
                        sys.executable,
                        "-c",
                        self._SCRIPT,
                        str(folder),
                        *catalog.names(committed=True),
                    ],
                    cwd=catalog.HERE.parent,
                    env=environment() | {"PYTHONHASHSEED": seed},
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
        assert outputs[0].count("\n") == 6
        assert outputs[0] == outputs[1]

    def test_rewriting_gives_the_same_bytes(
        self, small: Make, written: Make, tmp_path: Path
    ) -> None:
        one = written(small(), tmp_path / "one.gguf").read_bytes()
        time.sleep(0.01)
        assert written(small(), tmp_path / "two.gguf").read_bytes() == one


class TestTampering:
    """What is on disk is compared with what was meant, not with what was handed to the writer."""

    _SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from converters import gguf_file, stream
from converters.emit import emit
from converters.manifest import Entry, Manifest
from graphtools.errors import NotAModelError, StorageError
from graphtools.tensors import DType, Held, LazyTensor

path = Path(sys.argv[1])
values = np.arange(7, dtype=np.float32)
manifest = Manifest(
    "voicedetect",
    "m",
    (
        Entry("a.text", "string", "povey", "test"),
        Entry("a.flag", "bool", True, "test"),
        Entry("a.real", "f32", 0.5, "test"),
        Entry("a.strides", "[i32]", (1, 2), "test"),
    ),
    (LazyTensor("w", (7,), DType.F32, Held("w", values)),
     LazyTensor("b", (7, 1), DType.F32, Held("b", values + 1))),
)
read = gguf_file.read
at = None

def tampering(temp):
    if at is not None:
        data = bytearray(Path(temp).read_bytes())
        data[at] ^= 1
        Path(temp).write_bytes(data)
    return read(temp)

gguf_file.read = tampering
with emit(manifest, path):
    pass
for at in map(int, sys.argv[2:]) if len(sys.argv) > 2 else ():
    print("trying", at, flush=True)
    try:
        with emit(manifest, path.with_name("changed.gguf")):
            pass
        print("unnoticed", at, flush=True)
    except (StorageError, NotAModelError):
        pass
    path.with_name("changed.gguf").unlink(missing_ok=True)
"""

    def test_no_changed_byte_goes_unnoticed(self, bounded: Make, tmp_path: Path) -> None:
        clean = tmp_path / "x.gguf"
        assert bounded(self._SCRIPT, clean).code == 0
        version = {4}  # 2 and 3 are laid out alike, and all readers take both
        blank = padding(clean) | version
        meaningful = [i for i in range(clean.stat().st_size) if i not in blank]
        assert len(meaningful) > 300
        ran = bounded(self._SCRIPT, clean, *map(str, meaningful))
        assert ran.code == 0, f"{ran.err}\nafter {ran.out.splitlines()[-1:]}"
        assert ran.out.count("trying") == len(meaningful)
        assert "unnoticed" not in ran.out

    def test_a_writer_that_flips_a_bit_of_a_tensor_is_caught(
        self, small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append = stream.append

        def flipping(path: Path, *arguments: Any) -> None:
            start = path.stat().st_size
            append(path, *arguments)
            data = bytearray(path.read_bytes())
            data[-(-start // 32) * 32] ^= 1
            path.write_bytes(data)

        monkeypatch.setattr(stream, "append", flipping)
        with (
            pytest.raises(StorageError, match=r"differs.*bytes of 'w'"),
            emit(small(), tmp_path / "x.gguf"),
        ):
            pass
        assert names(tmp_path) == []

    def test_a_writer_that_drops_empty_strings_is_caught(
        self, small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As gguf's own add_string does."""
        add = gguf.GGUFWriter.add_key_value

        def dropping(self: Any, key: str, value: Any, *more: Any, **options: Any) -> None:
            if value != "":
                add(self, key, value, *more, **options)

        monkeypatch.setattr(gguf.GGUFWriter, "add_key_value", dropping)
        with (
            pytest.raises(StorageError, match=r"key 'a\.nothing'"),
            emit(small(), tmp_path / "x.gguf"),
        ):
            pass
        assert names(tmp_path) == []

    def test_a_writer_with_another_integer_type_is_caught(
        self, small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add = gguf.GGUFWriter.add_key_value

        def retyping(self: Any, key: str, value: Any, vtype: Any, *more: Any) -> None:
            if key == "a.count":
                vtype = gguf.GGUFValueType.UINT64
            add(self, key, value, vtype, *more)

        monkeypatch.setattr(gguf.GGUFWriter, "add_key_value", retyping)
        with (
            pytest.raises(StorageError, match=r"key 'a\.count'"),
            emit(small(), tmp_path / "x.gguf"),
        ):
            pass
        assert names(tmp_path) == []


def padding(path: Path) -> set[int]:
    """Offsets of the bytes that carry nothing: between the parts, aligned to 32."""
    reader = gguf.GGUFReader(path)
    last = reader.tensors[-1].field
    end = last.offset + sum(int(part.nbytes) for part in last.parts)
    blank = set(range(end, reader.data_offset))
    for tensor in reader.tensors:
        end = tensor.data_offset + tensor.n_bytes
        blank |= set(range(end, -(-end // 32) * 32))
    return blank


@dataclass(frozen=True)
class Failing:
    """A recipe whose source goes away."""

    error: Exception

    def read(self) -> Array:
        raise self.error

    def span(self) -> None:
        return None

    def origin(self) -> str:
        return "failing"

    def sources(self) -> Iterator[LazyTensor]:
        return iter(())


class TestNothingIsLeft:
    def test_when_the_block_raises(self, small: Make, tmp_path: Path) -> None:
        def fail(temp: Path) -> None:
            assert temp.parent == tmp_path  # the rename is within one file system
            assert temp.stat().st_size > 0
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), emit(small(), tmp_path / "x.gguf") as temp:
            fail(temp)
        assert names(tmp_path) == []

    def test_when_the_block_is_interrupted(self, small: Make, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt), emit(small(), tmp_path / "x.gguf"):
            raise KeyboardInterrupt
        assert names(tmp_path) == []

    @pytest.mark.parametrize(
        "error", [OSError(5, "Input/output error"), MemoryError(), ValueError("bad")]
    )
    def test_when_a_tensor_cannot_be_read(
        self, small: Make, held: Make, tmp_path: Path, error: Exception
    ) -> None:
        tensors = [held("fine"), LazyTensor("w", (3,), DType.F32, Failing(error))]
        with (
            pytest.raises((StorageError, type(error))),
            emit(small(tensors=tensors), tmp_path / "x.gguf"),
        ):
            pass
        assert names(tmp_path) == []

    @pytest.mark.parametrize("folder", ["absent", "file", "/proc"])
    def test_where_nothing_can_be_written(self, small: Make, tmp_path: Path, folder: str) -> None:
        (tmp_path / "file").write_text("a file, not a folder")
        output = tmp_path / folder / "x.gguf"
        with pytest.raises(StorageError, match="cannot write") as caught, emit(small(), output):
            pass
        assert caught.value.file == str(output)
        assert caught.value.todo
        assert names(tmp_path) == ["file"]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_in_a_folder_without_permission(self, small: Make, tmp_path: Path) -> None:
        folder = tmp_path / "locked"
        folder.mkdir(mode=0o500)
        with (
            pytest.raises(StorageError, match="Permission denied"),
            emit(small(), folder / "x.gguf"),
        ):
            pass
        assert names(folder) == []

    def test_when_the_output_is_a_folder(self, small: Make, tmp_path: Path) -> None:
        (tmp_path / "x.gguf").mkdir()
        with pytest.raises(StorageError, match="cannot write"), emit(small(), tmp_path / "x.gguf"):
            pass
        assert names(tmp_path) == ["x.gguf"]
        assert names(tmp_path / "x.gguf") == []

    @pytest.mark.parametrize("limit", [0, 100, 20_000, 300_000])
    def test_when_the_disk_is_full(self, tmp_path: Path, environment: Make, limit: int) -> None:
        """A limit on the file's size gives the writer the same short writes as a full disk."""
        old = tmp_path / "x.gguf"
        old.write_bytes(b"the old file")
        script = """
import resource, sys
from pathlib import Path
from converters.convert import convert
from graphtools.errors import StorageError
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    convert(Path("fixtures/resnet34_tiny.onnx"), Path(sys.argv[1]), verify="none")
except StorageError as error:
    print(error.cause)
    raise SystemExit(5)
"""
        ran = subprocess.run(
            [sys.executable, "-c", script, str(old), str(limit)],
            cwd=catalog.HERE.parent,
            env=environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 5, ran.stderr
        assert "cannot write" in ran.stdout
        assert "Traceback" not in ran.stderr
        assert old.read_bytes() == b"the old file"
        assert names(tmp_path) == ["x.gguf"]

    def test_a_killed_process_leaves_no_file_of_that_name(
        self, tmp_path: Path, environment: Make
    ) -> None:
        script = """
import sys, time
from pathlib import Path
from converters.emit import emit
from converters.manifest import Entry, Manifest
with emit(Manifest("a", "b", (Entry("k", "u32", 1, "test"),), ()), Path(sys.argv[1])):
    print("written", flush=True)
    time.sleep(60)
"""
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "x.gguf")],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=20)
        process.stdout.close()
        left = names(tmp_path)
        assert len(left) == 1
        assert left[0].startswith(".x.gguf.")
        # The next run removes it, and nothing else.
        other = tmp_path / ".y.gguf.abc.tmp"
        other.write_bytes(b"of another output")
        with emit(Manifest("a", "b", (Entry("k", "u32", 1, "test"),), ()), tmp_path / "x.gguf"):
            assert len([n for n in names(tmp_path) if n.startswith(".x.gguf.")]) == 1
        assert names(tmp_path) == [".y.gguf.abc.tmp", "x.gguf"]
        other.unlink()

    def test_the_temp_file_of_a_run_at_work_is_let_be(self, small: Make, tmp_path: Path) -> None:
        with emit(small(), tmp_path / "x.gguf") as first:
            before = first.read_bytes()
            with emit(small(), tmp_path / "x.gguf"):
                pass
            assert first.read_bytes() == before
        assert names(tmp_path) == ["x.gguf"]

    def test_room_is_asked_for_before_the_first_byte(
        self, small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
        with (
            pytest.raises(StorageError, match="no room for the file") as caught,
            emit(small(), tmp_path / "x.gguf"),
        ):
            pass
        assert caught.value.expected == "0.00 GB"
        assert names(tmp_path) == []


class TestReplacing:
    def test_the_old_file_stays_until_the_new_one_is_whole(
        self, small: Make, tmp_path: Path
    ) -> None:
        path = tmp_path / "x.gguf"
        path.write_bytes(b"the old file")
        with emit(small(), path) as temp:
            assert path.read_bytes() == b"the old file"
            new = temp.read_bytes()
        assert path.read_bytes() == new
        assert names(tmp_path) == ["x.gguf"]

    def test_a_reader_of_the_old_file_keeps_it(self, small: Make, tmp_path: Path) -> None:
        path = tmp_path / "x.gguf"
        path.write_bytes(b"the old file")
        with path.open("rb") as reader:
            with emit(small(), path):
                pass
            assert reader.read() == b"the old file"

    def test_the_old_file_is_kept_on_failure(self, small: Make, tmp_path: Path) -> None:
        path = tmp_path / "x.gguf"
        path.write_bytes(b"the old file")
        with pytest.raises(RuntimeError), emit(small(), path):
            raise RuntimeError
        assert path.read_bytes() == b"the old file"
        assert names(tmp_path) == ["x.gguf"]

    @pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
    def test_permissions_follow_the_umask(self, small: Make, tmp_path: Path, umask: int) -> None:
        before = os.umask(umask)
        try:
            with emit(small(), tmp_path / "x.gguf"):
                pass
            assert os.umask(umask) == umask  # left as it was
        finally:
            os.umask(before)
        mode = stat.S_IMODE((tmp_path / "x.gguf").stat().st_mode)
        assert mode == 0o666 & ~umask

    def test_any_file_can_be_replaced_so(self, tmp_path: Path) -> None:
        with replacing(tmp_path / "a.json") as temp:
            temp.write_text("{}\n")
            assert not (tmp_path / "a.json").exists()
        assert (tmp_path / "a.json").read_text() == "{}\n"
        assert names(tmp_path) == ["a.json"]

    def test_a_bare_file_name_goes_to_the_working_directory(
        self, small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with emit(small(), Path("x.gguf")):
            pass
        digest = hashlib.sha256((tmp_path / "x.gguf").read_bytes()).hexdigest()
        assert len(digest) == 64
        assert names(tmp_path) == ["x.gguf"]
