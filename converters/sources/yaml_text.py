"""What a YAML text says, without becoming it.

SpeechBrain's YAML makes objects and runs code when it is loaded. Here it is parsed into nodes and
no further: nothing is constructed, and a value is the text that spells it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphtools.errors import NotAModelError

if TYPE_CHECKING:
    from yaml import Node

__all__ = ["values_of"]


def values_of(name: str, text: str, *keys: str) -> dict[str, list[str]]:
    """The values that each key is given, wherever in the text it stands.

    Args:
        name: what the text is called, for errors.

    Returns:
        For each key its values as YAML on one line, e.g. ``[1, 2]`` or ``!ref <a>``.

    Raises:
        NotAModelError: it is not YAML.
    """
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotAModelError(
            f"{name} is not YAML",
            found=" ".join(str(error).split())[:200],
            todo="use the file that was published with these weights",
        ) from error
    found: dict[str, list[str]] = {key: [] for key in keys}
    for mapping in _mappings(root):
        for key, value in mapping.value:
            if isinstance(key, yaml.ScalarNode) and key.value in found:
                found[key.value].append(_spelled(value))
    return found


def _mappings(root: Node | None) -> Iterator[Node]:
    """Every mapping below a node once; aliases may lead back to where they came from."""
    import yaml

    pending, seen = [root], {id(None)}
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node
            pending += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            pending += node.value


_PLAIN = {f"tag:yaml.org,2002:{k}" for k in ("str", "int", "float", "bool", "null", "seq", "map")}


def _spelled(node: Node, *, inner: bool = False) -> str:
    """Tag and value; what stands deeper than in a list is left out."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        text = str(node.value)
    elif inner or isinstance(node, yaml.MappingNode):
        text = "{...}" if node.value else ""
    else:
        text = f"[{', '.join(_spelled(item, inner=True) for item in node.value)}]"
    tag = "" if node.tag in _PLAIN else node.tag
    return f"{tag} {text}".strip()
