"""Models that leave the process: records, files, exports."""

from sknimo.io._archive import (
    MODEL_TENSORS,
    Archive,
    pack_model,
    read_archive,
    unpack_model,
    write_archive,
)
from sknimo.io._checks import Node, write_real
from sknimo.io._onnx import build_onnx, write_onnx
from sknimo.io._onnx_graph import OnnxDtype
from sknimo.io._record import model_from_record, model_record

__all__ = [
    "MODEL_TENSORS",
    "Archive",
    "Node",
    "OnnxDtype",
    "build_onnx",
    "model_from_record",
    "model_record",
    "pack_model",
    "read_archive",
    "unpack_model",
    "write_archive",
    "write_onnx",
    "write_real",
]
