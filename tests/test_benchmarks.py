"""The benchmarks: model sizes, the Flax peer, turns, peers that fail, and rows of a GPU."""

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
    from benchmarks.peers.flax_vit import FlaxViT

    case = golden.CASES["vit_token_linen"]
    config = case["config"]
    keras_vit.convert(golden.FOLDER / case["checkpoint"], tmp_path / "linen.npz", "google_linen")
    params: dict = {}
    with np.load(tmp_path / "linen.npz") as file:
        for name, array in file.items():
            *path, last = name.split("/")
            node = params
            for key in path:
                node = node.setdefault(key, {})
            node[last] = array
    size = Size(
        "golden",
        config["hidden_size"],
        config["num_layers"],
        config["num_heads"],
        config["mlp_dim"],
        config["patch_size"][0],
        config["image_size"][0],
        config["num_classes"],
    )
    expected = golden.expected("vit_token_linen")
    logits = FlaxViT(size).apply({"params": params}, expected["image"])
    assert golden.relative_error(np.asarray(logits), expected["logits"]) <= case["tolerance"]


@pytest.mark.parametrize(
    ("turns", "ratios"),
    [
        ({"products": [1, 2, 1], "timm": [2, 4, 1]}, [0.5, 0.5, 1]),
        # Rows are written in the middle of a round too, and before the anchor's first turn.
        ({"products": [2], "timm": [4, 9], "flax": []}, [0.5]),
        ({"timm": [4.0]}, []),
    ],
)
def test_ratios_compare_turns_of_the_same_round(turns, ratios):
    """A round in which the whole machine is slow does not count against a peer."""
    result = harness.Result({n: [harness.Turn(s, 0.0) for s in t] for n, t in turns.items()}, {})
    assert result.ratios("timm") == ratios


@pytest.mark.parametrize("library", ["torch", "xla"])
def test_every_library_computes_the_same_product(library):
    """A unit that computed less than the product would be the fastest."""
    left, right = normal(7, 6), normal(6, 5, seed=1)
    actual = np.asarray(MAKERS[library](left, right, "float32")())
    np.testing.assert_allclose(actual, left @ right, atol=1e-5)


def test_a_table_has_speeds_in_units_of_timm_from_runs_that_have_both():
    """Two runs may be of two machines; units and runs without timm are left out."""

    def run(batch, **shares):
        request = {"task": "forward", "model": "S/16", "image_size": 224, "batch": batch}
        rows = [{"peer": name, "share": share} for name, share in shares.items()]
        return {"request": {**request, "dtype": "float32"}, "rows": rows}

    runs = [run(8, timm=0.9, flax=0.1), run(8, timm=0.8, flax=0.4, products=1), run(1, flax=0.5)]
    lines = report.tables(runs).splitlines()
    assert lines[2] == "| peer | S/16, 224 pixels, batch 8 |"
    assert lines[4:] == ["| timm | 1.0 |", "| flax | 0.5 |"]


def test_a_run_continues_without_the_peers_that_fail(monkeypatch):
    """One peer is not installed, one cannot be built; the result names each with its reason."""
    absent = Peer(("forward",), ("no_such_library",), "products:make")
    monkeypatch.setitem(PEERS, "absent", absent)
    request = {"task": "forward", "model": "Ti/16", "image_size": 32, "batch": 1, "dtype": "never"}
    result = harness.run(["products", "absent"], request, 1, lambda text: None)
    assert result.failed["absent"] == "no_such_library not installed"
    assert "never" in result.failed["products"]
    table = report.markdown("title", report.speed_rows(result))
    assert "absent: no_such_library not installed" in table


def test_fresh_measures_name_the_library_that_fails(tmp_path):
    """The other libraries are measured."""
    for name in ("one.jpg", "two.jpg"):
        Image.new("RGB", (300, 300)).save(tmp_path / name)
    asked = {"task": "input", "folder": str(tmp_path), "batch": 1, "training": False}
    requests = {
        "timm": ("torch", {**asked, "library": "timm"}),
        "none": ("no_such_backend", {**asked, "library": "keras_vit"}),
        "work": ("", {"task": "start", "words": ["-c", "sum(range(10**7))"]}),
    }
    answers, failed = harness.run_fresh(requests, 1, lambda text: None)
    assert len(answers["timm"]) == 1
    assert all(0.05 < answer["processor_seconds"] < 60 for answer in answers["work"])
    assert "no_such_backend" in failed["none"]
    assert json.dumps(report.fresh_rows(answers, failed))


def test_a_csv_of_speeds_has_one_row_per_measurement(tmp_path):
    """A second measurement replaces its row; images, milliseconds and multiply-adds fit."""

    def run(model, size, batch, **milliseconds):
        request = {"task": "forward", "model": model, "image_size": size, "batch": batch}
        rows = [
            {"peer": f"keras_vit-{b}-predict", "share": 1, "milliseconds": ms, "peak_mb": 500}
            for b, ms in milliseconds.items()
        ]
        return {"request": {**request, "dtype": "float32"}, "rows": [*rows, {"peer": "timm"}]}

    file = tmp_path / "machine.csv"
    report.write_csv([run("B/16", 224, 8, torch=20.0, jax=40.0)], file)
    report.write_csv([run("B/16", 224, 8, torch=10.0), run("DINOv2-S/14", 518, 1, jax=50.0)], file)
    header, by_torch, by_jax, dino = file.read_text().splitlines()
    assert header == "model,batch,precision,backend,images_per_second,ms,peak_mb,gmacs"
    assert by_torch == "vit_b16,8,float32,torch,800.0,10.00,500,17.56"
    assert by_jax.startswith("vit_b16,8,float32,jax,200.0,40.00,500,")
    assert dino.startswith("vit_s14.dinov2,1,float32,jax,20.0,50.00,500,")


def test_rows_of_a_gpu_are_measured_once_and_only_while_there_is_time(tmp_path, monkeypatch):
    """A row that failed is measured again, and every row after another code of keras_vit."""
    codes = {"torch": 0, "jax": 1}
    monkeypatch.setattr(
        gpu, "_run", lambda command, seconds, **to: (codes[to["KERAS_BACKEND"]], "1 passed")
    )
    machine = report.machine()
    monkeypatch.setattr(report, "machine", lambda: dict(machine))
    rows = [gpu.Row(1, "tests", "torch"), gpu.Row(30, "tests", "tensorflow")]
    rows += [gpu.Row(1, "tests", "jax")]
    file = tmp_path / "gpu.json"
    late = "no time was left"
    assert gpu.measure(rows, file, 10) == ["code 0", late, "code 1"]
    assert gpu.measure(rows, file, 10) == ["known", late, "code 1"]
    machine["code"] = "another"
    assert gpu.measure(rows, file, 10) == ["code 0", late, "code 1"]
    assert json.loads(file.read_text())[0]["rows"] == [{"peer": "torch", "result": "1 passed"}]


def test_a_row_of_a_gpu_has_its_columns(tmp_path):
    """In miniature, with torch's products and timm."""
    file = tmp_path / "gpu.json"
    row = gpu.ROWS[0].tiny()._replace(peers=("timm",))
    assert gpu.measure([row], file, 5, tiny=True) == ["done"]
    (measured,) = json.loads(file.read_text())
    assert measured["done"]
    assert measured["request"]["dtype"] == "bfloat16"
    assert measured["machine"]["versions"]["torch"] != "absent"
    assert {"products", "timm"} <= {row["peer"] for row in measured["rows"]}
    for row in measured["rows"]:
        assert row["milliseconds"] > 0
        assert row["peak_mb"] > 0
        assert row["share"] > 0


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


def test_a_row_of_the_full_size_table_has_the_seconds_of_each_backend():
    rows = full_size.table({"predict (torch)": 9.4, "predict (tensorflow)": 0.2}).splitlines()
    assert rows[2] == "| predict | 9.4 |  | 0.2 |"
