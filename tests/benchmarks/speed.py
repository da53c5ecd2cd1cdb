"""Speed and memory of the commands, as ratios against bare scripts measured in the same run.

    python tests/benchmarks/speed.py [--runs 5] [--model resnet34 --model campplus_192]

The bare script does the least that could be called the same job: it loads the ONNX file, walks
its nodes and writes the initializers with gguf. Runs of both sides alternate, and the minimum of
each is compared, so that other work on the machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BARE_CONVERT = """
import sys, numpy as np, onnx
from gguf import GGUFWriter
from onnx import numpy_helper
model = onnx.load(sys.argv[1])
ops = [(n.op_type, list(n.input), {a.name for a in n.attribute}) for n in model.graph.node]
writer = GGUFWriter(sys.argv[2], "bare")
for tensor in model.graph.initializer:
    writer.add_tensor(tensor.name, np.ascontiguousarray(numpy_helper.to_array(tensor)))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
"""
BARE_LOAD = "import sys, onnx; onnx.load(sys.argv[1])"


def measure(command: Sequence[str]) -> tuple[float, float]:
    """(seconds, peak resident MB) of a command as a whole process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:3])} failed: {message.decode()}")
    return seconds, usage.ru_maxrss / 1024


def compare(label: str, bare: Sequence[str], ours: Sequence[str], runs: int, bound: str) -> None:
    """Print the ratio of the minima of alternating runs."""
    pairs = [(measure(bare), measure(ours)) for _ in range(runs)]
    base = min(b[0] for b, _ in pairs)
    took = min(o[0] for _, o in pairs)
    memory = max(o[1] for _, o in pairs)
    print(
        f"{label:44} bare {base:6.3f} s  ours {took:6.3f} s  ratio {took / base:5.2f} {bound}"
        f"  peak {memory:5.0f} MB",
        flush=True,
    )


def _built(name: str) -> Path:
    """The export, built by another process: a child's peak memory begins at its parent's."""
    code = f"from fixtures import catalog; print(catalog.path({name!r}))"
    root = Path(__file__).parents[2]
    return Path(subprocess.check_output([sys.executable, "-c", code], cwd=root, text=True).strip())


def main() -> None:
    """Run the comparisons of the models named, and of the help text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--model", action="append", help="name in fixtures.catalog (repeatable)")
    chosen = parser.parse_args()
    python, tool = sys.executable, str(Path(sys.executable).with_name("graphtools"))
    compare(
        "graphtools --help / import click",
        [python, "-c", "import click"],
        [tool, "--help"],
        chosen.runs,
        "(< 3)",
    )
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "out.gguf")
        for name in chosen.model or ["resnet34", "eres2net_base", "campplus_192"]:
            path = _built(name)
            size = path.stat().st_size / 1e6
            bare = [python, "-c", BARE_CONVERT, str(path), out]
            ours = [tool, "convert", "--model", str(path), "--output", out]
            strict = name == "resnet34"
            print(f"{name}: {size:.1f} MB, memory bound {6 * size + 200:.0f} MB")
            compare(
                f"{name}: convert without proof",
                bare,
                [*ours, "--verify", "none"],
                chosen.runs,
                "(<= 1.5)" if strict else "",
            )
            compare(
                f"{name}: convert with proof", bare, ours, chosen.runs, "(<= 5)" if strict else ""
            )
            compare(
                f"{name}: inspect / onnx.load",
                [python, "-c", BARE_LOAD, str(path)],
                [tool, "inspect", str(path)],
                chosen.runs,
                "(< 2.5)" if name.startswith("campplus") else "",
            )


if __name__ == "__main__":
    main()
