"""One file per model: a safetensors container with a strict document in its header.

The container is eight bytes of length, a JSON header, and the arrays end to end. The
metadata of the header has one entry, `sknimo`, whose text is the document: a JSON
object with the version of the schema, a checksum of the whole file, and everything
about the model that is not an array. `docs/format.md` describes it.

Files may come from anywhere. Nothing is read before its size has been checked against
fixed limits, nothing is believed before the checksum has been, and nothing in a file
is ever run or looked up: there is no pickle here and no other format to fall back to.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from safetensors.numpy import save

from sknimo.exceptions import ModelFileError
from sknimo.files import replace_file
from sknimo.io._checks import Node
from sknimo.io._record import ARRAYS, model_from_record, model_record
from sknimo.model import FittedModel

# The schema that is written; all up to it are read.
SCHEMA = 5
MAX_FILE_BYTES = 2 * 2**30
# A thousand features of twenty levels each need half a megabyte and half of these.
MAX_HEADER_BYTES = 4 * 2**20
MAX_HEADER_VALUES = 100_000
MAX_LENGTH = 2**31
# Arrays of a model's record; those of its features are joined in `bases`.
MODEL_TENSORS = (*ARRAYS, "code", "bases")
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "U8": np.dtype("u1"),
}
BLANK_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """What a file holds."""

    content: dict[str, Any]  # plain values, ready for JSON
    tensors: dict[str, np.ndarray]  # arrays of float64, float32 or bool by name


class Tensors:
    """The arrays of a file, which remember those that nobody has asked for."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays, self._unread = arrays, set(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def node(self, name: str) -> Node:
        """An array and its name; None where there is none."""
        self._unread.discard(name)
        return Node(self._arrays.get(name), name)

    def finish(self) -> None:
        """Refuse arrays that belong to nothing."""
        if self._unread:
            names = ", ".join(sorted(self._unread))
            raise ModelFileError(f"arrays belong to nothing: {names}.")


def write_archive(path: str | os.PathLike[str], archive: Archive) -> None:
    """Write a file, or leave the one that was there before as it is."""
    document = {
        "sha256": BLANK_DIGEST,
        "format": "sknimo",
        "schema": SCHEMA,
        **archive.content,
    }
    text = json.dumps(
        document, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    arrays = {
        name: np.ascontiguousarray(array, np.uint8 if array.dtype == bool else None)
        for name, array in archive.tensors.items()
    }
    payload = save(arrays, metadata={"sknimo": text})
    _refuse_oversize(payload, text)
    digest = hashlib.sha256(payload).hexdigest()
    # The metadata comes first and the digest first in it.
    payload = payload.replace(BLANK_DIGEST.encode(), digest.encode(), 1)
    with replace_file(path) as file:
        file.write(payload)


def _refuse_oversize(payload: bytes, text: str) -> None:
    header_bytes = int.from_bytes(payload[:8], "little")
    if (
        len(payload) > MAX_FILE_BYTES
        or header_bytes > MAX_HEADER_BYTES
        or _count_values(text) > MAX_HEADER_VALUES
    ):
        raise ValueError(
            f"The model is too large to save: {len(payload)} bytes, {header_bytes} of "
            f"them names and levels, where {MAX_FILE_BYTES} and {MAX_HEADER_BYTES} are "
            "allowed. Merge rare levels of categorical columns."
        )


def read_archive(path: str | os.PathLike[str], names: Collection[str]) -> Archive:
    """Read a file that holds no arrays but these; refuse any other.

    Raises
    ------
    ModelFileError
        For anything that `write_archive` has not written in this form.
    """
    path = Path(path)
    if not stat.S_ISREG(path.stat().st_mode):
        raise ModelFileError(f"{path} is not a file.")
    try:
        with path.open("rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size, names)
    except ModelFileError as error:
        raise ModelFileError(f"{path} cannot be loaded: {error}") from error


def _read(file: BinaryIO, size: int, names: Collection[str]) -> Archive:
    prefix = file.read(8)
    header_bytes = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or not 2 <= header_bytes <= size - 8:
        raise ModelFileError("it is not a saved model, or it is cut short.")
    if header_bytes > MAX_HEADER_BYTES or size > MAX_FILE_BYTES:
        raise ModelFileError(
            f"it has {size} bytes with a header of {header_bytes}; at most "
            f"{MAX_FILE_BYTES} and {MAX_HEADER_BYTES} are allowed."
        )
    header = file.read(header_bytes)
    table = parse_json(header, "header")
    if type(table) is not dict:
        raise ModelFileError("its header is not a JSON object.")
    (text,) = Node(table.pop("__metadata__", None), "metadata").fields("sknimo")
    document = parse_json(text.text(), "document")
    digest = _check_version(document)
    buffer_bytes = size - 8 - header_bytes
    places = _check_table(table, names, buffer_bytes)
    buffer = file.read(buffer_bytes)
    _check_digest([prefix, header, buffer], digest)
    tensors = {name: place.read(name, buffer) for name, place in places.items()}
    return Archive(document, tensors)


def _check_version(document: Any) -> str:
    """Take what is about the file out of its document; return the checksum."""
    if type(document) is not dict or document.pop("format", None) != "sknimo":
        raise ModelFileError("it is not a saved model of sknimo.")
    schema = Node(document.pop("schema", None), "schema").integer(low=1)
    if schema > SCHEMA:
        raise ModelFileError(
            f"it was written by a newer version of sknimo (schema {schema}; this "
            f"version reads {SCHEMA}). Upgrade sknimo."
        )
    return Node(document.pop("sha256", None), "sha256").text()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an array lies in the buffer."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self, name: str, buffer: bytes) -> np.ndarray:
        flat = np.frombuffer(buffer[self.begin : self.end], self.dtype)
        if self.dtype.kind == "u":
            if flat.max(initial=0) > 1:
                raise ModelFileError(f"{name} must hold zeros and ones alone.")
            return flat.astype(bool).reshape(self.shape)
        return flat.astype(self.dtype.newbyteorder("=")).reshape(self.shape)


def _check_table(
    table: dict[str, Any], names: Collection[str], size: int
) -> dict[str, _Place]:
    """Places of the arrays, which fill the buffer without gap or overlap."""
    places = {}
    for name, entry in table.items():
        Node(name, "name of an array").text(names)
        dtype, shape, offsets = Node(entry, name).fields(
            "dtype", "shape", "data_offsets"
        )
        lengths = tuple(length.integer(0, MAX_LENGTH) for length in shape.items())
        bounds = [bound.integer(low=0) for bound in offsets.items()]
        kind = DTYPES[dtype.text(DTYPES)]
        if len(lengths) > 2:
            raise shape.refuse("one or two lengths")
        if len(bounds) != 2 or bounds[1] - bounds[0] != kind.itemsize * math.prod(
            lengths
        ):
            raise offsets.refuse("the first and the last byte of its array")
        places[name] = _Place(kind, lengths, *bounds)
    end = 0
    for place in sorted(places.values(), key=lambda place: (place.begin, place.end)):
        if place.begin != end:
            raise ModelFileError("its arrays leave gaps or overlap.")
        end = place.end
    if end != size:
        raise ModelFileError(f"its arrays take {end} bytes but {size} are there.")
    return places


def _check_digest(parts: list[bytes], digest: str) -> None:
    """Compare the checksum: SHA-256 of the file with its own digits all zero."""
    known = digest.encode()
    found = hashlib.sha256(parts[0])
    found.update(parts[1].replace(known, BLANK_DIGEST.encode()))
    found.update(parts[2])
    if parts[1].count(known) != 1 or found.hexdigest() != digest:
        raise ModelFileError("it is damaged: its checksum does not match.")


def parse_json(text: str | bytes, what: str) -> Any:
    """JSON without repeated keys, NaN and infinity, and of bounded size."""
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        if _count_values(decoded) > MAX_HEADER_VALUES:
            raise ModelFileError(f"its {what} has too many values.")
        return json.loads(
            decoded, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant
        )
    except ModelFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"its {what} is not valid JSON ({error}).") from error


def _count_values(text: str) -> int:
    """Upper bound of the number of values, for they cost more memory than text."""
    return sum(text.count(mark) for mark in ",[{")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ModelFileError("a key occurs twice in its header.")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ModelFileError(f"its header contains {name}.")


def pack_model(model: FittedModel) -> Archive:
    """Part the record of a model into values and arrays.

    A file names the family, so that only those of the library can be saved.
    """
    if not model.family.is_registered:
        raise ValueError(
            f"{model.family!r} is no family of this library: a file holds no code, and "
            "could not be loaded. Pickle the estimator, or export it with to_onnx."
        )
    record = model_record(model)
    tensors = {name: record.pop(name) for name in ARRAYS}
    tensors["code"] = record["spec"].pop("code")
    pool: list[np.ndarray] = []
    for feature in record["features"]:
        feature["basis"] = _lift(feature["basis"], pool)
        before = len(pool)
        read = _lift(feature["input"], pool)
        # Most networks read the terms themselves: say so instead of repeating them.
        same = len(pool) == before and read == feature["basis"]
        feature["input"] = None if same else read
    tensors["bases"] = np.concatenate([np.empty(0), *map(np.ravel, pool)])
    return Archive(record, tensors)


def unpack_model(node: Node, tensors: Tensors) -> FittedModel:
    """Undo `pack_model`."""
    missing = sorted(name for name in MODEL_TENSORS if name not in tensors)
    if missing:
        raise ModelFileError(f"arrays are missing: {', '.join(missing)}.")
    family, spec, features = node.fields("family", "spec", "features")
    if type(spec.value) is dict:  # before schema 4 there was one output
        spec = replace(spec, value={"own_out": False, **spec.value})
    spec.fields("hidden", "mask", "own_out", "input_feature")
    pool = _Numbers(tensors.node("bases"))
    columns = []
    for feature in features.items():
        name, basis, read = feature.fields("name", "basis", "input")
        own = _lower(basis, pool)
        seen = own if read.value is None else _lower(read, pool)
        columns.append({"name": name.value, "basis": own, "input": seen})
    pool.finish()
    return model_from_record(
        {
            "family": family.value,
            "spec": {**spec.value, "code": tensors.node("code").value},
            "features": columns,
            **{name: tensors.node(name).value for name in ARRAYS},
        }
    )


def _lift(value: Any, pool: list[np.ndarray]) -> Any:
    """Put the arrays of a basis into a pool and leave their shapes behind."""
    if isinstance(value, np.ndarray):
        pool.append(value)
        return {"array": list(value.shape)}
    if isinstance(value, dict):
        return {key: _lift(inner, pool) for key, inner in value.items()}
    return value


def _lower(node: Node, pool: _Numbers) -> Any:
    """Undo `_lift`, taking the arrays in the same order."""
    value = node.value
    if type(value) is not dict:
        return value
    if value.keys() == {"array"}:
        return pool.take(node.fields("array")[0])
    return {
        key: _lower(Node(inner, f"{node.place}.{key}"), pool)
        for key, inner in value.items()
    }


class _Numbers:
    """Numbers of all features, handed out in turn."""

    def __init__(self, values: Node) -> None:
        self.values, self.used = values.array((None,)), 0

    def take(self, shape: Node) -> np.ndarray:
        lengths = [length.integer(0, MAX_LENGTH) for length in shape.items()]
        begin, self.used = self.used, self.used + math.prod(lengths)
        if self.used > len(self.values) or len(lengths) > 2:
            raise shape.refuse("the shape of an array that is there")
        return self.values[begin : self.used].reshape(lengths).copy()

    def finish(self) -> None:
        if self.used != len(self.values):
            raise ModelFileError("bases holds more numbers than the features have.")
