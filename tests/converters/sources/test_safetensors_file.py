"""Safetensors: headers alone are read, every float type widens exactly, damage is explained."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from converters.sources.safetensors_file import parse_header, read
from graphtools.errors import Error, NotAModelError, StorageError, UnsupportedError
from graphtools.tensors import DType, LazyTensor, Load, widened

Make = Callable[..., Any]


def entry(dtype: str = "F32", shape: Any = (2, 2), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.fixture
def write(tmp_path: Path) -> Make:
    """A file of a header (a dict, or its raw bytes) and 64 bytes of data."""

    def make(header: Mapping[str, Any] | bytes, *, length: int | None = None) -> Path:
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = tmp_path / "x.safetensors"
        size = struct.pack("<Q", len(raw) if length is None else length)
        path.write_bytes(size + raw + bytes(range(64)))
        return path

    return make


def everything(path: Path) -> None:
    """Read a file as a conversion does: every tensor that is a float."""
    for tensor in read(path).values():
        if tensor.dtype.is_float:
            assert widened(tensor).read().shape == tensor.shape


class TestTypes:
    VALUES = torch.tensor([0.0, -0.0, 1.0, -1.5, 3.140625, 65504.0, 6e-8, float("inf")])

    @pytest.mark.parametrize(
        ("dtype", "ours"),
        [
            (torch.float32, DType.F32),
            (torch.float16, DType.F16),
            (torch.bfloat16, DType.BF16),
            (torch.float64, DType.F64),
            (torch.int8, DType.I8),
            (torch.int16, DType.I16),
            (torch.int32, DType.I32),
            (torch.int64, DType.I64),
            (torch.uint8, DType.U8),
            (torch.uint16, DType.U16),
            (torch.uint32, DType.U32),
            (torch.uint64, DType.U64),
            (torch.bool, DType.BOOL),
        ],
    )
    def test_are_read_as_they_were_written(self, dtype: Any, ours: DType, tmp_path: Path) -> None:
        values = self.VALUES if dtype.is_floating_point else torch.arange(8)
        written = values.to(dtype).reshape(2, 4)
        save_file({"x": written}, tmp_path / "x.safetensors")
        tensor = read(tmp_path / "x.safetensors")["x"]
        assert (tensor.dtype, tensor.shape) == (ours, (2, 4))
        if dtype.is_floating_point:
            exact = written.to(torch.float32).numpy()
            found = widened(tensor).read()
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, exact)
            np.testing.assert_array_equal(np.signbit(found), np.signbit(exact))
        else:
            np.testing.assert_array_equal(tensor.read().astype(np.int64), written.long().numpy())

    def test_every_half_precision_number_widens_to_itself(self, tmp_path: Path) -> None:
        bits = torch.arange(65536).to(torch.uint16)
        for dtype in (torch.float16, torch.bfloat16):
            save_file({"x": bits.view(dtype)}, tmp_path / "x.safetensors")
            found = widened(read(tmp_path / "x.safetensors")["x"]).read()
            exact = bits.view(dtype).to(torch.float32).numpy()
            finite = ~np.isnan(exact)
            np.testing.assert_array_equal(found[finite].view("u4"), exact[finite].view("u4"))
            assert np.isnan(found[~finite]).all()

    def test_float64_is_rounded_once_to_the_nearest(self, tmp_path: Path) -> None:
        values = torch.tensor([1 + 2**-24 + 2**-50, 1 + 2**-24, 0.1], dtype=torch.float64)
        save_file({"x": values}, tmp_path / "x.safetensors")
        found = widened(read(tmp_path / "x.safetensors")["x"]).read()
        np.testing.assert_array_equal(found, np.float32([1 + 2**-23, 1.0, 0.1]))

    @pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
    def test_eight_bit_floats_are_listed_and_cannot_be_widened(
        self, dtype: Any, tmp_path: Path
    ) -> None:
        save_file({"a.weight": torch.ones(6).to(dtype)}, tmp_path / "x.safetensors")
        tensor = read(tmp_path / "x.safetensors")["a.weight"]
        assert (tensor.shape, tensor.dtype) == ((6,), DType.OTHER)
        with pytest.raises(UnsupportedError, match=r"'a\.weight'"):
            widened(tensor)
        with pytest.raises(UnsupportedError, match=r"'a\.weight'"):
            tensor.read()

    def test_a_type_that_nobody_knows_is_listed_too(self, write: Make) -> None:
        tensor = read(write({"x": entry("F6_E3M2")}))["x"]
        with pytest.raises(UnsupportedError, match="'x'"):
            widened(tensor)

    def test_bfloat16_needs_no_package_for_it(self, tmp_path: Path) -> None:
        """In a process where ml_dtypes cannot be imported (and numpy has no such type)."""
        bits = torch.arange(65536).to(torch.uint16)
        save_file({"x": bits.view(torch.bfloat16)}, tmp_path / "x.safetensors")
        source = """
import sys
sys.modules["ml_dtypes"] = None
from pathlib import Path
import numpy as np
from converters.sources.source import open_source
from graphtools.tensors import widened
found = widened(open_source(Path(sys.argv[1])).tensors["x"]).read()
assert np.array_equal(found.view("u4"), np.arange(65536, dtype="u4") << 16)
assert sys.modules["ml_dtypes"] is None and "torch" not in sys.modules
"""
        command = [sys.executable, "-W", "error", "-c", source, tmp_path / "x.safetensors"]
        subprocess.run(command, check=True, timeout=60)


class TestHeader:
    def test_order_is_the_headers_and_not_the_alphabets(self, write: Make) -> None:
        names = ["z", "a", "m", "b"]
        header = {n: entry(offsets=(16 * i, 16 * i + 16)) for i, n in enumerate(names)}
        assert list(read(write({"__metadata__": {"format": "pt"}, **header}))) == names

    def test_order_is_not_that_of_the_bytes_either(self, write: Make) -> None:
        found = read(write({"second": entry(offsets=(16, 32)), "first": entry()}))
        assert list(found) == ["second", "first"]
        assert found["first"].read().view("u1").ravel()[0] == 0
        assert found["second"].read().view("u1").ravel()[0] == 16

    def test_spans_are_the_bytes_on_disk(self, tmp_path: Path) -> None:
        values = torch.arange(6.0).reshape(2, 3)
        save_file({"a": torch.ones(5), "b": values}, tmp_path / "x.safetensors")
        span = read(tmp_path / "x.safetensors")["b"].span()
        assert span is not None
        raw = span.path.read_bytes()[span.offset : span.offset + span.length]
        assert raw == values.numpy().tobytes()

    def test_nothing_but_the_header_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_file({"a": torch.ones(5)}, tmp_path / "x.safetensors")

        def refuse(self: Load) -> Any:
            raise AssertionError

        monkeypatch.setattr(Load, "read", refuse)
        assert list(read(tmp_path / "x.safetensors")) == ["a"]

    def test_spaces_that_align_the_data_are_allowed(self, write: Make) -> None:
        assert list(read(write(json.dumps({"a": entry()}).encode() + b"   "))) == ["a"]

    def test_of_no_tensors_is_empty(self, write: Make) -> None:
        assert read(write(b"{}")) == {}

    def test_scalars_and_empty_tensors(self, write: Make) -> None:
        header = {"s": entry(shape=(), offsets=(0, 4)), "e": entry(shape=(0, 3), offsets=(4, 4))}
        found = read(write(header))
        assert found["s"].read().shape == ()
        assert found["e"].read().shape == (0, 3)

    def test_alone_can_be_parsed(self) -> None:
        """Of a file that is somewhere else: offsets count from the header's end."""
        raw = json.dumps({"__metadata__": {}, "a": entry(offsets=(16, 32))}).encode()
        assert parse_header(raw, Path("x")) == {"a": (DType.F32, (2, 2), 16, 32)}


class TestDamage:
    def test_a_pointer_of_git_lfs_says_what_to_do(self, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 12\n")
        with pytest.raises(NotAModelError) as caught:
            read(path)
        assert "Git LFS pointer" in str(caught.value)
        assert "git lfs pull" in str(caught.value)

    @pytest.mark.parametrize("size", [0, 1, 7, 8, 9])
    def test_a_few_bytes_are_no_file(self, size: int, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        path.write_bytes(bytes([5, 0, 0, 0, 0, 0, 0, 0, 1])[:size])
        with pytest.raises(NotAModelError, match="not a complete safetensors file"):
            read(path)

    @pytest.mark.parametrize("length", [0, 1, 2**31, 2**63, 2**64 - 1])
    def test_a_header_length_that_cannot_be(self, length: int, write: Make) -> None:
        with pytest.raises(NotAModelError):
            read(write({"a": entry()}, length=length))

    def test_data_that_is_cut_off_names_the_tensor(self, tmp_path: Path) -> None:
        save_file({"a": torch.ones(5), "b": torch.ones(7)}, tmp_path / "x.safetensors")
        raw = (tmp_path / "x.safetensors").read_bytes()
        (tmp_path / "x.safetensors").write_bytes(raw[:-1])
        with pytest.raises(NotAModelError, match="'b' runs past the end") as caught:
            read(tmp_path / "x.safetensors")
        assert "fetch it again" in str(caught.value)

    @pytest.mark.parametrize(
        "header",
        [
            b"[]",
            b"null",
            b'"text"',
            b"{",
            b'{"a": 1}',
            b'{"a": []}',
            b'{"a": {}}',
            b'{"a": {"dtype": "F32", "shape": [2, 2]}}',
            b'{"a": {"dtype": "F32", "shape": 4, "data_offsets": [0, 16]}}',
            b'{"a": {"dtype": "F32", "shape": null, "data_offsets": [0, 16]}}',
            b'{"a": {"dtype": ["F32"], "shape": [2, 2], "data_offsets": [0, 16]}}',
            b'{"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0]}}',
            b'{"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16, 32]}}',
            b'{"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [16, 0]}}',
            b'{"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [-16, 0]}}',
            b'{"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 15]}}',
            b'{"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 16]}}',
            b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 16]}}',
            b'{"a": {"dtype": "F32", "shape": [Infinity], "data_offsets": [0, 16]}}',
            b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 1e999]}}',
            b'{"a": {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]}}',
            b'{"a": {"dtype": "F32", "shape": [2.5, 2], "data_offsets": [0, 16]}}',
            b'{"a": {"dtype": "F6", "shape": [-1], "data_offsets": [0, 16]}}',
            b"\xff\xfe{}",
            b"[" * 100_000,
            b'{"a": ' * 50_000,
        ],
        ids=lambda header: header[:80].decode("latin-1"),
    )
    def test_a_header_that_is_not_one(self, header: bytes, write: Make) -> None:
        with pytest.raises(NotAModelError) as caught:
            everything(write(header))
        assert "x.safetensors" in str(caught.value)

    @pytest.mark.parametrize(
        "header",
        [
            {"a": entry(), "b": entry(offsets=(8, 24))},
            {"a": entry(), "b": entry()},
            b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},'
            b' "a": {"dtype": "F32", "shape": [4], "data_offsets": [16, 32]}}',
        ],
        ids=["overlap", "same bytes", "a name twice"],
    )
    def test_tensors_that_share_bytes_or_a_name(self, header: Any, write: Make) -> None:
        """The format forbids both, and its own library refuses them."""
        with pytest.raises(NotAModelError):
            read(write(header))

    def test_a_folder_of_that_name(self, tmp_path: Path) -> None:
        (tmp_path / "x.safetensors").mkdir()
        with pytest.raises(StorageError):
            read(tmp_path / "x.safetensors")

    def test_a_file_that_may_not_be_read(self, write: Make, monkeypatch: Any) -> None:
        """Root may read everything, so the refusal is made here."""
        path = write({"a": entry()})

        def refuse(*_: object, **__: object) -> Any:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(StorageError, match="Permission denied"):
            read(path)


def sample() -> bytes:
    """A small file with a tensor of each kind."""
    from safetensors.torch import save

    return save(
        {
            "a.weight": torch.arange(6.0).reshape(2, 3),
            "b": torch.arange(5.0).half(),
            "c": torch.arange(4.0).bfloat16(),
            "n": torch.tensor(3),
            "s": torch.tensor(1.0, dtype=torch.float64),
        }
    )


SAMPLE = sample()
HEADER = 8 + struct.unpack("<Q", SAMPLE[:8])[0]


class TestFuzz:
    """A damaged file is read, or refused by an error of ours; nothing else happens."""

    settings = settings(
        max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )

    def try_to_read(self, raw: bytes, folder: Path) -> None:
        path = folder / "x.safetensors"
        path.write_bytes(raw)
        with contextlib.suppress(Error):
            everything(path)

    @settings
    @given(
        flips=st.lists(st.tuples(st.integers(0, HEADER), st.integers(0, 255)), max_size=6),
        cut=st.none() | st.integers(0, len(SAMPLE)),
    )
    @example(flips=[], cut=len(SAMPLE) - 1)
    def test_bytes_changed_and_files_cut(
        self, flips: list[tuple[int, int]], cut: int | None, tmp_path: Path
    ) -> None:
        raw = bytearray(SAMPLE)
        for at, value in flips:
            raw[at] = value
        self.try_to_read(bytes(raw[:cut]), tmp_path)

    @settings
    @given(
        part=st.sampled_from(["dtype", "shape", "data_offsets"]),
        value=st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda children: (
                st.lists(children, max_size=3)
                | st.dictionaries(st.text(max_size=3), children, max_size=2)
            ),
            max_leaves=6,
        ),
    )
    @example(part="shape", value=[-3, -2])
    @example(part="shape", value=[float("inf")])
    @example(part="shape", value=[True, 6])
    @example(part="data_offsets", value=[0.0, 24.0])
    def test_a_field_of_a_tensor_replaced_by_any_json(
        self, part: str, value: Any, tmp_path: Path
    ) -> None:
        header = json.loads(SAMPLE[8:HEADER])
        header["a.weight"][part] = value
        raw = json.dumps(header).encode()
        self.try_to_read(struct.pack("<Q", len(raw)) + raw + SAMPLE[HEADER:], tmp_path)

    def test_the_undamaged_file_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "x.safetensors").write_bytes(SAMPLE)
        everything(tmp_path / "x.safetensors")
        found = read(tmp_path / "x.safetensors")
        assert isinstance(found["a.weight"], LazyTensor)
        np.testing.assert_array_equal(found["a.weight"].read(), np.arange(6).reshape(2, 3))
