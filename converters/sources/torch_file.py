"""Torch checkpoints, through ``torch.load(weights_only=True)`` and never otherwise."""

from __future__ import annotations

import errno
import pickle
import re
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphtools.errors import (
    MissingDependencyError,
    NotAModelError,
    StorageError,
    UnsupportedError,
)
from graphtools.tensors import Array, DType, LazyTensor, bf16_to_f32

__all__ = ["read"]

# Where trainers put the state dict when they save more than that.
_WRAPPERS = ("state_dict", "model_state_dict", "model")
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")


def read(path: Path) -> tuple[dict[str, LazyTensor], dict[str, str]]:
    """The tensors of a checkpoint in its order, and what else its state dict holds.

    Raises:
        MissingDependencyError: torch is not installed.
        UnsupportedError: loading would run code, or there is no state dict inside.
        NotAModelError: it is not a torch checkpoint.
    """
    loaded = _load(path)
    for _ in range(3):  # a state dict in a wrapper in a wrapper
        inner = [loaded[k] for k in _WRAPPERS if isinstance(loaded, Mapping) and k in loaded]
        if not inner or not isinstance(inner[0], Mapping):
            break
        loaded = inner[0]
    if not isinstance(loaded, Mapping):
        raise UnsupportedError(
            "the checkpoint holds no state dict",
            file=path,
            expected="a dict of names to tensors, or one under state_dict or model",
            found=type(loaded).__name__,
            todo="save model.state_dict(), best as safetensors",
        )
    import torch

    tensors: dict[str, LazyTensor] = {}
    others: dict[str, str] = {}
    for name, value in loaded.items():
        if isinstance(value, torch.Tensor):
            dtype = _DTYPES.get(str(value.dtype).removeprefix("torch."), DType.OTHER)
            if value.layout is not torch.strided or value.is_meta:
                dtype = DType.OTHER  # no plain values behind it
            recipe = _InTorch(str(name), value)
            tensors[str(name)] = LazyTensor(str(name), tuple(value.shape), dtype, recipe)
        else:
            others[str(name)] = type(value).__name__
    return tensors, others


# What torch and pickle raise on bytes that are no checkpoint.
_ON_DAMAGE = (
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    AssertionError,
    ArithmeticError,
    MemoryError,
    ImportError,
    struct.error,
)

_DTYPES = {
    "float32": DType.F32,
    "float16": DType.F16,
    "bfloat16": DType.BF16,
    "float64": DType.F64,
    "int8": DType.I8,
    "int16": DType.I16,
    "int32": DType.I32,
    "int64": DType.I64,
    "uint8": DType.U8,
    "bool": DType.BOOL,
}


def _load(path: Path) -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "reading a torch checkpoint needs torch",
            file=path,
            todo="pip install torch, or convert a safetensors file",
        ) from error
    try:
        with path.open("rb") as stream:
            head = stream.read(64)
        if head.startswith(b"version https://git-lfs"):
            raise NotAModelError(
                "the file is not a torch checkpoint",
                file=path,
                found="a Git LFS pointer: the text that stands in for the weights",
                todo="run `git lfs pull` in that repository, or download the file itself",
            )
        # Only the zip format can be mapped; the older one is a bare pickle.
        mapped = head.startswith(b"PK\x03\x04")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        named = _GLOBAL.search(str(error))
        if named is None or not _exists(named.group(1)):
            raise _damaged(path, error) from error
        raise UnsupportedError(
            "the checkpoint would run code when loaded, and is refused",
            file=path,
            expected="tensors and plain containers only",
            found=f"the global {named.group(1)}",
            todo="save the state dict as safetensors and convert that",
        ) from error
    except OSError as error:
        if error.errno == errno.EINVAL:  # a mapped zip whose end is missing
            raise _damaged(path, error) from error
        raise StorageError(f"cannot read: {error.strerror or error}", file=path) from error
    except _ON_DAMAGE as error:
        raise _damaged(path, error) from error


def _exists(name: str) -> bool:
    """Whether a global can be there: a name that is cut off is damage, not code."""
    module, _, attribute = name.rpartition(".")
    loaded = sys.modules.get(module)
    return loaded is None or hasattr(loaded, attribute)


def _damaged(path: Path, error: Exception) -> NotAModelError:
    return NotAModelError(
        "the file is not a complete torch checkpoint",
        file=path,
        # torch's own text advises to load without weights_only, which nobody should.
        found=f"bytes that torch cannot read ({type(error).__name__})",
        todo="fetch it again, or convert a safetensors file",
    )


@dataclass(frozen=True, eq=False)
class _InTorch:
    """Values of a loaded (usually memory-mapped) torch tensor."""

    name: str
    tensor: Any

    def read(self) -> Array:
        import torch

        tensor = self.tensor.detach()
        if tensor.dtype is torch.bfloat16:
            return bf16_to_f32(tensor.contiguous().view(torch.uint16).numpy())
        return tensor.contiguous().numpy()  # type: ignore[no-any-return]

    def span(self) -> None:
        return None

    def origin(self) -> str:
        return self.name

    def sources(self) -> Iterator[LazyTensor]:
        return iter(())
