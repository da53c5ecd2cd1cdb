"""What a key of a YAML text is given, as text: nothing is constructed, nothing runs."""

from __future__ import annotations

import pytest

from converters.sources.yaml_text import values_of
from graphtools.errors import NotAModelError

# The shape of SpeechBrain's own file, with the tags of hyperpyyaml.
PUBLISHED = """\
# Feature parameters
n_mels: 80
pretrained_path: speechbrain/spkrec-ecapa-voxceleb
compute_features: !new:speechbrain.lobes.features.Fbank
    n_mels: !ref <n_mels>
embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN
    input_size: !ref <n_mels>
    channels: [1024, 1024, 1024, 1024, 3072]
    dilations: [1, 2, 3, 4, 1]
    activation: !name:torch.nn.ReLU
modules:
    compute_features: !ref <compute_features>
label_encoder: !new:speechbrain.dataio.encoder.CategoricalEncoder
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
    paths:
        embedding_model: !ref <pretrained_path>/embedding_model.ckpt
"""


def test_the_published_file() -> None:
    found = values_of("x.yaml", PUBLISHED, "dilations", "activation", "groups")
    assert found == {
        "dilations": ["[1, 2, 3, 4, 1]"],
        "activation": ["!name:torch.nn.ReLU"],
        "groups": [],
    }


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("k: [1,2]", ["[1, 2]"]),
        ("k:\n- 1\n- 2", ["[1, 2]"]),
        ("{x: {'k': 1}}", ["1"]),
        ('"k" : 1', ["1"]),
        ('"\\x6b": 1', ["1"]),
        ("? k\n: 1", ["1"]),
        ("k: 1 # k: 2\n# k: 3", ["1"]),
        ('x: {a: "b # c", k: 1}', ["1"]),
        ("x: |\n  k: 1", []),
        ("k: !ref <k>", ["!ref <k>"]),
        ("k: !new:a.B {c: 1}", ["!new:a.B {...}"]),
        ("k: !new:a.B {}", ["!new:a.B"]),
        ("k: !!python/tuple [1]", ["tag:yaml.org,2002:python/tuple [1]"]),
        ("k: [[1], !ref <a>]", ["[{...}, !ref <a>]"]),
        ("a: &a {k: 1}\nb: {<<: *a}\nc: *a", ["1"]),
        ("k: &a [*a]", ["[{...}]"]),
        ("a: &a {k: *a}", ["{...}"]),
        ("k: 1\nk: 2", ["1", "2"]),
    ],
)
def test_every_value_of_a_key(text: str, values: list[str]) -> None:
    assert values_of("x.yaml", text, "k") == {"k": values}


@pytest.mark.parametrize(
    "text", ["a: [", "a: b: c", "\x00", "a: *nowhere", "a: 1\n---\na: 2", "[" * 10_000]
)
def test_what_is_not_one_document_is_refused(text: str) -> None:
    with pytest.raises(NotAModelError, match=r"x\.yaml is not YAML") as caught:
        values_of("x.yaml", text, "k")
    assert caught.value.found
