"""Every network has a first view of about ten boxes: stages, scopes, or what its structure says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from fixtures import catalog
from fixtures.synthetic import tangle
from graphtools.arrange import FIRST, INSIDE
from graphtools.boxes import Box
from graphtools.graph import Graph, build
from graphtools.hierarchy import hierarchy, scope
from graphtools.onnx_file import load
from graphtools.recover import Recovered, recover

Parse = Callable[..., Graph]

TINY = catalog.names(committed=True)
FIRST_VIEWS = {
    "resnet34_tiny": "stem layer1 layer2 layer3 layer4 pooled encoder_out",
    "eres2net_tiny": "stem layer1 layer2 fuse1 layer3 fuse2 layer4 fuse3 pooled encoder_out",
    "campplus_tiny": (
        "fcm tdnn block1 transit1 block2 transit2 block3 transit3 pooled encoder_out"
    ),
}


def graph_of(name: str) -> Graph:
    return build(load(catalog.path(name)))


def recovered(name: str) -> Recovered:
    found = recover(graph_of(name))
    assert isinstance(found, Recovered)
    return found


def nameless(graph: Graph) -> Graph:
    """The same without a name or a scope that an exporter gave."""
    nodes = tuple(replace(node, name="", scope=()) for node in graph.model.nodes)
    return build(replace(graph.model, nodes=nodes))


def require_whole(tree: Box, graph: Graph) -> None:
    """Every node but the constants is there once, and every level is small."""
    nodes = list(tree.nodes())
    wanted = {node.index for node in graph.model.nodes if node.op != "Constant"}
    assert len(nodes) == len(wanted)
    assert set(nodes) == wanted
    assert 1 < len(tree.children) <= FIRST
    for box in tree.boxes():
        assert 0 < len(box.children) <= INSIDE, box
        inside = [child.name for child in box.children if isinstance(child, Box)]
        assert len(set(inside)) == len(inside), box


@pytest.mark.parametrize("name", TINY)
class TestFixtures:
    def test_a_family_is_seen_as_its_stages(self, name: str) -> None:
        net = recovered(name)
        tree = hierarchy(net.graph, net)
        require_whole(tree, net.graph)
        seen = [child.name for child in tree.children if isinstance(child, Box)]
        assert " ".join(seen) == FIRST_VIEWS[name]
        stages = [box.stage for box in tree.boxes() if box.stage]
        assert stages == list(net.binding.stages)

    def test_a_stage_ends_with_its_golden(self, name: str) -> None:
        net = recovered(name)
        for box in hierarchy(net.graph, net).boxes():
            if box.stage:
                producer = net.graph.producers[net.binding.stages[box.stage]]
                assert producer.index in set(box.nodes())

    def test_scopes_are_boxes(self, name: str) -> None:
        graph = graph_of(name)
        tree = hierarchy(graph)
        require_whole(tree, graph)
        assert {box.kind for box in tree.boxes()} >= {"network", "scope"}

    def test_without_scopes_the_structure_is_seen(self, name: str) -> None:
        graph = nameless(graph_of(name))
        tree = hierarchy(graph)
        require_whole(tree, graph)
        assert {box.kind for box in tree.boxes()} <= {"network", "part", "repeat"}

    def test_the_order_of_the_file_does_not_matter(self, name: str) -> None:
        graph = graph_of(name)
        backwards = enumerate(reversed(graph.model.nodes))
        nodes = tuple(replace(node, index=at) for at, node in backwards)
        other = build(replace(graph.model, nodes=nodes))

        def spelled(tree: Box, of: Graph) -> object:
            return [
                spelled(child, of) if isinstance(child, Box) else of.model.nodes[child].outputs
                for child in tree.children
            ]

        assert spelled(hierarchy(graph), graph) == spelled(hierarchy(other), other)


def test_a_block_holds_its_operations() -> None:
    net = recovered("resnet34_tiny")
    (block,) = (b for b in hierarchy(net.graph, net).boxes() if b.stage == "layer2.0")
    ops = [net.graph.model.nodes[i].op for i in block.children if isinstance(i, int)]
    assert sorted(ops) == ["Add", "Conv", "Conv", "Conv", "Relu", "Relu"]


def test_a_region_without_weights_is_a_box() -> None:
    net = recovered("campplus_tiny")
    (block,) = (b for b in hierarchy(net.graph, net).boxes() if b.stage == "block1.0")
    (island,) = (child for child in block.children if isinstance(child, Box))
    assert (island.name, island.kind) == ("cam", "island")
    left = {net.graph.model.nodes[child].op for child in block.children if isinstance(child, int)}
    assert "Shape" not in left


def test_a_wrapper_around_all_has_few_boxes_too(parse: Parse) -> None:
    """It is unfolded with the first view."""
    count = 20
    lines = [f"m{i} = MatMul(t{i}, w) t{i + 1} = Relu(m{i})" for i in range(count)]
    text = " ".join(lines).replace("t0,", "x,")
    graph = parse(f"""
        g (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> {{ {text} y = Neg(t{count}) }}
    """)
    nodes = tuple(
        replace(node, name="" if node.op == "Neg" else f"/model/layer.{node.index // 2}/{node.op}")
        for node in graph.model.nodes
    )
    tree = hierarchy(build(replace(graph.model, nodes=nodes)))
    model = tree.children[0]
    assert isinstance(model, Box)
    assert model.name == "model"
    assert 1 < len(model.children) <= FIRST - 2
    (first, *_) = (child for child in model.children if isinstance(child, Box))
    assert first.name.startswith("layer.0 to layer.")


def test_a_cycle_has_boxes_too(parse: Parse) -> None:
    """No order of it can run, and it can be looked at."""
    lines = [f"t{i} = Add(t{(i + 1) % 40}, t{(i + 7) % 40})" for i in range(40)]
    graph = parse(f"g (float[N] x) => (float[N] y) {{ {' '.join(lines)} y = Add(x, t0) }}")
    require_whole(hierarchy(graph), graph)


def test_a_network_may_be_one_operation(parse: Parse) -> None:
    assert hierarchy(parse("g (float[N] x) => (float[N] y) { y = Relu(x) }")).children == (0,)
    empty = parse("g () => (float[1] y) { y = Constant <value = float[1] {1.0}> () }")
    assert hierarchy(empty).children == ()


def test_any_size_fits_on_a_screen(tmp_path: Path) -> None:
    graph = build(load(tangle(tmp_path / "tangle.onnx", 5000)))
    tree = hierarchy(graph)
    require_whole(tree, graph)


class TestScope:
    def test_is_the_name_without_the_operation(self, parse: Parse) -> None:
        node = replace(graph_of("resnet34_tiny").model.nodes[0], name="/a/a.0/Conv_1")
        assert scope(node) == ("a", "a.0")
        assert scope(replace(node, name="Conv_1")) == ()

    def test_any_name_is_a_name(self) -> None:
        graph = graph_of("resnet34_tiny")
        nodes = tuple(
            replace(node, name="/".join(["a"] * (5000 + node.index) + ["Op"]))
            for node in graph.model.nodes
        )
        odd = build(replace(graph.model, nodes=nodes))
        require_whole(hierarchy(odd), odd)

    def test_is_what_torch_lists(self, tmp_path: Path) -> None:
        proto = onnx.load(catalog.path("resnet34_tiny"))
        node = proto.graph.node[3]
        node.name = "node_conv2d_1"
        listed = "['', 'layer1', 'layer1.0', 'conv2d']"
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=listed)
        onnx.save(proto, tmp_path / "scoped.onnx")
        assert scope(load(tmp_path / "scoped.onnx").nodes[3]) == ("layer1", "layer1.0")

    def test_a_node_without_one_is_where_its_readers_are(self, parse: Parse) -> None:
        graph = parse("""
            g (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w0, float[4, 4] w1>
            { a = Relu(x) b = MatMul(a, w0) c = Tanh(b) y = MatMul(c, w1) }
        """)
        names = ["", "/enc/one/MatMul", "/enc/two/Tanh", "/head/MatMul"]
        nodes = tuple(
            replace(node, name=name) for node, name in zip(graph.model.nodes, names, strict=True)
        )
        tree = hierarchy(build(replace(graph.model, nodes=nodes)))
        assert [(c.name, list(c.nodes())) if isinstance(c, Box) else c for c in tree.children] == [
            ("enc", [0, 1, 2]),
            3,
        ]
