"""One small network as every opset from 7 to 23 spells it: the same binding, the same numbers.

Axes, splits, bounds and ratios moved from attributes to inputs at different opsets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from graphtools.graph import build
from graphtools.match import Role
from graphtools.numpy_ops import NumpyOps
from graphtools.onnx_file import load
from graphtools.ops import Ops, X
from graphtools.tensors import Array
from graphtools.trace import trace
from graphtools.unify import Binding, unify

Save = Callable[..., Path]

OPSETS = range(7, 24)
FRAMES = 7

# The variance of 7 frames is unbiased: 7 / 6 of the mean square. Declared weights come first, so
# that they are drawn alike at every opset.
TEXT = """
network (float[1, 4, 7] x) => (float[1, 6] y)
<float[4, 4, 1, 1] w, float[4] b,
 float[4] s, float[4] o, float[4] m, float[4] var_of_stem,
 float[2] s2, float[2] o2, float[2] m2, float[2] var2,
 float[6, 4] w2, float[6] b2,
 float eps = {{1e-4}}, float unbiased = {{1.1666666}}{declared}>
{{
    wide = {unsqueeze}
    same = {squeeze}
    kernel = {kernel}
    stem = Conv (same, kernel, b)
    normal = BatchNormalization {norm} (stem, s, o, m, var_of_stem)
    kept, mask = {dropout}
    bounded = {clip}
    left, right = {split}
    sum = Add (right, left)
    second = BatchNormalization {norm} (sum, s2, o2, m2, var2)
    mean = {mean}
    centred = Sub (second, mean)
    squares = Mul (centred, centred)
    biased = {variance}
    spread = Mul (biased, unbiased)
    shifted = Add (spread, eps)
    std = Sqrt (shifted)
    both = Concat <axis = 1> (mean, std)
    flat = Flatten (both)
    y = Gemm <transB = 1> (flat, w2, b2)
}}
"""


def forward(o: Ops[X], x: X) -> X:
    x = o.clip(o.conv(x, "stem", kernel=(1,)), "clamp")
    left, right = o.split(x, 2)
    x = o.bn(o.add(left, right), "bn")
    return o.linear(o.island(x, "stats"), "seg")


def text(opset: int) -> str:
    declared = ""
    if opset >= 11:
        declared += ", float low = {0}, float high = {1.5}"
    if opset >= 12:
        declared += ", float ratio = {0.5}, bool training = {0}"
    if opset >= 13:
        declared += ", int64[1] two = {2}, int64[1] last = {3}, int64[2] halves = {2, 2}"
    on_frames = "<axes = [2]> ({})" if opset < 18 else "({}, two)"
    split = "<axis = 1, split = [2, 2]> (bounded)"
    if opset >= 13:
        split = "<axis = 1> (bounded, halves)"
    if opset >= 18:
        split = "<axis = 1, num_outputs = 2> (bounded)"
    return TEXT.format(
        declared=declared,
        unsqueeze="Unsqueeze " + ("<axes = [2]> (x)" if opset < 13 else "(x, two)"),
        squeeze="Squeeze " + ("<axes = [2]> (wide)" if opset < 13 else "(wide, two)"),
        kernel="Squeeze " + ("<axes = [3]> (w)" if opset < 13 else "(w, last)"),
        norm="<spatial = 1>" if opset < 9 else "<training_mode = 0>" if opset >= 14 else "",
        dropout="Dropout "
        + ("<ratio = 0.5> (normal)" if opset < 12 else "(normal, ratio, training)"),
        clip="Clip " + ("<min = 0.0, max = 1.5> (kept)" if opset < 11 else "(kept, low, high)"),
        split="Split " + split,
        mean="ReduceMean " + on_frames.format("second"),
        variance="ReduceMean " + on_frames.format("squares"),
    )


class Bound:
    """The weights of a binding, as `NumpyOps` asks for them."""

    def __init__(self, binding: Binding) -> None:
        self.layers = binding.layers

    def tensor(self, slot: str, role: Role) -> Array | None:
        found = self.layers[slot].tensors.get(role)
        return None if found is None else found.read()

    def stride(self, slot: str) -> int | None:
        return None


def bound(path: Path) -> Binding:
    found = unify(trace(forward), build(load(path)), "y")
    assert isinstance(found, Binding), found
    return found


@pytest.mark.parametrize("opset", OPSETS)
def test_the_binding_is_the_same_and_computes_what_onnxruntime_does(save: Save, opset: int) -> None:
    path = save(text(opset), opset=opset)
    found, plain = bound(path), bound(save(text(17), opset=17))
    values = {
        (slot, role): tensor.read().tobytes()
        for slot, layer in found.layers.items()
        for role, tensor in layer.tensors.items()
    }
    assert values == {
        (slot, role): tensor.read().tobytes()
        for slot, layer in plain.layers.items()
        for role, tensor in layer.tensors.items()
    }
    assert len(values) == 8
    constants = {name: constant.value for name, constant in found.constants.items()}
    assert constants == {
        "clamp": 1.5,
        "bn.eps": pytest.approx(1e-5),
        "stats.eps": pytest.approx(1e-4),
    }
    x = np.random.default_rng(0).normal(size=(4, FRAMES))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x[None].astype(np.float32)})
    ours = forward(NumpyOps(Bound(found), constants), x.astype(np.float32).astype(np.float64))
    np.testing.assert_allclose(ours, wanted[0], rtol=1e-4, atol=1e-5)
