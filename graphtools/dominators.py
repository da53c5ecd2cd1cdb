"""Dominators of a directed graph: which node every path from the entry has to pass.

networkx has the same, and takes longer to be imported than a model to be converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["immediate_dominators"]


def immediate_dominators(after: Mapping[int, Sequence[int]], entry: int) -> dict[int, int]:
    """The immediate dominator of every node that can be reached from ``entry``, without itself.

    Args:
        after: the nodes that each node leads to; has every node as a key.

    Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001): one pass in reverse
    postorder is enough for a graph without cycles.
    """
    order = _postorder(after, entry)
    number = {node: i for i, node in enumerate(order)}
    before: dict[int, list[int]] = {node: [] for node in order}
    for node in order:
        for reader in after[node]:
            before[reader].append(node)
    above = {entry: entry}
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            known = [b for b in before[node] if b in above]
            nearest = known[0]
            for other in known[1:]:
                while nearest != other:  # up from whichever is farther from the entry
                    if number[nearest] < number[other]:
                        nearest = above[nearest]
                    else:
                        other = above[other]
            if above.get(node) != nearest:
                above[node] = nearest
                changed = True
    del above[entry]
    return above


def _postorder(after: Mapping[int, Sequence[int]], entry: int) -> list[int]:
    order: list[int] = []
    seen = {entry}
    stack = [(entry, iter(after[entry]))]
    while stack:
        node, readers = stack[-1]
        for reader in readers:
            if reader not in seen:
                seen.add(reader)
                stack.append((reader, iter(after[reader])))
                break
        else:
            order.append(node)
            stack.pop()
    return order
