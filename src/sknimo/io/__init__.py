"""Models that leave the process: records, files, exports."""

from sknimo.io._record import model_from_record, model_record

__all__ = ["model_from_record", "model_record"]
