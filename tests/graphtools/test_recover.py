"""Which family a graph is, whatever its names and order; a damaged graph is none."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from fixtures import catalog
from graphtools.errors import Error, MissError
from graphtools.families import FAMILIES
from graphtools.graph import Graph, build
from graphtools.model import Model, Node
from graphtools.onnx_file import load
from graphtools.recover import NearMiss, Recovered, recover
from graphtools.tensors import Array, DType, Held, LazyTensor

Export = Callable[[str], Graph]
Known = Callable[[str], Recovered]
Changed = Callable[..., Graph]
Parse = Callable[..., Graph]
Deadline = Callable[[int], AbstractContextManager[None]]

TINY = catalog.names(committed=True)
# Many cases run on the same three graphs, which no test changes.
SHARED = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def by_value(net: Recovered) -> dict[str, Any]:
    """What recovery found, without the names and places of a file."""
    return {
        "family": net.family.name,
        "config": net.config,
        "stages": list(net.binding.stages),
        "islands": [kind for kind, _ in net.binding.regions],
        "constants": {c.name: c.value for c in net.binding.constants.values()},
        "layers": [
            (slot, layer.kind, role, tensor.shape, tensor.read().tobytes())
            for slot, layer in net.binding.layers.items()
            for role, tensor in layer.tensors.items()
        ],
    }


def bind(graph: Graph) -> Recovered:
    found = recover(graph)
    assert isinstance(found, Recovered), found.error(graph)
    return found


def ordered(model: Model, order: list[int]) -> Graph:
    nodes = tuple(replace(model.nodes[old], index=new) for new, old in enumerate(order))
    return build(replace(model, nodes=nodes))


class TestOrderAndNames:
    @pytest.mark.parametrize("name", TINY)
    @SHARED
    @given(seed=st.integers(0, 2**32))
    def test_any_order_of_nodes_gives_the_same_binding(
        self, recovered: Known, name: str, seed: int
    ) -> None:
        net = recovered(name)
        order = list(range(len(net.graph.model.nodes)))
        random.Random(seed).shuffle(order)
        assert by_value(bind(ordered(net.graph.model, order))) == by_value(net)

    @pytest.mark.parametrize("name", TINY)
    @SHARED
    @given(seed=st.integers(0, 2**32))
    def test_any_order_that_a_runtime_could_run_gives_the_same_binding(
        self, recovered: Known, name: str, seed: int
    ) -> None:
        net = recovered(name)
        draw = random.Random(seed)
        waiting = {n: net.graph.net.in_degree(n) for n in net.graph.net}
        ready = sorted(n for n, count in waiting.items() if count == 0)
        order: list[int] = []
        while ready:
            node = ready.pop(draw.randrange(len(ready)))
            order.append(node)
            for _, after, _ in net.graph.net.out_edges(node, keys=True):
                waiting[after] -= 1
                if waiting[after] == 0:
                    ready.append(after)
        assert len(order) == len(net.graph.model.nodes)
        assert by_value(bind(ordered(net.graph.model, order))) == by_value(net)

    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("seed", [0, 1])
    def test_names_decide_nothing(
        self, save: Callable[..., Path], recovered: Known, name: str, seed: int
    ) -> None:
        proto = renamed(onnx.load(catalog.path(name)), seed)
        net = bind(build(load(save(proto))))
        assert by_value(net) == by_value(recovered(name))
        known = {v.name for v in (*net.graph.inputs, *net.graph.outputs)} | set(net.graph.producers)
        assert not known & set(recovered(name).graph.producers)

    @pytest.mark.parametrize("name", TINY)
    def test_the_file_of_the_binding_says_where_everything_is(
        self, recovered: Known, name: str
    ) -> None:
        net = recovered(name)
        model = net.graph.model
        for layer in net.binding.layers.values():
            node = model.nodes[layer.node]
            assert node.op in ("Conv", "BatchNormalization", "Gemm", "Sub")
            for tensor in layer.tensors.values():
                assert tensor.name in {*node.inputs}
        assert set(net.binding.stages.values()) <= set(net.graph.producers)
        assert net.binding.stages["encoder_out"] == net.binding.output == model.outputs[0].name
        assert net.binding.input == model.inputs[0].name

    @pytest.mark.parametrize("name", TINY)
    def test_no_weight_is_bound_twice_and_none_is_left(self, recovered: Known, name: str) -> None:
        net = recovered(name)
        bound = [t.name for layer in net.binding.layers.values() for t in layer.tensors.values()]
        assert len(set(bound)) == len(bound)
        weights = {
            t.name for t in net.graph.model.constants.values() if t.dtype.is_float and t.size > 1
        }
        assert set(bound) == weights


def renamed(proto: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Every tensor under a random new name, every node without one."""
    assert not any(a.HasField("g") for node in proto.graph.node for a in node.attribute)
    names = {n: "" for node in proto.graph.node for n in (*node.input, *node.output) if n}
    names |= dict.fromkeys((v.name for v in (*proto.graph.input, *proto.graph.output)), "")
    numbers = list(range(len(names)))
    random.Random(seed).shuffle(numbers)
    new = {"": "", **{name: f"t{number}" for name, number in zip(names, numbers, strict=True)}}
    del proto.graph.value_info[:]
    for index, node in enumerate(proto.graph.node):
        inputs, outputs = [new[n] for n in node.input], [new[n] for n in node.output]
        del node.input[:], node.output[:]
        node.input.extend(inputs)
        node.output.extend(outputs)
        node.name = "" if seed % 2 == 0 else f"n{index}"
        for attribute in node.attribute:
            attribute.t.name = ""
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        value.name = new[value.name]
    proto.graph.name = ""
    return proto


class TestOtherSpellings:
    """The same network as other tools write it."""

    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("op", ["Identity", "Cast", "Reshape", "Dropout"])
    def test_a_layout_op_after_the_embedding(
        self, save: Callable[..., Path], recovered: Known, name: str, op: str
    ) -> None:
        """f16 files end in a Cast to f32, for example."""
        proto = onnx.load(catalog.path(name))
        out = proto.graph.output[0].name
        inputs, attributes = [out], {"to": 1} if op == "Cast" else {}
        if op == "Reshape":
            shape = onnx.numpy_helper.from_array(np.array([-1, 32]), "final_shape")
            proto.graph.initializer.append(shape)
            inputs.append("final_shape")
        proto.graph.node.append(helper.make_node(op, inputs, ["final"], **attributes))
        proto.graph.output[0].name = "final"
        assert by_value(bind(build(load(save(proto))))) == by_value(recovered(name))

    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("place", ["first", "last"])
    def test_the_embedding_need_not_be_the_only_output(
        self, save: Callable[..., Path], recovered: Known, name: str, place: str
    ) -> None:
        proto = onnx.load(catalog.path(name))
        net = recovered(name)
        tap = onnx.ValueInfoProto(name=net.binding.stages["pooled"])
        proto.graph.output.insert(0 if place == "first" else 1, tap)
        found = bind(build(load(save(proto))))
        assert found.binding.output == net.binding.output
        assert by_value(found) == by_value(net)

    @pytest.mark.parametrize("name", TINY)
    def test_initializers_as_constant_nodes(
        self, save: Callable[..., Path], recovered: Known, name: str
    ) -> None:
        proto = onnx.load(catalog.path(name))
        for tensor in proto.graph.initializer:
            proto.graph.node.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
        del proto.graph.initializer[:]
        assert by_value(bind(build(load(save(proto))))) == by_value(recovered(name))

    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("level", ["BASIC", "EXTENDED"])
    def test_as_onnxruntime_optimises_it(
        self, tmp_path: Path, recovered: Known, name: str, level: str
    ) -> None:
        """BASIC folds and removes; EXTENDED fuses an activation into the convolution before it."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(
            onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}"
        )
        options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
        onnxruntime.InferenceSession(
            str(catalog.path(name)), options, providers=["CPUExecutionProvider"]
        )
        found = bind(build(load(tmp_path / "optimised.onnx")))
        assert same_shapes(found) == same_shapes(recovered(name))

    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("keep_io", [True, False])
    def test_in_half_precision(
        self, save: Callable[..., Path], recovered: Known, name: str, keep_io: bool
    ) -> None:
        from onnxruntime.transformers.float16 import convert_float_to_float16

        proto = onnx.load(catalog.path(name))
        half = convert_float_to_float16(proto, keep_io_types=keep_io)
        found, original = bind(build(load(save(half)))), recovered(name)
        assert same_shapes(found) == same_shapes(original)
        for slot, layer in original.binding.layers.items():
            for role, tensor in layer.tensors.items():
                other = found.binding.layers[slot].tensors[role].read().astype(np.float32)
                # Half precision has 11 bits; numbers below 6e-5 have fewer.
                np.testing.assert_allclose(other, tensor.read(), rtol=2**-11, atol=2**-24)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize(("opset", "fold"), [(11, False), (14, True), (14, False), (17, False)])
    def test_by_torchs_exporter_with_other_settings(
        self, tmp_path: Path, recovered: Known, name: str, opset: int, fold: bool
    ) -> None:
        from fixtures.export import export_legacy

        path = tmp_path / "other.onnx"
        export_legacy(catalog.EXPORTS[name].module(), path, opset=opset, fold=fold)
        found = bind(build(load(path)))
        assert same_shapes(found) == same_shapes(recovered(name))
        for slot, layer in recovered(name).binding.layers.items():
            for role, tensor in layer.tensors.items():
                other, values = found.binding.layers[slot].tensors[role].read(), tensor.read()
                # We fold in float64 and round once, torch's exporter folds in float32.
                np.testing.assert_allclose(other, values, rtol=2e-6, atol=1e-6, err_msg=slot)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", TINY)
    def test_by_torchs_other_exporter(self, tmp_path: Path, recovered: Known, name: str) -> None:
        import warnings

        import torch

        frames = torch.export.Dim("T", min=10, max=5000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own
            torch.onnx.export(
                catalog.EXPORTS[name].module(),
                (torch.ones(1, 200, 80),),
                tmp_path / "dynamo.onnx",
                dynamo=True,
                verbose=False,
                dynamic_shapes=({1: frames},),
                external_data=False,
            )
        found, original = bind(build(load(tmp_path / "dynamo.onnx"))), recovered(name)
        # It drops constants of 1e-8 and less: ERes2Net's pooling epsilon is one.
        assert same_shapes(found, eps=False) == same_shapes(original, eps=False)
        if name == "eres2net_tiny":
            assert found.binding.constants["tstp.eps"].value == 0.0


def same_shapes(net: Recovered, eps: bool = False) -> dict[str, Any]:
    """What other spellings of the same network have in common; values may be rounded."""
    view = by_value(net)
    view["constants"] = {
        name: value for name, value in view["constants"].items() if eps or not name.endswith(".eps")
    }
    view["layers"] = [layer[:4] for layer in view["layers"] if layer[2] != "bias"]
    return view


# --- damage ---------------------------------------------------------------------------------


def with_input(graph: Graph, index: int, slot: int, values: Array) -> Graph:
    """The graph with one node's operand replaced by a constant."""
    dtype = DType.F32 if values.dtype.kind == "f" else DType.I64
    tensor = LazyTensor("replaced", values.shape, dtype, Held("replaced", values))
    nodes = list(graph.model.nodes)
    inputs = list(nodes[index].inputs)
    inputs[slot] = tensor.name
    nodes[index] = replace(nodes[index], inputs=tuple(inputs))
    constants = {**graph.model.constants, tensor.name: tensor}
    return build(replace(graph.model, nodes=tuple(nodes), constants=constants))


def nodes_of(net: Recovered, *kinds: str) -> list[Node]:
    """The nodes that stand for steps of some kinds."""
    found = {
        index: None
        for at, step in enumerate(net.binding.template.steps)
        if step.kind in kinds
        for index in net.binding.nodes[at]
    }
    return [net.graph.model.nodes[index] for index in found]


def plus(node: Node, name: str, at: slice) -> dict[str, Any]:
    """An attribute of numbers with some of them one larger."""
    values = np.array(node.integers(name, ()))
    values[at] += 1
    return {name: tuple(values.tolist())}


FIRST, LAST, EVERY = slice(0, 1), slice(-1, None), slice(None)
CONV_DAMAGE: dict[str, Callable[[Node], dict[str, Any]]] = {
    "first stride": lambda node: plus(node, "strides", FIRST),
    "last stride": lambda node: plus(node, "strides", LAST),
    "all strides": lambda node: plus(node, "strides", EVERY),
    "first pad": lambda node: plus(node, "pads", FIRST),
    "last pad": lambda node: plus(node, "pads", LAST),
    "all pads": lambda node: plus(node, "pads", EVERY),
    "dilations": lambda node: plus(node, "dilations", EVERY),
    "group": lambda node: {"group": 2},
}
POOL_DAMAGE: dict[str, dict[str, Any]] = {
    "kernel": {"kernel_shape": (99,)},
    "stride": {"strides": (99,)},
    "ceil_mode": {"ceil_mode": 0},
    "pad": {"pads": (0, 1)},
    "auto_pad": {"auto_pad": "SAME_UPPER"},
    "dilation": {"dilations": (2,)},
}


def survivors(cases: Iterator[tuple[str, Graph]]) -> list[str]:
    """The damage that recovery did not see."""
    return [what for what, graph in cases if not isinstance(recover(graph), NearMiss)]


class TestDamage:
    """One attribute of one node is changed: a binding would be silently wrong."""

    @staticmethod
    def convolutions(
        net: Recovered, changed: Changed, kind: str, nodes: list[Node]
    ) -> Iterator[tuple[str, Graph]]:
        for node in nodes:
            damage = CONV_DAMAGE[kind](node)
            yield f"{kind} of {node}", changed(net.graph, node.index, **damage)

    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("kind", CONV_DAMAGE)
    def test_of_a_convolution(
        self, recovered: Known, changed: Changed, name: str, kind: str
    ) -> None:
        net = recovered(name)
        step = {"resnet34_tiny": 3, "eres2net_tiny": 9, "campplus_tiny": 37}[name]
        nodes = nodes_of(net, "conv")[::step]
        assert survivors(self.convolutions(net, changed, kind, nodes)) == []

    @pytest.mark.slow
    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("kind", CONV_DAMAGE)
    def test_of_every_convolution(
        self, recovered: Known, changed: Changed, name: str, kind: str
    ) -> None:
        net = recovered(name)
        nodes = nodes_of(net, "conv")
        assert len(nodes) == {"resnet34_tiny": 36, "eres2net_tiny": 96, "campplus_tiny": 225}[name]
        if name == "campplus_tiny":  # 52 layers are alike: every kind takes another third of them
            nodes = nodes[list(CONV_DAMAGE).index(kind) % 3 :: 3]
        assert survivors(self.convolutions(net, changed, kind, nodes)) == []

    @pytest.mark.parametrize(("slot", "bound"), [(1, -1.0), (1, 0.5), (2, 6.0), (2, 20.5)])
    def test_of_a_clip(self, recovered: Known, slot: int, bound: float) -> None:
        net = recovered("eres2net_tiny")
        clips = nodes_of(net, "clip")
        assert len(clips) == 64
        value = np.array(bound, np.float32)
        cases = ((str(n), with_input(net.graph, n.index, slot, value)) for n in clips[::5])
        assert survivors(cases) == []

    @pytest.mark.parametrize("name", ["eres2net_tiny", "campplus_tiny"])
    @pytest.mark.parametrize("axis", [0, 2, -1])
    def test_of_a_concatenation(
        self, recovered: Known, changed: Changed, name: str, axis: int
    ) -> None:
        net = recovered(name)
        nodes = nodes_of(net, "concat")
        assert len(nodes) == {"eres2net_tiny": 28, "campplus_tiny": 52}[name]
        cases = ((str(n), changed(net.graph, n.index, axis=axis)) for n in nodes[::6])
        assert survivors(cases) == []

    @pytest.mark.parametrize("damage", [{"axis": 2}, {"axis": 0}, {"split": (3, 5)}], ids=str)
    def test_of_a_split(self, recovered: Known, changed: Changed, damage: dict[str, Any]) -> None:
        net = recovered("eres2net_tiny")
        nodes = nodes_of(net, "split")
        assert len(nodes) == 16
        cases = ((str(n), changed(net.graph, n.index, **damage)) for n in nodes[::3])
        assert survivors(cases) == []

    @pytest.mark.parametrize("kind", POOL_DAMAGE)
    def test_of_a_pooling(self, recovered: Known, changed: Changed, kind: str) -> None:
        net = recovered("campplus_tiny")
        nodes = [n for n in net.graph.model.nodes if n.op == "AveragePool"]
        assert len(nodes) == 52
        cases = ((str(n), changed(net.graph, n.index, **POOL_DAMAGE[kind])) for n in nodes[::10])
        assert survivors(cases) == []

    @pytest.mark.parametrize("damage", [{"epsilon": 1e-3}, {"training_mode": 1}], ids=str)
    def test_of_a_batch_norm(
        self, recovered: Known, changed: Changed, damage: dict[str, Any]
    ) -> None:
        net = recovered("campplus_tiny")
        nodes = nodes_of(net, "bn")
        assert len(nodes) == 56
        cases = ((str(n), changed(net.graph, n.index, **damage)) for n in nodes[::11])
        assert survivors(cases) == []

    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize(
        ("old", "new"),
        [("Relu", "LeakyRelu"), ("Relu", "Abs"), ("Tanh", "Erf"), ("Sigmoid", "HardSigmoid"),
         ("Add", "Sub"), ("Add", "Mul"), ("Mul", "Add"), ("Sub", "Add")],
    )  # fmt: skip
    def test_of_an_op(self, recovered: Known, name: str, old: str, new: str) -> None:
        net = recovered(name)
        kinds = ("relu", "tanh", "sigmoid", "silu", "add", "mul", "add_scalar", "subtract_from",
                 "subtract")  # fmt: skip
        nodes = [n for n in nodes_of(net, *kinds) if n.op == old]

        def cases() -> Iterator[tuple[str, Graph]]:
            for node in nodes[:: max(1, len(nodes) // 4)]:
                every = list(net.graph.model.nodes)
                every[node.index] = replace(node, op=new)
                yield str(node), build(replace(net.graph.model, nodes=tuple(every)))

        assert survivors(cases()) == []

    @pytest.mark.parametrize("name", ["resnet34_tiny", "eres2net_tiny"])
    @pytest.mark.parametrize("damage", [{"alpha": 2.0}, {"beta": 0.5}, {"transA": 1}], ids=str)
    def test_of_the_last_layer(
        self, recovered: Known, changed: Changed, name: str, damage: dict[str, Any]
    ) -> None:
        net = recovered(name)
        (layer,) = nodes_of(net, "linear")
        assert survivors(iter([(name, changed(net.graph, layer.index, **damage))])) == []

    @pytest.mark.parametrize("name", TINY)
    def test_of_a_residual_is_seen(self, recovered: Known, name: str) -> None:
        """One operand of an addition is read from elsewhere."""
        net = recovered(name)
        stages = list(net.binding.stages.values())

        def cases() -> Iterator[tuple[str, Graph]]:
            for node in nodes_of(net, "add", "mul", "concat")[::17]:
                for slot in range(len(node.inputs)):
                    inputs = list(node.inputs)
                    inputs[slot] = stages[0] if inputs[slot] != stages[0] else stages[1]
                    every = list(net.graph.model.nodes)
                    every[node.index] = replace(node, inputs=tuple(inputs))
                    yield str(node), build(replace(net.graph.model, nodes=tuple(every)))

        assert survivors(cases()) == []


class TestHiddenLayers:
    """A layer more in the pooling region is no pooling."""

    @staticmethod
    def insert(net: Recovered, region: int, lines: list[tuple[str, tuple[int, ...]]]) -> Graph:
        """Nodes between a region's entry and all that reads it there; shapes are the weights'."""
        entry, model = net.binding.regions[region][1].entry, net.graph.model
        inside = net.binding.regions[region][1].nodes
        nodes, constants = list(model.nodes), dict(model.constants)
        at = entry
        for number, (op, shape) in enumerate(lines):
            inputs = [at]
            if shape:
                name = f"hidden_w{number}"
                values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
                constants[name] = LazyTensor(name, shape, DType.F32, Held(name, values))
                inputs.append(name)
            at = f"hidden{number}"
            nodes.append(Node(len(nodes), op, "", tuple(inputs), (at,), {}))
        for index in inside:
            inputs = [at if n == entry else n for n in nodes[index].inputs]
            nodes[index] = replace(nodes[index], inputs=tuple(inputs))
        return build(replace(model, nodes=tuple(nodes), constants=constants))

    @pytest.mark.parametrize("name", TINY)
    @pytest.mark.parametrize("region", [0, -1])
    @pytest.mark.parametrize("op", ["Conv", "Mul", "Add", "MatMul"])
    def test_are_seen(self, recovered: Known, name: str, region: int, op: str) -> None:
        net = recovered(name)
        rank = 4 if name != "campplus_tiny" else 3
        shape = {"Conv": (4, 4, *[1] * (rank - 2)), "MatMul": (4, 4)}.get(
            op, (4, *[1] * (rank - 2))
        )
        found = recover(self.insert(net, region, [(op, shape)]))
        assert isinstance(found, NearMiss)
        assert found.family.name == net.family.name
        assert "hidden" in found.miss.reason.where + found.miss.reason.found

    @pytest.mark.parametrize("name", TINY)
    def test_with_an_activation_are_seen(self, recovered: Known, name: str) -> None:
        net = recovered(name)
        shape = (4, 4, 1, 1) if name != "campplus_tiny" else (4, 4, 1)
        graph = self.insert(net, -1, [("Conv", shape), ("Relu", ()), ("Conv", shape)])
        assert isinstance(recover(graph), NearMiss)


# --- other networks -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "family", "op", "expected", "found"),
    [
        # Its last fusion reads the fusion before it, and not the layer.
        (
            "eres2net_huge",
            "eres2net_v2",
            "Add",
            "one tensor that all readers of layer3.5 (stage) share",
            '"/fuse_mode123/Add_1_output_0"',
        ),
        (
            "resnet34_two_emb",
            "resnet",
            "BatchNormalization",
            "a weight-free region: mean and std over time of every channel and bin",
            "with weights",
        ),
        (
            "mlp",
            "resnet",
            "",
            "one square root, of a variance plus a constant",
            "0 square roots",
        ),
    ],
)
def test_a_look_alike_is_refused_with_the_first_difference(
    export: Export, name: str, family: str, op: str, expected: str, found: str
) -> None:
    graph = export(name)
    near = recover(graph)
    assert isinstance(near, NearMiss)
    assert near.family is FAMILIES[family]
    assert near.miss.reason.expected == expected
    assert found in near.miss.reason.found
    assert f"({op})" in near.miss.reason.where or not op
    assert 0 < near.miss.from_output < near.miss.total
    assert 0 < near.miss.from_input <= near.miss.total
    error = near.error(graph)
    assert isinstance(error, MissError)
    assert FAMILIES[family].title in error.cause
    assert error.file == str(graph.model.path)
    assert (error.where or "").startswith(near.miss.reason.where)
    assert near.miss.step.label() in (error.where or "")
    assert (error.expected, error.found) == (near.miss.reason.expected, near.miss.reason.found)
    assert f"{near.miss.from_output} of {near.miss.total} steps" in (error.todo or "")


def test_the_nearest_miss_is_the_familys_own(recovered: Known, changed: Changed) -> None:
    for name in TINY:
        net = recovered(name)
        node = nodes_of(net, "conv")[3]
        found = recover(changed(net.graph, node.index, group=2))
        assert isinstance(found, NearMiss)
        assert found.family is net.family
        assert found.miss.reason.where == str(node)
        assert "groups 2" in found.miss.reason.found


@pytest.mark.parametrize("name", TINY)
def test_two_readings_are_ambiguous(save: Callable[..., Path], name: str) -> None:
    proto = onnx.load(catalog.path(name))
    embedding = proto.graph.output[0].name
    proto.graph.node.append(helper.make_node("Identity", [embedding], ["again"]))
    proto.graph.output.append(onnx.ValueInfoProto(name="again"))
    with pytest.raises(MissError, match="more than one way") as caught:
        recover(build(load(save(proto))))
    assert repr(embedding) in (caught.value.found or "")
    assert "'again'" in (caught.value.found or "")
    assert "only output" in (caught.value.todo or "")


def test_a_recovered_network_says_what_it_is(recovered: Known) -> None:
    text = repr(recovered("eres2net_tiny"))
    assert "ERes2Net (3D-Speaker)" in text
    assert "97 slots" in text
    assert "num_blocks=(3, 4, 6, 3)" in text


# --- broken graphs --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (float[2] x) { y = Relu (x) }",
        "g (float[2] x) => (float[2] c) <float[2] c> { y = Relu (x) }",
        "g () => (float[2] y) <float[2] c> { y = Relu (c) }",
        "g (float[2] x, float[2] z) => (float[2] y) { y = Add (x, z) }",
        "g (float[2] x) => (float[2] y) { y = Clip (x) }",
        "g (float[2] x) => (float[2] y) <float[2] c> { y = Sub (x, c) }",
        "g (float[2] x) => (float[2] y) { y = BatchNormalization (x, x, x, x, x) }",
        "g (float[1, 2, T] x) => (float[1, 2, T] y) <float[2, 2] w> { y = Conv (x, w) }",
    ],
)
def test_anything_else_is_a_near_miss(parse: Parse, text: str) -> None:
    graph = parse(text)
    found = recover(graph)
    assert isinstance(found, NearMiss)
    assert found.error(graph).found


@pytest.mark.parametrize("name", ["resnet34_tiny", "eres2net_tiny"])
def test_a_node_with_too_few_or_too_many_inputs_is_refused_and_no_crash(
    save: Callable[..., Path], recovered: Known, name: str
) -> None:
    """No runtime would run such a file, so whoever asks first must say so."""
    model = recovered(name).graph.model
    crashes = []
    for op, index in {node.op: node.index for node in model.nodes}.items():
        inputs = model.nodes[index].inputs
        for kept in (*range(len(inputs)), len(inputs) + 1):
            proto = onnx.load(catalog.path(name))
            del proto.graph.node[index].input[kept:]
            proto.graph.node[index].input.extend(inputs[: max(0, kept - len(inputs))])
            try:
                recover(build(load(save(proto))))
            except Error:
                continue
            except (IndexError, ValueError) as error:
                crashes.append(f"{op} with {kept} inputs: {error!r}")
    assert crashes == []


def test_a_cyclic_graph_ends(save: Callable[..., Path], deadline: Deadline) -> None:
    proto = onnx.load(catalog.path("resnet34_tiny"))
    first, last = proto.graph.node[4], proto.graph.node[-3]
    first.input[0] = last.output[0]
    with deadline(30):
        try:
            found = recover(build(load(save(proto))))
        except Error:
            return
    assert isinstance(found, NearMiss)


@pytest.mark.parametrize("size", [2, 100])
def test_a_cycle_of_layout_ops_ends(parse: Parse, deadline: Deadline, size: int) -> None:
    ring = " ".join(f"c{(i + 1) % size} = Identity (c{i})" for i in range(size))
    with deadline(10):
        try:
            found = recover(parse(f"g (float[2] x) => (float[2] y) {{ {ring} y = Add (x, c0) }}"))
        except Error:
            return
    assert isinstance(found, NearMiss)
