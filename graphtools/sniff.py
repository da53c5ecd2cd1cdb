"""What a file that should be a model really is, told from its first bytes."""

from __future__ import annotations

from pathlib import Path

from graphtools.errors import NotAModelError, StorageError, UsageError

__all__ = ["require_model_bytes"]

_LFS = b"version https://git-lfs"
# (first bytes, what the file is, what to do)
_KNOWN = (
    (
        _LFS,
        "a Git LFS pointer: the text that stands in for the model",
        "run `git lfs pull` in that repository, or download the file itself",
    ),
    (
        b"GGUF",
        "a GGUF file, not an ONNX model",
        "use `graphtools inspect` or `graphtools replay` on it",
    ),
    (
        b"PK\x03\x04",
        "a zip archive (a PyTorch checkpoint, or a download still packed)",
        "export the model to ONNX, or unpack the archive",
    ),
    (
        b"\x80",
        "a Python pickle, not an ONNX model",
        "export the model to ONNX with torch.onnx.export",
    ),
    (b"RIFF", "a RIFF file, sound most likely", "name the .onnx file; a clip goes with --audio"),
    (
        b"\x1f\x8b",
        "a gzip archive",
        "unpack it first",
    ),
    (b"<", "a web page or XML", "the download got a page in place of the file: fetch it again"),
    (
        b"{",
        "JSON text, not an ONNX model",
        "name the .onnx file, or a checkpoint's folder",
    ),
)


def require_model_bytes(path: Path) -> int:
    """Check that ``path`` can be an ONNX protobuf; returns its size in bytes.

    Raises:
        UsageError: the path does not exist or is a folder.
        StorageError: it cannot be opened.
        NotAModelError: it is something else that we can name.
    """
    try:
        there, is_folder = path.exists(), path.is_dir()
    except (OSError, ValueError) as error:  # too long, or with a NUL
        raise UsageError("no such file", file=path, found=str(error)) from error
    if not there:
        dangling = path.is_symlink()
        raise UsageError(
            "the model is a link to a file that is not there" if dangling else "no such file",
            file=path,
            found=f"a link to {path.readlink()}" if dangling else None,
            todo="fetch the file it points to" if dangling else "check the path",
        )
    if is_folder:
        raise UsageError("expected a file, found a folder", file=path, todo="name the .onnx file")
    if not path.is_file():
        raise UsageError("the path is no regular file", file=path, todo="name the .onnx file")
    try:
        with path.open("rb") as stream:
            head = stream.read(4096)
        size = path.stat().st_size
    except OSError as error:
        raise StorageError(
            f"cannot read the model: {error.strerror or error}", file=path
        ) from error
    if not head:
        raise NotAModelError("the file is empty", file=path, todo="fetch or export the model again")
    stripped = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for magic, what, todo in _KNOWN:
        if (head if magic[0] >= 0x80 or magic[0] < 0x20 else stripped).startswith(magic):
            raise NotAModelError(
                "the file is not an ONNX model",
                file=path,
                expected="an ONNX protobuf",
                found=what,
                todo=todo,
            )
    if _is_text(head):
        raise NotAModelError(
            "the file is not an ONNX model",
            file=path,
            expected="an ONNX protobuf",
            found=f"text that begins {head[:40].decode('utf-8', 'replace')!r}",
            todo="check that this is the model and not a note or a listing",
        )
    return size


def _is_text(head: bytes) -> bool:
    """Text has no control bytes; an ONNX protobuf begins with one (0x08, ir_version)."""
    try:
        text = head.decode("utf-8", "strict" if len(head) < 4096 else "ignore")
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\t\r\n" for char in text)
