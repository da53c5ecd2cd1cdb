#!/bin/sh
# Every check and test. Extra arguments go to pytest, e.g. `sh tests/check.sh -m "not slow"`.
set -eu
cd "$(dirname "$0")/.."
ruff format --check .
ruff check .
mypy
pytest -n 2 "$@"
