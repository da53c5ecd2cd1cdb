"""What is inside If, Loop and Scan joins the graph around it: nodes, names, weights and edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, numpy_helper

from fixtures import catalog
from graphtools.boxes import Box
from graphtools.graph import Graph, build, canonical_order
from graphtools.hierarchy import hierarchy, namespaces
from graphtools.interchange import to_dot, to_json, to_model_explorer
from graphtools.model import Node
from graphtools.onnx_file import load
from graphtools.onnx_save import save_annotated
from graphtools.shapes import shapes
from graphtools.subgraphs import INPUTS, node_count, opened

Parse = Callable[..., Graph]
Save = Callable[..., Path]

# Both branches call their sum t; the inner If is in one of them; w is read from outside.
BRANCHES = """
g (float[N, 4] x, bool c) => (float[N, 4] y) <float[4] w> {
    h = Relu (x)
    y = If (c) <
        then_branch = then () => (float[N, 4] a) <float[4] own = {1, 2, 3, 4}> {
            t = Add (h, w)  a = Mul (t, own)
        },
        else_branch = other () => (float[N, 4] e) {
            two = Constant <value_float = 2.0> ()
            t = Mul (x, two)
            e = If (c) <
                then_branch = inner () => (float[N, 4] i) { i = Neg (t) },
                else_branch = plain () => (float[N, 4] j) { j = Identity (h) }
            >
        }
    >
}
"""
LOOP = """
g (float[2] x, int64 n) => (float[2] y) <bool yes = {1}, float[2] w> {
    h = Neg (x)
    y = Loop (n, yes, h) <
        body = b (int64 at, bool go, float[2] carried) => (bool on, float[2] next) {
            on = Identity (go)
            next = Mul (carried, w)
        }
    >
}
"""
SCAN = """
g (float[2] first, float[5, 2] rows) => (float[2] last, float[5, 2] sums) {
    last, sums = Scan <num_scan_inputs = 1,
        body = b (float[2] state, float[2] row) => (float[2] sum, float[2] out) {
            sum = Add (state, row)
            out = Identity (sum)
        }
    > (first, rows)
}
"""
ALL = {"branches": BRANCHES, "loop": LOOP, "scan": SCAN}


def edges_of(graph: Graph) -> set[tuple[str, str, str]]:
    """(place of the producer, place of the reader, slot) of every read of a node's output."""
    return {
        (graph.producers[name].place, reader.place, str(slot) if slot >= 0 else "result")
        for name, reads in graph.consumers.items()
        if name in graph.producers
        for reader, slot in reads
    }


def edges_in_file(
    proto: onnx.GraphProto, owner: str = "", around: Mapping[str, str | None] | None = None
) -> Iterator[tuple[str, str, str]]:
    """The same by the rules of ONNX's scopes, read off the protobuf: the innermost name counts."""
    here: dict[str, str | None] = {**(around or {}), **{v.name: None for v in proto.input}}
    here |= {tensor.name: None for tensor in proto.initializer}
    if owner:
        here |= {value.name: f"inputs of {owner}" for value in proto.input}
    places = [f"node {at} of {owner}" if owner else f"node {at}" for at in range(len(proto.node))]
    for place, node in zip(places, proto.node, strict=True):
        here |= dict.fromkeys(node.output, place)
    for place, node in zip(places, proto.node, strict=True):
        for slot, name in enumerate(node.input):
            if name and (made := here[name]):
                yield made, place, str(slot)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                inner = f"{attribute.name} of {place}"
                for slot, (name, _) in enumerate(zip(node.input, attribute.g.input, strict=False)):
                    if made := here[name]:
                        yield made, f"inputs of {inner}", str(slot)
                yield from edges_in_file(attribute.g, inner, here)
                made_there = {n: at for at, one in enumerate(attribute.g.node) for n in one.output}
                for value in attribute.g.output:
                    if value.name in made_there:
                        yield f"node {made_there[value.name]} of {inner}", place, "result"
                    elif made := here.get(value.name):
                        yield made, place, "result"


def at(graph: Graph, place: str) -> Node:
    return next(node for node in graph.model.nodes if node.place == place)


class TestOpened:
    def test_a_graph_without_any_stays_what_it_is(self) -> None:
        graph = build(load(catalog.path("resnet34_tiny")))
        assert opened(graph) is graph

    @pytest.mark.parametrize("text", ALL.values(), ids=ALL)
    def test_every_read_is_an_edge_from_what_the_name_means_there(
        self, text: str, save: Save
    ) -> None:
        path = save(text)
        assert edges_of(opened(build(load(path)))) == {*edges_in_file(onnx.load(path).graph)}

    def test_nodes_of_the_model_keep_their_indices(self, parse: Parse) -> None:
        graph = parse(BRANCHES)
        found = opened(graph)
        assert [node.index for node in found.model.nodes] == [*range(len(found.model.nodes))]
        assert [n.place for n in found.model.nodes if n.inside is None] == ["node 0", "node 1"]
        ops = [node.op for node in found.model.nodes if node.inside is not None]
        assert ops == ["Add", "Mul", "Constant", "Mul", "If", "Neg", "Identity"]
        nested = at(found, "node 0 of then_branch of node 2 of else_branch of node 1")
        assert str(nested) == f'{nested.place} (Neg) -> "i"'

    def test_a_name_that_is_taken_gets_its_graph(self, parse: Parse) -> None:
        found = opened(parse(BRANCHES))
        one, other = (
            at(found, f"node {n} of {b}_branch of node 1") for n, b in ((0, "then"), (1, "else"))
        )
        assert {*one.outputs, *other.outputs} == {"t", "t of else_branch of node 1"}
        shadowed = opened(
            parse("""
            g (float[2] x, bool c) => (float[2] y) {
                t = Neg (x)
                y = If (c) <
                    then_branch = a () => (float[2] t) { t = Abs (x) },
                    else_branch = b () => (float[2] q) { q = Identity (t) }
                >
            }
            """)
        )
        assert shadowed.producers["t"].op == "Neg"
        assert shadowed.producers["t of then_branch of node 1"].op == "Abs"
        assert at(shadowed, "node 0 of else_branch of node 1").inputs == ("t",)

    def test_constants_inside_are_constants(self, parse: Parse) -> None:
        found = opened(parse(BRANCHES)).model.constants
        assert found["own"].shape == (4,)
        assert found["two"].read() == np.float32(2)

    def test_constants_of_one_name_stay_apart(self, save: Save) -> None:
        text = """
        g (float[2] x, bool c) => (float[2] y) {
            y = If (c) <
                then_branch = a () => (float[2] p) <float[2] w = {1, 2}> { p = Mul (x, w) },
                else_branch = b () => (float[2] q) <float[2] w = {3, 4}> { q = Mul (x, w) }
            >
        }
        """
        found = opened(build(load(save(text))))
        values = [
            found.model.constants[at(found, f"node 0 of {branch}_branch of node 0").inputs[1]]
            for branch in ("then", "else")
        ]
        assert [tensor.read().tolist() for tensor in values] == [[1, 2], [3, 4]]

    def test_what_a_body_is_given_is_a_node(self, parse: Parse) -> None:
        found = opened(parse(LOOP))
        given = at(found, "inputs of body of node 1")
        assert (given.op, given.inputs) == (INPUTS, ("n", "yes", "h"))
        assert given.outputs == ("at", "go", "carried")
        assert node_count(found) == len(found.model.nodes) - 1

    def test_a_scan_of_opset_8_is_given_all_but_the_lengths(self, parse: Parse) -> None:
        text = """
        g (float[1, 2] first, float[1, 5, 2] rows, int64[1] lengths) => (last, sums) {
            last, sums = Scan <num_scan_inputs = 1,
                body = b (float[2] state, float[2] row) => (float[2] sum, float[2] out) {
                    sum = Add (state, row)
                    out = Identity (sum)
                }
            > (lengths, first, rows)
        }
        """
        found = opened(parse(text, opset=8))
        assert at(found, "inputs of body of node 0").inputs == ("first", "rows")

    def test_what_an_unknown_operation_gives_its_graph_is_not_guessed(self, parse: Parse) -> None:
        text = """
        g (float[2] x, float[2] z) => (float[2] y) {
            y = com.microsoft.Search <
                decoder = b (float[2] ids, float[2] mask) => (float[2] s) { s = Add (ids, mask) }
            > (x, z)
        }
        """
        given = at(opened(parse(text)), "inputs of decoder of node 0")
        assert (given.inputs, given.outputs) == ((), ("ids", "mask"))

    @pytest.mark.parametrize("text", ALL.values(), ids=ALL)
    def test_it_comes_before_the_operation(self, text: str, parse: Parse) -> None:
        found = opened(parse(text))
        order = {index: place for place, index in enumerate(canonical_order(found))}
        for node in found.model.nodes:
            if node.inside is not None and node.op != "Constant":
                assert order[node.index] < order[node.inside.owner]


class TestShapes:
    def test_are_inferred_inside_too(self, parse: Parse) -> None:
        found = shapes(opened(parse(BRANCHES)))
        assert found["t of else_branch of node 1"].shape == ("N", 4)
        assert found["t of else_branch of node 1"].name == "t of else_branch of node 1"
        assert shapes(opened(parse(SCAN)))["row"].shape == (2,)

    def test_a_name_inside_is_not_taken_for_that_of_another_tensor(self, save: Save) -> None:
        """onnx's inference takes a name of the graph around, and of its declarations, first."""
        text = """
        g (float[N, M] x, bool c) => (float[5, 7] y) <int64[2] five = {5, 7}> {
            q = If (c) <
                then_branch = a () => (p) { y = Transpose (x) r = Relu (y) t = Neg (r)
                    p = ReduceSum <keepdims = 0> (t) },
                else_branch = b () => (p) { p = ReduceSum <keepdims = 0> (x) }
            >
            y = Expand (q, five)
        }
        """
        proto = onnx.load(save(text))
        stale = onnx.helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, [8, 9])
        proto.graph.value_info.append(stale)
        found = shapes(opened(build(load(save(proto)))))
        assert found["y"].shape == (5, 7)
        for name in ("y of then_branch of node 0", "r", "t"):
            assert found[name].shape == ("M", "N")

    def test_an_initializer_among_the_inputs_is_not_given(self, save: Save) -> None:
        proto = onnx.load(save(SCAN))
        body = next(a.g for a in proto.graph.node[0].attribute if a.name == "body")
        body.initializer.append(numpy_helper.from_array(np.ones(7, np.float32), "w"))
        listed = onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [7])
        others = [*body.input]
        del body.input[:]
        body.input.extend([listed, *others])
        found = shapes(opened(build(load(save(proto)))))
        assert (found["state"].shape, found["row"].shape) == ((2,), (2,))

    def test_those_around_are_measured_all_the_same(self, parse: Parse) -> None:
        """Of inside nothing can be an output, also where nothing else is to be measured."""
        branches = """
            y = If (c) <
                then_branch = a () => (float[N, 4] p) { k = com.microsoft.Gelu (x) p = Neg (k) },
                else_branch = b () => (float[N, 4] q) { q = Identity (x) }
            >
        """
        text = f"g (float[N, 4] x, bool c) => (float[N, 4] y, float z) {{ {branches} LAST }}"
        last = "g = com.microsoft.Gelu (x) z = ReduceSum <keepdims = 0> (g)"
        found = shapes(opened(parse(text.replace("LAST", last))))
        assert found["g"].shape == ("N", 4)
        assert "k" not in found
        found = shapes(opened(parse(text.replace("LAST", "z = ReduceSum <keepdims = 0> (x)"))))
        assert "k" not in found


class TestBoxes:
    def test_an_operation_stands_after_its_graphs(self, parse: Parse) -> None:
        graph = opened(parse(BRANCHES))
        _, flow = hierarchy(graph).children
        assert isinstance(flow, Box)
        assert [c.name for c in flow.children if isinstance(c, Box)] == [
            "then_branch",
            "else_branch",
        ]
        assert flow.children[-1] == 1
        assert {box.kind for box in flow.children if isinstance(box, Box)} == {"subgraph"}
        inner = [box.name for box in flow.boxes() if box.kind == "flow"]
        assert inner == ["If", "If"]

    @pytest.mark.parametrize("text", ALL.values(), ids=ALL)
    def test_hold_every_node_once(self, text: str, parse: Parse) -> None:
        graph = opened(parse(text))
        nodes = sorted(hierarchy(graph).nodes())
        assert nodes == [n.index for n in graph.model.nodes if n.op != "Constant"]

    def test_a_network_inside_a_branch_is_arranged_as_any_other(self, parse: Parse) -> None:
        layers = " ".join(f"m{i} = MatMul (t{i}, w) t{i + 1} = Relu (m{i})" for i in range(60))
        layers = layers.replace("t0,", "x,").replace("t60 ", "p ")
        graph = opened(
            parse(f"""
            g (float[N, 4] x, bool c) => (float[N, 4] y) <float[4, 4] w> {{
                y = If (c) <
                    then_branch = a () => (float[N, 4] p) {{ {layers} }},
                    else_branch = b () => (float[N, 4] q) {{ q = Identity (x) }}
                >
            }}
            """)
        )
        then, other, last = hierarchy(graph).children
        assert isinstance(then, Box)
        assert isinstance(other, Box)
        assert (then.name, other.name, last) == ("then_branch", "else_branch", 0)
        assert len(then.children) <= 24
        assert len([*then.nodes()]) == 120

    def test_scopes_are_read_in_each_graph(self, save: Save) -> None:
        proto = onnx.load(save(BRANCHES))
        proto.graph.node[0].name = "/enc/Relu"
        proto.graph.node[1].name = "/enc/If_3"
        then = next(a.g for a in proto.graph.node[1].attribute if a.name == "then_branch")
        then.node[0].name, then.node[1].name = "/enc/one/Add", "/enc/two/Mul"
        graph = opened(build(load(save(proto))))
        names = [box.name for box in hierarchy(graph).boxes()]
        assert "If_3" in names
        path = namespaces(graph, hierarchy(graph))[
            at(graph, "node 0 of then_branch of node 1").index
        ]
        assert path[:2] == ("If_3", "then_branch")

    def test_modules_in_graphs_in_graphs_are_boxes_up_to_a_depth(self, save: Save) -> None:
        """15 graphs inside one another, each with 39 modules inside one another."""
        modules = ["/".join(f"m{i}" for i in range(depth)) for depth in range(40)]
        plain = onnx.parser.parse_graph("b () => (float[2] e) { e = Neg (x) }")
        graph = plain
        for _ in range(15):
            branches = {"then_branch": graph, "else_branch": plain}
            nodes = [onnx.helper.make_node("If", ["c"], ["t0"], f"{modules[-1]}/If", **branches)]
            nodes += [
                onnx.helper.make_node("Relu", [f"t{at}"], [f"t{at + 1}"], f"{module}/Relu")
                for at, module in enumerate(modules)
            ]
            last = onnx.helper.make_tensor_value_info("t40", onnx.TensorProto.FLOAT, [2])
            graph = onnx.GraphProto(name="g", node=nodes, output=[last])
        graph.input.add(name="x")
        graph.input.add(name="c")
        opset = [onnx.helper.make_opsetid("", 17)]
        tree = hierarchy(
            opened(build(load(save(onnx.helper.make_model(graph, opset_imports=opset)))))
        )
        assert len([*tree.nodes()]) == 15 * (1 + 40 + 1) + 1
        assert [box.kind for box in tree.boxes()].count("flow") == 15

    def test_what_only_a_graph_inside_reads_is_where_that_is(self, parse: Parse) -> None:
        graph = parse("""
            g (float[2] x, bool c) => (float[2] y) {
                h = Neg (x)
                f = If (c) <
                    then_branch = a () => (float[2] p) { p = Abs (h) },
                    else_branch = b () => (float[2] q) { q = Identity (x) }
                >
                k = Relu (f)
                y = Tanh (k)
            }
        """)
        names = ["", "/enc/If", "/enc/Relu", "/head/Tanh"]
        nodes = tuple(
            replace(node, name=name) for node, name in zip(graph.model.nodes, names, strict=True)
        )
        tree = hierarchy(opened(build(replace(graph.model, nodes=nodes))))
        encoder, last = tree.children
        assert isinstance(encoder, Box)
        assert (encoder.name, last) == ("enc", 3)
        assert encoder.children[0] == 0


class TestFiles:
    def test_namespaces_reach_the_nodes_inside(self, save: Save, tmp_path: Path) -> None:
        source = save(LOOP)
        graph = opened(build(load(source)))
        spaces = namespaces(graph, hierarchy(graph))
        notes = {index: {"namespace": "/".join(path)} for index, path in spaces.items()}
        path, *_ = save_annotated(graph.model, notes, tmp_path / "out.onnx")
        (body,) = (a.g for a in onnx.load(path).graph.node[1].attribute)
        assert [p.value for node in body.node for p in node.metadata_props] == 2 * ["Loop/body"]
        plain = onnx.load(path)
        for node in (*plain.graph.node, *next(a.g for a in plain.graph.node[1].attribute).node):
            del node.metadata_props[:]
        wanted = onnx.load(source)
        wanted.ir_version = plain.ir_version
        assert plain == wanted

    def test_the_weights_of_a_branch_are_files_of_the_model(
        self, save: Save, tmp_path: Path
    ) -> None:
        proto = onnx.load(save(BRANCHES))
        then = next(a.g for a in proto.graph.node[1].attribute if a.name == "then_branch")
        (own,) = then.initializer
        own.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(own), "own"))
        (tmp_path / "own.bin").write_bytes(own.raw_data)
        onnx.external_data_helper.set_external_data(own, "own.bin", offset=0, length=16)
        own.ClearField("raw_data")
        path = save(proto)
        assert load(path).files() == (path, tmp_path / "own.bin")

    @pytest.mark.parametrize("write", [to_dot, to_json, to_model_explorer])
    @pytest.mark.parametrize("text", ALL.values(), ids=ALL)
    def test_other_formats_have_them(
        self, write: Callable[..., str], text: str, parse: Parse
    ) -> None:
        graph = opened(parse(text))
        whole = write(graph, hierarchy(graph))
        assert whole == write(graph, hierarchy(graph))
        assert all(node.op in whole for node in graph.model.nodes if node.op != "Constant")
