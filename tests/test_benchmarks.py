"""The benchmarks and the maintainers' tools: what they measure is what they say."""

import json

import numpy as np
import pytest
from PIL import Image

import keras_vit
from benchmarks import full_size, gpu, harness, report
from benchmarks.peers import PEERS, Peer
from benchmarks.peers.products import MAKERS
from benchmarks.sizes import Size, size_named
from keras_vit.cli import app
from keras_vit.exporting.formats import FORMATS, load_format
from keras_vit.models import builders
from tests import golden
from tests.plain import normal


@pytest.mark.parametrize(("name", "variant"), [("Ti/16", "vit_ti16"), ("L/32", "vit_l32")])
def test_a_size_of_the_paper_is_that_of_the_variant(name, variant):
    size, config = size_named(name), builders.variant(variant).config()
    assert keras_vit.ViTConfig(**size.fields()) == config
    assert size.tokens == config.grid[0] * config.grid[1] + 1


# Flax runs on JAX.
@pytest.mark.on_backend("jax")
def test_the_flax_peer_computes_the_logits_of_the_official_code(tmp_path):
    """A golden of the official code, whose weights the peer takes under the official names."""
    from flax.traverse_util import unflatten_dict

    from benchmarks.peers.flax_vit import FlaxViT

    case, expected = golden.CASES["vit_token_linen"], golden.expected("vit_token_linen")
    keras_vit.convert(golden.FOLDER / case["checkpoint"], tmp_path / "linen.npz", "google_linen")
    with np.load(tmp_path / "linen.npz") as file:
        params = unflatten_dict(dict(file), sep="/")
    of = case["config"]
    names = ("hidden_size", "num_layers", "num_heads", "mlp_dim")
    sides = of["patch_size"][0], of["image_size"][0]
    size = Size("golden", *(of[name] for name in names), *sides, of["num_classes"])
    logits = FlaxViT(size).apply({"params": params}, expected["image"])
    assert golden.relative_error(np.asarray(logits), expected["logits"]) <= case["tolerance"]


@pytest.mark.parametrize("library", ["torch", "xla"])
def test_every_library_computes_the_same_product(library):
    """A unit that computed less than the product would be the fastest."""
    left, right = normal(7, 6), normal(6, 5, seed=1)
    actual = np.asarray(MAKERS[library](left, right, "float32")())
    np.testing.assert_allclose(actual, left @ right, atol=1e-5)


def test_speeds_are_ratios_of_turns_of_the_same_round():
    """Rows are written in the middle of a round too; a table leaves out runs without timm."""
    turns = {"products": [1, 2, 1], "timm": [2, 4, 1, 9]}
    result = harness.Result({n: [harness.Turn(s, 0.0) for s in t] for n, t in turns.items()}, {})
    assert result.ratios("timm") == [0.5, 0.5, 1]

    def run(batch, **shares):
        request = {"task": "forward", "model": "S/16", "image_size": 224, "batch": batch}
        rows = [{"peer": name, "share": share} for name, share in shares.items()]
        return {"request": {**request, "dtype": "float32"}, "rows": rows}

    runs = [run(8, timm=0.9, flax=0.1), run(8, timm=0.8, flax=0.4, products=1), run(1, flax=0.5)]
    lines = report.tables(runs).splitlines()
    assert lines[2] == "| peer | S/16, 224 pixels, batch 8 |"
    assert lines[4:] == ["| timm | 1.0 |", "| flax | 0.5 |"]


def test_a_peer_that_fails_is_named_and_the_others_are_measured(monkeypatch, tmp_path):
    monkeypatch.setitem(PEERS, "absent", Peer(("forward",), ("no_such_library",), "products:make"))
    request = {"task": "forward", "model": "Ti/16", "image_size": 32, "batch": 1, "dtype": "never"}
    failed = harness.run(["products", "absent"], request, 1, lambda text: None).failed
    assert failed["absent"] == "no_such_library not installed" and "never" in failed["products"]
    Image.new("RGB", (300, 300)).save(tmp_path / "one.jpg")
    asked = {"task": "input", "folder": str(tmp_path), "batch": 1, "training": False}
    requests = {
        "none": ("no_such_backend", {**asked, "library": "keras_vit"}),
        "work": ("", {"task": "start", "words": ["-c", "sum(range(10**7))"]}),
    }
    answers, failed = harness.run_fresh(requests, 1, lambda text: None)
    assert 0.05 < answers["work"][0]["processor_seconds"] < 60
    assert "no_such_backend" in failed["none"]


def test_rows_of_a_gpu_are_measured_once_and_only_while_there_is_time(tmp_path, monkeypatch):
    """A row that failed is measured again, and every row after another code of keras_vit."""
    codes = {"torch": 0, "jax": 1}
    monkeypatch.setattr(
        gpu, "_run", lambda command, seconds, **to: (codes[to["KERAS_BACKEND"]], "1 passed")
    )
    machine = report.machine()
    monkeypatch.setattr(report, "machine", lambda: dict(machine))
    rows = [gpu.Row(n, "tests", name) for n, name in ((1, "torch"), (30, "tensorflow"), (1, "jax"))]
    file, late = tmp_path / "gpu.json", "no time was left"
    assert gpu.measure(rows, file, 10) == ["code 0", late, "code 1"]
    assert gpu.measure(rows, file, 10) == ["known", late, "code 1"]
    machine["code"] = "another"
    assert gpu.measure(rows, file, 10) == ["code 0", late, "code 1"]
    assert json.loads(file.read_text())[0]["rows"] == [{"peer": "torch", "result": "1 passed"}]


@pytest.mark.nightly
def test_a_row_of_a_gpu_has_its_columns(tmp_path):
    """In miniature, with torch's products and timm."""
    file = tmp_path / "gpu.json"
    assert gpu.measure([gpu.ROWS[0].tiny()._replace(peers=("timm",))], file, 5, tiny=True) == [
        "done"
    ]
    (measured,) = json.loads(file.read_text())
    assert {"products", "timm"} <= {row["peer"] for row in measured["rows"]}
    assert all(row[n] > 0 for row in measured["rows"] for n in ("milliseconds", "peak_mb", "share"))


def test_every_command_and_export_is_run_at_full_size():
    """A new command, format or precision needs a row; `demo` has a model of its own."""
    run, exported = set(), set()
    for _, line in full_size.rows().values():
        words = line.format(port=8000, out="out").split()
        _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        run.add(words[0])
        if words[0] == "export":
            exported.add((bound.arguments["format"], bound.arguments["precision"]))
    assert run == {name for name in app if not name.startswith("-")} - {"demo"}
    assert exported == {(form, each) for form in FORMATS for each in load_format(form).precisions}
