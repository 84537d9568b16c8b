"""From the Hub: what is fetched, what is refused, and what happens when the line is bad."""

import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import pytest
from safetensors.numpy import load_file, save_file

from keras_vit import CheckpointError, PresetError, VisionTransformer, cli
from keras_vit.checkpoints import Source, load
from keras_vit.presets import describe
from keras_vit.presets.catalog import preset_named
from tests.golden import CASES, FOLDER, expected, outputs, relative_error
from tests.presets.hub_server import TOKEN, connect, environment, served, sha256

DIGITS = preset_named("vit_digits").folder

pytestmark = pytest.mark.usefixtures("quick_compilation")

MOMENTS = int(os.environ.get("KERAS_VIT_KILLS", "10"))
"""How often a process is killed; 50 before a release."""


@pytest.fixture
def slept():
    """Seconds that were waited for, in order."""
    return []


@pytest.fixture
def hub(tmp_path, monkeypatch, slept):
    """A Hub without repositories, and an empty cache."""
    with served() as hub:
        connect(hub, tmp_path / "cache", monkeypatch, slept.append)
        yield hub


@pytest.fixture
def digits(hub):
    """A Hub with a preset of ours, `hf://us/digits`."""
    hub.add("us/digits", DIGITS)
    return hub


def read(path: Path) -> dict[str, bytes]:
    """The files of a golden; a single one under its own name."""
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in paths}


def golden(name: str) -> dict[str, bytes]:
    return read(FOLDER / CASES[name]["checkpoint"])


def fetched(source: str) -> Path:
    """The local folder, or file, that an address of the Hub leads to."""
    with Source.of(source).local() as path:
        return path


def refusal(source: str) -> str:
    """The message with which an address is refused."""
    with pytest.raises(PresetError) as caught:
        fetched(source)
    return str(caught.value)


def offline(monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


# What is fetched


@pytest.mark.parametrize(
    "name",
    [
        "vit_token_published",
        "bv_map",
        "bv_scan_tok",
        "timm_token",
        "timm_map",
        "hf_classifier_tanh",
        "hf_model",
        "kh_backbone",
        "kh_intermediate",
    ],
)
def test_goldens_load_from_the_hub(name, hub):
    """A repository of every dialect gives the logits of its own library."""
    hub.add("them/vit", golden(name))
    case, want = CASES[name], expected(name)
    stage = "logits" if case["config"]["num_classes"] else "encoded"
    size = tuple(case["config"]["image_size"])
    model = VisionTransformer.from_preset("hf://them/vit", image_size=size)
    got = outputs(model, want["image"], [stage])[stage]
    assert relative_error(got, want[stage]) <= case["tolerance_tokens"]


def test_preset_of_ours(digits):
    """Labels, protocol and provenance come along; where it came from is added."""
    model = VisionTransformer.from_preset("hf://us/digits")
    assert model.labels == tuple("0123456789")
    commit = digits.repos["us/digits"].branches["main"]
    file = {"model.safetensors": sha256((DIGITS / "model.safetensors").read_bytes())}
    told = {"repo": "hf://us/digits", "commit": commit, "files": file, "test_top1": 0.9917}
    assert told.items() <= dict(model.provenance).items()
    assert digits.fetched() == {"config.json", "model.safetensors"}


def test_only_what_is_needed_is_fetched(hub):
    """Neither other libraries' weights, nor optimizer states, nor subfolders."""
    others = ["pytorch_model.bin", "flax_model.msgpack", "tf_model.h5", "optimizer.pt", "x.npz"]
    others += ["onnx/model.safetensors", "tokenizer.json", "README.md"]
    hub.add("them/vit", golden("hf_classifier") | dict.fromkeys(others, b"no"))
    fetched("hf://them/vit")
    assert hub.fetched() == {"config.json", "preprocessor_config.json", "model.safetensors"}


def sharded(files: dict[str, bytes], folder: Path) -> dict[str, bytes]:
    """Weights in two files, as `save_pretrained` writes them above a size."""
    folder.mkdir()
    (folder / "whole").write_bytes(files.pop("model.safetensors"))
    arrays = load_file(folder / "whole")
    weight_map = {}
    for k in range(2):
        part = dict(sorted(arrays.items())[k::2])
        name = f"model-0000{k + 1}-of-00002.safetensors"
        save_file(part, folder / name, {"format": "pt"})
        files[name] = (folder / name).read_bytes()
        weight_map |= dict.fromkeys(part, name)
    return files | {"model.safetensors.index.json": json.dumps({"weight_map": weight_map}).encode()}


def test_sharded_weights(hub, tmp_path):
    """Every shard is fetched, and recorded."""
    hub.add("them/vit", sharded(golden("hf_classifier"), tmp_path / "shards") | {"x.bin": b"no"})
    case, want = CASES["hf_classifier"], expected("hf_classifier")
    model = VisionTransformer.from_preset("hf://them/vit")
    got = outputs(model, want["image"], ["logits"])["logits"]
    assert relative_error(got, want["logits"]) <= case["tolerance"]
    assert len(model.provenance["files"]) == 2
    assert "x.bin" not in hub.fetched()


def test_subfolder_and_file(hub):
    """An address may go on with a folder, or name one file of several."""
    files = {f"a/{name}": content for name, content in golden("timm_token").items()}
    files |= golden("vit_gap") | golden("vit_token_published")
    hub.add("them/zoo", files)
    assert VisionTransformer.from_preset("hf://them/zoo/a").labels is None
    hub.requests.clear()
    model = VisionTransformer.from_preset("hf://them/zoo/vit_gap.npz", position_grid=(3, 5))
    assert model.config.classifier == "gap"
    assert hub.fetched() == {"vit_gap.npz"}
    assert "expected one file of weights" in refusal("hf://them/zoo")
    assert "Name one: hf://them/zoo/vit_gap.npz." in refusal("hf://them/zoo")
    assert "hf://them/zoo/b: the repository has no such folder or file" in refusal(
        "hf://them/zoo/b"
    )


def test_pickles_alone_are_refused(hub):
    """Nothing is fetched, and the way out is named."""
    hub.add("them/vit", {"config.json": b"{}", "pytorch_model.bin": b"\x80"})
    assert "never unpickles; ask the authors for safetensors" in refusal("hf://them/vit")
    assert hub.fetched() == {"config.json"}


def test_revisions(digits):
    """A branch moves, a commit does not."""
    repo = digits.repos["us/digits"]
    first = repo.branches["main"]
    card = json.loads((DIGITS / "config.json").read_text())
    changed = json.dumps({**card, "protocol": "timm"}).encode()
    repo.branches["old"] = repo.branches["refs/pr/1"] = first
    repo.commit({"config.json": changed})
    protocols = {
        revision: describe(f"hf://us/digits{revision}").protocol
        for revision in ("", "@main", "@old", "@refs/pr/1", f"@{first}")
    }
    assert [p == "timm" for p in protocols.values()] == [True, True, False, False, False]


@pytest.mark.parametrize("name", ["hf_classifier", "digits"])
def test_overrides(name, digits):
    """Another head, size, type and rates, as from a folder."""
    digits.add("them/vit", DIGITS if name == "digits" else golden(name))
    fields = {"num_classes": 3, "image_size": 32, "dropout_rate": 0.1, "dtype": "mixed_bfloat16"}
    model = VisionTransformer.from_preset("hf://them/vit", **fields)
    assert model.output_shape == (None, 3)
    assert (model.config.image_size, model.config.dropout_rate) == ((32, 32), 0.1)
    assert (model.labels, model.dtype_policy.name) == (None, "mixed_bfloat16")


@pytest.mark.parametrize("name", ["timm_map", "hf_classifier", "sharded", "digits", "vit_gap"])
def test_description_without_weights(name, hub, tmp_path):
    """JSON and safetensors headers say enough; an npz has to be fetched."""
    if name == "digits":
        files = read(DIGITS)
    elif name == "sharded":
        files = sharded(golden("hf_classifier"), tmp_path / "shards")
    else:
        files = golden(name)
    hub.add("them/vit", files)
    assert describe("hf://them/vit").config.num_layers > 1
    fetched = {name for name in snapshot_names(tmp_path) if not name.endswith(".json")}
    assert fetched == ({"vit_gap.npz"} if name == "vit_gap" else set())


def test_architecture_without_weights(hub, tmp_path):
    """load_weights=False builds the model, and no weights are fetched."""
    hub.add("them/vit", golden("hf_classifier"))
    model = VisionTransformer.from_preset("hf://them/vit", load_weights=False, num_classes=3)
    assert (model.output_shape, model.labels) == ((None, 3), None)
    assert model.preprocessor.protocol == "transformers"
    assert snapshot_names(tmp_path) == {"config.json", "preprocessor_config.json"}


def snapshot_names(folder: Path) -> set[str]:
    """Names of the files in the cache."""
    return {path.name for path in folder.glob("cache/hub/*/snapshots/*/*")}


def test_second_load_asks_once(digits):
    """What is in the cache is not fetched again."""
    fetched("hf://us/digits")
    digits.requests.clear()
    fetched("hf://us/digits")
    assert digits.requests == ["GET /api/models/us/digits"]


def test_offline_afterwards(digits, monkeypatch):
    """With all in the cache HF_HUB_OFFLINE loads the same; without, it says so."""
    online = load("hf://us/digits")
    digits.requests.clear()
    offline(monkeypatch)
    assert load("hf://us/digits").provenance == online.provenance
    assert load(f"hf://us/digits@{online.provenance['commit']}").labels == online.labels
    for source in ("hf://us/other", "hf://us/digits@v2", "hf://us/digits/sub"):
        assert "not in the cache" in refusal(source)
    assert not digits.requests


def test_offline_after_half_a_download(digits, monkeypatch):
    """A cache with the JSON alone is no preset."""
    describe("hf://us/digits")
    offline(monkeypatch)
    assert "not in the cache" in refusal("hf://us/digits")


def test_hub_that_is_down_after_a_download(digits, caplog):
    """The cache answers, and says so."""
    fetched("hf://us/digits")
    digits.fail("GET /api", status=503)
    assert (fetched("hf://us/digits") / "model.safetensors").is_file()
    assert "busy or down (503" in caplog.text and "Read from the cache, commit" in caplog.text


def test_description(digits, capsys):
    """`keras-vit info` reads the Hub without its weights."""
    digits.add("them/vit", golden("hf_classifier"))
    assert cli.main(["info", "--json", "hf://them/vit"]) == 0
    assert json.loads(capsys.readouterr().out)["dialect"] == "transformers"
    assert cli.main(["info", "hf://us/digits"]) == 0
    assert "keras_vit preset" in capsys.readouterr().out
    assert cli.main(["info", "hf://them/none"]) == 2


# What is refused


@pytest.mark.parametrize(
    "address",
    [
        "hf://",
        "hf://vit",
        "hf://datasets/a/b",
        "hf://a/b@",
        "hf://a/b@..%2F..%2Fx",
        "hf://a/b/../c",
        "hf://a/b/./c",
        r"hf://a/b\..\c",
    ],
)
def test_bad_address(address, hub):
    """What is no address, or leads elsewhere, is not asked for."""
    assert "expected hf://owner/repo[@revision][/subfolder]" in refusal(address)
    assert not hub.requests


def test_large_config_is_not_fetched(hub):
    """The listing tells the size."""
    files = golden("hf_classifier") | {"config.json": b" " * (16 * 2**20 + 1)}
    hub.add("them/vit", files)
    assert "config.json: 16,777,217 bytes of JSON, expected at most" in refusal("hf://them/vit")
    assert not hub.fetched()


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/../../evil", "..", ".git/config"])
def test_hostile_names(name, hub, tmp_path):
    """Names that lead out of the cache are neither fetched nor followed."""
    index = {"weight_map": {"x": name}}
    files = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode()}
    hub.add("them/vit", files | {name: b"evil", f"{name}.safetensors": b"evil"})
    assert f"names {name!r}, but the folder has no such file" in refusal("hf://them/vit")
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(tmp_path / "cache" / "hub") for path in found)
    assert not [path for path in found if path.read_bytes() == b"evil"]


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"weight_map": 3}', b'{"weight_map": {"x": []}}']
)
def test_damaged_index(content, hub):
    """An index of shards that is none is named."""
    hub.add("them/vit", {"config.json": b"{}", "model.safetensors.index.json": content})
    with pytest.raises((PresetError, CheckpointError), match="index.json"):
        fetched("hf://them/vit")


def test_what_git_stores_of_a_link(hub):
    """A link in a repository is a file with a path in it, and so no JSON."""
    hub.add("them/vit", {"config.json": b"../../../etc/passwd", "model.safetensors": b"x"})
    with pytest.raises(PresetError, match="config.json: not a readable JSON file"):
        describe("hf://them/vit")


def test_damaged_header(hub):
    """A safetensors file that is none is named before it is fetched."""
    hub.add("them/vit", {"config.json": b"{}", "model.safetensors": b"\xff" * 1000})
    with pytest.raises(CheckpointError, match=r"model.safetensors: not a safetensors file"):
        describe("hf://them/vit")


def test_gated_and_private(digits, monkeypatch):
    """Without a token it is said how to get in; with one, it goes, and never to the CDN."""
    repo = digits.repos["us/digits"]
    repo.gated = True
    message = refusal("hf://us/digits")
    assert "us/digits/config.json: the repository is gated" in message
    assert "conditions at https://huggingface.co/us/digits and log in with `hf auth lo" in message
    repo.gated, repo.private = False, True
    assert "no such repository, or a private one" in refusal("hf://us/digits")
    repo.gated = True
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fetched("hf://us/digits").is_dir()


# What goes wrong on the way

INFO, HEAD, GET = "GET /api/models", "HEAD /us/.*safetensors", "GET /cdn"
GET_JSON = "GET /us/digits/resolve/.*json"
"""A small file, which is not stored with LFS."""

PASSES = {
    "busy": {"where": INFO, "status": 503, "times": 2},
    "busy, with a time": {
        "where": INFO,
        "status": 429,
        "headers": {"Retry-After": "7"},
        "times": 1,
    },
    "busy at the file": {"where": HEAD, "status": 503, "times": 2},
    "busy at the bytes": {"where": GET, "status": 503, "times": 2},
    "too many at the bytes": {"where": GET, "status": 429, "times": 1},
    "cut at once": {"where": GET, "cut": 0, "times": 2},
    "cut in the middle": {"where": GET, "cut": 100_000, "times": 2},
    "reset in the middle": {"where": GET, "cut": 100_000, "reset": True, "times": 1},
    "truncated": {"where": GET, "truncated": 1000, "times": 1},
    "other bytes": {"where": GET, "corrupt": True, "times": 1},
    "other bytes of a small file": {"where": GET_JSON, "corrupt": True, "times": 1},
}


@pytest.mark.parametrize("fault", PASSES.values(), ids=PASSES)
def test_what_passes_is_waited_for(fault, digits, slept):
    """A failure that does not last ends in success."""
    digits.fail(**fault)
    folder = fetched("hf://us/digits")
    wanted = (DIGITS / "model.safetensors").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == wanted
    assert (folder / "config.json").read_bytes() == (DIGITS / "config.json").read_bytes()
    assert slept or "truncated" in fault
    assert fault.get("headers") is None or slept == [7]


LASTS = {
    "no repository": (
        INFO,
        {"status": 404, "headers": {"X-Error-Code": "RepoNotFound"}},
        "no such",
    ),
    "unauthorised": (INFO, {"status": 401}, "access refused (401: on purpose). Log in with `hf au"),
    "no revision": (
        INFO,
        {"status": 404, "headers": {"X-Error-Code": "RevisionNotFound"}},
        "no revision 'main'",
    ),
    "no file": (
        HEAD,
        {"status": 404, "headers": {"X-Error-Code": "EntryNotFound"}},
        "hf://us/digits/model.safetensors: the file is not there (404)",
    ),
    "forbidden": (HEAD, {"status": 403}, "digits/model.safetensors: access refused (403"),
    "busy": (INFO, {"status": 503}, "the Hub is busy or down (503: on purpose). Try again later"),
    "busy for an hour": (
        INFO,
        {"status": 429, "headers": {"Retry-After": "3600"}},
        "the Hub is busy or down (429: on purpose). Try again in 3600 seconds",
    ),
    "busy at the file": (HEAD, {"status": 503}, "model.safetensors: the Hub is busy or down (503"),
    "busy at the bytes": (GET, {"status": 503}, "model.safetensors: the Hub is busy or down (503"),
    "broken": (INFO, {"status": 418}, "the Hub answered 418 (on purpose)"),
    "no Hub": (INFO, {"status": 200}, "gave an answer that is no Hub's"),
    "cut": (GET, {"cut": 0}, "model.safetensors: no connection to http://127.0.0.1"),
    "truncated": (GET, {"truncated": 1000}, "model.safetensors: cut short 4 times. Consistency"),
    "other bytes": (
        GET,
        {"corrupt": True},
        "model.safetensors: damaged on its way 4 times: its sha",
    ),
    "other bytes of a small file": (
        GET_JSON,
        {"corrupt": True},
        "config.json: damaged on its way 4 times: its git blob id",
    ),
}


@pytest.mark.parametrize(("where", "fault", "message"), LASTS.values(), ids=LASTS)
def test_what_lasts_is_one_clear_refusal(where, fault, message, digits):
    """Repository, revision or file, what happened, what to do; the next call goes through."""
    digits.fail(where, **fault)
    said = refusal("hf://us/digits")
    assert said.startswith("hf://us/digits") and message in said
    digits.faults.clear()
    folder = fetched("hf://us/digits")
    wanted = (DIGITS / "model.safetensors").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == wanted


def test_no_connection(digits, monkeypatch):
    """A Hub that does not listen is named."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert "no connection to http://127.0.0.1:9" in refusal("hf://us/digits")


def test_disk_full(digits, monkeypatch, tmp_path):
    """Nothing is left of the file, and the folder to make room in is named."""

    def full(url, temp_file, **kwargs):
        temp_file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.file_download.http_get", full)
        said = refusal("hf://us/digits")
    assert f"no space left on the disk of the cache, {tmp_path / 'cache' / 'hub'}" in said
    assert not list(tmp_path.rglob("*.incomplete"))
    assert fetched("hf://us/digits").is_dir()


# Killed

FETCH = """
import os, signal, sys
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from keras_vit.checkpoints import Source
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        with Source.of("hf://us/digits").open():
            pass
        if line == "wait\\n":  # to be killed, if that has not happened yet
            signal.pause()
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="runs once, from torch")
def test_killed_downloads(tmp_path):
    """`kill -9` at any moment: the next call goes through, and loads nothing that is half there."""
    rng = random.Random(0)
    wanted = (DIGITS / "model.safetensors").read_bytes()
    with served() as hub:
        hub.add("us/digits", DIGITS)
        variables = {**os.environ, **environment(hub, tmp_path)}
        with subprocess.Popen(
            [sys.executable, "-c", FETCH],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as parent:
            killed = 0
            for moment in range(2 * MOMENTS):
                kills = moment % 2 == 0
                # A download of a fifth of a second, most of it the weights; then a quick one.
                hub.bytes_per_second = 5 * len(wanted) if kills else None
                parent.stdin.write("wait\n" if kills else "go\n")
                parent.stdin.flush()
                child = int(parent.stdout.readline())
                if kills:
                    time.sleep(rng.uniform(0, 0.4))
                    os.kill(child, signal.SIGKILL)
                assert parent.stdout.readline() == "gone\n"
                found = list(tmp_path.glob("hub/models--us--digits/snapshots/*/model.safetensors"))
                assert [path.read_bytes() for path in found] in ([], [wanted])
                killed += kills and not found
                if not kills:
                    assert found
                    for path in (tmp_path / "hub" / "models--us--digits").rglob("*"):
                        if path.is_symlink() or re.search(r"blobs/", str(path)):
                            path.unlink()
            parent.stdin.close()
    print(f"{killed} of {MOMENTS} were killed before the weights were in the cache")
    assert killed
