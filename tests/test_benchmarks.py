"""The benchmarks: model sizes, the Flax peer, turns, profiles, and peers that fail."""

import json
import sys

import numpy as np
import pytest

import keras_vit
from benchmarks import aims, gpu, harness, profiles, readme, report, speed
from benchmarks.peers import PEERS, Peer
from benchmarks.sizes import Size, size_named
from keras_vit.models import builders
from tests import golden
from tests.helpers import normal


@pytest.mark.parametrize(
    ("name", "variant"), [("Ti/16", "vit_ti16"), ("S/16", "vit_s16"), ("L/16", "vit_l16")]
)
def test_benchmark_sizes_equal_the_variants(name, variant):
    """Hidden size, layers, heads, MLP, patch size and tokens."""
    size, config = size_named(name), builders.variant(variant).config()
    for field in ("hidden_size", "num_layers", "num_heads", "mlp_dim"):
        assert getattr(size, field) == getattr(config, field)
    assert (size.patch_size, size.patch_size) == config.patch_size
    assert size.tokens == config.grid[0] * config.grid[1] + 1


# Flax runs on JAX.
@pytest.mark.on_one_backend("jax")
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
    ("turns", "ratios", "of_fastest"),
    [
        ({"products": [1, 2, 1], "timm": [2, 4, 1]}, [0.5, 0.5, 1], [0.5, 0.5, 1]),
        # The fastest unit may be another library in another round.
        ({"products": [4, 2], "products-onednn": [2, 3], "timm": [4, 4]}, [1, 0.5], [0.5, 0.5]),
        # Rows are written in the middle of a round too, and before the anchor's first turn.
        ({"products": [2], "timm": [4, 9], "flax": []}, [0.5], [0.5]),
    ],
)
def test_ratios_compare_turns_of_the_same_round(turns, ratios, of_fastest):
    """A round in which the whole machine is slow does not count against a peer."""
    result = harness.Result({n: [harness.Turn(s, 0.0) for s in t] for n, t in turns.items()}, {})
    assert (result.ratios("timm"), result.of_fastest("timm")) == (ratios, of_fastest)


def test_a_run_without_units_has_no_ratios():
    alone = harness.Result({"timm": [harness.Turn(4.0, 0.0)]}, {})
    assert report.speed_rows(alone)[0]["of_fastest"] is None


@pytest.mark.on_one_backend("torch")
@pytest.mark.parametrize("library", ["onednn", "openvino"])
def test_every_library_computes_the_same_product(library):
    """A unit that computed less than the product would be the fastest."""
    from benchmarks.peers import products

    left, right = normal(7, 6), normal(6, 5, seed=1)
    actual = products._MAKERS[library](left, right, "float32")()
    actual = actual[0] if library == "openvino" else actual.numpy()
    np.testing.assert_allclose(actual, left @ right, atol=1e-5)


def test_an_aim_is_read_from_the_newest_run_that_has_both_peers():
    """Two runs may be of two machines; the table says "not measured" for missing figures."""

    def run(**shares):
        request = {"task": "train", "model": "S/16", "batch": 8, "dtype": "float32"}
        rows = [{"peer": name.replace("_", "-"), "share": share} for name, share in shares.items()]
        return {"request": {**request, "image_size": 224}, "rows": rows}

    key = ("timm", "flax", "train", "S/16 b8")
    runs = [run(timm=0.9, flax=0.1), run(timm=0.8, flax=0.4), run(timm=0.5), run(flax=0.5)]
    assert aims.speed(runs, *key) == pytest.approx(2.0)
    assert aims.speed(runs[2:], *key) is None
    for table in (aims.AIMS, aims.AIMS_ON_AMD):
        assert aims.table([], table).count("not measured") == len(table)


@pytest.mark.on_one_backend("torch")
def test_a_run_continues_without_the_peers_that_fail(monkeypatch):
    """One peer is not installed, one cannot be built; the result names each with its reason."""
    absent = Peer("absent", ("forward",), ("no_such_library",), "products:make")
    monkeypatch.setitem(PEERS, "absent", absent)
    request = {"task": "forward", "model": "Ti/16", "image_size": 32, "batch": 1, "dtype": "never"}
    result = harness.run(["absent"], request, 1, lambda text: None)
    assert result.failed["absent"] == "no_such_library not installed"
    assert "never" in result.failed["products"]
    table = report.markdown("title", report.speed_rows(result))
    assert "absent: no_such_library not installed" in table


@pytest.mark.on_one_backend("torch")
def test_fresh_measures_name_the_library_that_fails():
    """The other libraries are measured."""
    requests = {
        "json": ("", {"measure": "start", "library": "json"}),
        "none": ("", {"measure": "start", "library": "no_such_library"}),
    }
    answers, failed = harness.run_fresh(requests, 2, lambda text: None)
    assert len(answers["json"]) == 2
    assert "no_such_library" in failed["none"]
    assert json.dumps(report.fresh_rows(answers, failed))


def test_shares_of_a_profile_add_up_to_the_time():
    """Overlapping operations share the time; time without an operation is overhead."""
    events = [
        profiles.Event("products", 0.0, 6.0),
        profiles.Event("norms", 4.0, 6.0),
        profiles.Event("products", 7.0, 9.0),
    ]
    shares = profiles.compute_shares(events, wall=10.0)
    assert shares == pytest.approx({"products": 0.64, "norms": 0.16, "overhead": 0.2})


PROGRAM = """HloModule jit_step

FileNames
1 "kernels/jax.py"

FunctionNames
1 "call"
2 "_attention_forward"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3}
2 {file_name_id=1 function_name_id=2 line=9 end_line=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

ENTRY %main {
  %dot.1 = f32[2] dot(%a, %b), metadata={op_name="jit(step)/dot_general" stack_frame_id=1}
  %exp.2 = f32[2] fusion(%dot.1), metadata={op_name="jit(step)/exp" stack_frame_id=2}
  ROOT %copy.3 = f32[2] copy(%exp.2)
}
"""


def test_xla_instructions_are_attributed_to_the_function_they_come_from(tmp_path):
    """By the calling functions first, then by the kind of operation."""
    (tmp_path / "module_1.jit_step.cpu_after_optimizations.txt").write_text(PROGRAM)
    parts = profiles._list_parts(tmp_path)
    assert parts == {"dot.1": "products", "exp.2": "attention", "copy.3": "copies"}


@pytest.mark.without_backend
def test_the_readme_is_followed_from_top_to_bottom(tmp_path):
    """Installations, programs and commands in their order."""
    questions, installed = [], []

    def run(program, *arguments, **variables):
        questions.append((program, arguments, variables))
        return "[[('8', 0.91)]]"

    answer, count = readme.follow(run, installed.append, "jax", tmp_path)
    assert answer == "[[('8', 0.91)]]"
    assert installed == ["jax"]
    commands = [arguments[0] for program, arguments, _ in questions if program == "keras-vit"]
    assert commands == ["doctor", "predict", "finetune", "evaluate", "info", "convert"]
    assert "KERAS_VIT_BUCKET" in questions[-1][2]
    assert len(installed) + len(questions) == count + 2  # two programs write the files
    skipped = [step for step in readme.steps() if step.needs_the_hub]
    assert count + len(skipped) == len(readme.steps())


@pytest.mark.without_backend
def test_another_first_answer_than_the_readme_shows_is_an_error(tmp_path):
    """The first program classifies an 8."""
    with pytest.raises(AssertionError, match="expected the digit 8, found 3"):
        readme.follow(lambda *_, **__: "3", lambda extras: None, "jax", tmp_path)


@pytest.mark.without_backend
def test_a_csv_of_speeds_has_one_row_per_measurement(tmp_path, monkeypatch):
    """A second measurement replaces its row; images, milliseconds and multiply-adds fit."""
    seconds = {"keras_vit-torch-predict": 0.02, "keras_vit-jax-predict": 0.04}

    def run(peers, request, rounds, say, length, units):
        assert request == {
            "task": "forward",
            "model": "vit_b16",
            "image_size": 224,
            "batch": 8,
            "dtype": "float32",
        }
        return harness.Result({p: [harness.Turn(seconds[p], 0.0, 500.0)] for p in peers}, {})

    monkeypatch.setattr(harness, "run", run)
    file = tmp_path / "machine.csv"
    for torch_seconds in (0.02, 0.01):
        seconds["keras_vit-torch-predict"] = torch_seconds
        rows, failed = speed.measure("vit_b16", 8, "float32", ["torch", "jax"], 3, 2.0)
        speed.merge(file, rows)
        assert not failed
    header, by_torch, by_jax = file.read_text().splitlines()
    assert header == ("model,batch,precision,backend,images_per_second,ms,peak_mb,gmacs,version")
    assert by_torch == f"vit_b16,8,float32,torch,800.0,10.00,500,17.56,{keras_vit.__version__}"
    assert by_jax.startswith("vit_b16,8,float32,jax,200.0,40.00,")


WRITE_AND_WAIT = """
import json, sys, time, pathlib
pathlib.Path(sys.argv[1]).write_text(json.dumps([{"request": {}, "rows": [{"peer": "timm"}]}]))
print("written", flush=True)
time.sleep(60)
"""


@pytest.mark.without_backend
def test_the_plan_for_a_gpu_keeps_what_it_has(tmp_path):
    """A part that fails or takes too long ends alone; a second run does what is missing."""
    python = (sys.executable, "-c")
    file = tmp_path / "gpu.json"
    endless = (*python, WRITE_AND_WAIT, str(tmp_path / "rows.json"))
    parts = [
        gpu.Part("good", (*python, "print('fine')"), 0.5),
        gpu.Part("endless", endless, 0.08),
        gpu.Part("bad", (*python, "raise SystemExit(3)"), 0.5),
    ]
    found = gpu.run(parts, file, 5, tmp_path)["parts"]
    assert {name: part["code"] for name, part in found.items()} == {
        "good": 0,
        "endless": None,
        "bad": 3,
    }
    again = [gpu.Part("good", (*python, "raise SystemExit(4)"), 0.5), *parts[1:]]
    report = gpu.run([*again, gpu.Part("late", python, 0.5)], file, 0.1, tmp_path)["parts"]
    assert report["good"]["text"] == "fine\n"
    assert report["endless"]["rows"] == [{"request": {}, "rows": [{"peer": "timm"}]}]
    assert report["late"] == {"code": None, "rows": [], "text": "no time was left"}
    assert json.loads(file.read_text())["parts"] == report


@pytest.mark.on_one_backend("torch")
def test_the_figures_of_a_gpu_have_their_columns(tmp_path):
    """One part of the plan in miniature, with torch's products alone."""
    chosen = next(p for p in gpu.plan(True, tmp_path) if p.name == "forward tiny, batch 1")
    names = chosen.command.index("--peers")
    short = (*chosen.command[: names + 1], "timm", *chosen.command[names + 1 + len(gpu.PLAIN) :])
    part = gpu.Part(chosen.name, short, 3)
    report = gpu.run([part], tmp_path / "gpu.json", 5, tmp_path)
    assert set(report) == {"parts", "published"}
    found = report["parts"][part.name]
    assert found["code"] == 0, found["text"]
    (measured,) = found["rows"]
    assert measured["request"]["dtype"] == "bfloat16"
    assert measured["machine"]["versions"]["torch"] != "absent"
    assert {row["peer"] for row in measured["rows"]} == {"products", "timm"}
    for row in measured["rows"]:
        assert row["milliseconds"] > 0
        assert row["peak_mb"] > 0
        assert row["share"] > 0
