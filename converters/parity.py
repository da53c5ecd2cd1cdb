"""`compare` as an assertion, for the tests of whoever ports a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from converters.comparison import Comparison, Source, compare
from converters.comparison_text import summary
from converters.gates import Gates

__all__ = ["assert_parity"]


def assert_parity(
    golden: Source | str,
    ours: Source | str,
    *,
    names: Mapping[str, str] | None = None,
    atol: float | None = None,
    tol: float = Gates.relative,
    cos: float = Gates.cosine,
) -> Comparison:
    """Assert that an engine's tensors are the goldens, by the gates of ``graphtools compare``.

    Args:
        golden: a path that ``graphtools compare`` takes; or name to array, where an array is
            anything that ``numpy.asarray`` takes.
        ours: the engine's, in any of these forms.
        names: golden name to the engine's name, where they differ.
        atol: the largest max|d|, in place of ``tol``.
        tol: the largest max|d|, times the larger of 1 and max|golden|.
        cos: the least cosine.

    Returns:
        The comparison, for what a test may want to know besides.

    Raises:
        AssertionError: a tensor is wrong, missing or too much; the message says what
            ``graphtools compare`` prints.
        UsageError: nothing can be matched, or there is no such file.
        NotAModelError, UnsupportedError: a file is damaged, or holds no numbers.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    a, b = (Path(source) if isinstance(source, str) else source for source in (golden, ours))
    found = compare(a, b, names=names, gates=Gates(cosine=cos, relative=tol, absolute=atol))
    if not found:
        raise AssertionError(summary(found))
    return found
