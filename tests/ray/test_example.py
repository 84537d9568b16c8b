"""examples/ray/write_features.py on a Ray cluster of this machine: every image once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.evaluation import features
from tests.digits import digits, write_folders
from tests.runs import THOROUGH

PROGRAM = Path(__file__).parents[2] / "examples" / "ray" / "write_features.py"
COUNT, DAMAGED = 60, (3, 17, 44)
pytest.importorskip("ray.data", reason="Ray is not installed: pip install keras-vit[ray]")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.mark.skipif(
    not THOROUGH and "KERAS_VIT_KILLS" not in os.environ,
    reason="Ray starts twice; KERAS_VIT_KILLS=1 and make test-thorough run it",
)
def test_a_killed_program_completes_its_files_when_it_is_called_again(tmp_path):
    """Whole files stay; each row is right; an image that cannot be read has a reason."""
    _, folder = write_folders(tmp_path / "digits", train=0, test=COUNT, size=8)
    photos = sorted(folder.rglob("*.png"), key=lambda path: path.name)
    for k in DAMAGED:
        photos[k].write_bytes(photos[k].read_bytes()[:40])
    out = tmp_path / "features"
    command = [sys.executable, str(PROGRAM), str(folder), str(out), "--workers", "2"]
    program = subprocess.Popen(command)
    while program.poll() is None and len(list(out.glob("*.parquet"))) < 5:
        time.sleep(0.002)
    program.send_signal(signal.SIGKILL)
    program.wait()
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert before
    subprocess.run(command, check=True, timeout=300)
    after = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert sum(after.get(name) == time for name, time in before.items()) >= len(before) - 2

    table = pq.read_table(out)
    assert sorted(table["path"].to_pylist()) == sorted(map(str, photos))
    rows = {row["path"]: row for row in table.to_pylist()}
    model = VisionTransformer.from_preset("vit_digits")
    expected = features(model, digits()[1][:COUNT]).values
    for k, path in enumerate(map(str, photos)):
        if k in DAMAGED:
            assert rows[path]["features"] is None
            assert rows[path]["error"].startswith(f"{path}: not a readable image")
        else:
            assert rows[path]["error"] is None
            np.testing.assert_allclose(rows[path]["features"], expected[k], atol=1e-5)


def test_a_folder_with_features_of_another_preset_is_refused(tmp_path):
    """Its files stay as they are, even one without an end."""
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    command = [sys.executable, str(PROGRAM), "photos", str(tmp_path)]
    program = subprocess.run(command, capture_output=True, text=True, check=False)
    assert program.returncode == 1
    assert "expected a new folder, or one with features of vit_digits" in program.stderr
    assert (tmp_path / "a.parquet").read_bytes() == b"PAR1"
