"""Dominators are networkx's, on any graph."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from graphtools.dominators import immediate_dominators

EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40)


@given(EDGES)
def test_are_networkxs(edges: list[tuple[int, int]]) -> None:
    """Cycles, loops and unreachable nodes included."""
    graph: nx.DiGraph[int] = nx.DiGraph(edges)
    graph.add_nodes_from(range(10))
    found = immediate_dominators({n: list(graph.successors(n)) for n in graph}, 0)
    wanted = dict(nx.immediate_dominators(graph, 0))
    wanted.pop(0, None)
    assert found == wanted


def test_a_long_chain_takes_no_recursion() -> None:
    after = {i: [i + 1] for i in range(5000)} | {5000: []}
    assert immediate_dominators(after, 0) == {i + 1: i for i in range(5000)}
