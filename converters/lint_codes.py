"""What `converters.lint` can find: a code for each fault, what it does, and how it is mended.

Codes are stable: F the format and ggml's limits, which hold for any GGUF; K keys and T tensors
against the schema of the architecture; V the values of tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from graphtools.text import printable

__all__ = ["Code", "Finding"]

_CONVERT = "convert the model again with graphtools convert"


class Code(Enum):
    """One kind of fault: its code, title, meaning, and what to do."""

    REPEATED_KEY = (
        "F101",
        "repeated key",
        "A key stands in the header twice; ggml refuses the file.",
        "write each key once",
    )
    KEY_NAME = (
        "F102",
        "key name",
        "A key is empty, not ASCII, longer than 65535 bytes, or begins with `GGUF.`, which gguf's "
        "readers keep for themselves.",
        "rename the key, e.g. arch.part.name",
    )
    NO_ARCHITECTURE = (
        "F103",
        "no architecture",
        "`general.architecture` is missing or no text: no reader knows what the file is.",
        "write general.architecture as a string",
    )
    ALIGNMENT = (
        "F104",
        "alignment",
        "`general.alignment` is not a u32, or no power of two; ggml refuses the file.",
        "leave the key out: 32 is the default",
    )
    LONG_NAME = (
        "F201",
        "long tensor name",
        "A tensor's name has 64 bytes or more; ggml refuses the file.",
        "shorten the name to 63 bytes of UTF-8, in the keys that name it as well",
    )
    TENSOR_NAME = (
        "F202",
        "tensor name",
        "A tensor's name is empty or holds control characters; a NUL ends it in C.",
        "give the tensor a printable name",
    )
    REPEATED_TENSOR = (
        "F203",
        "repeated tensor",
        "Two tensors have one name; ggml refuses the file.",
        "write each tensor once",
    )
    AXES = (
        "F204",
        "number of axes",
        "A tensor has no axis or more than four; ggml has one to four.",
        "store a scalar as [1], and merge the first axes of others",
    )
    EMPTY_AXIS = (
        "F205",
        "empty axis",
        "An axis of a tensor has no elements; ggml divides by it.",
        "leave the tensor out",
    )
    TOO_LARGE = (
        "F206",
        "too large",
        "A tensor's elements or bytes are more than 63 bits count; ggml refuses the file.",
        "check the shape; the file may be damaged",
    )
    UNKNOWN_TYPE = (
        "F207",
        "unknown tensor type",
        "The number of a tensor's type stands for none of ggml's, or for one that was removed.",
        "quantise the model again with a current ggml, or store the tensor as f32",
    )
    PARTIAL_BLOCK = (
        "F208",
        "partial block",
        "A row of a quantised tensor is no whole number of its type's blocks.",
        "store this tensor as f32 or f16",
    )
    MISALIGNED = (
        "F209",
        "misaligned tensor",
        "A tensor's offset is no multiple of the alignment.",
        "pad every tensor to general.alignment (32 where there is no such key)",
    )
    OUT_OF_PLACE = (
        "F210",
        "tensor out of place",
        "A tensor does not begin where the one before it ends, padded; ggml refuses the file.",
        "write the tensors one after another, in the order of the header",
    )
    NO_PADDING = (
        "F211",
        "last padding missing",
        "The last tensor is not padded to the alignment; a loader that has ggml read all data at "
        "once fails.",
        "append zeros up to the next multiple of the alignment",
    )
    NO_SCHEMA = (
        "K100",
        "no such architecture",
        "`voicedetect.arch` is missing or names no architecture; no other rule of its schema can "
        "be asked.",
        _CONVERT,
    )
    MISSING_KEY = (
        "K101",
        "missing key",
        "The engine takes a default for an absent number, and reads an absent array as empty.",
        _CONVERT,
    )
    UNKNOWN_KEY = (
        "K102",
        "unknown key",
        "The schema has no such key: it is misspelt, or of another architecture.",
        "leave the key out, or correct its name by docs/schema.md",
    )
    MISTYPED_KEY = (
        "K103",
        "mistyped key",
        "A number of another type stops the engine; an array of another type reads as empty.",
        "write the key with the type of docs/schema.md",
    )
    FORBIDDEN_KEY = (
        "K104",
        "forbidden key",
        "The key is another kind of model's, and a loader takes the file for one: `analyze.*` in "
        "a speaker encoder, the filter bank or the embedding in an analyze head.",
        "leave the key out",
    )
    NOT_THE_SCHEMAS = (
        "K105",
        "not the schema's value",
        "The schema fixes the value of this key.",
        _CONVERT,
    )
    EMPTY_ARRAY = (
        "K106",
        "empty array",
        "An array without entries reads as an absent one.",
        _CONVERT,
    )
    NOT_PARALLEL = (
        "K107",
        "arrays of different lengths",
        "Parallel arrays are pulled by one index: one that is shorter shifts every layer.",
        _CONVERT,
    )
    MISCOUNTED = (
        "K108",
        "key and tensors disagree",
        "The key says another number than the tensors have.",
        _CONVERT,
    )
    NOT_A_NUMBER = (
        "K109",
        "key is not finite",
        "The key's value is NaN or infinite.",
        _CONVERT,
    )
    NO_NETWORK = (
        "K110",
        "no network",
        "Keys and tensors make up no network of this architecture: a list has too few names, a "
        "layer has no tensor, a number means nothing.",
        _CONVERT,
    )
    NO_TENSOR = (
        "T201",
        "name without a tensor",
        "A key names a tensor that the file does not have.",
        "correct the name, or convert the model again",
    )
    MISFIT = (
        "T202",
        "shape",
        "A tensor does not fit the place at which the engine pulls it; ggml stops there.",
        "check the pull order: see the lists of the architecture in docs/schema.md",
    )
    NOT_F32 = (
        "T203",
        "not f32",
        "Norms and biases have to be f32 for ggml; the voicedetect engine reads every tensor as "
        "f32.",
        "store the tensor as f32",
    )
    STRAY = (
        "T204",
        "tensor that nothing reads",
        "No key and no layer names the tensor.",
        "leave the tensor out, or add its name where it was forgotten",
    )
    NOT_FINITE = (
        "V301",
        "NaN or Inf",
        "The tensor holds values that are not finite; every output would be NaN.",
        "check the checkpoint: its training diverged, or the file is damaged",
    )
    ALL_ZERO = (
        "V302",
        "all zero",
        "A weight holds zeros alone: it was never filled. A `mean_vec` may be zero, and a tap.",
        "check that the weights were loaded before the model was exported",
    )

    def __init__(self, id: str, title: str, meaning: str, fix: str) -> None:
        self.id = id
        self.title = title
        self.meaning = meaning
        self.fix = fix


@dataclass(frozen=True)
class Finding:
    """One fault of one file.

    Attributes:
        where: the key or the tensor.
        found: what is there, and what should be.
    """

    code: Code
    where: str
    found: str

    def __str__(self) -> str:
        """One line."""
        code = self.code
        return printable(f"{code.id} {code.title}: {self.where}: {self.found}; fix: {code.fix}")

    def to_json(self) -> dict[str, str]:
        """Plain data."""
        code = self.code
        return {
            "code": code.id,
            "title": code.title,
            "where": self.where,
            "found": self.found,
            "fix": code.fix,
        }
