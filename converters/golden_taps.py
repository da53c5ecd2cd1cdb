"""Goldens of any ONNX model: the tensors that a user names, as onnxruntime computes them."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from converters.arrays import open_arrays
from converters.golden_files import GoldenFile, golden_file, require_form
from converters.goldens import SCHEMA, file_sha256, golden_entries
from converters.manifest import Entry
from graphtools.errors import UnsupportedError, UsageError
from graphtools.feeds import feeds
from graphtools.files import require_other
from graphtools.graph import Graph, build
from graphtools.model import Model
from graphtools.onnx_edit import SegmentRule, has_partial_windows
from graphtools.onnx_file import load
from graphtools.recover import Recovered, network_of
from graphtools.runtime import runtime_version
from graphtools.taps import Tap, choose, plan, run_taps, weights_before
from graphtools.tensors import Array, DType

__all__ = ["GoldenTaps", "Plan", "TapRow", "golden_taps"]

# What values may take beside the model, where the user says nothing.
_ROOM = 1 << 30
# What glibc's malloc may keep of freed memory: twice the largest size below which a block can be
# cut from the heap, 32 MB (mallopt(3), M_TRIM_THRESHOLD and DEFAULT_MMAP_THRESHOLD_MAX).
_KEPT_BY_MALLOC = 64 << 20
_PROVIDER = "CPUExecutionProvider"


@dataclass(frozen=True)
class Plan:
    """What is about to run.

    Attributes:
        size: bytes of all tensors.
        runs: of the model, each with as many tensors as fit the memory.
    """

    tensors: int
    size: int
    runs: int


@dataclass(frozen=True)
class TapRow:
    """One tensor that was written.

    Attributes:
        shape: numpy axis order, batch axis included.
        stage: of the recovered network that it is; "" is none.
        nans, infs: how many of its values are NaN, or infinite.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    stage: str
    nans: int
    infs: int


@dataclass(frozen=True)
class GoldenTaps:
    """What was written; truthy when nothing that was asked for is missing.

    Attributes:
        tensors: the inputs, then the taps in execution order.
        omitted: tensors that were asked for and cannot be had or stored, with the reason.
        network: title of the recovered network; "" where none was recovered.
    """

    output: Path
    reference: str
    network: str
    tensors: tuple[TapRow, ...]
    omitted: Mapping[str, str]

    def __bool__(self) -> bool:
        return not self.omitted

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "output": str(self.output),
            "reference": self.reference,
            "network": self.network,
            "tensors": [{**t.__dict__, "shape": list(t.shape)} for t in self.tensors],
            "omitted": dict(self.omitted),
        }


def golden_taps(
    model: Path,
    output: Path,
    *,
    inputs: Mapping[str, Path] | None = None,
    audio: Path | None = None,
    seed: int | None = None,
    dims: Mapping[str, int] | None = None,
    taps: Sequence[str] = (),
    seg_pool: SegmentRule = "kernel",
    max_memory: int | None = None,
    name: str | None = None,
    planned: Callable[[Plan], None] | None = None,
) -> GoldenTaps:
    """Run any ONNX model once and write the tensors that are asked for.

    Args:
        model: the ONNX file; it need be none of the families.
        output: a ``.gguf``, an ``.npz``, or a folder for ``.npy`` files.
        inputs: a ``.npy`` file for each input by name.
        audio: in place of the features of a recovered speaker encoder: a clip, 16 kHz, mono.
        seed, dims: for inputs that are not given, as `graphtools.feeds.feeds`.
        taps: patterns, as `graphtools.taps.choose`. By default the stages of the recovered
            network, or the outputs of any other.
        seg_pool: as `converters.baseline.baseline`; for recovered networks alone.
        max_memory: bytes that the process may take. By default 1 GB more than the model takes.
        name: stored as ``general.name``; the model's path by default.
        planned: told the plan before values are computed.

    Raises:
        UsageError: an option names what the model does not have, or an input is missing.
        UnsupportedError: an input does not fit, the model cannot be run, or not within the
            memory.
        StorageError: the output cannot be written.
    """
    require_form(output)
    files = dict(inputs or {})
    require_other(output, model, *files.values(), *([audio] if audio else []))
    graph = build(load(model))
    require_other(output, *graph.model.files())
    net = network_of(graph)
    stages = dict(net.binding.stages) if net else {}
    chosen = choose(graph, taps or [*stages] or [v.name for v in graph.outputs], stages)
    fed = feeds(graph, _given(graph, net, files, audio), dims=dims, seed=seed)
    rule = seg_pool if net and has_partial_windows(graph.model) else None
    tensors, omitted = plan(graph, chosen, fed, rule)
    size = sum(tap.size for tap in tensors) + sum(array.nbytes for array in fed.values())
    budget = _ROOM if max_memory is None else _left(graph.model, max_memory, tensors)

    def started(runs: int) -> None:
        if planned is not None:
            planned(Plan(len(tensors), size, runs))

    by_tensor = {tensor: stage for stage, tensor in stages.items()}
    weights = weights_before(graph, [tap.name for tap in tensors])
    writing = _Writing(by_tensor, weights, dict(omitted))
    values = run_taps(graph, tensors, fed, rule, budget=budget, started=started)
    with golden_file(output, size) as file:
        for input, array in fed.items():
            writing.add(file, Tap(input, array.shape, _dtype(array)), array)
        for tap, array in values:
            writing.add(file, tap, array)
            del array  # the next run begins without it
        if not writing.rows:
            raise UsageError(
                "nothing that was asked for can be written",
                file=model,
                found="; ".join(f"{n}: {why}" for n, why in [*writing.omitted.items()][:3]),
                todo="name other tensors, or write an .npz",
            )
        keys = _keys(graph.model, fed, files, audio, seed, rule)
        file.finish(name or str(model), (*keys, *writing.entries()))
    return GoldenTaps(
        output=output,
        reference=f"onnxruntime {runtime_version()}",
        network=net.family.title if net else "",
        tensors=tuple(writing.rows),
        omitted=writing.omitted,
    )


def _given(
    graph: Graph, net: Recovered | None, files: Mapping[str, Path], audio: Path | None
) -> dict[str, Array]:
    given = {name: _array(file) for name, file in files.items()}
    if audio is None:
        return given
    from converters.audio import read_audio
    from converters.frontend import log_mel, mean_subtracted

    if net is None:
        raise UsageError(
            "a clip is the input of a recovered network alone",
            file=graph.model.path,
            todo="give the model's inputs: --input NAME=FILE.npy, or --random SEED",
        )
    features = mean_subtracted(log_mel(read_audio(audio)))
    return {net.binding.input: features[None], **given}


def _array(file: Path) -> Array:
    if file.suffix != ".npy":
        raise UsageError("an input is read from an .npy file", found=str(file))
    return open_arrays(file).read(file.stem)


class _Writing:
    """The tensors so far, and what the keys say of them."""

    def __init__(
        self,
        stages: Mapping[str, str],
        weights: Mapping[str, tuple[str, ...]],
        omitted: dict[str, str],
    ) -> None:
        self._stages = stages
        self._weights = weights
        self.omitted = omitted
        self.rows: list[TapRow] = []

    def add(self, file: GoldenFile, tap: Tap, values: Array) -> None:
        try:
            file.add(tap.name, values)
        except UnsupportedError as error:
            self.omitted[tap.name] = f"{error.found}, which a GGUF does not hold"
            return
        real = values.dtype.kind == "f"
        nans = int(np.isnan(values).sum()) if real else 0
        infs = int(np.isinf(values).sum()) if real else 0
        stage = self._stages.get(tap.name, "")
        self.rows.append(TapRow(tap.name, values.shape, tap.dtype.label, stage, nans, infs))

    def entries(self) -> list[Entry]:
        rows = self.rows
        shapes = {row.name: row.shape for row in rows}
        found = [
            *golden_entries(shapes),
            _entry("dtypes", tuple(row.dtype for row in rows)),
            _entry("tap_stages", tuple(row.stage for row in rows)),
            _entry("tap_weights", tuple("\n".join(self._weights.get(r.name, ())) for r in rows)),
            _entry("nan_counts", tuple(row.nans for row in rows)),
            _entry("inf_counts", tuple(row.infs for row in rows)),
        ]
        if self.omitted:
            lines = tuple(f"{name}: {why}" for name, why in sorted(self.omitted.items()))
            found.append(_entry("omitted", lines))
        return found


def _dtype(array: Array) -> DType:
    """As it was fed: half precision is widened."""
    return next(t for t in DType if t.numpy is not None and np.dtype(t.numpy) == array.dtype)


def _entry(key: str, value: Any) -> Entry:
    types = {row.key: row.type for row in SCHEMA.all_rows}
    return Entry(f"baseline.{key}", types[f"baseline.{key}"], value, "run")


def _keys(
    model: Model,
    fed: Mapping[str, Array],
    files: Mapping[str, Path],
    audio: Path | None,
    seed: int | None,
    rule: SegmentRule | None,
) -> list[Entry]:
    packages = ("numpy", "onnx", "onnx-manifest", "onnxruntime")
    found = [
        _entry("model_sha256", ",".join(file_sha256(part) for part in model.files())),
        _entry("reference", f"onnxruntime {runtime_version()}"),
        _entry("provider", _PROVIDER),
        _entry("versions", tuple(f"{package} {version(package)}" for package in packages)),
    ]
    if rule is not None:
        found.append(_entry("seg_pool", rule))
    if audio is not None:
        found += [
            _entry("audio_name", audio.name),
            _entry("audio_sha256", file_sha256(audio)),
        ]
    if fed:
        random = f"random, seed {seed}" if seed is not None else ""
        clip = f"features of {audio.name}" if audio is not None else ""
        sources = tuple(files[n].name if n in files else clip or random for n in fed)
        digests = tuple(hashlib.sha256(array.tobytes()).hexdigest() for array in fed.values())
        found += [
            _entry("inputs", tuple(fed)),
            _entry("input_sources", sources),
            _entry("input_sha256", digests),
        ]
    return found


def _left(model: Model, max_memory: int, tensors: Sequence[Tap]) -> int:
    """What the model, and malloc with blocks of the tensors' sizes, leave of the memory.

    Raises:
        UnsupportedError: nothing.
    """
    largest = max((tap.size for tap in tensors), default=0)
    taken = _peak(model) + min(2 * largest, _KEPT_BY_MALLOC)
    if taken >= max_memory:
        raise UnsupportedError(
            "the model alone takes more memory than may be used",
            file=model.path,
            expected=f"{max_memory / 1e6:.0f} MB",
            found=f"{taken / 1e6:.0f} MB without any tensor kept",
            todo="allow more with --max-memory, or give a shorter input",
        )
    return max_memory - taken


def _peak(model: Model) -> int:
    """Bytes that this process has taken at most so far, a run of the model included."""
    with contextlib.suppress(OSError):  # Linux; the other figure starts at the parent's there
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    try:
        import resource
    except ImportError:  # Windows: the weights are most of it, twice while they are loaded
        return 2 * sum(t.size * (t.dtype.itemsize or 0) for t in model.constants.values())
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else 1024 * found
