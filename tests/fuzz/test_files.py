"""Files that are wrong in any way give the one error, soon and in little memory.

Two kinds of wrong files: damaged ones, whose checksum no longer fits, and forged ones,
written by a small writer of our own with a checksum that does fit, so that everything
behind it is reached.
"""

import copy
import hashlib
import json
import pickle
import shutil
import sys
import time
import tracemalloc
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from sklearn.base import clone

import sknimo
from sknimo import (
    CheckpointError,
    ModelFileError,
    NIMOClassifier,
    NIMORegressor,
    NIMORegressorCV,
    RowBlocks,
    load,
)

# Bounds of one refusal. The second is processor time: other work must not matter.
MAX_SECONDS = 1.0
MAX_BYTES = 64e6
SIZES = {"F64": 8, "F32": 4, "U8": 1}
KINDS = {"F64": "<f8", "F32": "<f4", "U8": "u1"}
GOLDEN = Path(__file__).parents[1] / "io" / "golden"
RANDOM = st.randoms(use_true_random=False)
CHANGES = st.sampled_from((1, 1, 1, 2, 5))


@dataclass
class Forgery:
    """The parts of a file, free to be edited; `write` puts them together again."""

    document: dict
    tensors: dict

    @classmethod
    def read(cls, raw):
        length = int.from_bytes(raw[:8], "little")
        table = json.loads(raw[8 : 8 + length])
        document = json.loads(table.pop("__metadata__")["sknimo"])
        buffer = raw[8 + length :]
        tensors = {}
        for name, entry in table.items():
            begin, end = entry["data_offsets"]
            flat = np.frombuffer(buffer[begin:end], KINDS[entry["dtype"]])
            tensors[name] = (entry["dtype"], flat.reshape(entry["shape"]).copy())
        return cls(document, tensors)

    def write(self, text=None, table=None):
        """Bytes of the file; `text` stands for the document, `table` for entries."""
        entries, parts, end = {}, [], 0
        for name, (kind, array) in self.tensors.items():
            data = np.ascontiguousarray(array).tobytes()
            entries[name] = {
                "dtype": kind,
                "shape": list(array.shape),
                "data_offsets": [end, end + len(data)],
            }
            parts.append(data)
            end += len(data)
        if text is None:
            text = json.dumps(self.document | {"sha256": "0" * 64})
        entries = {"__metadata__": {"sknimo": text}} | entries | (table or {})
        return seal(json.dumps(entries).encode(), b"".join(parts))


def seal(header, buffer):
    """A container with the right checksum, whatever it contains."""
    raw = len(header).to_bytes(8, "little") + header + buffer
    digest = hashlib.sha256(raw).hexdigest().encode()
    return raw.replace(b"0" * 64, digest, 1)


def make_estimator(cls):
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.normal(size=50),
            "dose": rng.normal(size=50),
            "city": rng.choice(["Rome", "Oslo", "Bonn"], 50),
            "lab": np.where(rng.random(50) < 0.2, np.nan, rng.normal(size=50)),
        }
    )
    y = table["age"] * (1 + table["dose"]) + 0.1 * rng.normal(size=50)
    params = {"basis": {"dose": "spline"}, "missing": "indicator", "clip_inputs": True}
    if cls is NIMOClassifier:
        y = np.where(y > y.median(), "yes", "no")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cls(max_iter=20, random_state=0, **params).fit(table, y), table


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Bytes of a saved regression and a saved classification."""
    folder = tmp_path_factory.mktemp("models")
    out = {}
    for cls in (NIMORegressor, NIMOClassifier):
        est, table = make_estimator(cls)
        est.save(folder / "m.sknimo")
        out[cls.__name__] = (folder / "m.sknimo").read_bytes()
        load(folder / "m.sknimo").predict(table)  # whatever is imported on use
    for path in sorted(GOLDEN.glob("*.sknimo")):
        out[path.stem] = path.read_bytes()
    return out


@pytest.fixture
def attempt(tmp_path, audited):
    """Load some bytes under all bounds; the error, or the estimator."""
    path = tmp_path / "m.sknimo"

    def load_bytes(raw):
        path.write_bytes(raw)
        tracemalloc.start()
        begin = time.process_time()
        try:
            with audited:
                return load(path)
        except ModelFileError as error:
            assert str(path) in str(error)
            assert len(str(error)) < 1000
            return error
        finally:
            seconds = time.process_time() - begin
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert seconds < MAX_SECONDS
            assert peak < MAX_BYTES

    return load_bytes


class Audit:
    """Notes what Python reports while it is switched on."""

    FORBIDDEN = ("exec", "compile", "import", "pickle.find_class", "socket.connect")
    FORBIDDEN += ("os.system", "os.exec", "os.fork", "subprocess.Popen", "os.remove")

    def __init__(self):
        self.on, self.events = False, []

    def __call__(self, event, args):
        if self.on and event in self.FORBIDDEN:
            self.events.append((event, str(args)[:80]))

    def __enter__(self):
        self.on, self.events = True, []

    def __exit__(self, *exception):
        self.on = False
        assert self.events == []


AUDIT = Audit()


@pytest.fixture(scope="session")
def audited():
    """A context in which nothing may run, be imported or be removed."""
    sys.addaudithook(AUDIT)  # cannot be taken back, hence a switch
    return AUDIT


def test_the_audit_would_notice_a_pickle(audited):
    harmless = pickle.dumps(NIMORegressor)
    with pytest.raises(AssertionError, match="find_class"), audited:
        pickle.loads(harmless)


def test_the_forger_writes_files_that_load(models, attempt):
    for name, raw in models.items():
        again = attempt(Forgery.read(raw).write())
        assert type(again).__name__ == Forgery.read(raw).document["class"], name


# --- damaged files -------------------------------------------------------------------


def damage(raw, rng):
    """One random mutation."""
    kind = rng.randrange(9)
    data = bytearray(raw)
    place = rng.randrange(len(data))
    header_end = min(8 + int.from_bytes(raw[:8], "little"), len(data))
    if kind == 0:
        return raw[:place]
    if kind == 1:
        data[place] ^= 1 << rng.randrange(8)
    elif kind == 2:  # in the header, where meaning is dense
        data[rng.randrange(header_end)] ^= 1 << rng.randrange(8)
    elif kind == 3:
        data[rng.randrange(8)] = rng.randrange(256)
    elif kind == 4:
        end = min(len(data), place + rng.randrange(1, 64))
        data[place:end] = rng.randbytes(end - place)
    elif kind == 5:
        del data[place : place + rng.randrange(1, 64)]
    elif kind == 6:
        data[place:place] = rng.randbytes(rng.randrange(1, 64))
    elif kind == 7:
        data += rng.randbytes(rng.randrange(1, 64))
    else:  # one digit for another: still valid JSON, another meaning
        digits = [i for i in range(8, header_end) if 48 <= data[i] < 58]
        data[rng.choice(digits)] = rng.randrange(48, 58)
    return bytes(data)


@pytest.mark.slow
def test_no_damage_goes_unnoticed(run_few, check_damaged):
    run_few(check_damaged, 150, rng=RANDOM)


@pytest.mark.slow
def test_no_damage_of_many_goes_unnoticed(run_many, check_damaged):
    run_many("damaged files", check_damaged, 5000, rng=RANDOM)


@pytest.fixture
def check_damaged(models, attempt):
    originals = list(models.values())

    def check(rng):
        raw = rng.choice(originals)
        damaged = damage(raw, rng)
        if damaged == raw:
            return "whole"
        assert isinstance(attempt(damaged), ModelFileError)
        return "refused"

    return check


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Fits that have kept their states: of rows in blocks, and of a search."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = X[:, 0] * (1 + np.tanh(X[:, 1])) + 0.1 * rng.normal(size=30)
    short = {"max_iter": 4, "hidden": (3, 3), "random_state": 0}
    found = {}
    for name, est, rows in (
        ("blocks", NIMORegressor(**short), (RowBlocks.from_arrays(X, y), None)),
        ("search", NIMORegressorCV(**short, n_starts=1, cv=2, basis="linear"), (X, y)),
    ):
        folder = tmp_path_factory.mktemp(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            est.set_params(checkpoint=folder).fit(*rows)
        found[name] = (est, rows, {p.name: p.read_bytes() for p in folder.iterdir()})
    return found


@pytest.fixture
def check_checkpoint(checkpoints, tmp_path):
    """A damaged state is refused, or was not needed: the fit is the same."""

    def check(name, rng):
        est, rows, files = checkpoints[name]
        folder = tmp_path / "checkpoint"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for each, raw in files.items():
            (folder / each).write_bytes(raw)
        hurt = rng.choice(sorted(files))
        (folder / hurt).write_bytes(damage(files[hurt], rng))
        again = clone(est).set_params(checkpoint=folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                again.fit(*rows)
            except CheckpointError as error:
                assert hurt in str(error)
                return "refused"
        assert np.array_equal(again.coef_, est.coef_)
        return "not needed"

    return check


def test_no_damage_of_a_checkpoint_changes_a_fit(run_few, check_checkpoint):
    run_few(
        check_checkpoint, 40, name=st.sampled_from(("blocks", "search")), rng=RANDOM
    )


@pytest.mark.slow
def test_no_damage_of_many_checkpoints_changes_a_fit(run_many, check_checkpoint):
    kinds = st.sampled_from(("blocks", "search"))
    run_many("damaged checkpoints", check_checkpoint, 1000, name=kinds, rng=RANDOM)


# --- forged files --------------------------------------------------------------------

ODD_VALUES = (
    None,
    True,
    -1,
    0,
    2,
    2**31,
    2**63,
    10**400,
    -0.0,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "nan",
    "x" * 10_000,
    "\ud800",
    "__class__",
    "os.system",
    [],
    {},
    [[]],
    {"array": [3]},
    {"array": [2**31, 2**31]},
    {"kind": "linear"},
    {"list": []},
    {"dict": [[{"list": []}, 1]]},
    list(range(50)),
)


def every_place(value, at=()):
    """Paths to all values of a document."""
    yield at
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        yield from every_place(item, (*at, key))


def forge_document(forgery, rng):
    """Put an odd value somewhere, or take something away, or add a key."""
    places = list(every_place(forgery.document))[1:]
    if not places:
        return
    place = rng.choice(places)
    parent = forgery.document
    for key in place[:-1]:
        parent = parent[key]
    action = rng.randrange(4)
    if action == 0:
        del parent[place[-1]]
    elif action == 1 and isinstance(parent, dict):
        parent[rng.choice(["extra", "kind", "array", "sha256 "])] = 0
    elif action == 2 and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[place[-1]]))
    else:
        parent[place[-1]] = copy.deepcopy(rng.choice(ODD_VALUES))


def forge_tensors(forgery, rng):
    """Change one array in value, type, shape or name."""
    if not forgery.tensors:
        return
    name = rng.choice(list(forgery.tensors))
    kind, array = forgery.tensors[name]
    action = rng.randrange(6)
    if action == 0:
        del forgery.tensors[name]
    elif action == 1:
        forgery.tensors[rng.choice(["extra", "facts.extra", ""])] = (kind, array)
    elif action == 2:
        other = rng.choice(sorted(KINDS))
        with np.errstate(all="ignore"):
            forgery.tensors[name] = (other, array.astype(KINDS[other]))
    elif action == 3 and array.size:
        odd = rng.choice([np.nan, np.inf, -np.inf, 1e308, 2])
        with np.errstate(all="ignore"):  # too large for single precision
            array.flat[rng.randrange(array.size)] = odd if kind != "U8" else 2
    elif action == 4 and array.ndim:
        forgery.tensors[name] = (kind, array[..., :-1])
    else:
        forgery.tensors[name] = (kind, array.reshape(-1, *[1] * rng.randrange(3)))


@pytest.fixture
def check_forged(models, attempt, tmp_path, check_refusal):
    """Each is refused, or is an estimator after all: values may be odd but allowed."""
    originals = [Forgery.read(raw) for raw in models.values()]

    def check(rng, n_changes):
        forgery = copy.deepcopy(rng.choice(originals))
        for _ in range(n_changes):
            rng.choice([forge_document, forge_tensors])(forgery, rng)
        try:
            raw = forgery.write()
        except UnicodeEncodeError:
            return "not written"
        found = attempt(raw)
        if isinstance(found, ModelFileError):
            return "refused"
        use(found, tmp_path / "again.sknimo", check_refusal)
        return "loaded"

    return check


def use(est, path, check_refusal):
    """What was loaded predicts, explains, prints itself and can be saved again."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = est.reference_ + np.arange(3)[:, None]
        eta = est.model_.eta(rows)
        assert eta.shape == (3,)
        assert est.model_.contributions(rows).shape == rows.shape
        assert len(str(est.summary())) > 100
        assert est.summary()._repr_html_()
        try:
            est.save(path)
        except Exception as error:
            check_refusal(error)
            return
        assert np.array_equal(load(path).model_.eta(rows), eta, equal_nan=True)


@pytest.mark.slow
def test_no_forgery_does_more_than_be_refused(run_few, check_forged):
    found = run_few(check_forged, 60, rng=RANDOM, n_changes=CHANGES)
    assert found["refused"] > 30 and found["loaded"] > 0


@pytest.mark.slow
def test_no_forgery_of_many_does_more_than_be_refused(run_many, check_forged):
    run_many("forged files", check_forged, 5000, rng=RANDOM, n_changes=CHANGES)


# --- files with intent ---------------------------------------------------------------


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('a file was run')",))


def in_header(change):
    def make(raw):
        forgery = Forgery.read(raw)
        change(forgery.document)
        return forgery.write()

    return make


def in_table(**entry):
    def make(raw):
        return Forgery.read(raw).write(table={"coef": entry})

    return make


def with_text(text):
    return lambda raw: Forgery.read(raw).write(text=text)


def set_nan(name):
    def make(raw):
        forgery = Forgery.read(raw)
        forgery.tensors[name][1].flat[0] = np.nan
        return forgery.write()

    return make


def sized(length, header=b"{}", buffer=b""):
    return lambda raw: length.to_bytes(8, "little") + header + buffer


def repeated_key(raw):
    text = json.dumps(Forgery.read(raw).document | {"sha256": "0" * 64})
    return Forgery.read(raw).write(text=text[:-1] + ', "schema": 1}')


def gap(raw):
    forgery = Forgery.read(raw)
    size = sum(array.nbytes for _, array in forgery.tensors.values())
    entry = {"dtype": "F64", "shape": [0], "data_offsets": [size + 8, size + 8]}
    return forgery.write(table={"code": entry})


def sharing(raw):
    """Two arrays on the same bytes."""
    header_end = 8 + int.from_bytes(raw[:8], "little")
    table = json.loads(raw[8:header_end])
    table["low"]["data_offsets"] = table["high"]["data_offsets"]
    return seal(json.dumps(table).encode(), raw[header_end:])


WITH_INTENT = {
    "empty": (lambda raw: b"", "not a saved model"),
    "seven bytes": (lambda raw: raw[:7], "not a saved model"),
    "pickle": (lambda raw: pickle.dumps(Bomb()), "not a saved model"),
    "pickle, protocol 0": (lambda raw: pickle.dumps(Bomb(), 0), "not a saved model"),
    "pickle for a header": (
        lambda raw: seal(pickle.dumps(Bomb()), b""),
        "not valid JSON",
    ),
    "pickle behind": (lambda raw: raw + pickle.dumps(Bomb()), "bytes"),
    "zip": (lambda raw: b"PK\x03\x04" + bytes(60), "not a saved model"),
    "zeros": (lambda raw: bytes(4096), "not a saved model"),
    "length 2**64 - 1": (sized(2**64 - 1), "not a saved model"),
    "length 2**40": (sized(2**40), "not a saved model"),
    "header of 5 MB": (
        sized(5_000_000, b"{" + b" " * 4_999_998 + b"}"),
        "at most",
    ),
    "header is a list": (lambda raw: seal(b"[]", b""), "not a JSON object"),
    "header is a number": (lambda raw: seal(b"1" * 4000, b""), "not a JSON object"),
    "header is a huge number": (lambda raw: seal(b"1" * 10**6, b""), "not valid JSON"),
    "not UTF-8": (lambda raw: seal(b"\xff\xfe" * 8, b""), "not valid JSON"),
    "deep header": (lambda raw: seal(b"[" * 99_999, b""), "not valid JSON"),
    "deep objects": (lambda raw: seal(b'{"a":' * 50_000, b""), "not valid JSON"),
    "many lists": (lambda raw: seal(b"[" + b"[]," * 10**6 + b"[]]", b""), "too many"),
    "many escapes": (
        with_text('{"format": [' + "\\u005b\\u005d," * 90_000 + "0]}"),
        "not valid JSON|not a saved model",
    ),
    "no metadata": (lambda raw: seal(b"{}", b""), "metadata"),
    "other metadata": (
        lambda raw: seal(b'{"__metadata__": {"format": "pt"}}', b""),
        "metadata",
    ),
    "metadata not text": (
        lambda raw: seal(b'{"__metadata__": {"sknimo": {}}}', b""),
        "string",
    ),
    "document is a list": (with_text("[]"), "not a saved model of sknimo"),
    "document is deep": (with_text("[" * 9_999), "not valid JSON"),
    "document with NaN": (with_text('{"format": NaN}'), "NaN"),
    "document with Infinity": (with_text('{"format": -Infinity}'), "Infinity"),
    "repeated key": (repeated_key, "twice"),
    "another format": (
        in_header(lambda d: d.update(format="lightgbm")),
        "not a saved model of sknimo",
    ),
    "newer schema": (in_header(lambda d: d.update(schema=6)), "newer.*Upgrade"),
    "schema zero": (in_header(lambda d: d.update(schema=0)), "schema"),
    "schema true": (in_header(lambda d: d.update(schema=True)), "schema"),
    "unknown key": (in_header(lambda d: d.update(hook="os.system")), "hook"),
    "unknown class": (
        in_header(lambda d: d.update({"class": "Pipeline"})),
        "NIMOClassifier",
    ),
    "class by path": (
        in_header(lambda d: d.update({"class": "sknimo.NIMORegressor"})),
        "document.class",
    ),
    "class for another family": (
        in_header(lambda d: d.update({"class": "NIMOClassifier", "params": {}})),
        "family",
    ),
    "unknown parameter": (
        in_header(lambda d: d["params"].update(callback="print")),
        "parameter",
    ),
    "parameter of a wrong type": (
        in_header(lambda d: d["params"].update(reference={"list": []})),
        "reference",
    ),
    "unknown option": (
        in_header(lambda d: d["params"].update(handle_unknown="ignore")),
        "handle_unknown",
    ),
    "unknown family": (
        in_header(lambda d: d["model"].update(family="cauchy")),
        "gaussian",
    ),
    "unknown basis": (
        in_header(lambda d: d["model"]["features"][0]["basis"].update(kind="eval")),
        "kind must be one of",
    ),
    "huge network": (
        in_header(lambda d: d["model"]["spec"].update(hidden=[65536, 65536])),
        "shape",
    ),
    "too wide a network": (
        in_header(lambda d: d["model"]["spec"].update(hidden=[2**40, 16])),
        "integer",
    ),
    "negative scale": (
        in_header(lambda d: d["model"]["features"][0]["basis"].update(scale=-1.0)),
        "scale",
    ),
    "infinite reference": (
        with_text('{"format": "sknimo", "schema": 1, "sha256": "", "a": 1e999}'),
        "checksum",
    ),
    "foreign array": (
        lambda raw: Forgery.read(raw).write(
            table={"hook": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}
        ),
        "name of an array",
    ),
    "sizes that overflow": (
        in_table(dtype="F64", shape=[2**31, 2**31], data_offsets=[0, 0]),
        "coef.data_offsets",
    ),
    "negative size": (
        in_table(dtype="F64", shape=[-1, 4], data_offsets=[0, 0]),
        "coef.shape",
    ),
    "empty but endless": (
        in_table(dtype="F64", shape=[0, 2**60], data_offsets=[0, 0]),
        "coef.shape",
    ),
    "half precision": (
        in_table(dtype="F16", shape=[4], data_offsets=[0, 8]),
        "coef.dtype",
    ),
    "end before begin": (
        in_table(dtype="U8", shape=[0], data_offsets=[8, 0]),
        "coef.data_offsets",
    ),
    "beyond the end": (
        in_table(dtype="F64", shape=[1, 10**6], data_offsets=[0, 8 * 10**6]),
        "gaps|bytes",
    ),
    "gap": (gap, "gaps|bytes"),
    "shared bytes": (sharing, "gaps"),
    "stray array": (
        lambda raw: Forgery.read(raw).write(
            table={
                "facts.ratio": {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}
            }
        ),
        "facts.ratio",
    ),
    "NaN coefficient": (set_nan("coef"), "coef must hold finite"),
    "NaN weight": (set_nan("params"), "params must hold finite"),
    "NaN code": (set_nan("code"), "code must hold finite"),
    "NaN knot": (set_nan("bases"), "bases must hold finite"),
}


@pytest.mark.parametrize("name", WITH_INTENT)
def test_a_file_with_intent_gives_the_one_error(name, models, attempt):
    make, words = WITH_INTENT[name]
    found = attempt(make(models["NIMORegressor"]))
    with pytest.raises(ModelFileError, match=words):
        raise found


def test_a_family_that_is_none_is_not_asked_for_facts(models, attempt):
    forgery = Forgery.read(models["NIMORegressor"])
    forgery.document["params"]["family"] = 2
    assert "Features" in str(attempt(forgery.write()).summary())


def test_a_small_file_cannot_ask_for_much_memory(models, attempt):
    forgery = Forgery.read(models["NIMORegressor"])
    feature = forgery.document["model"]["features"][2]
    assert feature["basis"]["kind"] == "levels"
    n_levels = 60_000  # a gauge of 60 000 squared would need 29 GB
    feature["basis"]["values"] = [str(i) for i in range(n_levels)]
    _, coef = forgery.tensors["coef"]
    q = coef.shape[1] + n_levels - 3
    forgery.tensors["coef"] = ("F64", np.zeros((1, q)))
    owner = forgery.document["model"]["spec"]["input_feature"]
    assert isinstance(attempt(forgery.write()), ModelFileError)
    place = owner.index(2)
    owner[place:place] = [2] * (n_levels - 3)
    assert isinstance(attempt(forgery.write()), ModelFileError)


def test_a_sparse_giant_is_refused_unread(models, tmp_path):
    path = tmp_path / "m.sknimo"
    path.write_bytes(models["NIMORegressor"])
    with path.open("r+b") as file:
        file.truncate(2**31 + 8)
    begin = time.perf_counter()
    with pytest.raises(ModelFileError, match="at most"):
        load(path)
    with path.open("r+b") as file:
        file.truncate(2**31)
    with pytest.raises(ModelFileError, match="bytes"):
        load(path)
    assert time.perf_counter() - begin < MAX_SECONDS


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(ModelFileError, match="not a file"):
        load(tmp_path)


def test_the_error_is_public():
    assert sknimo.ModelFileError is ModelFileError
