"""The acceptance check: convert a model to a temporary file, and lint that.

It passes, fails, or is skipped. Skipped means that it could not be made here at all: a package is
not installed, or the checkpoint cannot be reached. Whatever else goes wrong is a failure, so that
an error of ours never looks like a machine without a network.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from converters.archs import arch_named
from converters.archs.checkpoint import Options
from converters.convert import Conversion, convert
from converters.lint import Lint, lint
from converters.sources.locate import locate
from graphtools.errors import (
    Error,
    MissingDependencyError,
    StorageError,
    UnreachableError,
    UsageError,
)

__all__ = ["DEFAULT", "Check", "check"]

# The architecture whose default model is checked where nothing is named.
DEFAULT = "ecapa_tdnn"
_OURS = ("converters", "graphtools")


@dataclass(frozen=True)
class Check:
    """The result; truthy when it passed.

    Attributes:
        reason: why it was skipped, or why nothing could be linted.
        conversion: what was converted; its files are gone.
    """

    status: Literal["pass", "fail", "skip"]
    model: str
    reason: Error | None = None
    conversion: Conversion | None = None
    lint: Lint | None = None

    def __bool__(self) -> bool:
        return self.status == "pass"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        done = self.conversion
        return {
            "status": self.status,
            "model": self.model,
            "arch": None if done is None else done.arch,
            "proof": None if done is None or done.proof is None else done.proof.to_json(),
            "reason": None if self.reason is None else self.reason.fields(),
            "lint": None if self.lint is None else self.lint.to_json(),
        }


def check(
    model: str | None = None,
    *,
    file: str | None = None,
    arch: str | None = None,
    options: Options | None = None,
) -> Check:
    """Convert, prove and lint a model; nothing stays on the disk.

    Args:
        model: a path or a Hugging Face id; None takes the default model of ``arch``.
        file: which file of a folder or repository.
        arch: the architecture that it is asserted to be; `DEFAULT` where no model is named.
        options: what the user says where a checkpoint is silent.

    Raises:
        UsageError: the call itself is wrong: no such path, no such repository.
    """
    if model is None:
        arch = arch or DEFAULT
        model = arch_named(arch).model
    if not model:
        raise UsageError(
            f"{arch} has no default model", todo="add --model FILE, FOLDER or a Hugging Face id"
        )
    try:
        path = locate(model, file)
        with tempfile.TemporaryDirectory(prefix="graphtools-check-") as folder:
            target = Path(folder) / "checked.gguf"
            done = convert(path, target, name=model, arch=arch, options=options)
            found = lint(target)
    except UsageError:
        raise
    except (MissingDependencyError, UnreachableError) as error:
        return Check("skip", model, error)
    except Error as error:
        return Check("fail", model, error)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _OURS:
            raise  # a bug
        why: Error = MissingDependencyError(
            f"the package {missing!r} is not installed", todo="pip install onnx-manifest"
        )
        return Check("skip", model, why)
    except OSError as error:
        why = StorageError(f"cannot write or read: {error.strerror or error}", file=error.filename)
        return Check("fail", model, why)
    return Check("pass" if found else "fail", model, conversion=done, lint=found)
