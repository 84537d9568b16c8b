"""Loading from the Hub: downloaded files, the cache, and other libraries in the process."""

import json
import os
import shutil
import traceback
from pathlib import Path

import pytest

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.checkpoints import Source
from keras_vit.errors import PresetError
from keras_vit.presets import connection
from keras_vit.presets.catalog import preset_named
from tests.checkpoints.shards import split
from tests.golden import CASES, FOLDER, expected, outputs, relative_error
from tests.plain import raises
from tests.presets.hub_server import TOKEN, inverted

OFFLINE = ("huggingface_hub.constants.HF_HUB_OFFLINE", True)
DIGITS = preset_named("vit_digits").folder
ADDRESS = "hf://us/digits"
INFO, HEAD, GET = "GET /api/models", "HEAD /us/.*safetensors", "GET /cdn"


@pytest.fixture
def digits(hub):
    """A Hub with a keras_vit preset, `hf://us/digits`."""
    hub.add("us/digits", DIGITS)
    return hub


@pytest.fixture
def repositories(hub, tmp_path):
    """The Hub's repositories of goldens by name; `sharded` has its weights in two files."""
    shutil.copytree(FOLDER / "hf_classifier", tmp_path / "sharded")
    split(tmp_path / "sharded")

    def make(name, **others):
        place = {"sharded": tmp_path / "sharded", "digits": DIGITS}.get(name)
        place = place or FOLDER / CASES[name]["checkpoint"]
        paths = sorted(place.iterdir()) if place.is_dir() else [place]
        hub.add("them/vit", {path.name: path.read_bytes() for path in paths} | others)
        return hub

    return make


def fetched(source=ADDRESS) -> Path:
    """The local folder, or file, to which an address of the Hub is downloaded."""
    with Source.parse(source).local() as path:
        return path


def in_cache(folder: Path) -> set[str]:
    """The names of the files in the cache."""
    return {path.name for path in folder.glob("cache/hub/*/snapshots/*/*")}


GOLDENS = ("vit_token_published", "timm_token", "hf_classifier_tanh", "kh_backbone", "sharded")
OTHERS = ("pytorch_model.bin", "tf_model.h5", "optimizer.pt", "x.npz", "README.md")
OTHERS += ("onnx/model.safetensors", "tokenizer.json")


@pytest.mark.parametrize("name", GOLDENS)
def test_goldens_load_from_the_hub(name, repositories):
    """By the files that are needed alone, and all shards, they give the outputs of the library."""
    others = () if name in ("vit_token_published", "kh_backbone") else OTHERS
    hub = repositories(name, **dict.fromkeys(others, b"no"))
    name = "hf_classifier" if name == "sharded" else name
    case, want = CASES[name], expected(name)
    stage = "logits" if case["config"]["num_classes"] else "encoded"
    size = tuple(case["config"]["image_size"])
    model = VisionTransformer.from_preset("hf://them/vit", image_size=size)
    got = outputs(model, want["image"], [stage])[stage]
    assert relative_error(got, want[stage]) <= case["tolerance_tokens"]
    assert not hub.fetched() & set(others)


def test_a_keras_vit_preset_loads_with_labels_and_provenance(digits):
    """Repository and commit are added to the provenance; a second load asks for the list alone."""
    model = VisionTransformer.from_preset(ADDRESS)
    assert model.class_names == tuple("0123456789")
    commit = digits.repos["us/digits"].branches["main"]
    facts = {"repo": ADDRESS, "commit": commit, "test_top1": 0.9917}
    assert facts.items() <= dict(model.provenance).items()
    assert digits.fetched() == {"config.json", "model.safetensors"}
    digits.requests.clear()
    fetched()
    assert digits.requests == ["GET /api/models/us/digits"]


def test_an_address_may_name_a_subfolder_or_a_file(repositories):
    """Several files of weights without a name are refused."""
    hub = repositories("timm_token")
    (files,) = hub.repos["them/vit"].commits.values()
    files = {f"a/{name}": content for name, content in files.items()}
    for name in ("vit_gap.npz", "vit_rep.npz"):
        files[name] = (FOLDER / name).read_bytes()
    hub.add("them/zoo", files)
    assert VisionTransformer.from_preset("hf://them/zoo/a").class_names is None
    hub.requests.clear()
    model = VisionTransformer.from_preset("hf://them/zoo/vit_gap.npz", position_grid=(3, 5))
    assert model.config.pool.kind == "gap"
    assert hub.fetched() == {"vit_gap.npz"}
    with raises(PresetError, "expected one weight file", "hf://them/zoo/vit_gap.npz."):
        fetched("hf://them/zoo")
    with raises(PresetError, "hf://them/zoo/b: the repository has no such folder or file"):
        fetched("hf://them/zoo/b")


def test_a_revision_may_be_a_branch_a_pull_request_or_a_commit(digits):
    """A branch follows new commits, a commit does not."""
    repo = digits.repos["us/digits"]
    first = repo.branches["main"]
    card = json.loads((DIGITS / "config.json").read_text())
    repo.branches["old"] = repo.branches["refs/pr/1"] = first
    repo.commit({"config.json": json.dumps({**card, "protocol": "timm"}).encode()})
    for revision in ("", "@main", "@old", "@refs/pr/1", f"@{first}"):
        is_new = keras_vit.info(f"{ADDRESS}{revision}").protocol == "timm"
        assert is_new == (revision in ("", "@main"))


@pytest.mark.parametrize("name", ["hf_classifier", "sharded", "vit_gap"])
def test_inspect_downloads_no_weights(name, repositories, tmp_path):
    """JSON and safetensors headers are enough, also to build the model; an npz file is fetched."""
    repositories(name)
    assert keras_vit.info("hf://them/vit").config.num_layers > 1
    weights = {name for name in in_cache(tmp_path) if not name.endswith(".json")}
    assert weights == ({"vit_gap.npz"} if name == "vit_gap" else set())
    if name == "hf_classifier":
        model = VisionTransformer.from_preset("hf://them/vit", load_weights=False, num_classes=3)
        assert (model.output_shape, model.class_names) == ((None, 3), None)
        assert in_cache(tmp_path) == {"config.json", "preprocessor_config.json"}


def test_offline_loads_from_the_cache(digits, monkeypatch, caplog):
    """Files that are not in the cache are refused; `inspect` downloads the JSON alone."""
    keras_vit.info(ADDRESS)
    with monkeypatch.context() as patch, raises(PresetError, "HF_HUB_OFFLINE forbids downloads"):
        patch.setattr(*OFFLINE)
        fetched()
    online = VisionTransformer.from_preset(ADDRESS)
    digits.requests.clear()
    monkeypatch.setattr(*OFFLINE)
    assert VisionTransformer.from_preset(ADDRESS).provenance == online.provenance
    assert fetched(f"{ADDRESS}@{online.provenance['commit']}").is_dir()
    for source in ("hf://us/other", f"{ADDRESS}@v2", f"{ADDRESS}/sub"):
        with raises(PresetError, "not in the cache"):
            fetched(source)
    assert not digits.requests and not caplog.text


def test_a_preparation_that_the_cache_lacks_is_said(repositories, monkeypatch, caplog):
    """transformers' models fetch no processor; without it images are prepared as usual."""
    repositories("hf_classifier")
    (fetched("hf://them/vit") / "preprocessor_config.json").unlink()
    monkeypatch.setattr(*OFFLINE)
    fetched("hf://them/vit")
    assert "vit/preprocessor_config.json: It is not in the cache" in caplog.text


DOWN = {
    "500": {"status": 500},
    "a long wait": {"status": 429, "headers": {"Retry-After": "86400"}},
    "silence": {"silence": 0.3},
    "a login page": {"change": lambda body: b"<html>Bo\xeete</html>"},
}


@pytest.mark.parametrize("fault", DOWN)
def test_the_cache_is_read_if_the_hub_does_not_answer(fault, digits, caplog, monkeypatch):
    """One line of log says so."""
    fetched()
    caplog.clear()
    monkeypatch.setattr(connection, "TIMEOUT", 0.1)
    digits.fail(INFO, **DOWN[fault])
    assert (fetched() / "model.safetensors").is_file()
    (line,) = caplog.messages
    assert f"{ADDRESS}: " in line and "Read from the cache, commit" in line


def test_a_download_that_breaks_off_is_continued(digits, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 65536)
    digits.fail(GET, cut=100_000, times=2)
    got = (fetched() / "model.safetensors").read_bytes()
    assert got == (DIGITS / "model.safetensors").read_bytes()


def test_a_token_stays_with_the_hub_and_out_of_messages(digits, monkeypatch):
    """The server refuses a token at the CDN; an answer that repeats it is shown without it."""
    repo = digits.repos["us/digits"]
    for fields, message in (({"private": True}, "or a private one"), ({"gated": True}, "is gated")):
        vars(repo).update({"private": False, **fields})
        with raises(PresetError, message):
            fetched()
    repo.private = True
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fetched().is_dir()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for status in (401, 404, 500):
        digits.faults.clear()
        digits.fail(INFO, status=status, headers={"X-Error-Message": "no: Bearer hf_secret"})
        with pytest.raises(PresetError) as caught:
            VisionTransformer.from_preset("hf://us/absent")
        assert "hf_secret" not in "".join(traceback.format_exception(caught.value))


def test_canary_huggingface_hub_alone_writes_where_the_etag_says(digits, tmp_path):
    """If this fails, the checks of `presets/connection.py` can go.

    `hf_hub_download` joins the ETag of an answer to `blobs/` and `.locks/` of its cache, and the
    commit of an answer to `snapshots/`, `refs/` and `.no_exist/`. A mirror that `HF_ENDPOINT`
    names therefore chooses where its bytes are written.

    Expected: an exception, and no file outside the cache.
    Found: the file that the ETag names.
    Remedy: refuse an ETag that is no plain name, and a commit that is not 40 hexadecimal digits.
    """
    from huggingface_hub import hf_hub_download

    digits.fail("HEAD", headers={"ETag": f'"{tmp_path}/planted"'})
    hf_hub_download("us/digits", "config.json", endpoint=digits.endpoint)
    assert (tmp_path / "planted").is_file()


def test_a_repository_of_the_cache_may_be_a_link_to_another_disk(digits, tmp_path):
    """A file that is a link to itself is replaced."""
    folder = fetched()
    (repo,) = tmp_path.glob("cache/hub/models--*")
    repo.rename(tmp_path / "other disk")
    repo.symlink_to(tmp_path / "other disk")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(folder / "config.json")
    assert fetched() == folder and (folder / "config.json").is_file()


NOTES = {
    "itself": lambda note, folder: note.symlink_to(note),
    "zeros": lambda note, folder: note.symlink_to("/dev/zero"),
    "a pipe": lambda note, folder: (os.mkfifo(folder / "pipe"), note.symlink_to(folder / "pipe")),
}


@pytest.mark.parametrize("change", NOTES)
def test_a_damaged_note_of_the_last_commit_is_made_again(change, digits, tmp_path):
    """huggingface_hub reads it whole: a link to zeros took all memory, and a pipe waits forever."""
    note = fetched().parents[1] / "refs" / "main"
    commit = note.read_bytes()
    note.unlink()
    NOTES[change](note, tmp_path)
    fetched()
    assert (note.read_bytes(), note.is_symlink()) == (commit, False)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_file_of_the_cache_is_fetched_again(name, digits, caplog):
    """Once, and the log says so; without the Hub it is refused and kept, if its hash is known."""
    path = (fetched() / name).resolve()
    wanted = path.read_bytes()
    path.write_bytes(wanted[:-1] + bytes([wanted[-1] ^ 1]))
    os.utime(path, ns=(1, 1))
    if name == "model.safetensors":
        digits.fail(INFO, status=503)
        with raises(PresetError, f"damaged in the cache ({path}), and the Hub cannot be reached"):
            fetched()
        assert path.exists()
        digits.faults.clear()
    digits.fail("GET /(cdn|us/digits)", change=inverted)
    with raises(PresetError, f"{name}: damaged in the download"):
        fetched()
    assert not path.exists()
    digits.faults.clear()
    assert (fetched() / name).read_bytes() == wanted
    assert f"{name}: damaged in the cache ({path}), downloading it again." in caplog.text


def test_a_body_without_end_in_place_of_a_header_of_weights_ends_the_call(repositories):
    repositories("timm_map").fail(GET, endless=True)
    with raises(PresetError, "them/vit", "more than the expected"):
        keras_vit.info("hf://them/vit")


def test_other_libraries_keep_xet_and_their_limits(digits, monkeypatch):
    """The client is theirs too; Xet's downloads have no limits of ours, so files come by HTTP."""
    from huggingface_hub import constants, file_download
    from huggingface_hub.utils import get_session

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setattr(file_download, "xet_get", pytest.fail)
    offer = {"X-Xet-Hash": "0" * 64, "X-Xet-Refresh-Route": "http://127.0.0.1:9"}
    digits.fail(HEAD, headers=offer)
    assert (fetched() / "model.safetensors").is_file()
    url = file_download.hf_hub_url("us/digits", "model.safetensors", endpoint=digits.endpoint)
    facts = file_download.get_hf_file_metadata(url)
    assert facts.xet_file_data is not None
    request = get_session().get(f"{digits.endpoint}/api/models/us/digits").request
    assert set(request.extensions["timeout"].values()) == {None}
    assert "trace" not in request.extensions and "gzip" in request.headers["Accept-Encoding"]


def test_a_short_wait_is_made_and_said(digits, caplog):
    digits.fail(GET, status=429, headers={"Retry-After": "20"}, times=2)
    assert fetched().is_dir()
    assert caplog.text.count("localhost is busy, and asks to wait 20 s.") == 2
