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
from sknimo.io._record import model_from_record, model_record

__all__ = [
    "MODEL_TENSORS",
    "Archive",
    "Node",
    "model_from_record",
    "model_record",
    "pack_model",
    "read_archive",
    "unpack_model",
    "write_archive",
    "write_real",
]
