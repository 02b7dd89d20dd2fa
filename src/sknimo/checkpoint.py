"""Unfinished work on disk: states that are written whole and resumed exactly.

A checkpoint is a folder. Each state in it is one file of named arrays and a few plain
facts, in safetensors format: reading it runs no code. The folder belongs to one piece
of work, known by its fingerprint, so that no fit resumes from another's state. Several
processes may do that work in one folder. What goes wrong with the folder during a fit
costs states, which is warned of, but never the fit.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from sknimo.exceptions import CheckpointError, CheckpointWarning
from sknimo.files import hold_folder, remove_unfinished, replace_file

Record = TypeVar("Record")

SUFFIX = ".safetensors"
# Of the files' own layout; a state in another is refused.
LAYOUT = 3
KEYS = {"version", "fingerprint", "facts", "digest"}


@dataclass(frozen=True, slots=True)
class State:
    """Arrays by name, and facts that JSON can say."""

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder of states of one piece of work."""

    folder: Path
    # Digest of everything that the result depends on, see `fingerprint`.
    fingerprint: str

    @classmethod
    def open(cls, path: str | os.PathLike[str], fingerprint: str) -> Checkpoint:
        """Make the folder, and refuse one that belongs to other work."""
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise CheckpointError(
                f"checkpoint={str(path)!r} is a file; name a folder for the states."
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint={str(path)!r} cannot be made ({error.strerror}); name a "
                "folder where files can be written."
            ) from error
        checkpoint = cls(folder, fingerprint)
        for file in sorted(folder.glob(f"*{SUFFIX}")):
            checkpoint._check_file(file)
        remove_unfinished(folder)
        return checkpoint

    def load(self, name: str) -> State | None:
        """State of that name, None if there is none yet."""
        path = self._path(name)
        try:
            # In one go: `safe_open` opens the file twice, and would mix two states if
            # it is replaced in between.
            content = path.read_bytes()
            tensors = safetensors.torch.load(content)
        except FileNotFoundError:
            return None
        except (OSError, safetensors.SafetensorError) as error:
            raise _damaged(path) from error
        end = 8 + int.from_bytes(content[:8], "little")
        facts = _read_facts(json.loads(content[8:end]).get("__metadata__"), path)
        self._check(facts, path)
        if facts["digest"] != _digest(tensors, facts["facts"]):
            raise _damaged(path)
        return State(tensors, facts["facts"])

    def agree(self, name: str, value: Any) -> Any:
        """The value that the first to ask has kept under this name; ours if none."""
        self.save(name, {}, {"value": value}, once=True)
        state = self.load(name)
        return value if state is None else state.facts["value"]

    def save(
        self,
        name: str,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        once: bool = False,
    ) -> None:
        """Replace the state of that name, unless it is kept `once`.

        A fit is worth more than its states: where one cannot be written, it goes on.
        """
        arrays = {
            key: value.detach().cpu().contiguous().clone()
            for key, value in tensors.items()
        }
        about = {
            "version": LAYOUT,
            "fingerprint": self.fingerprint,
            "facts": dict(facts),
            "digest": _digest(arrays, facts),
        }
        payload = safetensors.torch.save(arrays, {"sknimo": json.dumps(about)})
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # if others have removed it
            with hold_folder(self.folder):
                # Nobody writes without this look, so that any state speaks for all.
                for found in self.folder.glob(f"*{SUFFIX}"):
                    self._check_file(found)
                    break
                if once and self._path(name).exists():
                    return
                with replace_file(self._path(name)) as file:
                    file.write(payload)
        except (OSError, CheckpointError) as error:
            warnings.warn(
                f"A state of the fit could not be kept; the fit goes on. {error}",
                CheckpointWarning,
                stacklevel=2,
            )

    def clear(self) -> None:
        """Remove the states, and the folder when nothing else is in it."""
        for file in self.folder.glob(f"*{SUFFIX}"):
            file.unlink(missing_ok=True)
        remove_unfinished(self.folder)
        with suppress(OSError):  # there is something else in it, or it has gone
            self.folder.rmdir()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"

    def _check_file(self, path: Path) -> None:
        with suppress(FileNotFoundError):  # others have cleared it meanwhile
            self._check(_facts(path), path)

    def _check(self, facts: Mapping[str, Any], path: Path) -> None:
        if facts["version"] != LAYOUT:
            raise CheckpointError(
                f"{path} was written by another version of sknimo. Remove the folder "
                "to begin again."
            )
        if facts["fingerprint"] != self.fingerprint:
            raise CheckpointError(
                f"{path} belongs to another fit: other data, parameters or number of "
                "processes. Name another folder, or remove this one to begin again."
            )


def _facts(path: Path) -> Mapping[str, Any]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return _read_facts(file.metadata(), path)
    except FileNotFoundError:
        raise
    except (OSError, safetensors.SafetensorError) as error:
        raise _damaged(path) from error


def _read_facts(metadata: Mapping[str, str] | None, path: Path) -> Mapping[str, Any]:
    try:
        facts: Any = json.loads((metadata or {})["sknimo"])
    except (KeyError, ValueError) as error:
        raise _damaged(path) from error
    if not (isinstance(facts, dict) and {*facts} >= KEYS):
        raise _damaged(path)
    return facts


def _digest(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    """What a bit that has changed would change."""
    return fingerprint(sorted(tensors.items()), json.dumps(dict(facts)))


def _damaged(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is not a state of sknimo, or damaged. Remove it to begin again."
    )


def pack_record(record: Any) -> State:
    """A record of tensors, arrays, plain values and further records as a state.

    Tensors of inner records have dotted names.
    """
    tensors: dict[str, Tensor] = {}
    facts: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            inner = pack_record(value)
            tensors |= put_below(field.name, inner.tensors)
            facts[field.name] = inner.facts
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            inners = [pack_record(part) for part in value]
            for place, inner in enumerate(inners):
                tensors |= put_below(f"{field.name}.{place}", inner.tensors)
            facts[field.name] = [inner.facts for inner in inners]
        elif isinstance(value, Tensor):
            tensors[field.name] = value
        elif isinstance(value, np.ndarray):
            tensors[field.name] = torch.from_numpy(value.copy())
        else:
            facts[field.name] = value
    return State(tensors, facts)


def unpack_record(
    kind: type[Record], state: State, device: torch.device, **others: Any
) -> Record:
    """Undo `pack_record`; the annotations of the record tell arrays from tensors.

    `others` are fields that the state does not have to hold.
    """
    values = dict(others)
    for name, hint in get_type_hints(kind).items():
        if name in others:
            continue
        if isinstance(hint, type) and is_dataclass(hint):
            inner = part_of(state.tensors, name)
            facts = state.facts.get(name, {})
            values[name] = unpack_record(hint, State(inner, facts), device)
        elif get_origin(hint) is tuple and is_dataclass(get_args(hint)[0]):
            parts = [
                State(part_of(state.tensors, f"{name}.{place}"), facts)
                for place, facts in enumerate(state.facts[name])
            ]
            record = get_args(hint)[0]
            values[name] = tuple(unpack_record(record, x, device) for x in parts)
        elif name in state.facts:
            values[name] = state.facts[name]
        elif hint is np.ndarray:
            values[name] = state.tensors[name].numpy().copy()
        else:
            # A copy of its own: the state is a view of the file, aligned as it happens.
            values[name] = state.tensors[name].to(device, copy=True)
    return kind(**values)


def put_below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors with dotted names."""
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def part_of(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Undo `put_below`: what is below a prefix, named from there."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value
        for name, value in tensors.items()
        if name.startswith(start)
    }


def fingerprint(*parts: object) -> str:
    """Digest of arrays, records of them, and anything whose `repr` says all."""
    digest = hashlib.sha256()
    for part in _flat(parts):
        if isinstance(part, Tensor):
            part = part.detach().cpu().numpy()
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype} {part.shape} ".encode())
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        else:
            digest.update(f"{part!r} ".encode())
    return digest.hexdigest()


def _flat(parts: Iterable[object]) -> Iterable[object]:
    for part in parts:
        if isinstance(part, list | tuple | dict):
            yield f"{type(part).__name__} of {len(part)}"
            yield from _flat(part.items() if isinstance(part, dict) else part)
        elif isinstance(part, np.ndarray) and part.dtype == object:
            yield f"objects of shape {part.shape}"
            yield from _flat(part.ravel().tolist())
        elif is_dataclass(part) and not isinstance(part, type):
            yield type(part).__name__
            yield from _flat(getattr(part, field.name) for field in fields(part))
        else:
            yield part
