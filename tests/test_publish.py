"""`weights/publish.py` makes presets from the files of a bucket and uploads them to a Hub."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from huggingface_hub import ModelCard

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.presets import bucket, catalog
from keras_vit.presets.catalog import Preset
from tests.helpers import random_tiny
from tests.presets.hub_server import TOKEN, connect, served
from weights import publish
from weights.verify import attest, digests

FORBIDDEN = {"note": "gated: log in"}, {"license": "CC-BY-NC-ND-4.0"}, {"license": "unknown"}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Runs publish's main on two small rows, one that the server lacks, and three of others."""
    monkeypatch.chdir(tmp_path)
    checkpoints.save(random_tiny(), "x.npz", "google")
    with served() as hub:
        connect(hub, tmp_path / "cache", monkeypatch)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        tiny = Preset("", None, "i1k", "", 16, 5, "big_vision", top1=80.0, reported="a paper")
        rows = [replace(tiny, name=n, source=f"{bucket.OFFICIAL}{n}.npz") for n in ("v.1", "v.2")]
        for row in rows:
            hub.files[f"{row.name}.npz"] = (tmp_path / "x.npz").read_bytes()
        rows.append(replace(tiny, name="v.gone", source=f"{bucket.OFFICIAL}gone.npz"))
        rows += [replace(rows[0], name=f"not.{k}", **f) for k, f in enumerate(FORBIDDEN)]
        monkeypatch.setattr(catalog, "CATALOG", {row.name: row for row in rows})
        hub.folder = tmp_path / "published"
        yield hub


@pytest.fixture
def run(capsys):
    """Publishes rows; returns the status and the printed words."""

    def run(*arguments):
        status = publish.main(["us", *arguments])
        return status, " ".join(re.sub("[\u2500-\u257f]", " ", capsys.readouterr().out).split())

    return run


def test_rows_are_published_with_cards_and_checksums(desk, run):
    """Weights are the file's; what the license forbids and what fails does not stop the others."""
    status, printed = run()
    assert status == 1
    assert printed.count("v.gone") == 2 and "404" in printed.partition("preset failure")[2]
    for said in ("not.0: skipped: gated", "not.1: skipped: license: CC-BY-NC-ND-4.0"):
        assert said in printed
    assert "v.2: outputs not compared with the origin's code; http://127.0.0.1" in printed
    assert set(desk.repos) == {"us/v.1", "us/v.2"}
    stated = keras_vit.info("hf://us/v.2").provenance
    sha256 = bucket.sha256_in_cache(f"{bucket.OFFICIAL}v.2.npz")[1]
    assert (stated["sha256"], stated["license"], stated["reported_top1"]) == (
        sha256,
        "Apache-2.0",
        80.0,
    )
    (desk.folder / "card.md").write_bytes(desk.repos["us/v.2"].files()["README.md"])
    card = ModelCard.load(desk.folder / "card.md")
    (score,) = card.data.eval_results
    assert (card.data.license, score.metric_value) == ("apache-2.0", 80.0)
    assert sha256 in card.text and "reported by a paper" in score.dataset_name
    pair = (VisionTransformer.from_preset(p).get_weights() for p in ("hf://us/v.2", "x.npz"))
    assert all(map(np.array_equal, *pair))


def test_a_second_run_publishes_only_what_is_missing_or_has_changed(desk, run):
    """A folder whose upload failed is not written again; another file in the bucket is noticed."""
    desk.fail("commit/main", status=503, times=1)
    status, printed = run("--only", "v.1")
    assert status == 1 and "the Hub is busy or down (503" in printed
    desk.requests.clear()
    assert run("--only", "v.[12]")[0] == 0
    assert not any("v.1.npz" in request for request in desk.requests)
    desk.requests.clear()
    status, printed = run("--only", "v.[12]")
    assert status == 0 and printed.count("there already: hf://us/v.") == 2
    assert not any(request.startswith("POST") for request in desk.requests)

    folder = desk.folder / "v.2"
    desk.repos["us/v.2"].commit({"config.json": b"{}"})
    (folder / "README.md").unlink()
    status, printed = run("--only", "v.2")
    assert status == 1 and "has another config.json" in printed
    assert (folder / "README.md").exists()


def test_a_preset_is_compared_with_its_record(desk, run, monkeypatch):
    """On a difference nothing is written or uploaded."""
    record = {**attest("v.1", by="keras_vit"), "origin": "the authors' code"}
    monkeypatch.setattr(publish, "shipped", lambda: {"v.1": record})
    assert "outputs equal the authors' code" in run("--only", "v.1")[1]
    record["sha256"] = digests(publish.Source.parse("v.2"))
    other = {**record, "logits": [[float("nan")] * 5] * 2}
    monkeypatch.setattr(publish, "shipped", lambda: json.loads(json.dumps({"v.2": other})))
    status, printed = run("--only", "v.2")
    assert status == 1 and "v.2: logits differs from its record" in printed
    assert set(desk.repos) == {"us/v.1"} and not (desk.folder / "v.2").exists()


def test_a_dry_run_lists_the_rows_and_connects_nowhere(desk, run):
    status, printed = run("--dry-run")
    assert status == 0 and printed.count("-> hf://us/v.") == 3 and printed.count("skipped") == 3
    assert not desk.requests and not desk.folder.exists()
    with pytest.raises(SystemExit):
        run("--only", "nothing.*")
