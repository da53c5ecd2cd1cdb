"""`compare` of two files of 500 tensors and 200 MB each, as a ratio to loading both with numpy.

    python tests/benchmarks/compare.py [--runs 3]

Three engines are compared: one that is right, one of noise alone (every hint is tried, on the
first tensor), and the right one again with its page. Runs alternate; the minimum of each counts.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from converters.comparison import compare
from converters.comparison_html import page
from converters.comparison_text import summary

_NAMES = [f"/encoder/layers.{i // 20}/op{i % 20}/out" for i in range(500)]
_SHAPE = (256, 400)


def write(path: Path, seed: int, base: int | None = None) -> None:
    """An ``.npz`` of normal values, or of those of ``base`` with noise of 1e-5."""
    rng, like = np.random.default_rng(seed), np.random.default_rng(base)
    with zipfile.ZipFile(path, "w") as archive:
        for name in _NAMES:
            values = rng.normal(size=_SHAPE)
            if base is not None:
                values = like.normal(size=_SHAPE) + 1e-5 * values
            with archive.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array(stream, values.astype(np.float32))


def load(*paths: Path) -> None:
    """What has to be done in any case."""
    for path in paths:
        with np.load(path) as archive:
            for name in archive.files:
                archive[name].ravel()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs: int = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        golden, right, wrong = (
            Path(folder) / f"{name}.npz" for name in ("golden", "right", "wrong")
        )
        write(golden, 0)
        write(right, 1, base=0)
        write(wrong, 2)
        jobs: dict[str, Callable[[], object]] = {
            "load both": lambda: load(golden, right),
            "compare, right": lambda: summary(compare(golden, right)),
            "compare, wrong": lambda: summary(compare(golden, wrong)),
            "compare, page": lambda: page(compare(golden, right)),
        }
        best = dict.fromkeys(jobs, float("inf"))
        for _ in range(runs):
            for name, job in jobs.items():
                began = time.perf_counter()
                job()
                best[name] = min(best[name], time.perf_counter() - began)
        for name, seconds in best.items():
            print(f"{name:15} {seconds:6.2f} s  {seconds / best['load both']:5.1f} x")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"peak of the whole process {peak / 1024:.0f} MB")


if __name__ == "__main__":
    main()
