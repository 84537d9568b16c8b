"""Loading from the Hub: downloaded files, refusals, and failing connections."""

import errno
import gzip
import hashlib
import json
import os
import re
import shutil
import traceback
from pathlib import Path

import pytest
from huggingface_hub.utils import close_session

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.checkpoints import Source
from keras_vit.errors import CheckpointError, KerasViTError, PresetError
from keras_vit.presets import connection
from keras_vit.presets.catalog import preset_named
from tests.checkpoints.shards import split
from tests.golden import CASES, FOLDER, expected, outputs, relative_error
from tests.plain import raises
from tests.presets.hub_server import TOKEN, inverted

OFFLINE = ("huggingface_hub.constants.HF_HUB_OFFLINE", True)
DIGITS = preset_named("vit_digits").folder


@pytest.fixture
def digits(hub):
    """A Hub with a keras_vit preset, `hf://us/digits`."""
    hub.add("us/digits", DIGITS)
    return hub


def read(path: Path) -> dict[str, bytes]:
    """The files of a golden by name; a golden may be a single file."""
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in paths}


def golden(name: str) -> dict[str, bytes]:
    return read(FOLDER / CASES[name]["checkpoint"])


def fetched(source: str) -> Path:
    """The local folder, or file, to which an address of the Hub is downloaded."""
    with Source.parse(source).local() as path:
        return path


def refusal(source: str) -> str:
    """The message by which an address is refused."""
    with pytest.raises(PresetError) as caught:
        fetched(source)
    return str(caught.value)


# Downloads


@pytest.mark.parametrize(
    "name", ["vit_token_published", "timm_token", "hf_classifier_tanh", "kh_backbone"]
)
def test_goldens_load_from_the_hub(name, hub):
    """A repository of each library's files gives the outputs of the library."""
    hub.add("them/vit", golden(name))
    case, want = CASES[name], expected(name)
    stage = "logits" if case["config"]["num_classes"] else "encoded"
    size = tuple(case["config"]["image_size"])
    model = VisionTransformer.from_preset("hf://them/vit", image_size=size)
    got = outputs(model, want["image"], [stage])[stage]
    assert relative_error(got, want[stage]) <= case["tolerance_tokens"]


def test_a_keras_vit_preset_loads_with_labels_and_provenance(digits):
    """Repository and commit are added to the provenance."""
    model = VisionTransformer.from_preset("hf://us/digits")
    assert model.class_names == tuple("0123456789")
    commit = digits.repos["us/digits"].branches["main"]
    facts = {"repo": "hf://us/digits", "commit": commit, "test_top1": 0.9917}
    assert facts.items() <= dict(model.provenance).items()
    assert digits.fetched() == {"config.json", "model.safetensors"}


def test_only_the_needed_files_are_downloaded(hub):
    """Not the weights of other libraries, optimizer states, subfolders or tokenizers."""
    others = ["pytorch_model.bin", "tf_model.h5", "optimizer.pt", "x.npz"]
    others += ["onnx/model.safetensors", "tokenizer.json", "README.md"]
    hub.add("them/vit", golden("hf_classifier") | dict.fromkeys(others, b"no"))
    fetched("hf://them/vit")
    assert hub.fetched() == {"config.json", "preprocessor_config.json", "model.safetensors"}


def sharded(folder: Path) -> Path:
    """A golden whose weights are in two files."""
    shutil.copytree(FOLDER / "hf_classifier", folder)
    split(folder)
    return folder


def test_every_shard_is_downloaded(hub, tmp_path):
    """And no other weights."""
    hub.add("them/vit", read(sharded(tmp_path / "shards")) | {"x.bin": b"no"})
    case, want = CASES["hf_classifier"], expected("hf_classifier")
    model = VisionTransformer.from_preset("hf://them/vit")
    got = outputs(model, want["image"], ["logits"])["logits"]
    assert relative_error(got, want["logits"]) <= case["tolerance"]
    assert "x.bin" not in hub.fetched()


def test_an_address_may_name_a_subfolder_or_a_file(hub):
    """Several files of weights without a name are refused."""
    files = {f"a/{name}": content for name, content in golden("timm_token").items()}
    files |= golden("vit_gap") | golden("vit_token_published")
    hub.add("them/zoo", files)
    assert VisionTransformer.from_preset("hf://them/zoo/a").class_names is None
    hub.requests.clear()
    model = VisionTransformer.from_preset("hf://them/zoo/vit_gap.npz", position_grid=(3, 5))
    assert model.config.pool.kind == "gap"
    assert hub.fetched() == {"vit_gap.npz"}
    assert "expected one file of weights" in refusal("hf://them/zoo")
    assert "Name one: hf://them/zoo/vit_gap.npz." in refusal("hf://them/zoo")
    assert "hf://them/zoo/b: the repository has no such folder or file" in refusal(
        "hf://them/zoo/b"
    )


def test_a_revision_may_be_a_branch_a_pull_request_or_a_commit(digits):
    """A branch follows new commits, a commit does not."""
    repo = digits.repos["us/digits"]
    first = repo.branches["main"]
    card = json.loads((DIGITS / "config.json").read_text())
    changed = json.dumps({**card, "protocol": "timm"}).encode()
    repo.branches["old"] = repo.branches["refs/pr/1"] = first
    repo.commit({"config.json": changed})
    protocols = {
        revision: keras_vit.info(f"hf://us/digits{revision}").protocol
        for revision in ("", "@main", "@old", "@refs/pr/1", f"@{first}")
    }
    assert [p == "timm" for p in protocols.values()] == [True, True, False, False, False]


@pytest.mark.parametrize("name", ["timm_map", "hf_classifier", "sharded", "digits", "vit_gap"])
def test_inspect_downloads_no_weights(name, hub, tmp_path):
    """JSON and safetensors headers are enough; an npz file has to be downloaded."""
    if name == "digits":
        files = read(DIGITS)
    elif name == "sharded":
        files = read(sharded(tmp_path / "shards"))
    else:
        files = golden(name)
    hub.add("them/vit", files)
    assert keras_vit.info("hf://them/vit").config.num_layers > 1
    fetched = {name for name in snapshot_names(tmp_path) if not name.endswith(".json")}
    assert fetched == ({"vit_gap.npz"} if name == "vit_gap" else set())


def test_load_weights_false_downloads_no_weights(hub, tmp_path):
    """The model is built from the JSON files."""
    hub.add("them/vit", golden("hf_classifier"))
    model = VisionTransformer.from_preset("hf://them/vit", load_weights=False, num_classes=3)
    assert (model.output_shape, model.class_names) == ((None, 3), None)
    assert model.preprocessor.protocol["resize"] == "tensor"
    assert snapshot_names(tmp_path) == {"config.json", "preprocessor_config.json"}


def snapshot_names(folder: Path) -> set[str]:
    """The names of the files in the cache."""
    return {path.name for path in folder.glob("cache/hub/*/snapshots/*/*")}


def test_a_second_load_asks_for_the_list_of_files_alone(digits):
    """Files in the cache are not downloaded again."""
    fetched("hf://us/digits")
    digits.requests.clear()
    fetched("hf://us/digits")
    assert digits.requests == ["GET /api/models/us/digits"]


def test_offline_loads_from_the_cache(digits, monkeypatch):
    """Files that are not in the cache are refused; `inspect` downloads the JSON alone."""
    keras_vit.info("hf://us/digits")
    with monkeypatch.context() as patch:
        patch.setattr(*OFFLINE)
        assert "HF_HUB_OFFLINE forbids to fetch it; unset it" in refusal("hf://us/digits")
    online = VisionTransformer.from_preset("hf://us/digits")
    digits.requests.clear()
    monkeypatch.setattr(*OFFLINE)
    assert VisionTransformer.from_preset("hf://us/digits").provenance == online.provenance
    pinned = VisionTransformer.from_preset(f"hf://us/digits@{online.provenance['commit']}")
    assert pinned.class_names == online.class_names
    for source in ("hf://us/other", "hf://us/digits@v2", "hf://us/digits/sub"):
        assert "not in the cache" in refusal(source)
    assert "Unset HF_HUB_OFFLINE, or load it once while online." in refusal("hf://us/other")
    assert not digits.requests


def test_a_preparation_that_the_cache_lacks_is_said(hub, monkeypatch, caplog):
    """transformers' models fetch no processor; without it images are prepared as usual."""
    hub.add("them/vit", golden("hf_classifier"))
    path = fetched("hf://them/vit") / "preprocessor_config.json"
    path.unlink()
    monkeypatch.setattr(*OFFLINE)
    fetched("hf://them/vit")
    assert f"vit/{path.name}: It is not in the cache, and HF_HUB_OFFLINE" in caplog.text


DOWN = {
    **{str(status): {"status": status} for status in (408, 425, 429, 500, 503, 520)},
    "a long wait": {"status": 429, "headers": {"Retry-After": "86400"}},
    "a long rate limit": {"status": 429, "headers": {"ratelimit": '"api";r=0;t=86400'}},
    "silence": {"silence": 0.3},
    "a login page": {"change": lambda body: b"<html>Please log in</html>"},
    "a login page in JSON": {"change": lambda body: b'{"error": "Please log in"}'},
    "a login page that is no UTF-8": {"change": lambda body: b"<html>Bo\xeete de connexion</html>"},
}


@pytest.mark.parametrize("fault", DOWN.values(), ids=DOWN)
def test_the_cache_is_read_if_the_hub_does_not_answer(fault, digits, caplog, monkeypatch):
    """One line of log says so."""
    fetched("hf://us/digits")
    caplog.clear()
    monkeypatch.setattr(connection, "TIMEOUT", 0.1)
    digits.fail("GET /api", **fault)
    assert (fetched("hf://us/digits") / "model.safetensors").is_file()
    (line,) = caplog.messages
    assert "hf://us/digits: " in line and "Read from the cache, commit" in line


def test_the_cache_is_read_if_the_list_of_files_drips(digits, monkeypatch, caplog):
    fetched("hf://us/digits")
    monkeypatch.setattr(connection, "PERIOD", 0.2)
    digits.bytes_per_second = 200
    assert fetched("hf://us/digits").is_dir()
    assert "is too slow" in caplog.text


# Refusals


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
def test_a_bad_address_is_refused_without_a_request(address, hub):
    """Incomplete addresses, and addresses with `..` or backslashes."""
    assert "expected hf://owner/repo[@revision][/subfolder]" in refusal(address)
    assert not hub.requests


INDEX = "model.safetensors.index.json"
UNFIT = [
    ({"pytorch_model.bin": b"\x80"}, "Safer: ask the authors for safetensors", {"config.json"}),
    (
        {"config.json": b" " * (16 * 2**20 + 1), "model.safetensors": b""},
        "config.json: 16,777,217 bytes of JSON, expected at most",
        set(),
    ),
    *(
        ({INDEX: content}, "index.json", {"config.json", INDEX})
        for content in (b"{", b"[]", b'{"weight_map": 3}', b'{"weight_map": {"x": []}}')
    ),
    ({INDEX: b"../etc/passwd"}, "index.json", {"config.json", INDEX}),  # as git stores a link
    ({"model.safetensors": b"\xff" * 1000}, "model.safetensors: not a safetensors file", None),
]


@pytest.mark.parametrize(("files", "message", "fetched"), UNFIT)
def test_a_repository_that_cannot_be_read_is_refused(files, message, fetched, hub):
    """Pickles alone, a huge JSON, a damaged index of shards or header; what follows stays there."""
    hub.add("them/vit", {"config.json": b"{}", **files})
    with pytest.raises((PresetError, CheckpointError), match=re.escape(message)):
        keras_vit.info("hf://them/vit")
    assert fetched is None or hub.fetched() == fetched


NAMES = ["../../evil", "/tmp/evil", "a/../../evil", "..", ".git/config", "a\nb", "a\0b"]


@pytest.mark.parametrize("name", NAMES)
def test_file_names_that_lead_out_of_the_cache_are_refused(name, hub, tmp_path):
    """Such files are not downloaded."""
    index = {"weight_map": {"x": name}}
    files = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode()}
    hub.add("them/vit", files | {name: b"evil", f"{name}.safetensors": b"evil"})
    assert f"names {name!r}, but the folder has no such file" in refusal("hf://them/vit")
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(tmp_path / "cache" / "hub") for path in found)
    assert not [path for path in found if path.read_bytes() == b"evil"]


def test_gated_and_private_repositories_need_a_token(digits, monkeypatch):
    """The message says how to log in; the token is not sent to the CDN."""
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


# Failures on the way

INFO, HEAD, GET = "GET /api/models", "HEAD /us/.*safetensors", "GET /cdn"
GET_JSON, JSON_HEAD = "GET /us/digits/resolve/.*json", "HEAD .*config.json"
"""A small file, which is not stored with LFS."""


def coded(word: str) -> dict:
    """A fault with the code by which the Hub explains a status 404."""
    return {"status": 404, "headers": {"X-Error-Code": word}}


def with_fields(**fields) -> dict:
    """A fault: the list of a repository's files has other values."""
    return {"change": lambda body: json.dumps({**json.loads(body), **fields}).encode()}


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 854600\n"
LOG_IN = "og in with `hf auth login`, or set HF_TOKEN"
PAGE = "https://huggingface.co/us/digits/tree/main"
LASTS = {
    "a number for a sha": (INFO, with_fields(sha=7), "names 7 as its commit, expected a sha"),
    "no sha": (INFO, with_fields(sha="main"), "names 'main' as its commit, expected a sha"),
    "no list": (INFO, with_fields(siblings=7), "an answer that is no Hub's"),
    "no files": (INFO, with_fields(siblings=["x"]), "an answer that is no Hub's"),
    "no repository": (INFO, coded("RepoNotFound"), f"spelling; to a private one l{LOG_IN}."),
    "unauthorised": (INFO, {"status": 401}, f"(401: on purpose). L{LOG_IN}, with a token"),
    "no revision": (INFO, coded("RevisionNotFound"), f"{PAGE}. Write '/' in a branch as %2F."),
    "no file": (HEAD, coded("EntryNotFound"), f"the file is not there (404). See {PAGE}."),
    "forbidden": (HEAD, {"status": 403}, "digits/model.safetensors: access refused (403"),
    "busy": (INFO, {"status": 503}, "down (503: on purpose). Try again later; https://status."),
    "busy at the file": (HEAD, {"status": 503}, "model.safetensors: the Hub is busy or down (503"),
    "busy at the bytes": (GET, {"status": 503}, "model.safetensors: the Hub is busy or down (503"),
    "busy, with requests left": (
        INFO,
        {"status": 503, "headers": {"ratelimit": '"api";r=9;t=200'}},
        "(503: on purpose). Try again later",
    ),
    "a wait until a date": (
        HEAD,
        {"status": 429, "headers": {"Retry-After": "Wed, 21 Oct 2125 07:28:00 GMT"}},
        "(429: no reason given). Try again later",
    ),
    "broken": (INFO, {"status": 418}, "418 (on purpose). If it stays so, ask the owner of the"),
    "no text": (INFO, {"change": inverted}, "no Hub's (UnicodeDecodeError: 'utf-8' codec can't"),
    "no Hub": (INFO, {"status": 200}, "no Hub's (KeyError: 'id'). Check HF_ENDPOINT and the net"),
    "reset": (GET, {"cut": 100_000, "reset": True}, "model.safetensors: no connection to http"),
    "cut": (GET, {"cut": 0}, "). Check the network and call again; files that are complete stay"),
    "truncated": (GET, {"truncated": 1000}, "). Call again."),
    "other bytes": (GET, {"change": inverted}, "model.safetensors: damaged on its way: its hash"),
    "a pointer": (GET, {"change": lambda body: POINTER}, "model.safetensors: the download failed."),
    "other JSON": (GET_JSON, {"change": inverted}, "config.json: damaged on its way: its hash"),
    "no ETag": (JSON_HEAD, {"headers": {"ETag": ""}}, "config.json: http://127.0.0.1"),
}
A_DAY = {"status": 429, "headers": {"Retry-After": "86400"}}
PACKED = {"change": gzip.compress, "headers": {"Content-Encoding": "gzip"}}
"""A small answer could grow to any size; the client asks for bytes as they are."""
SLOW = "bytes came in 0 s. Check the network and call again."
MORE = "is no Hub's: it has more than the expected"
AT_SEVERAL_REQUESTS = [
    *((where, A_DAY, "Try again in 86,400 s, as it asks") for where in (HEAD, GET)),
    *((where, {"drip": True}, SLOW) for where in (INFO, HEAD, JSON_HEAD, GET, GET_JSON)),
    *((where, {"endless": True}, MORE) for where in (INFO, GET, GET_JSON)),
    *((where, {"endless": True, "status": 503}, MORE) for where in (INFO, GET, GET_JSON)),
    (INFO, PACKED, "UnicodeDecodeError"),
    (GET, PACKED, "Consistency check failed"),
    (GET_JSON, PACKED, "Consistency check failed"),
]
LASTS |= {f"{list(row[1])} at {row[0]}": row for row in AT_SEVERAL_REQUESTS}


OUTSIDE = ("../../../../planted", 'W/"/{place}"', "..", ".", "a/b", r"a\b", "C:x", "a b")
NO_FILE = coded("EntryNotFound")
TOLD = [
    *((JSON_HEAD, header, name, {}) for header in ("ETag", "X-Repo-Commit") for name in OUTSIDE),
    *((JSON_HEAD, header, "/{place}", {}) for header in ("ETag", "X-Repo-Commit")),
    *((HEAD, header, "/{place}", {}) for header in ("X-Linked-Etag", "X-Repo-Commit")),
    (HEAD, "X-Repo-Commit", "/{place}", NO_FILE),
]


@pytest.mark.parametrize(("where", "header", "name", "fault"), TOLD)
def test_a_name_of_the_hub_that_is_a_path_is_refused(where, header, name, fault, digits, tmp_path):
    """Nothing outside the cache is written or removed, be it there or not."""
    (tmp_path / "mine").write_text("my only copy")
    for path in (tmp_path / "mine", tmp_path / "planted"):
        digits.faults.clear()
        told = {header: name.replace("/{place}", str(path))}
        digits.fail(where, **{**fault, "headers": {**fault.get("headers", {}), **told}})
        said = refusal("hf://us/digits")
        assert "is no Hub's" in said and "no plain name" in said
        assert "Nothing was kept. If HF_ENDPOINT names a mirror, unset it, or tell its" in said
        assert {p.name for p in tmp_path.iterdir()} == {"mine", "cache"}
        assert (tmp_path / "mine").read_text() == "my only copy"
    digits.faults.clear()
    assert fetched("hf://us/digits").is_dir()


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


def test_the_names_of_every_shard_are_checked(hub, tmp_path):
    hub.add("them/vit", read(sharded(tmp_path / "shards")))
    hub.fail("HEAD .*00002-of-.*safetensors", headers={"X-Linked-Etag": f"{tmp_path}/planted"})
    assert "no plain name" in refusal("hf://them/vit")
    assert not (tmp_path / "planted").exists()


def test_a_link_that_leads_out_of_the_cache_is_neither_read_nor_removed(digits, tmp_path):
    """A repository that is itself a link of the user, to another disk, is read."""
    folder = fetched("hf://us/digits")
    (repo,) = tmp_path.glob("cache/hub/models--*")
    repo.rename(tmp_path / "other disk")
    repo.symlink_to(tmp_path / "other disk")
    assert fetched("hf://us/digits") == folder
    (tmp_path / "mine").write_text("my only copy")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(tmp_path / "mine")
    said = refusal("hf://us/digits")
    assert f"leads to {tmp_path / 'mine'}, outside the cache" in said and "Remove the link" in said
    assert (tmp_path / "mine").read_text() == "my only copy"


@pytest.mark.parametrize("place", ["config.json", "../../refs/main", "../../blobs"])
def test_a_link_to_itself_in_the_cache_is_replaced_or_named(place, digits):
    path = Path(os.path.normpath(fetched("hf://us/digits") / place))
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(path)
    if path.name == "blobs":
        assert f"File exists: {path}. Check this place" in refusal("hf://us/digits")
    else:
        assert VisionTransformer.from_preset("hf://us/digits").class_names


@pytest.mark.parametrize("target", ["/dev/zero", "a pipe"])
def test_a_note_of_the_last_commit_that_leads_to_an_endless_file_is_made_again(
    digits, tmp_path, caplog, target
):
    """huggingface_hub reads it whole: a link to zeros took all memory, and a pipe waits forever."""
    note = fetched("hf://us/digits").parents[1] / "refs" / "main"
    commit = note.read_bytes()
    note.unlink()
    if target == "a pipe":
        os.mkfifo(tmp_path / target)
    note.symlink_to(tmp_path / target)  # an absolute path replaces the folder
    fetched("hf://us/digits")
    assert f"{note}: damaged in the cache; it was removed." in caplog.text
    assert (note.read_bytes(), note.is_symlink()) == (commit, False)


def test_the_token_is_struck_out_of_an_answer_that_repeats_it(digits, monkeypatch):
    """Of the message, and of the traceback."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for status in (401, 404, 500):
        digits.fail(INFO, status=status, headers={"X-Error-Message": "no: Bearer hf_secret"})
        with pytest.raises(PresetError) as caught:
            VisionTransformer.from_preset("hf://us/digits")
        assert "hf_secret" not in "".join(traceback.format_exception(caught.value))


def test_a_damaged_note_of_the_last_commit_is_made_again(digits, caplog, monkeypatch):
    note = fetched("hf://us/digits").parents[1] / "refs" / "main"
    commit = note.read_bytes()
    note.write_bytes(b"\xff\xfe")
    fetched("hf://us/digits")
    assert f"{note}: damaged in the cache; it was removed." in caplog.text
    assert note.read_bytes() == commit
    note.write_bytes(b"\xff\xfe")
    monkeypatch.setattr(*OFFLINE)
    assert "not in the cache" in refusal("hf://us/digits")


def test_a_pipe_in_the_cache_is_refused(digits):
    """Opening it would wait for ever."""
    path = fetched("hf://us/digits") / "config.json"
    path.unlink()
    os.mkfifo(path)
    assert f"expected a plain file: {path}" in refusal("hf://us/digits")


DAMAGE = {
    "empty": lambda content: b"",
    "cut": lambda content: content[:-100],
    "changed": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_the_cache_is_fetched_again(damage, name, digits, caplog):
    """Once, and the log says so; another damage on its way is refused."""
    path = (fetched("hf://us/digits") / name).resolve()
    wanted = path.read_bytes()
    for times in (1, 2):
        path.write_bytes(DAMAGE[damage](wanted))
        os.utime(path, ns=(times, times))
        digits.requests.clear()
        if times == 2:
            digits.fail("GET /(cdn|us/digits)", change=inverted)
            assert f"{name}: damaged on its way" in refusal("hf://us/digits")
            assert not path.exists()
            digits.faults.clear()
        assert (fetched("hf://us/digits") / name).read_bytes() == wanted
        assert name in digits.fetched()
    assert f"{name}: damaged in the cache ({path}); it is fetched again." in caplog.text


def test_damaged_weights_are_refused_and_kept_without_the_hub(digits):
    """Their name in the cache states their sha256."""
    path = (fetched("hf://us/digits") / "model.safetensors").resolve()
    path.write_bytes(path.read_bytes()[:-1])
    digits.fail("GET /api", status=503)
    assert f"damaged in the cache ({path}), and the Hub does not answer" in refusal(
        "hf://us/digits"
    )
    assert path.exists()


def test_weights_are_compared_once_for_each_time_stamp(digits, monkeypatch):
    path = (fetched("hf://us/digits") / "model.safetensors").resolve()
    digested = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *a: digested.append(a) or digest(*a))
    with Source.parse("hf://us/digits").open(checksum=False):
        pass
    assert not digested
    os.utime(path, ns=(1, 1))
    with Source.parse("hf://us/digits").open(checksum=False):
        pass
    assert len(digested) == 1


def test_weights_that_drip_are_refused(digits, monkeypatch):
    keras_vit.info("hf://us/digits")
    source = Source.parse("hf://us/digits")
    monkeypatch.setattr(connection, "PERIOD", 0.2)
    digits.bytes_per_second = 200
    with raises(PresetError, "model.safetensors: http://127.0.0.1", "is too slow"):
        source.open().__enter__()


def test_a_body_without_end_in_place_of_a_header_of_weights_ends_the_call(hub):
    hub.add("them/vit", golden("timm_map"))
    hub.fail(GET, endless=True)
    with raises(PresetError, "them/vit", "more than the expected"):
        keras_vit.info("hf://them/vit")


def test_files_come_by_http_although_the_hub_offers_xet(digits, monkeypatch):
    """Xet's downloads have no limits of ours; other libraries keep them."""
    from huggingface_hub import constants, file_download

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    offer = {"X-Xet-Hash": "0" * 64, "X-Xet-Refresh-Route": "http://127.0.0.1:9"}
    digits.fail(HEAD, headers=offer)
    monkeypatch.setattr(file_download, "xet_get", pytest.fail)
    assert (fetched("hf://us/digits") / "model.safetensors").is_file()
    url = file_download.hf_hub_url("us/digits", "model.safetensors", endpoint=digits.endpoint)
    assert file_download.get_hf_file_metadata(url).xet_file_data is not None


@pytest.mark.parametrize("name", ["timm_map", None])
def test_a_pointer_of_git_lfs_in_a_repository_is_named(name, hub):
    """Somebody has pushed it in place of the weights."""
    files = golden(name) if name else read(DIGITS)
    hub.add("them/vit", {**files, "model.safetensors": POINTER})
    with raises(KerasViTError, "model.safetensors: this is a pointer of git-lfs"):
        VisionTransformer.from_preset("hf://them/vit")


def test_requests_of_other_libraries_keep_their_limits(digits):
    """The client is theirs too."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import get_session

    fetched("hf://us/digits")
    digits.fail("HEAD", headers={"ETag": "a+b", "X-Linked-Etag": None})
    url = hf_hub_url("us/digits", "config.json", endpoint=digits.endpoint)
    assert get_hf_file_metadata(url).etag == "a+b"
    request = get_session().get(f"{digits.endpoint}/api/models/us/digits").request
    assert set(request.extensions["timeout"].values()) == {None}
    assert "trace" not in request.extensions and "gzip" in request.headers["Accept-Encoding"]


ACCESS, ROOM = "Give this user access", "Make room"
OF_THE_DISK = {"EACCES": ACCESS, "EPERM": ACCESS, "EROFS": ACCESS, "ENOSPC": ROOM, "EDQUOT": ROOM}


@pytest.mark.parametrize("name", OF_THE_DISK)
def test_a_cache_that_cannot_be_written_is_named_with_a_remedy(name, digits, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(getattr(errno, name), "Refused", "/there/blobs")

    monkeypatch.setattr("huggingface_hub.HfApi.hf_hub_download", refuse)
    remedy = f"{OF_THE_DISK[name]}, or set HF_HOME or HF_HUB_CACHE to another folder."
    assert f"Refused: /there/blobs. {remedy}" in refusal("hf://us/digits")


def test_a_small_file_is_compared_once_the_hub_states_its_hash(digits):
    """At first the Hub lists no hashes of small files, and sends other bytes; then it is healed."""
    digits.fail(INFO, change=lambda body: body.replace(b"blobId", b"x"))
    digits.fail(GET_JSON, change=inverted)
    assert "config.json" in refusal("hf://us/digits")
    digits.faults.clear()
    wanted = (DIGITS / "config.json").read_bytes()
    assert (fetched("hf://us/digits") / "config.json").read_bytes() == wanted


@pytest.mark.parametrize(("where", "fault", "message"), LASTS.values(), ids=LASTS)
def test_a_lasting_failure_is_refused_by_one_message(
    where, fault, message, digits, monkeypatch, tmp_path
):
    """The message names the file or repository, the failure and the fix; a later call succeeds."""
    slept = []
    digits.fail(where, **fault)
    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.utils._http.time.sleep", slept.append)
        patch.setenv("KERAS_VIT_MAX_JSON_BYTES", "10000")
        if "drip" in fault:
            patch.setattr(connection, "PERIOD", 0.2)
        said = refusal("hf://us/digits")
    assert said.startswith("hf://us/digits") and message in said
    assert max(slept, default=0) < 60
    assert "Nothing was kept" not in said or not list(tmp_path.rglob("*.incomplete"))
    digits.faults.clear()
    folder = fetched("hf://us/digits")
    wanted = (DIGITS / "model.safetensors").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == wanted


@pytest.mark.parametrize(
    "wrong", [{"rfilename": 7}, {"size": "x"}, {"size": -1}, {"blobId": [1]}], ids=str
)
def test_a_list_of_files_with_other_types_is_refused_or_read(wrong, digits):
    """A size or checksum of another type counts as not stated, a name as absent."""

    def change(body: bytes) -> bytes:
        answer = json.loads(body)
        answer["siblings"][0] |= wrong
        return json.dumps(answer).encode()

    digits.fail(INFO, change=change)
    try:
        assert fetched("hf://us/digits").is_dir()
    except PresetError as error:
        assert "rfilename" in wrong and "hf://us/digits" in str(error)


@pytest.mark.parametrize("header", ["X-Error-Message", "X-Error-Code"])
def test_words_of_the_hub_are_shown_without_control_characters(header, digits):
    """A terminal escape and markup in an error appear as text."""
    digits.fail(HEAD, status=403, headers={header: "\x9b2J[/red]\x85x"})
    said = refusal("hf://us/digits")
    assert "\x9b" not in said and "\x85" not in said
    assert "access refused (403" in said
    assert header == "X-Error-Code" or "\\x9b2J[/red]" in said


def test_a_file_that_breaks_off_and_begins_again_ends(digits, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 65536)
    digits.fail(GET, cut=70_000, whole=True)
    assert "breaks off again and again" in refusal("hf://us/digits")


def test_a_short_wait_is_made_and_said(digits, caplog):
    digits.fail(GET, status=429, headers={"Retry-After": "20"}, times=2)
    assert fetched("hf://us/digits").is_dir()
    assert caplog.text.count("localhost is busy, and asks to wait 20 s.") == 2


UNUSABLE = [
    ("SSL_CERT_FILE", "/no/such.pem", "FileNotFoundError"),
    ("HTTP_PROXY", "http://proxy:port", "InvalidURL"),
    ("ALL_PROXY", "ftp://proxy", "ValueError"),
]


@pytest.mark.parametrize(("name", "value", "kind"), UNUSABLE)
def test_a_proxy_or_a_certificate_that_cannot_be_used_is_refused(
    name, value, kind, digits, monkeypatch
):
    close_session()
    monkeypatch.setenv(name, value)
    monkeypatch.setenv(name.lower(), value)
    with raises(PresetError, "No connection can be prepared", kind, name, "in the environment"):
        Source.parse("hf://us/digits")


def test_a_refused_connection_names_the_address_of_the_hub(digits, monkeypatch):
    """No server listens at the address."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert "no connection to http://127.0.0.1:9" in refusal("hf://us/digits")


def test_a_full_disk_leaves_no_part_and_names_the_cache(digits, monkeypatch, tmp_path):
    """Once there is room, the next call succeeds."""

    def full(url, temp_file, **kwargs):
        temp_file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.file_download.http_get", full)
        said = refusal("hf://us/digits")
    assert f"No space left on device: {tmp_path / 'cache' / 'hub'}. Make room, or set HF" in said
    assert not list(tmp_path.rglob("*.incomplete"))
    assert fetched("hf://us/digits").is_dir()
