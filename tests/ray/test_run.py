"""`write_dataset` on a Ray cluster of this machine: every image once, whatever dies meanwhile."""

import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from keras_vit import ConfigError, VisionTransformer, cli, features
from keras_vit.ray import write_dataset
from keras_vit.ray.run import _written_rows
from tests.digits import digits, write_folders
from tests.thorough import THOROUGH

pytestmark = [
    pytest.mark.without_backend,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by signals"),
]
pytest.importorskip("ray.data", reason="Ray is not installed: pip install keras-vit[ray]")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

COUNT, DAMAGED = 60, (3, 17, 44)


@pytest.fixture
def photos(tmp_path):
    """Sixty image files of the test digits in order, three of them cut off."""
    _, folder = write_folders(tmp_path / "digits", train=0, test=COUNT, size=8)
    files = sorted(folder.rglob("*.png"), key=lambda path: path.name)
    for k in DAMAGED:
        files[k].write_bytes(files[k].read_bytes()[:40])
    return files


def start(**options):
    """Runs the program `tests/ray/driver.py`."""
    command = [sys.executable, "-m", "tests.ray.driver", json.dumps(options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.skipif(
    not THOROUGH and "KERAS_VIT_KILLS" not in os.environ,
    reason="Ray starts twice; KERAS_VIT_KILLS=1 and make test-thorough run it",
)
def test_a_killed_worker_and_a_killed_driver_lose_and_repeat_no_image(photos, tmp_path):
    """The second start does what is missing; each row is right; errors are named."""
    out = tmp_path / "dataset"
    task = {"images": [str(tmp_path / "digits" / "test")], "out": str(out)}
    task |= {"preset": "vit_digits", "workers": 2}
    first = start(**task, kill_at=[1, 5])
    assert first.returncode == -signal.SIGKILL, first.stderr
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert before
    second = start(**task)
    assert json.loads(second.stdout or "{}") == {"num_images": COUNT, "unreadable": 3}, (
        second.stderr
    )
    after = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    complete = {name: time for name, time in before.items() if after.get(name) == time}
    assert len(complete) >= 4  # one more may have been left without its end

    table = pq.read_table(out)
    assert sorted(table["path"].to_pylist()) == sorted(map(str, photos))
    rows = {row["path"]: row for row in table.to_pylist()}
    model = VisionTransformer.from_preset("vit_digits")
    expected = features(model, model.preprocessor(digits()[1][:COUNT])).values
    for k, path in enumerate(map(str, photos)):
        if k in DAMAGED:
            assert rows[path]["features"] is None
            assert rows[path]["error"].startswith(f"{path}: not a readable image")
        else:
            assert rows[path]["error"] is None
            np.testing.assert_allclose(rows[path]["features"], expected[k], atol=1e-5)
    about = json.loads(table.schema.metadata[b"keras_vit"])
    assert about["preset"] == "vit_digits"
    assert about["layer"] == "pre_logits"
    assert len(about["weights"]) == 64
    with pytest.raises(ConfigError, match="of another model. Its layer was 'pre_logits', and is"):
        write_dataset([photos[0]], out, "vit_digits", top=3)


def test_a_file_without_its_end_is_removed_and_written_again(tmp_path):
    """A run that was killed leaves such a file; other files of the folder stay."""
    about = {"layer": "pre_logits"}
    table = pa.table({"path": ["a.png", "b.png"], "error": pa.array([None, "bad"], pa.string())})
    content = parquet(table.replace_schema_metadata({"keras_vit": json.dumps(about)}))
    (tmp_path / "broken.parquet").write_bytes(content[:-20])
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"parquet: is no whole Parquet file"):
        _written_rows(str(tmp_path), about)  # without a file of ours, they may be anyone's
    (tmp_path / "whole.parquet").write_bytes(content)
    assert _written_rows(str(tmp_path), about) == {"a.png": None, "b.png": "bad"}
    assert {path.name for path in tmp_path.iterdir()} == {"whole.parquet", "notes.txt"}
    with pytest.raises(ConfigError, match="another model. Its layer was 'pre_logits', and is 'x'"):
        _written_rows(str(tmp_path), {"layer": "x"})


def parquet(table) -> bytes:
    """A table as the bytes of a file."""
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def test_bad_arguments_are_refused_before_a_cluster_starts(photos, tmp_path):
    """A folder of other tables, numbers, names that no table holds; nothing is left behind."""
    import ray

    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.parquet").write_bytes(parquet(pa.table({"x": [1]})))
    with pytest.raises(ConfigError, match=r"mine.parquet: was not written by keras_vit"):
        write_dataset([photos[0]], tmp_path / "b", "vit_digits")
    with pytest.raises(ConfigError, match="workers=0"):
        write_dataset([photos[0]], tmp_path / "a", "vit_digits", workers=0)
    with pytest.raises(ConfigError, match="layer='logits' and top=3: give one"):
        write_dataset([photos[0]], tmp_path / "a", "vit_digits", "logits", top=3)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / os.fsdecode(b"a\xff.png")).touch()
    with pytest.raises(ConfigError, match="no UTF-8.* Rename the file"):
        write_dataset([tmp_path / "c"], tmp_path / "a", "vit_digits")
    assert not (tmp_path / "a").exists()
    assert not ray.is_initialized()


def test_options_of_the_engine_need_the_engine(capsys, photos, tmp_path):
    """`keras-vit embed --workers 4` alone says so."""
    command = ["embed", str(photos[0]), "--preset", "vit_digits", "--out", str(tmp_path / "out")]
    assert cli.main([*command, "--workers", "4"]) == 2
    assert "--workers is an option of --engine ray" in capsys.readouterr().err
