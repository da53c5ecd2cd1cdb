"""Converting a codec in full size against copying its bytes with ``cat``.

    python tests/benchmarks/codec_checkpoint.py /tmp/codec
    python tests/benchmarks/codec.py /tmp/codec [--runs 5]

Runs of both sides alternate; the medians are compared, since a disk is not quiet. Needs twice the
checkpoint's size of free disk beside it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from speed import measure

# What one tensor of the full size takes at most, and what the process may need besides.
LARGEST_MB, BESIDES_MB = 5120 * 1280 * 4 / 1e6, 250


def main() -> None:
    """Print seconds of both sides, their ratio and the peak memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    copy, output = chosen.checkpoint / "copy.bin", chosen.checkpoint / "codec.gguf"
    shards = " ".join(str(p) for p in sorted(chosen.checkpoint.glob("*.safetensors")))
    tool = str(Path(sys.executable).with_name("graphtools"))
    bare = ["sh", "-c", f"cat {shards} > {copy}"]
    ours = [tool, "convert", "--model", str(chosen.checkpoint), "--output", str(output), "--strict"]
    pairs = []
    try:
        for _ in range(chosen.runs):
            pairs.append((measure(bare), measure(ours)))
            print(f"cat {pairs[-1][0][0]:6.2f} s  convert {pairs[-1][1][0]:6.2f} s", flush=True)
    finally:
        for path in (copy, output, output.with_name(f"{output.name}.proof.json")):
            path.unlink(missing_ok=True)
    base, took = (statistics.median(run[side][0] for run in pairs) for side in (0, 1))
    peak = max(run[1][1] for run in pairs)
    print(f"medians {base:.2f} s and {took:.2f} s, ratio {took / base:.2f} (<= 1.3)")
    print(f"peak memory {peak:.0f} MB (<= {LARGEST_MB + BESIDES_MB:.0f} MB)")


if __name__ == "__main__":
    main()
