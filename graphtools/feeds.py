"""What a model is run on: arrays as its inputs declare them, given or random."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import numpy as np

from graphtools.errors import UnsupportedError, UsageError
from graphtools.graph import Graph
from graphtools.model import Value
from graphtools.tensors import Array, DType

__all__ = ["feeds"]

# Random integers are below this: a vocabulary or a codebook is hardly ever smaller.
_INTEGERS = 10


def feeds(
    graph: Graph,
    given: Mapping[str, Array],
    *,
    dims: Mapping[str, int] | None = None,
    seed: int | None = None,
) -> dict[str, Array]:
    """An array for every input, in the file's order, of its declared type and shape.

    Args:
        given: arrays by input name. A float is rounded to the declared float; everything else is
            cast only where no value changes.
        dims: lengths of dynamic axes, by the name that the file gives them, or by
            ``INPUT.AXIS`` where it gives none. The first of several axes is 1 where nothing is
            said: a batch.
        seed: fills the inputs that are not given with normal floats, integers from 0 to 9 or
            booleans; without one they are missing. An input's values depend on the seed and its
            place alone.

    Raises:
        UsageError: a name is not the model's, an input or the length of an axis is missing.
        UnsupportedError: an array does not fit its input.
    """
    dims = dict(dims or {})
    _require_known(graph, "input", given, [value.name for value in graph.inputs])
    axes = {name for value in graph.inputs for name in _axes(value)}
    _require_known(graph, "dynamic axis", dims, sorted(axes))
    known = dict(dims)
    found = {
        v.name: _fitted(graph, v, given[v.name], known) for v in graph.inputs if v.name in given
    }
    missing = [v for v in graph.inputs if v.name not in given]
    if missing and seed is None:
        raise UsageError(
            "the model has inputs that are not given",
            file=graph.model.path,
            found=", ".join(map(str, missing)),
            todo="add --input NAME=FILE.npy for each, or --random SEED",
        )
    for value in missing:
        if value.shape is not None and len(value.shape) > 1 and value.shape[0] not in known:
            known.update({axis: 1 for axis in _axes(value)[:1] if isinstance(value.shape[0], str)})
    open_axes = {a: None for v in missing for a in _axes(v) if a not in known}
    if open_axes:
        raise UsageError(
            "the length of a dynamic axis is not given",
            file=graph.model.path,
            found=", ".join(map(str, missing)),
            todo="add " + " ".join(f"--dim {name}=LENGTH" for name in open_axes),
        )
    for place, value in enumerate(graph.inputs):
        if value.name not in given:
            found[value.name] = _random(graph, value, known, [seed or 0, place])
    return {value.name: found[value.name] for value in graph.inputs}


def _axes(value: Value) -> list[str]:
    """Names of the dynamic axes; one without a name is called by its input and place."""
    return [_axis(value, i, d) for i, d in enumerate(value.shape or ()) if isinstance(d, str)]


def _axis(value: Value, place: int, name: str) -> str:
    return f"{value.name}.{place}" if name == "?" else name


def _declared(value: Value) -> np.dtype[np.generic] | None:
    """The type that is fed: half precision is widened in the copy that is run."""
    dtype = DType.F32 if value.dtype in (DType.F16, DType.BF16) else value.dtype
    return None if dtype.numpy is None else np.dtype(dtype.numpy)


def _fitted(graph: Graph, value: Value, array: Array, known: dict[str, int]) -> Array:
    """The array as the input takes it; its lengths become known to other inputs."""
    wanted = _declared(value)
    cast = None if wanted is None else _cast(array, wanted)
    if cast is None:
        raise UnsupportedError(
            f"the array for the input {value.name!r} cannot be cast without loss",
            file=graph.model.path,
            expected=value.dtype.label,
            found=str(array.dtype),
            todo="give an array of that type",
        )
    lengths = [
        known.setdefault(_axis(value, i, d), n) if isinstance(d, str) else d
        for i, (d, n) in enumerate(zip(value.shape or (), array.shape, strict=False))
    ]
    if value.shape is not None and (len(value.shape) != array.ndim or lengths != [*array.shape]):
        expected = lengths if len(value.shape) == array.ndim else value.shape
        raise UnsupportedError(
            f"the array for the input {value.name!r} has another shape",
            file=graph.model.path,
            expected=f"{value}, here [{', '.join(map(str, expected))}]",
            found=str(list(array.shape)),
            todo="check the axes' order and the lengths that inputs share",
        )
    return np.ascontiguousarray(cast).reshape(array.shape)


def _cast(array: Array, wanted: np.dtype[np.generic]) -> Array | None:
    """None where a value would change, other than by the rounding of floats."""
    if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and wanted.kind in "iu"):
        whole = array.dtype.kind == "f" and bool(np.isfinite(array).all())
        if not whole or np.any(array != np.trunc(array)):
            return None
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(wanted)
        if array.dtype.kind == "f" and wanted.kind == "f":
            lost = np.isfinite(array) & ~np.isfinite(cast)
        else:
            lost = cast.astype(array.dtype) != array
    return None if np.any(lost) else cast


def _random(graph: Graph, value: Value, known: Mapping[str, int], seed: list[int]) -> Array:
    wanted = _declared(value)
    if wanted is None or value.shape is None:
        raise UsageError(
            f"nothing random can be made for the input {value.name!r}",
            file=graph.model.path,
            found=str(value),
            todo=f"add --input {value.name}=FILE.npy",
        )
    shape = [
        known[_axis(value, i, d)] if isinstance(d, str) else d for i, d in enumerate(value.shape)
    ]
    random = np.random.default_rng(seed)
    if wanted.kind == "f":
        return random.standard_normal(shape).astype(wanted)
    return random.integers(0, 2 if wanted.kind == "b" else _INTEGERS, shape).astype(wanted)


def _require_known(graph: Graph, what: str, given: Iterable[str], names: list[str]) -> None:
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names
            raise UsageError(
                f"the model has no {what} {name!r}",
                file=graph.model.path,
                found=f"it has: {', '.join(close)}" if close else "it has none",
                todo="check the name: graphtools inspect MODEL lists them",
            )
