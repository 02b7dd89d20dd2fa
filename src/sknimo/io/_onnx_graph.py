"""An ONNX graph under construction: nodes, constants, inputs and outputs by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sknimo.version import VERSION

if TYPE_CHECKING:
    from onnx import ModelProto

OnnxDtype = Literal["float64", "float32"]

# Not the newest, so that older runtimes understand the graph too.
OPSET, ML_OPSET, IR_VERSION = 17, 3, 8


class Graph:
    """Nodes and constants under construction; every value has a name of its own."""

    def __init__(self, dtype: OnnxDtype) -> None:
        try:
            import onnx
        except ImportError as error:
            raise ImportError(
                "ONNX export needs the package onnx: pip install 'sknimo[onnx]'."
            ) from error
        self.onnx = onnx
        self.dtype = dtype
        self.kind = onnx.TensorProto.DOUBLE
        if dtype == "float32":
            self.kind = onnx.TensorProto.FLOAT
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.nodes: list[Any] = []
        self.constants: dict[Any, Any] = {}

    def add(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """One node; returns the name of its output."""
        name = f"/{op}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(
            op, list(inputs), [name], domain=domain, **attributes
        )
        self.nodes.append(node)
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """A constant tensor; equal ones are stored once."""
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        text = array.dtype == object  # whose bytes are addresses
        content = tuple(array.ravel()) if text else array.tobytes()
        key = (array.dtype.str, array.shape, content)
        if key not in self.constants:
            name = f"/constant_{len(self.constants)}"
            self.constants[key] = self.onnx.numpy_helper.from_array(array, name)
        return str(self.constants[key].name)

    def indices(self, value: Any) -> str:
        """A constant tensor of whole numbers."""
        return self.constant(value, np.int64)

    def take(self, columns: str, index: Any) -> str:
        """Columns picked by position, (n, m) to (n, len(index))."""
        return self.add("Gather", columns, self.indices(index), axis=1)

    def concat(self, parts: Sequence[str]) -> str:
        """Parts side by side."""
        if len(parts) == 1:
            return parts[0]
        return self.add("Concat", *parts, axis=1)

    def cast(self, value: str, kind: int) -> str:
        """Another element type."""
        return self.add("Cast", value, to=kind)

    def read(self, name: str, shape: list[int], text: bool = False) -> str:
        """Declare an input; numbers come out as float64."""
        kind = self.onnx.TensorProto.STRING if text else self.kind
        info = self.onnx.helper.make_tensor_value_info
        self.inputs.append(info(name, kind, ["n", *shape]))
        if text or self.dtype == "float64":
            return name
        return self.cast(name, self.onnx.TensorProto.DOUBLE)

    def output(
        self, name: str, value: str, shape: list[int], kind: int | None = None
    ) -> None:
        """Declare an output; float64 is turned into the type of the outputs."""
        if kind is None:
            kind = self.kind
            if self.dtype != "float64":
                value = self.cast(value, kind)
        node = self.onnx.helper.make_node("Identity", [value], [name])
        self.nodes.append(node)
        info = self.onnx.helper.make_tensor_value_info
        self.outputs.append(info(name, kind, ["n", *shape]))

    def build(self, metadata: dict[str, str]) -> ModelProto:
        """The checked model."""
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes,
            "sknimo",
            self.inputs,
            self.outputs,
            list(self.constants.values()),
        )
        model = helper.make_model(
            graph,
            producer_name="sknimo",
            producer_version=VERSION,
            ir_version=IR_VERSION,
            opset_imports=[
                helper.make_opsetid("", OPSET),
                helper.make_opsetid("ai.onnx.ml", ML_OPSET),
            ],
        )
        helper.set_model_props(model, metadata)
        self.onnx.checker.check_model(model, full_check=True)
        return model
