"""Models that leave the process: records, files, exports."""

from sknimo.io._archive import (
    MODEL_TENSORS,
    Archive,
    Tensors,
    pack_model,
    read_archive,
    unpack_model,
    write_archive,
)
from sknimo.io._checks import Node, write_real
from sknimo.io._onnx import build_onnx, write_onnx
from sknimo.io._onnx_graph import OnnxDtype
from sknimo.io._record import model_from_record, model_record
from sknimo.io._scorecard import Scorecard, bent_features, build_scorecard
from sknimo.io._sql import build_sql, write_sql
