"""Two GGUF files: keys, tensors, and values bit by bit or within a bound."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.gguf_diff import GgufDiff, gguf_diff
from fixtures import catalog
from graphtools.errors import NotAModelError, UsageError

Make = Callable[..., Any]
EPS = "voicedetect.resnet.var_eps"


@pytest.fixture
def against(planted: Make, files: Make) -> Callable[..., GgufDiff]:
    """The diff of a file and itself after a change."""

    def run(change: Any, kind: str = "resnet", **options: Any) -> GgufDiff:
        return gguf_diff(files(kind), planted(kind, change), **options)

    return run


def nudge(name: str, by: float, index: int = 3) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        tensor = file.tensor(name)
        values = tensor.values
        values.flat[index] += np.float32(by)
        tensor.values = values

    return change


def test_a_file_and_itself(kind: str, files: Make) -> None:
    found = gguf_diff(files(kind), str(files(kind)))
    assert found
    data = found.to_json()
    assert (data["same"], data["how"]) == (True, "bit by bit")
    assert data["keys"] == data["tensors"] == data["near"] == []
    assert data["compared"]["tensors"] > 0


def test_order_alignment_and_padding_say_nothing(against: Make) -> None:
    def change(file: Any) -> None:
        rng = random.Random(0)
        rng.shuffle(file.keys)
        rng.shuffle(file.tensors)
        file.padding = False

    assert against(change)


class TestKeys:
    def test_only_in_one(self, against: Make) -> None:
        found = against(lambda f: f.drop(EPS))
        (only,) = found.keys
        assert (only.name, only.second) == (EPS, None)
        assert only.told() == ("f32 1e-07", "-")
        assert not found
        (only,) = against(lambda f: f.add("x", "[i32]", (1, 2))).keys
        assert only.told() == ("-", "[i32] of 2: 1, 2")

    def test_another_value_or_type(self, against: Make) -> None:
        def change(file: Any) -> None:
            file[EPS] = 2e-7
            file.retype("voicedetect.embedding_dim", "u64")

        dim, eps = against(change).keys
        assert dim.name == "voicedetect.embedding_dim"
        assert dim.told() == ("u32 32", "u64 32")
        assert eps.told() == ("f32 1e-07", "f32 2e-07")

    def test_general_keys_count(self, against: Make) -> None:
        def change(file: Any) -> None:
            file["general.name"] = "other"

        (only,) = against(change).keys
        assert only.told() == ("string 'model'", "string 'other'")

    @pytest.mark.parametrize(
        ("a", "b", "same"), [(0.0, -0.0, False), (float("nan"),) * 2 + (True,)]
    )
    def test_floats_by_their_bits(
        self, a: float, b: float, same: bool, planted: Make, tmp_path: Path
    ) -> None:
        first = planted("foreign", lambda f: f.add("x", "f32", a)).rename(tmp_path / "a.gguf")
        assert bool(gguf_diff(first, planted("foreign", lambda f: f.add("x", "f32", b)))) == same

    def test_long_arrays_are_shown_where_they_part(self, against: Make) -> None:
        def change(file: Any) -> None:
            names = file["voicedetect.resnet.conv1_weight"]
            file["voicedetect.resnet.conv1_weight"] = (*names[:10], "other", *names[11:])

        (only,) = against(change).keys
        first, second = only.told()
        assert second.startswith("[string] of 16: 10 alike, 'other', ")
        assert first.startswith("[string] of 16: 10 alike, 'onnx::Conv_")
        assert against(change).to_json()["keys"][0]["second"]["value"][10] == "other"

    def test_long_texts_too(self, planted: Make, tmp_path: Path) -> None:
        ends = ("first", "second")
        paths = []
        for end in ends:
            path = planted("foreign", lambda f, end=end: f.add("x", "string", "y" * 500 + end))
            paths.append(path.rename(tmp_path / f"{end}.gguf"))
        (only,) = gguf_diff(*paths).keys
        for told, end in zip(only.told(), ends, strict=True):
            assert end in told
            assert len(told) < 80


class TestTensors:
    def test_only_in_one(self, against: Make) -> None:
        (only,) = against(lambda f: f.tensors.remove(f.tensor("mean_vec"))).tensors
        assert only.told() == ("F32 [32]", "-")
        assert only.difference is None

    def test_another_shape(self, against: Make) -> None:
        def change(file: Any) -> None:
            file.tensor("mean_vec").ne = (16, 2)

        (only,) = against(change).tensors
        assert only.told() == ("F32 [32]", "F32 [2, 16]")
        assert only.difference is None

        def turn(file: Any) -> None:
            file.tensor("w").ne = (2, 3)

        (only,) = against(turn, "foreign").tensors
        assert only.told() == ("F32 [2, 3]", "F32 [3, 2]")
        assert only.difference is None

    def test_another_type_is_a_difference_however_near(self, against: Make) -> None:
        def change(file: Any) -> None:
            tensor = file.tensor("mean_vec")
            tensor.data, tensor.number = tensor.values.astype("<f2").tobytes(), 1

        (only,) = against(change, atol=1.0).tensors
        assert only.told() == ("F32 [32]", "F16 [32]")
        assert 0.0 < only.difference.max_abs < 1e-3

    def test_one_value(self, against: Make) -> None:
        found = against(nudge("model.seg_1.bias", 0.25))
        (only,) = found.tensors
        assert only.name == "model.seg_1.bias"
        assert only.difference.max_abs == pytest.approx(0.25)
        assert only.difference.cosine < 1.0
        assert found.keys == ()
        shown = found.to_json()["tensors"][0]
        assert shown["first"] == shown["second"] == {"type": "F32", "shape": [32]}
        assert shown["max_abs"] == only.difference.max_abs

    def test_one_bit(self, against: Make) -> None:
        def change(file: Any) -> None:
            tensor = file.tensor("onnx::Conv_367")
            tensor.data = bytes([tensor.data[0] ^ 1]) + tensor.data[1:]

        assert not against(change)
        assert against(change, atol=1e-6)

    def test_beyond_the_first_block_that_is_read(self, planted: Make, tmp_path: Path) -> None:
        values = np.ones(700_000, np.float32)

        def change(file: Any) -> None:
            file.tensor("w").values = values

        first = planted("foreign", change).rename(tmp_path / "first.gguf")
        values[699_999] = 2.0
        (only,) = gguf_diff(first, planted("foreign", change)).tensors
        assert only.difference.at == (699_999,)

    def test_within_a_bound(self, against: Make) -> None:
        found = against(nudge("model.seg_1.bias", 0.25), atol=0.3)
        assert found
        assert [t.name for t in found.near] == ["model.seg_1.bias"]
        assert found.tensors == ()
        assert found.to_json()["how"] == "within 0.3"
        assert not against(nudge("model.seg_1.bias", 0.25), atol=0.2)

    def test_nan_on_one_side_is_never_near(self, against: Make) -> None:
        assert not against(nudge("model.seg_1.bias", float("nan")), atol=1e30)

    def test_quantised_values_are_compared_as_what_they_mean(self, against: Make) -> None:
        def change(file: Any) -> None:
            q = file.tensor("q")
            q.data = struct.pack("<e", 0.25) + q.data[2:]

        (only,) = against(change, "foreign").tensors
        assert only.difference.max_abs > 0.0

    def test_types_that_cannot_be_read_by_their_bytes(self, planted: Make, tmp_path: Path) -> None:
        def of(byte: int) -> Path:
            def change(file: Any) -> None:
                tensor = file.tensor("q")  # Q8_1: a type that gguf does not dequantise
                tensor.number, tensor.data = 9, bytes([byte]) * 3 * 40

            return Path(planted("foreign", change)).rename(tmp_path / f"{byte}.gguf")

        one, other = of(1), of(2)
        assert gguf_diff(one, one)
        (only,) = gguf_diff(one, other, atol=1e9).tensors
        assert only.difference is None


class TestCommand:
    def test_the_same(self, files: Make, invoke: Make) -> None:
        ran = invoke("diff", files("resnet"), files("resnet"), code=0)
        assert ran.out == "the same: 29 keys and 75 tensors in both, values bit by bit\n"

    def test_what_differs(self, planted: Make, files: Make, invoke: Make) -> None:
        def change(file: Any) -> None:
            file[EPS] = 1e-8
            nudge("model.seg_1.bias", 0.25)(file)

        other = planted("resnet", change)
        ran = invoke("diff", files("resnet"), other, code=1)
        assert "f32 1e-07" in ran.out
        assert "f32 1e-08" in ran.out
        assert "0.25" in ran.out
        shown = invoke("diff", files("resnet"), other, "--json", code=1).json
        assert [k["key"] for k in shown["keys"]] == [EPS]

    def test_a_bound(self, planted: Make, files: Make, invoke: Make) -> None:
        other = planted("resnet", nudge("model.seg_1.bias", 0.25))
        ran = invoke("diff", files("resnet"), other, "--atol", "0.3", code=0)
        assert ran.out.startswith("1 tensor differs within 0.3; largest max|d| 0.25 at model.seg")
        invoke("diff", files("resnet"), other, "--atol", "0.1", code=1)
        invoke("diff", files("resnet"), other, "--atol", "-1", code=2)

    def test_forty_lines_at_most(self, files: Make, invoke: Make) -> None:
        ran = invoke("diff", files("resnet"), files("campplus"), code=1)
        assert len(ran.out.splitlines()) <= 40
        assert ".. and 676 more" in ran.out
        full = invoke("diff", files("resnet"), files("campplus"), "--json", code=1).json
        assert len(full["tensors"]) == 692

    def test_one_of_each_is_a_wrong_call(self, files: Make, invoke: Make) -> None:
        onnx = catalog.path("resnet34_tiny")
        for pair in ((files("resnet"), onnx), (onnx, files("resnet"))):
            ran = invoke("diff", *pair, code=2)
            assert f"graphtools convert --model {onnx}" in ran.err
        assert "no such file" in invoke("diff", files("resnet"), "absent.gguf", code=2).err
        assert "no such file" in invoke("diff", "absent.gguf", files("resnet"), code=2).err

    def test_damaged_files(self, files: Make, tmp_path: Path) -> None:
        (tmp_path / "cut.gguf").write_bytes(files("resnet").read_bytes()[:-100])
        with pytest.raises(NotAModelError, match="bytes are missing"):
            gguf_diff(files("resnet"), tmp_path / "cut.gguf")
        with pytest.raises(UsageError):
            gguf_diff(tmp_path / "absent.gguf", files("resnet"))


def test_values_beyond_all_bounds_are_a_difference_and_no_warning(
    planted: Make, files: Make
) -> None:
    def change(file: Any) -> None:
        tensor = file.tensor("h")  # as f64: 1e300 and a signalling NaN
        data = struct.pack("<d", 1e300) + bytes.fromhex("010000000000f07f")
        tensor.ne, tensor.number, tensor.data = (2,), 28, data

    def other(file: Any) -> None:
        change(file)
        file.tensor("h").data = bytes(16)

    first = planted("foreign", change).rename(files("foreign").with_name("first.gguf"))
    (only,) = gguf_diff(first, planted("foreign", other)).tensors
    assert only.difference.max_abs == float("inf")
