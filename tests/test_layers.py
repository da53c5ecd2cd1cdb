"""The layers of the two packages, read off the imports: who may know of whom, and when."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in ("graphtools", "converters")
    for path in (ROOT / package).rglob("*.py")
)
GRAPHTOOLS = [m for m in MODULES if m.startswith("graphtools/")]
CONVERTERS = [m for m in MODULES if m.startswith("converters/")]
PUBLIC = [m for m in MODULES if not Path(m).name.startswith("_") or Path(m).name == "__init__.py"]

# What takes long to import or is not always installed.
HEAVY = {
    "gguf",
    "huggingface_hub",
    "kaldi_native_fbank",
    "networkx",
    "numpy",
    "onnx",
    "onnxruntime",
    "safetensors",
    "soundfile",
    "speechbrain",
    "torch",
    "torchaudio",
    "transformers",
}


@dataclass(frozen=True)
class Import:
    """One import: of which module, at which line, and in which function ("" for the module)."""

    module: str
    line: int
    function: str

    @property
    def top(self) -> str:
        return self.module.split(".")[0]


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"), module)


def imports(module: str) -> list[Import]:
    """All of them but those for type checkers alone."""
    return list(_imports(tree(module), module, ""))


def _imports(node: ast.AST, module: str, function: str) -> Iterator[Import]:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        for otherwise in node.orelse:
            yield from _imports(otherwise, module, function)
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, function)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{module}:{node.lineno}: imports are absolute"
        assert node.module
        yield Import(node.module, node.lineno, function)
        for alias in node.names:  # `from a import b`, b a module
            yield Import(f"{node.module}.{alias.name}", node.lineno, function)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, module, function)


def users(top: str, modules: list[str]) -> dict[str, set[str]]:
    """Modules that import a package, with the functions that do."""
    found: dict[str, set[str]] = {}
    for module in modules:
        for one in imports(module):
            if one.top == top:
                found.setdefault(module, set()).add(one.function)
    return found


def test_there_are_modules_to_look_at() -> None:
    assert {"graphtools/onnx_file.py", "graphtools/families/resnet.py"} <= set(GRAPHTOOLS)
    assert {"converters/emit.py", "converters/cli/__init__.py"} <= set(CONVERTERS)
    assert {one.module for one in imports("graphtools/onnx_file.py")} >= {
        "onnx",
        "graphtools.model",
    }


class TestEdges:
    def test_graphtools_knows_no_converters_and_no_gguf(self) -> None:
        for top in ("converters", "fixtures", "tests", "gguf", "click", "rich", "safetensors"):
            assert users(top, GRAPHTOOLS) == {}

    def test_the_packages_know_no_tests_and_no_fixtures(self) -> None:
        for top in ("fixtures", "tests", "pytest", "hypothesis"):
            assert users(top, MODULES) == {}

    def test_four_modules_know_the_format(self) -> None:
        allowed = {f"graphtools/onnx_{name}.py" for name in ("file", "edit", "save", "shapes")}
        assert set(users("onnx", MODULES)) == allowed
        assert set(users("google", MODULES)) <= {"graphtools/onnx_file.py"}

    def test_onnxruntime_is_imported_when_something_is_run(self) -> None:
        found = users("onnxruntime", MODULES)
        assert set(found) == {"graphtools/runtime.py"}
        assert "" not in found["graphtools/runtime.py"]

    @pytest.mark.parametrize("top", ["torch", "transformers", "speechbrain", "torchaudio"])
    def test_reference_libraries_are_imported_in_functions_only(self, top: str) -> None:
        assert users(top, GRAPHTOOLS) == {}
        assert [module for module, places in users(top, CONVERTERS).items() if "" in places] == []

    def test_gguf_is_written_and_read_in_converters_alone(self) -> None:
        assert set(users("gguf", MODULES)) <= set(CONVERTERS)
        assert users("gguf", CONVERTERS)

    @pytest.mark.parametrize("module", [m for m in CONVERTERS if m.startswith("converters/cli/")])
    def test_commands_start_without_anything_heavy(self, module: str) -> None:
        """`--help` and a wrong option must not wait for numpy, not even through our own modules."""
        seen: set[str] = set()
        pending = [module]
        heavy = []
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            for one in imports(at):
                if one.function:
                    continue
                if one.top in HEAVY:
                    heavy.append(f"{at}:{one.line} imports {one.module}")
                pending += _files(one.module)
        assert heavy == []

    @pytest.mark.parametrize("module", MODULES)
    def test_nothing_private_is_taken_from_another_module(self, module: str) -> None:
        private = [
            f"{module}:{one.line} {one.module}"
            for one in imports(module)
            if one.top in ("graphtools", "converters")
            and any(part.startswith("_") for part in one.module.split("."))
        ]
        assert private == []

    def test_nobody_imports_the_commands(self) -> None:
        for module in MODULES:
            if not module.startswith("converters/cli/") and module != "converters/__main__.py":
                assert not [i for i in imports(module) if i.module.startswith("converters.cli")]

    def test_families_are_forwards_over_ops_and_questions_to_a_graph(self) -> None:
        allowed = {
            *("graphtools.ops", "graphtools.graph", "graphtools.model", "graphtools.errors"),
            *("graphtools.residual", "graphtools.families"),  # a variation of another network
        }
        for module in GRAPHTOOLS:
            if module.startswith("graphtools/families/") and "__init__" not in module:
                own = {i.module for i in imports(module) if i.top == "graphtools"}
                assert {".".join(m.split(".")[:2]) for m in own} <= allowed, module


def _files(module: str) -> list[str]:
    """The files of one of our modules, and of the packages around it."""
    parts = module.split(".")
    if parts[0] not in ("graphtools", "converters"):
        return []
    found = []
    for length in range(1, len(parts) + 1):
        path = "/".join(parts[:length])
        found += [f for f in (f"{path}.py", f"{path}/__init__.py") if f in MODULES]
    return found


# --- public names ---------------------------------------------------------------------------


def exported(module: str) -> list[str] | None:
    """The literal value of ``__all__``."""
    for node in tree(module).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            assert value is not None
            found: list[str] = ast.literal_eval(value)
            return found
    return None


def defined(module: str) -> set[str]:
    """Public functions, classes and constants that a module defines itself."""
    found: set[str] = set()
    for node in tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                found |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {name for name in found if not name.startswith("_")}


class TestPublicNames:
    @pytest.mark.parametrize("module", PUBLIC)
    def test_every_module_says_what_is_public(self, module: str) -> None:
        names = exported(module)
        assert names is not None, f"{module} has no __all__"
        assert len(set(names)) == len(names)

    @pytest.mark.parametrize("module", PUBLIC)
    def test_what_is_public_is_what_it_defines(self, module: str) -> None:
        names = set(exported(module) or ())
        if Path(module).name == "__init__.py":  # a package may hand on what its modules define
            assert defined(module) <= names
        else:
            assert names == defined(module)

    @pytest.mark.parametrize("module", PUBLIC)
    def test_every_public_name_exists(self, module: str) -> None:
        dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        loaded = importlib.import_module(dotted)
        assert [name for name in exported(module) or () if not hasattr(loaded, name)] == []

    @pytest.mark.parametrize("module", MODULES)
    def test_every_module_begins_with_a_docstring(self, module: str) -> None:
        text = ast.get_docstring(tree(module))
        assert text
        assert text.splitlines()[0].endswith((".", ":", ";"))


# --- habits ---------------------------------------------------------------------------------


def calls(module: str, *names: str) -> list[str]:
    return [
        f"{module}:{node.lineno} {ast.unparse(node.func)}"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in names
    ]


class TestHabits:
    @pytest.mark.parametrize("module", GRAPHTOOLS)
    def test_the_library_prints_nothing_and_never_exits(self, module: str) -> None:
        assert calls(module, "print", "exit", "quit", "sys.exit", "os._exit") == []

    @pytest.mark.parametrize("module", CONVERTERS)
    def test_only_commands_exit(self, module: str) -> None:
        if not module.startswith("converters/cli/"):
            assert calls(module, "print", "exit", "quit", "sys.exit", "os._exit") == []

    @pytest.mark.parametrize("module", MODULES)
    def test_everything_is_caught_in_one_place(self, module: str) -> None:
        if module == "converters/cli/__init__.py":
            return
        broad = [
            f"{module}:{node.lineno}"
            for node in ast.walk(tree(module))
            if isinstance(node, ast.ExceptHandler)
            and (node.type is None or {"Exception", "BaseException"} & _names(node.type))
        ]
        assert broad == []


def _names(node: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
