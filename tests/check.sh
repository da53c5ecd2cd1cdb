#!/bin/sh
# Every check and test. Extra arguments go to pytest, e.g. `sh tests/check.sh -m "not slow"`.
set -eu
cd "$(dirname "$0")/.."
ruff format --check .
ruff check .
mypy
# Two workers: with one BLAS thread each they do not fight over two cores.
OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 pytest -n 2 "$@"
