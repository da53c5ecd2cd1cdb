"""The command line as a whole: help, exit codes, messages, and never a traceback."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures import catalog
from graphtools.errors import MissingDependencyError

Make = Callable[..., Any]

TINY = catalog.path("resnet34_tiny")
CORE = ["inspect", "convert", "baseline", "replay", "lint"]
LFS = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 26530309\n"
)


def commands() -> list[str]:
    """The commands that ``graphtools --help`` lists."""
    done = subprocess.run(
        [sys.executable, "-c", "from converters.cli import main; main()", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=catalog.HERE.parent,
    )
    listed = done.stdout.split("Commands:")[1]
    return re.findall(r"^  ([a-z]+)", listed, re.MULTILINE)


COMMANDS = commands()


class TestHelp:
    def test_lists_the_commands_and_the_exit_codes(self, graphtools: Make) -> None:
        assert set(CORE) <= set(COMMANDS)
        text = graphtools("--help", code=0).out
        for code in (0, 1, 2, 3, 4, 5, 70, 77):
            assert re.search(rf"\b{code} ", text), code
        assert graphtools("-h", code=0).out == text

    def test_the_console_script_is_the_same_command(self) -> None:
        script = Path(sysconfig.get_path("scripts")) / "graphtools"
        if not script.exists():
            pytest.skip("the distribution is not installed")
        done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
        assert re.match(r"graphtools, version \d+\.\d+", done.stdout)

    def test_the_package_can_be_run(self, environment: Make) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "converters", "--version"],
            capture_output=True,
            text=True,
            check=True,
            env=environment(),
        )
        assert re.match(r"graphtools, version \d+\.\d+", done.stdout)

    def test_imports_nothing_heavy(self, environment: Make) -> None:
        script = (
            "import sys\n"
            "sys.argv = ['graphtools', '--help']\n"
            "from converters.cli import main\n"
            "try:\n"
            "    main()\n"
            "except SystemExit:\n"
            "    pass\n"
            "heavy = {'numpy', 'onnx', 'onnxruntime', 'gguf', 'torch', 'networkx', 'rich'}\n"
            "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env=environment(),
        )
        assert done.stderr == "[]\n"

    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_command_has_an_example_whose_options_exist(
        self, command: str, invoke: Make
    ) -> None:
        text = invoke(command, "--help", code=0).out
        example, options = text.split("Example:")[1].split("Options:")
        lines = example.replace("\\\n", " ").strip().splitlines()
        assert lines
        assert all(line.strip().startswith(f"graphtools {command} ") for line in lines)
        used = set(re.findall(r"--[a-z-]+", example))
        known = set(re.findall(r"--[a-z-]+", options))
        assert used <= known
        assert "--json" in known

    @pytest.mark.parametrize("command", CORE)
    def test_the_examples_run(self, command: str, invoke: Make, tmp_path: Path) -> None:
        shutil.copy(TINY, tmp_path / "model.onnx")
        shutil.copy(catalog.SPEECH, tmp_path / "clip.wav")
        example = invoke(command, "--help").out.split("Example:")[1].split("Options:")[0]
        joined = example.replace("\\\n", " ").strip()
        lines = [shlex.split(line)[1:] for line in joined.splitlines()]
        here = {"model.onnx", "model.gguf", "clip.wav", "baseline.gguf", command}
        runnable = [
            line for line in lines if {word for word in line if not word.startswith("-")} <= here
        ]
        assert runnable
        if any("model.gguf" in line and "--output" not in line for line in runnable):
            invoke("convert", "--model", "model.onnx", "--output", "model.gguf", code=0)
        for line in runnable:
            assert invoke(*line, code=0).out

    def test_without_a_command_help_is_shown(self, invoke: Make) -> None:
        ran = invoke()
        assert ran.code in (0, 2)
        assert "Commands:" in ran.out + ran.err


class TestWrongCalls:
    """Exit code 2."""

    @pytest.mark.parametrize(
        "arguments",
        [
            ["nonsense"],
            ["--nonsense"],
            ["convert"],
            ["convert", "--model", "m.onnx"],
            ["convert", "--output", "x.gguf"],
            ["convert", "--model", "m.onnx", "--output", "x.gguf", "--nonsense"],
            ["convert", "--model", "m.onnx", "--output", "x.gguf", "--verify", "half"],
            ["baseline", "--model", "m.onnx", "--output", "x.gguf"],
            ["baseline", "--model", "m", "--audio", "a", "--output", "x", "--seg-pool", "50"],
            ["replay"],
            ["replay", "x.gguf"],
            ["replay", "x.gguf", "--audio", "a.wav", "--input", "f.npy"],
            ["inspect"],
            ["inspect", "a.onnx", "b.onnx"],
        ],
    )
    def test_options_and_arguments(self, arguments: list[str], invoke: Make) -> None:
        ran = invoke(*arguments, code=2)
        assert ran.out == ""
        assert ran.err

    @pytest.mark.parametrize(
        "arguments",
        [
            ["inspect", "absent.onnx"],
            ["inspect", "absent.gguf"],
            ["convert", "--model", "absent.onnx", "--output", "x.gguf"],
            ["baseline", "--model", "absent.onnx", "--audio", "clip.wav", "--output", "x.gguf"],
            ["baseline", "--model", "m.onnx", "--audio", "absent.wav", "--output", "x.gguf"],
            ["replay", "absent.gguf", "--audio", "clip.wav"],
            ["replay", "m.gguf", "--audio", "absent.wav"],
            ["replay", "m.gguf", "--input", "absent.npy"],
        ],
    )
    def test_an_input_that_is_not_there(
        self, arguments: list[str], invoke: Make, tmp_path: Path, manifest_of: Make, written: Make
    ) -> None:
        shutil.copy(TINY, tmp_path / "m.onnx")
        shutil.copy(catalog.SPEECH, tmp_path / "clip.wav")
        written(manifest_of(TINY), tmp_path / "m.gguf")
        ran = invoke(*arguments, code=2)
        assert "no such file" in ran.err
        assert "absent" in ran.err
        assert not (tmp_path / "x.gguf").exists()


def bad_inputs() -> dict[str, tuple[bytes, str]]:
    whole = TINY.read_bytes()
    return {
        "text": (b"This is the model card, not the model.\n" * 20, "text"),
        "empty": (b"", "empty"),
        "LFS pointer": (LFS, "git lfs pull"),
        "cut": (whole[: len(whole) // 2], "cut off"),
        "cut by one byte": (whole[:-1], "cut off"),
        "zeros": (bytes(1000), "error"),
        "noise": (np.random.default_rng(0).bytes(5000), "error"),
        "zip": (b"PK\x03\x04" + bytes(200), "zip archive"),
        "web page": (b"<!DOCTYPE html><html></html>", "web page"),
        "json": (b'{"error": "not found"}', "JSON"),
        "pickle": (b"\x80\x04\x95" + bytes(100), "pickle"),
    }


class TestBadModels:
    """Exit code 3: what it is, and what to do."""

    @pytest.mark.parametrize("kind", bad_inputs())
    @pytest.mark.parametrize("command", ["inspect", "convert", "baseline"])
    def test_a_file_that_is_no_model(
        self, kind: str, command: str, invoke: Make, tmp_path: Path
    ) -> None:
        content, told = bad_inputs()[kind]
        (tmp_path / "m.onnx").write_bytes(content)
        rest = ["--model", "m.onnx", "--output", "x.gguf"]
        arguments = {
            "inspect": ["inspect", "m.onnx"],
            "convert": ["convert", *rest],
            "baseline": ["baseline", *rest, "--audio", str(catalog.SPEECH)],
        }
        ran = invoke(*arguments[command], code=3)
        assert ran.out == ""
        assert ran.err.startswith("error: ")
        assert "m.onnx" in ran.err
        assert told in ran.err
        assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx"]

    @pytest.mark.parametrize("kind", ["text", "empty", "LFS pointer", "zeros", "zip"])
    def test_a_file_that_is_no_gguf(self, kind: str, invoke: Make, tmp_path: Path) -> None:
        (tmp_path / "m.gguf").write_bytes(bad_inputs()[kind][0])
        ran = invoke("replay", "m.gguf", "--audio", catalog.SPEECH, code=3)
        assert "not a GGUF file" in ran.err

    def test_an_onnx_file_given_to_replay(self, invoke: Make) -> None:
        assert "not a GGUF file" in invoke("replay", TINY, "--audio", catalog.SPEECH, code=3).err

    def test_a_gguf_given_to_convert(
        self, invoke: Make, tmp_path: Path, manifest_of: Make, written: Make
    ) -> None:
        written(manifest_of(TINY), tmp_path / "m.gguf")
        ran = invoke("convert", "--model", "m.gguf", "--output", "x.gguf", code=3)
        assert "GGUF" in ran.err

    def test_real_processes_end_the_same_way(self, graphtools: Make, tmp_path: Path) -> None:
        (tmp_path / "m.onnx").write_bytes(LFS)
        ran = graphtools("convert", "--model", "m.onnx", "--output", "x.gguf", code=3)
        assert ran.out == ""
        assert "git lfs pull" in ran.err
        assert graphtools("inspect", "absent.onnx", code=2).out == ""
        output = tmp_path / "absent" / "x.gguf"
        assert graphtools("convert", "--model", TINY, "--output", output, code=5).out == ""

    def test_a_wrong_architecture(self, invoke: Make) -> None:
        ran = invoke("convert", "--model", TINY, "--output", "x.gguf", "--arch", "campplus", code=3)
        assert "not campplus" in ran.err
        assert "wespeaker_resnet34" in ran.err

    def test_an_unknown_architecture(self, invoke: Make) -> None:
        ran = invoke("convert", "--model", TINY, "--output", "x.gguf", "--arch", "resnet", code=2)
        assert "resnet" in ran.err

    def test_a_file_name_that_is_not_utf8(self, graphtools: Make, tmp_path: Path) -> None:
        """Whatever the answer is, it is one: general.name cannot hold such a name."""
        name = os.fsdecode(b"m\xff.onnx")
        shutil.copy(TINY, tmp_path / name)
        ran = graphtools("convert", "--model", name, "--output", "x.gguf")
        assert ran.code in (0, 2, 3)
        assert (tmp_path / "x.gguf").exists() == (ran.code == 0)
        assert graphtools("inspect", name).code in (0, 2, 3)


class TestOutput:
    """Exit code 5."""

    @pytest.mark.parametrize(
        "output", ["absent/x.gguf", "/proc/x.gguf", "file/x.gguf", "folder.gguf"]
    )
    @pytest.mark.parametrize("command", ["convert", "baseline"])
    def test_that_cannot_be_written(
        self, output: str, command: str, invoke: Make, tmp_path: Path
    ) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "folder.gguf").mkdir()
        more = ["--audio", catalog.SPEECH] if command == "baseline" else []
        ran = invoke(command, "--model", TINY, "--output", output, *more, code=5)
        assert ran.out == ""
        assert "cannot write" in ran.err
        assert output in ran.err
        assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.gguf"]

    @pytest.mark.parametrize("command", ["inspect", "convert"])
    def test_a_full_disk_behind_stdout(
        self, command: str, environment: Make, tmp_path: Path
    ) -> None:
        arguments = {
            "inspect": ["inspect", TINY],
            "convert": ["convert", "--model", TINY, "--output", "x.gguf"],
        }
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-c", "from converters.cli import main; main()",
                 *map(str, arguments[command])],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                cwd=tmp_path,
                env=environment(),
            )  # fmt: skip
        assert done.returncode == 5, done.stderr
        assert "Traceback" not in done.stderr
        assert "No space left" in done.stderr

    @pytest.mark.parametrize("lines", [0, 1])
    def test_a_reader_that_goes_away(self, lines: int, environment: Make, tmp_path: Path) -> None:
        """As `| head` does: the listing is longer than a pipe holds."""
        process = subprocess.Popen(
            [sys.executable, "-c", "from converters.cli import main; main()",
             "inspect", str(catalog.path("campplus_tiny")), "--order"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment(),
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(lines):
            assert process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
        process.stderr.close()
        assert process.wait(timeout=60) == 0
        assert error == ""

    def test_results_are_on_stdout_and_nothing_else_is(self, graphtools: Make) -> None:
        ran = graphtools("convert", "--model", TINY, "--output", "x.gguf", "--json", code=0)
        assert ran.json["arch"] == "wespeaker_resnet34"
        assert ran.err == ""


class TestOurOwnFaults:
    """Exit code 70, and 4 for what is not installed."""

    @pytest.fixture
    def failing(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
        from converters import convert

        def fail(error: BaseException) -> None:
            def raising(*arguments: Any, **options: Any) -> None:
                raise error

            monkeypatch.setattr(convert, "convert", raising)

        return fail

    CALL = ("convert", "--model", str(TINY), "--output", "x.gguf")

    @pytest.mark.parametrize(
        "error", [RuntimeError("boom"), AssertionError("boom"), KeyError("boom"), TypeError("boom")]
    )
    def test_a_bug_is_said_to_be_one(self, error: Exception, failing: Make, invoke: Make) -> None:
        failing(error)
        ran = invoke(*self.CALL, code=70)
        assert ran.out == ""
        assert ran.err.startswith(f"internal error: {type(error).__name__}:")
        assert "boom" in ran.err
        assert "bug in graphtools" in ran.err
        assert "GRAPHTOOLS_TRACEBACK" in ran.err

    def test_the_traceback_can_be_had(
        self, failing: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        from converters.cli import main

        failing(RuntimeError("boom"))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("GRAPHTOOLS_TRACEBACK", "1")
        monkeypatch.setattr(sys, "argv", ["graphtools", *self.CALL])
        with pytest.raises(RuntimeError, match="boom"):
            main()

    def test_a_package_that_is_not_installed(self, failing: Make, invoke: Make) -> None:
        failing(MissingDependencyError("torch is needed", todo="pip install torch"))
        ran = invoke(*self.CALL, code=4)
        assert "pip install" in ran.err

    def test_the_systems_own_errors_are_5(self, failing: Make, invoke: Make) -> None:
        failing(OSError(28, "No space left on device", "/some/where"))
        ran = invoke(*self.CALL, code=5)
        assert ran.err == "error: No space left on device (/some/where)\n"

    def test_control_c(self, failing: Make, invoke: Make) -> None:
        failing(KeyboardInterrupt())
        assert "interrupted" in invoke(*self.CALL, code=130).err


class TestErrorsAsJson:
    """With ``--json`` an error is an object on stdout, besides its text on stderr."""

    @pytest.mark.parametrize("command", COMMANDS)
    def test_of_every_command(self, command: str, invoke: Make) -> None:
        ran = invoke(command, "--nonsense", "--json", code=2)
        found = ran.json["error"]
        assert (found["code"], found["kind"]) == (2, "NoSuchOption")
        assert found["error"].startswith("No such option '--nonsense'.")
        assert "No such option" in ran.err

    def test_of_ours_every_field(self, invoke: Make, tmp_path: Path) -> None:
        (tmp_path / "m.onnx").write_bytes(LFS)
        ran = invoke("inspect", "m.onnx", "--json", code=3)
        found = ran.json["error"]
        assert (found["code"], found["kind"], found["file"]) == (3, "NotAModelError", "m.onnx")
        assert "git lfs pull" in found["to do"]
        for text in (found["error"], found["to do"]):
            assert text in ran.err
        assert invoke("inspect", "m.onnx", code=3).out == ""

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (MissingDependencyError("torch is needed"), 4),
            (OSError(28, "No space left on device", "/some/where"), 5),
            (RuntimeError("boom"), 70),
        ],
    )
    def test_of_others(
        self, error: Exception, code: int, invoke: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from converters import convert

        def raising(*arguments: Any, **options: Any) -> None:
            raise error

        monkeypatch.setattr(convert, "convert", raising)
        ran = invoke("convert", "--model", TINY, "--output", "x.gguf", "--json", code=code)
        found = ran.json["error"]
        assert (found["code"], found["kind"]) == (code, type(error).__name__)
        assert found["error"] in ran.err

    def test_before_there_is_a_command(self, graphtools: Make) -> None:
        assert graphtools("nonsense", "--json", code=2).json["error"]["kind"] == "NoSuchCommand"
        assert graphtools("inspect", "absent.gguf", "--json", code=2).json["error"]["code"] == 2

    def test_nowhere_to_write_it(self, environment: Make, tmp_path: Path) -> None:
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "converters", "inspect", "absent.gguf", "--json"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                cwd=tmp_path,
                env=environment(),
            )
        assert done.returncode == 2
        assert done.stderr.startswith("error: no such file")
        assert "Traceback" not in done.stderr
        assert "Exception" not in done.stderr
