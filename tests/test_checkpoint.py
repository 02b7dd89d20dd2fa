"""Checkpoints: whole or not there, and only for the work they belong to."""

import errno
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from sknimo.checkpoint import Checkpoint, State, fingerprint
from sknimo.exceptions import CheckpointError, CheckpointWarning
from sknimo.files import replace_file


def test_a_state_is_read_back_bit_for_bit(tmp_path):
    checkpoint = Checkpoint.open(tmp_path / "work", "a")
    arrays = {
        "x": torch.rand(3, 2, dtype=torch.float64),
        "mask": torch.tensor([True, False]),
        "view": torch.arange(6).view(2, 3).T,
    }
    checkpoint.save("fit", arrays, {"step": 7, "loss": [0.1, None]})
    state = Checkpoint.open(tmp_path / "work", "a").load("fit")
    for name, value in arrays.items():
        assert torch.equal(state.tensors[name], value)
    assert state.facts == {"step": 7, "loss": [0.1, None]}
    assert checkpoint.load("other") is None


def test_a_folder_of_other_work_is_refused(tmp_path):
    Checkpoint.open(tmp_path, "a").save("fit", {"x": torch.zeros(1)}, {})
    with pytest.raises(CheckpointError, match="belongs to another fit"):
        Checkpoint.open(tmp_path, "b")


def test_a_damaged_state_is_named(tmp_path):
    checkpoint = Checkpoint.open(tmp_path, "a")
    checkpoint.save("fit", {"x": torch.zeros(100)}, {})
    path = tmp_path / "fit.safetensors"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(CheckpointError, match="fit.safetensors is not a state"):
        checkpoint.load("fit")


def test_a_file_in_the_folders_place_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file"):
        Checkpoint.open(tmp_path / "file", "a")


def test_cleared_work_leaves_no_trace_but_what_others_put_there(tmp_path):
    checkpoint = Checkpoint.open(tmp_path / "work", "a")
    checkpoint.save("fit", {"x": torch.zeros(1)}, {})
    checkpoint.clear()
    assert not (tmp_path / "work").exists()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("mine")
    checkpoint.clear()
    assert (tmp_path / "work" / "notes.txt").exists()


def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replace_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from sknimo.files import replace_file
with replace_file(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills by signal")
@pytest.mark.parametrize("act", ["open", "clear"])
def test_what_a_killed_writer_left_goes(tmp_path, act):
    folder = tmp_path / "work"
    checkpoint = Checkpoint.open(folder, "a")
    checkpoint.save("fit", {"x": torch.zeros(1)}, {})
    path = str(folder / "fit.safetensors")
    subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert len(list(folder.iterdir())) == 2
    if act == "open":
        checkpoint = Checkpoint.open(folder, "a")
        assert [file.name for file in folder.iterdir()] == ["fit.safetensors"]
        assert checkpoint.load("fit") is not None
    else:
        checkpoint.clear()
        assert not folder.exists()


def test_who_still_writes_keeps_the_file(tmp_path):
    checkpoint = Checkpoint.open(tmp_path, "a")
    with replace_file(tmp_path / "fit.bin") as file:
        file.write(b"new")
        Checkpoint.open(tmp_path, "a")
        checkpoint.clear()
    assert (tmp_path / "fit.bin").read_bytes() == b"new"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be made.*name a folder"):
        Checkpoint.open(tmp_path / "file" / "work", "a")


def test_a_folder_that_was_removed_is_made_again(tmp_path):
    checkpoint = Checkpoint.open(tmp_path / "work", "a")
    shutil.rmtree(tmp_path / "work")
    assert checkpoint.load("fit") is None
    checkpoint.save("fit", {"x": torch.ones(1)}, {})
    assert checkpoint.load("fit") is not None


def test_a_full_disk_costs_the_state_and_not_the_fit(tmp_path, monkeypatch):
    def fail(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    checkpoint = Checkpoint.open(tmp_path, "a")
    checkpoint.save("fit", {"x": torch.zeros(1)}, {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        told = "goes on.*No space left.*Free some room.*fit.safetensors"
        with pytest.warns(CheckpointWarning, match=told):
            checkpoint.save("fit", {"x": torch.ones(1)}, {})
    assert checkpoint.load("fit").tensors["x"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["fit.safetensors"]


def test_states_of_two_fits_that_begin_at_once_do_not_mix(tmp_path):
    first, second = (Checkpoint.open(tmp_path, name) for name in "ab")
    first.save("fit", {"x": torch.zeros(1)}, {})
    for name in ("fit", "other"):
        with pytest.warns(CheckpointWarning, match="belongs to another fit"):
            second.save(name, {"x": torch.ones(1)}, {})
    with pytest.raises(CheckpointError, match="belongs to another fit"):
        second.load("fit")
    assert Checkpoint.open(tmp_path, "a").load("fit").tensors["x"] == 0


def test_of_many_who_ask_for_a_value_all_get_that_of_the_first(tmp_path):
    checkpoint = Checkpoint.open(tmp_path, "a")
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda k: checkpoint.agree("seed", k), range(20)))
    assert len(set(found)) == 1
    assert Checkpoint.open(tmp_path, "a").agree("seed", 20) == found[0]


def test_a_state_that_goes_while_the_folder_is_opened_is_not_missed(
    tmp_path, monkeypatch
):
    checkpoint = Checkpoint.open(tmp_path, "a")
    checkpoint.save("fit", {"x": torch.zeros(1)}, {})
    gone = [tmp_path / "gone.safetensors"]
    monkeypatch.setattr(type(tmp_path), "glob", lambda *_: iter(gone))
    assert Checkpoint.open(tmp_path, "a").load("fit") is not None


TWIN = """
import sys, torch, warnings
from sknimo.checkpoint import Checkpoint
warnings.simplefilter("ignore")  # a folder may go just before a state is written
for k in range(60):
    checkpoint = Checkpoint.open(sys.argv[1], "a")
    checkpoint.save("fit", {"x": torch.full((1000,), k)}, {"k": k})
    state = checkpoint.load("fit")
    assert state is None or (state.tensors["x"] == state.facts["k"]).all()
    if k % 7 == 0:
        checkpoint.clear()
"""


@pytest.mark.slow
def test_two_processes_share_a_folder(tmp_path):
    command = [sys.executable, "-c", TWIN, str(tmp_path / "work")]
    twins = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for twin in twins:
        assert twin.communicate()[1] == b""
        assert twin.returncode == 0
    assert len(list((tmp_path / "work").iterdir())) == 1


def test_files_of_others_stay(tmp_path):
    names = {".sknimo-notes.tmp", ".other-0123456789abcdef.tmp", "x.tmp"}
    for name in names:
        (tmp_path / name).touch()
    Checkpoint.open(tmp_path, "a").clear()
    assert {path.name for path in tmp_path.iterdir()} == names


def test_fingerprints_tell_values_types_and_nesting_apart():
    x = np.arange(4.0)
    parts = [(x,), (x[::-1],), (x.astype("f4"),), (x.reshape(2, 2),), ([x, x],), (x, x)]
    parts += [(1,), (1.0,), ("1",), (None,), ((1, 2), 3), (1, (2, 3))]
    # The difference is where `repr` would leave it out.
    names = [np.array([f"row {k}" for k in range(2000)], dtype=object) for _ in "ab"]
    names[1][1000] = "other"
    parts += [(name,) for name in names] + [({"x": name},) for name in names]
    records = [State({"x": x}, {}), State({"x": x + 1}, {}), State({"x": x}, {"k": 1})]
    parts += [(record,) for record in records]
    assert len({fingerprint(*part) for part in parts}) == len(parts)
    assert fingerprint(x, "a") == fingerprint(torch.from_numpy(x.copy()), "a")
