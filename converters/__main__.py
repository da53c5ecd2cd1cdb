"""``python -m converters`` is ``graphtools``, for where the script is not on the path."""

from __future__ import annotations

from converters.cli import main

if __name__ == "__main__":
    main()
