"""`weights/port.py` makes preset folders from the files of a bucket, and resumes."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.presets import bucket, catalog
from keras_vit.presets.catalog import Preset
from tests.helpers import random_tiny
from tests.presets.hub_server import connect, served
from weights import port


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """Runs port.py's main on a catalog of two small presets and one that the server lacks."""
    checkpoints.save(random_tiny(), tmp_path / "x.npz", "google")
    with served() as server:
        connect(server, tmp_path / "cache", monkeypatch)
        tiny = Preset("", None, "i1k", "", 16, 5, "big_vision", top1=80.0, reported="x")
        rows = [replace(tiny, name=n, source=f"{bucket.OFFICIAL}{n}.npz") for n in ("one", "two")]
        for row in rows:
            server.files[f"{row.name}.npz"] = (tmp_path / "x.npz").read_bytes()
        rows.append(replace(tiny, name="gone", source=bucket.OFFICIAL + "gone.npz"))
        monkeypatch.setattr(catalog, "CATALOG", {row.name: row for row in rows})

        def run(*arguments):
            places = ["--out", tmp_path / "out", "--evidence", tmp_path / "expected"]
            return port.main([str(a) for a in (*arguments, *places)])

        run.server, run.out, run.expected = server, tmp_path / "out", tmp_path / "expected"
        run.weights = tmp_path / "x.npz"
        yield run


def test_a_preset_that_fails_does_not_stop_the_others(workshop, capsys):
    """The status is 1, the table names the failure; the other presets have a model card."""
    assert workshop("gone", "one", "two") == 1
    printed = words(capsys)
    assert "failed" in printed
    assert "404" in printed
    assert "not compared with the origin's code" in printed
    assert keras_vit.info(workshop.out / "one").provenance["preset"] == "one"
    assert "license: apache-2.0" in (workshop.out / "one" / "README.md").read_text()
    assert not (workshop.out / "gone").exists()
    loaded, original = (
        VisionTransformer.from_preset(path).get_weights()
        for path in (workshop.out / "two", workshop.weights)
    )
    assert all(map(np.array_equal, loaded, original))


def test_a_second_run_makes_only_missing_or_damaged_presets(workshop, capsys):
    """Presets that were made from another file are made again too."""
    assert workshop("--all") == 1
    workshop.server.files["gone.npz"] = workshop.weights.read_bytes()
    assert workshop("--all") == 0
    printed = capsys.readouterr().out
    assert (printed.count("there already"), printed.count(" ported ")) == (2, 3)

    weights = workshop.out / "one" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    (workshop.out / "gone" / "README.md").unlink()
    assert workshop("--all") == 0
    assert capsys.readouterr().out.count("there already") == 1


def test_a_preset_is_compared_with_its_record(workshop, capsys):
    """The table names the record's origin; on a difference no preset is written."""
    assert workshop("one") == 0
    record = json.loads((workshop.expected / "one.json").read_text())
    other = workshop.expected / "two.json"
    capsys.readouterr()

    record["sha256"] = {"two.npz": record["sha256"]["one.npz"]}
    other.write_text(json.dumps({**record, "origin": "the authors' code"}))
    assert workshop("two") == 0
    assert "equals its record of the authors' code" in words(capsys)

    shutil.rmtree(workshop.out)
    other.write_text(json.dumps({**record, "logits": [[float("nan")] * 5] * 2}))
    assert workshop("two") == 1
    assert "logits differs from" in words(capsys)
    assert not workshop.out.exists()


def words(capsys) -> str:
    """The printed text without the lines and breaks of the table."""
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize("arguments", [(), ("one", "--all"), ("one", "--upload", "hf://me/x")])
def test_contradictory_arguments_are_refused_before_a_download(workshop, arguments):
    """No preset, presets beside --all, and one upload target without {name}."""
    with pytest.raises(SystemExit) as stopped:
        workshop(*arguments)
    assert stopped.value.code == 2
    assert not workshop.server.requests
