"""Torch checkpoints: weights only, whatever is inside; nothing in them ever runs."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pickle
import subprocess
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from converters.sources.torch_file import read
from graphtools.errors import Error, NotAModelError, StorageError, UnsupportedError
from graphtools.tensors import DType, widened

Make = Callable[..., Any]

WEIGHT = torch.arange(6.0).reshape(2, 3) - 2.5
FORMATS = pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])


@pytest.fixture
def saved(tmp_path: Path) -> Make:
    def save(value: Any, name: str = "x.bin", *, new: bool = True) -> Path:
        torch.save(value, tmp_path / name, _use_new_zipfile_serialization=new)
        return tmp_path / name

    return save


@FORMATS
@pytest.mark.parametrize("name", ["pytorch_model.bin", "x.pt", "x.pth", "x.ckpt"])
def test_a_state_dict_is_read_in_its_order(name: str, new: bool, saved: Make) -> None:
    state = OrderedDict({"z": WEIGHT, "a": WEIGHT[0].clone(), "m": torch.tensor(3.0)})
    tensors, others = read(saved(state, name, new=new))
    assert list(tensors) == ["z", "a", "m"]
    assert [t.shape for t in tensors.values()] == [(2, 3), (3,), ()]
    assert others == {}
    for key, value in state.items():
        np.testing.assert_array_equal(tensors[key].read(), value.numpy())


@FORMATS
@pytest.mark.parametrize(
    ("dtype", "ours"),
    [
        (torch.float32, DType.F32),
        (torch.float16, DType.F16),
        (torch.bfloat16, DType.BF16),
        (torch.float64, DType.F64),
        (torch.int8, DType.I8),
        (torch.int32, DType.I32),
        (torch.int64, DType.I64),
        (torch.uint8, DType.U8),
        (torch.bool, DType.BOOL),
    ],
)
def test_types(dtype: Any, ours: DType, new: bool, saved: Make) -> None:
    written = WEIGHT.to(dtype)
    tensor = read(saved({"x": written}, new=new))[0]["x"]
    assert tensor.dtype is ours
    found = widened(tensor).read() if ours.is_float else tensor.read()
    np.testing.assert_array_equal(found, written.float().numpy())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex64, torch.uint16])
def test_a_type_that_is_no_weight_is_named(dtype: Any, saved: Make) -> None:
    tensor = read(saved({"a.weight": torch.ones(2, 3).to(dtype)}))[0]["a.weight"]
    assert tensor.shape == (2, 3)
    with pytest.raises(UnsupportedError, match=r"'a\.weight'"):
        widened(tensor)


@FORMATS
def test_views_and_parameters_are_plain_values(new: bool, saved: Make) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    state = {
        "transposed": base.T,
        "strided": base[:, ::2],
        "expanded": base[0, :1].expand(5),
        "parameter": torch.nn.Parameter(base),
        "shared": base,
    }
    tensors, _ = read(saved(state, new=new))
    for name, value in state.items():
        found = tensors[name].read()
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, value.detach().numpy(), err_msg=name)


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_a_tensor_without_plain_values_is_named(kind: str, saved: Make) -> None:
    value = WEIGHT.to_sparse() if kind == "sparse" else WEIGHT.to("meta")
    path = saved({"a.weight": value})
    with pytest.raises(UnsupportedError, match=r"'a\.weight'"):
        widened(read(path)[0]["a.weight"]).read()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state, "optimizer": {"lr": 0.1}},
        lambda state: {"model_state_dict": state},
        lambda state: {"state_dict": {"model": state}},
        lambda state: {"epoch": 1, "model": {"state_dict": state}},
        lambda state: OrderedDict(state_dict=OrderedDict(state)),
    ],
)
def test_a_wrapped_state_dict_is_unwrapped(wrap: Make, saved: Make) -> None:
    tensors, others = read(saved(wrap({"a.weight": WEIGHT})))
    assert list(tensors) == ["a.weight"]
    assert others == {}


def test_a_tensor_called_model_is_a_tensor(saved: Make) -> None:
    tensors, _ = read(saved({"model": WEIGHT, "state_dict": WEIGHT + 1}))
    assert list(tensors) == ["model", "state_dict"]


def test_entries_that_are_no_tensors_are_listed_with_their_type(saved: Make) -> None:
    state = {"a": WEIGHT, "step": 3, "name": "x", "groups": [1], "none": None, "d": {"b": WEIGHT}}
    tensors, others = read(saved(state))
    assert list(tensors) == ["a"]
    kinds = {"step": "int", "name": "str", "groups": "list", "none": "NoneType", "d": "dict"}
    assert others == kinds


@pytest.mark.parametrize("value", [[WEIGHT], WEIGHT, None, 3, "text", (WEIGHT, 1)])
def test_what_holds_no_state_dict_is_refused(value: Any, saved: Make) -> None:
    with pytest.raises(UnsupportedError, match="holds no state dict") as caught:
        read(saved(value))
    assert type(value).__name__ in str(caught.value)


class Trap:
    """Unpickled, it runs a command that leaves a file."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call, self.arguments


class TestCode:
    @pytest.fixture
    def trace(self, tmp_path: Path) -> Path:
        return tmp_path / "the_command_ran"

    @FORMATS
    @pytest.mark.parametrize(
        ("make", "name"),
        [
            (lambda trace: Trap(os.system, f"touch {trace}"), "posix.system"),
            (lambda trace: Trap(subprocess.call, ["touch", str(trace)]), ".call"),
            (lambda trace: Trap(eval, f"open({str(trace)!r}, 'w').close()"), "eval"),
            (lambda trace: Trap(exec, f"open({str(trace)!r}, 'w').close()"), "exec"),
            (lambda trace: Trap(Path.touch, trace), "the global getattr"),
        ],
        ids=["os.system", "subprocess", "eval", "exec", "method"],
    )
    def test_a_command_is_refused_and_does_not_run(
        self, make: Make, name: str, new: bool, saved: Make, trace: Path
    ) -> None:
        path = saved({"a": WEIGHT, "trap": make(trace)}, new=new)
        with pytest.raises(UnsupportedError) as caught:
            read(path)
        assert not trace.exists()
        shown = str(caught.value)
        assert "would run code" in shown
        assert name in shown
        assert "safetensors" in str(caught.value.todo)
        torch.load(path, weights_only=False)  # it is a trap indeed
        assert trace.exists()

    @pytest.mark.parametrize("protocol", [0, 1, 2])
    def test_a_bare_pickle_is_no_exception(
        self, protocol: int, tmp_path: Path, trace: Path
    ) -> None:
        path = tmp_path / "x.ckpt"
        path.write_bytes(pickle.dumps(Trap(os.system, f"touch {trace}"), protocol=protocol))
        with pytest.raises(UnsupportedError):
            read(path)
        assert not trace.exists()

    @pytest.mark.filterwarnings("ignore:Detected pickle protocol")
    @pytest.mark.parametrize("protocol", [3, 4, 5])
    def test_nor_one_of_a_newer_protocol(self, protocol: int, tmp_path: Path, trace: Path) -> None:
        path = tmp_path / "x.ckpt"
        path.write_bytes(pickle.dumps(Trap(os.system, f"touch {trace}"), protocol=protocol))
        with pytest.raises(UnsupportedError):
            read(path)
        assert not trace.exists()

    def test_from_the_command_line(self, graphtools: Make, saved: Make, trace: Path) -> None:
        path = saved({"a": WEIGHT, "trap": Trap(os.system, f"touch {trace}")}, "x.ckpt")
        for command in (("convert", "--output", "x.gguf", "--model"), ("inspect",)):
            ran = graphtools(*command, path, code=3)
            assert "the global posix.system" in ran.err
            assert "safetensors" in ran.err
            assert not trace.exists()

    def test_a_whole_module_is_refused_by_its_class(self, saved: Make) -> None:
        with pytest.raises(UnsupportedError, match="would run code") as caught:
            read(saved(torch.nn.Linear(2, 2)))
        assert "the global torch.nn.modules.linear.Linear" in str(caught.value)

    def test_a_class_of_a_library_is_named(self, saved: Make) -> None:
        """What trainers leave in: configurations of their own."""
        path = saved({"state_dict": {"a": WEIGHT}, "args": argparse.Namespace(lr=0.1)})
        with pytest.raises(UnsupportedError, match="would run code") as caught:
            read(path)
        assert "the global argparse.Namespace" in str(caught.value)

    def test_weights_only_is_never_switched_off(self) -> None:
        """And nothing else that unpickles is used."""
        import converters

        root = Path(converters.__file__).parent
        text = "\n".join(p.read_text() for p in root.rglob("*.py"))
        assert text.count("torch.load(") == text.count("weights_only=True")
        assert "weights_only=False" not in text
        assert "pickle.load" not in text
        assert "allow_pickle=True" not in text


def bytes_of(value: Any, new: bool) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=new)
    return stream.getvalue()


STATE = {"a.weight": torch.arange(12.0).reshape(3, 4), "b": torch.ones(5).half(), "step": 3}
WHOLE = {new: bytes_of(STATE, new) for new in (True, False)}


class TestDamage:
    @FORMATS
    @pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.9, 0.999])
    @pytest.mark.parametrize("size", [10, 100, 1000])
    def test_a_file_that_is_cut_off(
        self, size: int, share: float, new: bool, tmp_path: Path
    ) -> None:
        path = tmp_path / "x.bin"
        whole = bytes_of({"a.weight": torch.ones(size, 100)}, new)
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(NotAModelError, match="not a complete torch checkpoint") as caught:
            read(path)
        assert "fetch it again" in str(caught.value)

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"P",
            b"hello, this is a text file\n" * 20,
            b"<!DOCTYPE html><html><body>404</body></html>",
            b'{"error": "Entry not found"}',
            b"\x80",
            b"\x00" * 100,
            b"PK\x03\x04" + b"\x00" * 100,
            bytes(range(256)),
        ],
        ids=[
            "empty",
            "one byte",
            "text",
            "html",
            "json",
            "pickle mark",
            "zeros",
            "zip mark",
            "all",
        ],
    )
    def test_what_is_no_checkpoint(self, raw: bytes, tmp_path: Path) -> None:
        path = tmp_path / "x.bin"
        path.write_bytes(raw)
        with pytest.raises(NotAModelError, match="not a complete torch checkpoint") as caught:
            read(path)
        # torch's own advice is to switch the protection off.
        assert "weights_only" not in str(caught.value)
        assert caught.value.found
        assert not caught.value.found.isdigit()

    @pytest.mark.filterwarnings("ignore:.*TorchScript")
    @pytest.mark.filterwarnings("ignore:.*deprecated")
    def test_a_torchscript_archive_is_refused(self, tmp_path: Path) -> None:
        traced = torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(2))
        torch.jit.save(traced, tmp_path / "x.pt")
        with pytest.raises(UnsupportedError) as caught:
            read(tmp_path / "x.pt")
        assert "weights_only" not in str(caught.value)

    def test_a_zip_of_something_else(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", a=np.ones(3))
        (tmp_path / "x.npz").rename(tmp_path / "x.bin")
        with pytest.raises(NotAModelError):
            read(tmp_path / "x.bin")

    def test_a_pointer_of_git_lfs_says_what_to_do(self, tmp_path: Path) -> None:
        path = tmp_path / "x.bin"
        path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 12\n")
        with pytest.raises(NotAModelError) as caught:
            read(path)
        assert "Git LFS pointer" in str(caught.value)
        assert "git lfs pull" in str(caught.value)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError):
            read(tmp_path / "absent.bin")

    @FORMATS
    def test_bytes_changed_at_random_end_in_an_error_of_ours_or_in_tensors(
        self, new: bool, tmp_path: Path
    ) -> None:
        path = tmp_path / "x.bin"

        @settings(
            max_examples=400,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )
        @given(
            flips=st.lists(
                st.tuples(st.integers(0, len(WHOLE[new]) - 1), st.integers(0, 255)),
                min_size=1,
                max_size=3,
            )
        )
        def check(flips: list[tuple[int, int]]) -> None:
            raw = bytearray(WHOLE[new])
            for at, value in flips:
                raw[at] = value
            try_to_read(path, bytes(raw))

        check()

    def test_a_pickle_changed_inside_an_intact_zip(self, tmp_path: Path) -> None:
        """The zip's checksums catch most of what happens to a file, but not all writers' errors."""
        members = zipfile.ZipFile(io.BytesIO(WHOLE[True]))
        (inside,) = [n for n in members.namelist() if n.endswith("data.pkl")]
        size = len(members.read(inside))
        path = tmp_path / "x.bin"

        @settings(
            max_examples=400,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )
        @given(at=st.integers(0, size - 1), value=st.integers(0, 255))
        def check(at: int, value: int) -> None:
            raw = bytearray(members.read(inside))
            raw[at] = value
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
                for name in members.namelist():
                    archive.writestr(name, bytes(raw) if name == inside else members.read(name))
            try_to_read(path, out.getvalue())

        check()


def try_to_read(path: Path, raw: bytes) -> None:
    path.unlink(missing_ok=True)  # an earlier one may be mapped
    path.write_bytes(raw)
    with warnings.catch_warnings(), contextlib.suppress(Error):
        warnings.simplefilter("ignore")  # torch's about what it finds odd
        for tensor in read(path)[0].values():
            if tensor.dtype.is_float:
                widened(tensor).read()
