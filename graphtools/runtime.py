"""onnxruntime, set up so that its numbers can be compared: CPU, one thread, no optimisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from graphtools.errors import UnsupportedError
from graphtools.model import Model
from graphtools.onnx_edit import SegmentRule, external_tensors, own_tensors, tapped
from graphtools.tensors import Array, DType

__all__ = ["Runner", "dtype_of", "runtime_version"]

# onnxruntime's names of element types that differ from ours.
_TYPES = {
    "float": DType.F32,
    "float16": DType.F16,
    "bfloat16": DType.BF16,
    "double": DType.F64,
    "bool": DType.BOOL,
    "string": DType.STRING,
    **{f"int{n}": DType[f"I{n}"] for n in (8, 16, 32, 64)},
    **{f"uint{n}": DType[f"U{n}"] for n in (8, 16, 32, 64)},
}


def runtime_version() -> str:
    """The installed onnxruntime's version."""
    import onnxruntime

    return str(onnxruntime.__version__)


def dtype_of(type: str) -> DType:
    """The element type of what onnxruntime calls ``tensor(float)``; `DType.OTHER` of what is no
    tensor, or of no type that is known here."""
    if not type.startswith("tensor("):
        return DType.OTHER
    return _TYPES.get(type.removeprefix("tensor(").removesuffix(")"), DType.OTHER)


class Runner:
    """One onnxruntime session on a changed copy of a model.

    Args:
        model: the loaded model, for its external weights and its path in messages.
        data: serialised copy that is run.
        outputs: the tensors it returns.
        external: ``data`` still refers to weights in other files.
        frugal: give memory back as soon as it can be, at the price of speed. The numbers are
            the same.
    """

    def __init__(
        self,
        model: Model,
        data: bytes,
        outputs: Sequence[str],
        *,
        external: bool = False,
        frugal: bool = False,
    ) -> None:
        self._external = external
        self._frugal = frugal
        self.model = model
        self.outputs = tuple(outputs)
        self._data = data

    @classmethod
    def of(cls, model: Model, outputs: Sequence[str], rule: SegmentRule | None = None) -> Runner:
        """The whole model, returning any of its intermediate tensors."""
        names = tuple(dict.fromkeys(outputs))
        return cls(model, tapped(model, names, rule), names, external=True)

    @classmethod
    def frugal(cls, model: Model, outputs: Sequence[str], rule: SegmentRule | None) -> Runner:
        """The same as `of`, for many and large tensors."""
        return cls(model, tapped(model, outputs, rule), outputs, external=True, frugal=True)

    @classmethod
    def shapes(cls, model: Model, tensors: Sequence[str], rule: SegmentRule | None) -> Runner:
        """A run that returns the shape of each tensor in place of its values, in this order."""
        taken = {*own_tensors(model), *model.constants, *(v.name for v in model.inputs)}
        names: dict[str, str] = {}
        for number, tensor in enumerate(tensors):
            names[tensor] = f"shape of {number}"
            while names[tensor] in taken:
                names[tensor] += "_"
        data = tapped(model, (), rule, names)
        return cls(model, data, [*names.values()], external=True, frugal=True)

    @property
    def types(self) -> tuple[str, ...]:
        """Of each output, as onnxruntime infers it: ``tensor(float)``, ``seq(tensor(int64))``.

        Raises:
            UnsupportedError: onnxruntime cannot load the model.
        """
        found = {value.name: str(value.type) for value in self._session.get_outputs()}
        return tuple(found[name] for name in self.outputs)

    @cached_property
    def _session(self):  # type: ignore[no-untyped-def]  # onnxruntime ships no types
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if self._frugal:
            options.enable_cpu_mem_arena = options.enable_mem_pattern = False
            # Shape nodes first, so that no tensor waits for its shape to be asked.
            options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        external = external_tensors(self.model) if self._external else []
        if external:
            values = [ort.OrtValue.ortvalue_from_numpy(t.read()) for t in external]
            options.add_external_initializers([t.name for t in external], values)
        # Random nodes draw the same in every session: of one network in several runs, too.
        ort.set_seed(0)
        try:
            session = ort.InferenceSession(self._data, options, ["CPUExecutionProvider"])
        except _runtime_errors() as error:
            raise UnsupportedError(
                "onnxruntime cannot load the model",
                file=self.model.path,
                found=_first_line(error),
                todo="convert the original export",
            ) from error
        self._data = b""
        return session

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Output name to value, batch axis included.

        Raises:
            UnsupportedError: onnxruntime refuses the model or fails on this input.
        """
        try:
            found = self._session.run(list(self.outputs), dict(feeds))
        except _runtime_errors() as error:
            shapes = {name: list(value.shape) for name, value in feeds.items()}
            raise UnsupportedError(
                "onnxruntime cannot run the model",
                file=self.model.path,
                where=f"input shapes {shapes}",
                found=_first_line(error),
                todo="check the inputs against what the export takes",
            ) from error
        return dict(zip(self.outputs, found, strict=True))


def _runtime_errors() -> tuple[type[Exception], ...]:
    """Onnxruntime's own exceptions have no common base of their own but RuntimeError's kin."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    named = [getattr(state, name) for name in dir(state)]
    own = [c for c in named if isinstance(c, type) and issubclass(c, Exception)]
    return (*own, RuntimeError, ValueError)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else repr(error)
