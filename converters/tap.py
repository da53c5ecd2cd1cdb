"""Goldens of any torch module: what its submodules gave, by name."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.emit import emit_goldens
from converters.goldens import ARCHITECTURE, golden_entries, golden_tensor, safe_names
from converters.manifest import Entry, Manifest
from graphtools.errors import MissingDependencyError, UnsupportedError, UsageError
from graphtools.tensors import Array, widened

if TYPE_CHECKING:
    from torch import nn

__all__ = ["load_module", "tap_module", "write_taps"]


def tap_module(
    module: nn.Module,
    names_or_globs: Sequence[str],
    inputs: Sequence[Array] | Mapping[str, Array],
) -> dict[str, Array]:
    """Run a module once and return what its submodules gave.

    Args:
        module: any ``torch.nn.Module``; it is run as it is (call ``eval()`` first).
        names_or_globs: names as ``named_modules`` gives them, or globs over them; ``""`` is the
            module itself.
        inputs: its positional arguments, or its keyword arguments.

    Returns:
        Name to array, in the order the submodules finished. A submodule that ran again is
        ``name#1``; one that gave several tensors is ``name.0`` or ``name.key``. A batch axis of
        size 1 is dropped.

    Raises:
        UsageError: a name or glob fits no submodule; the closest names are listed.
        UnsupportedError: the module cannot run on the inputs.
    """
    import torch

    chosen = _chosen([name for name, _ in module.named_modules()], names_or_globs)
    found: dict[str, Array] = {}
    calls: dict[str, int] = {}

    def hook(name: str) -> Any:
        def keep(_: object, __: object, output: object) -> None:
            count = calls[name] = calls.get(name, 0) + 1
            label = name if count == 1 else f"{name}#{count - 1}"
            for part, value in _tensors(output):
                array = value.detach().to("cpu", torch.float32).numpy().copy()
                key = ".".join(filter(None, (label, part))) or "output"
                found[key] = array[0] if array.ndim > 1 and len(array) == 1 else array

        return keep

    handles = [
        part.register_forward_hook(hook(name))
        for name, part in module.named_modules()
        if name in chosen
    ]
    try:
        with torch.no_grad():
            if isinstance(inputs, Mapping):
                module(**{k: torch.from_numpy(np.array(v)) for k, v in inputs.items()})
            else:
                module(*(torch.from_numpy(np.array(v)) for v in inputs))
    except (RuntimeError, ValueError, TypeError) as error:
        raise UnsupportedError(
            "the module cannot run on these inputs",
            found=str(error).strip().splitlines()[0][:200],
            todo="check the inputs' shapes and names",
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return found


def write_taps(taps: Mapping[str, Array], output: Path, *, name: str) -> Manifest:
    """Write taps as a baseline GGUF; full names and numpy shapes stand in its metadata.

    Raises:
        UnsupportedError: a tensor cannot be stored.
        UsageError: there is nothing to write.
    """
    if not taps:
        raise UsageError("nothing was tapped", todo="name submodules that run")
    import torch

    short = safe_names(taps)
    tensors = tuple(golden_tensor(short[n], value) for n, value in taps.items())
    entries = (
        Entry("baseline.reference", "string", f"torch {torch.__version__}", "run"),
        *golden_entries({n: value.shape for n, value in taps.items()}),
    )
    manifest = Manifest(ARCHITECTURE, name, entries, tensors)
    emit_goldens(manifest, output)
    return manifest


def load_module(spec: str, weights: Path | None = None) -> nn.Module:
    """A module from ``package.module:factory``, in eval mode; the factory takes no arguments.

    Args:
        spec: what to import and call. This runs the code that it names.
        weights: a checkpoint that is loaded into it, strictly.

    Raises:
        MissingDependencyError: torch is not installed.
        UsageError: the factory cannot be had or gives something else.
        UnsupportedError: the weights do not fit.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "tapping a module needs torch", todo="pip install torch"
        ) from error
    name, _, factory = spec.partition(":")
    try:
        made = getattr(importlib.import_module(name), factory)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"cannot make a module of {spec!r}",
            expected="package.module:factory, a callable without arguments",
            found=str(error),
        ) from error
    if not isinstance(made, torch.nn.Module):
        raise UsageError(f"{spec!r} gave no torch module", found=type(made).__name__)
    if weights is not None:
        from converters.sources.source import open_source

        source = open_source(weights)
        state = {k: torch.from_numpy(np.array(_values(t))) for k, t in source.tensors.items()}
        try:
            made.load_state_dict(state)
        except RuntimeError as error:
            raise UnsupportedError(
                "the weights do not fit the module",
                file=weights,
                found=" ".join(str(error).split())[:300],
            ) from error
    return made.eval()


def _values(tensor: Any) -> Array:
    return widened(tensor).read() if tensor.dtype.is_float else tensor.read()


def _chosen(names: Sequence[str], patterns: Sequence[str]) -> frozenset[str]:
    chosen: set[str] = set()
    for pattern in patterns:
        fits = [n for n in names if n == pattern or fnmatch.fnmatchcase(n, pattern)]
        if not fits:
            close = difflib.get_close_matches(pattern, names, n=3, cutoff=0.3)
            raise UsageError(
                f"no submodule is called {pattern!r}",
                found=f"closest: {', '.join(close)}" if close else f"{len(names)} submodules",
                todo="use a name of named_modules(), or a glob such as 'encoder.layers.*'",
            )
        chosen.update(fits)
    return frozenset(chosen)


def _tensors(output: object) -> list[tuple[str, Any]]:
    """(part, tensor) of what a module returned; parts have names only where there are several."""
    import torch

    if isinstance(output, torch.Tensor):
        return [("", output)]
    items = (
        output.items()
        if isinstance(output, Mapping)
        else enumerate(output)
        if isinstance(output, tuple | list)
        else ()
    )
    parts = [(str(key), value) for key, value in items if isinstance(value, torch.Tensor)]
    return [("", parts[0][1])] if len(parts) == 1 else parts
