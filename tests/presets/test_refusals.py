"""What the Hub, the bucket, this machine and the caller give wrongly is refused in one message.

After a refusal by the Hub nothing is left that stands in the way of the next call.
"""

import errno
import gzip
import io
import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from huggingface_hub.utils import close_session

import keras_vit
from keras_vit import upload_preset
from keras_vit.errors import CheckpointError, ConfigError, KerasViTError, PresetError, SourceError
from keras_vit.presets import bucket, connection
from keras_vit.presets.augreg import read_file_name
from keras_vit.presets.catalog import list_presets, preset_named
from keras_vit.presets.model_card import model_card
from keras_vit.presets.source import Source
from tests.plain import edit_json
from tests.presets.hub_server import inverted

pytestmark = pytest.mark.without_backend


def fetched(source="hf://us/digits"):
    """The local folder, or file, to which an address of the Hub is downloaded."""
    with Source.parse(source).local() as path:
        return path


def asks(source="hf://us/digits", read=fetched, **environment):
    """Reads an address of the Hub."""

    def call(world):
        for name, value in environment.items():
            world.patch.setenv(name, value)
        close_session()  # the next one reads the environment
        read(source)

    return call


def fails(where="no request", patches=(), **fault):
    """A call during a fault of the Hub or of this machine is refused, and the next call succeeds.

    A `<path>` in a header is a folder outside the cache.
    """

    def call(world):
        slept, headers = [], fault.get("headers", {})
        told = {name: text.replace("<path>", str(world.path)) for name, text in headers.items()}
        world.hub.fail(where, **{**fault, "headers": told})
        (world.path / "mine").write_text("my only copy")
        with pytest.MonkeyPatch.context() as patch, pytest.raises(PresetError) as caught:
            patch.setattr("huggingface_hub.utils._http.time.sleep", slept.append)
            patch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 65536)
            patch.setenv("KERAS_VIT_MAX_JSON_BYTES", "10000")
            for target, value in dict(patches).items():
                patch.setattr(target, value)
            if "drip" in fault:
                patch.setattr(connection, "PERIOD", 0.2)
            fetched()
        assert max(slept, default=0) < 60
        if re.search("Nothing was kept|Make room", str(caught.value)):
            assert not list(world.path.rglob("*.incomplete"))
        assert {path.name for path in world.path.iterdir()} <= {"mine", "cache", "digits"}
        assert (world.path / "mine").read_text() == "my only copy"
        world.hub.faults.clear()
        for name in ("model.safetensors", "config.json"):
            assert (fetched() / name).read_bytes() == (world.source / name).read_bytes()
        raise caught.value

    return call


def holds(files, read=keras_vit.info):
    """Reads a repository of the Hub with these files, of which those with b"evil" stay there."""

    def call(world):
        world.hub.add("them/vit", {"config.json": b"{}", **files})
        try:
            asks("hf://them/vit", read)(world)
        finally:
            found = [path for path in world.path.rglob("*") if path.is_file()]
            assert not [path for path in found if path.read_bytes() == b"evil"]

    return call


def shard(name):
    """An index of shards names a path, such as one that leads out of the folder."""
    index = json.dumps({"weight_map": {"x": name}}).encode()
    return holds({INDEX: index, name: b"evil", f"{name}.safetensors": b"evil"}, fetched)


def raising(error):
    def refuse(*arguments, **options):
        raise error

    return refuse


def full(url, temp_file, **options):
    temp_file.write(b"half")
    raise OSError(errno.ENOSPC, "No space left on device")


def closed(folder):
    """The system lets this user not open the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_vit.presets.local_folder.OpenFolder", raising(DENIED))
        keras_vit.info(folder)


def cached(place, change):
    """A place of the cache, named from the folder of the files, is other when it is read again."""

    def call(world):
        path = Path(os.path.normpath(fetched() / place))
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        (world.path / "mine").write_text("my only copy")
        change(path, world.path / "mine")
        try:
            fetched()
        finally:
            assert (world.path / "mine").read_text() == "my only copy"

    return call


def fetches(*urls, **fault):
    """A file of the bucket is refused in one line; nothing is left, and the next call succeeds."""

    def call(world):
        with io.BytesIO() as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("x.npy", bytes(300_000))
            world.hub.files["x/B_16.npz"] = content = file.getvalue()
        world.hub.fail("GET", **fault)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(PresetError) as caught:
            patch.setattr(bucket, "TIMEOUT", 0.1)
            bucket.fetch(*(urls or [URL]))
        assert "\n" not in str(caught.value)
        assert list(bucket.place(URL).parent.iterdir()) == []
        world.hub.faults.clear()
        assert bucket.fetch(URL).read_bytes() == content
        raise caught.value

    return call


def bucket_with(value, name="KERAS_VIT_BUCKET"):
    """Fetches with a variable of the environment, whose password is not shown."""

    def call(world):
        (world.path / "file").touch()
        world.patch.setenv(name, value.replace("<folder>", str(world.path)))
        with pytest.raises(PresetError) as caught:
            bucket.fetch(URL)
        assert not world.hub.requests and "secret" not in str(caught.value)
        raise caught.value

    return call


def lose(name):
    return lambda folder: (folder / name).unlink()


def link(name, target):
    return lambda folder: (lose(name)(folder), (folder / name).symlink_to(target))


def write(name, change=lambda content: b""):
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def state(*keys, **changes):
    return lambda folder: edit_json(folder / "config.json", *keys, **changes)


def opened(folder):
    with Source.parse(folder).open():
        pass


def changed(change, read=keras_vit.info):
    """Reads a preset folder after a change of its files."""
    return lambda world: (change(world.folder), read(world.folder))


def uploads(change=lambda folder: None, target="hf://us/flowers", name=""):
    """Uploads a preset folder after a change of its files; the Hub sees no request."""

    def call(world):
        change(world.folder)
        try:
            upload_preset(target, world.folder / name)
        finally:
            assert not world.hub.requests

    return call


def card(**about):
    """Writes the model card of a preset."""
    return changed(lambda _: 0, lambda path: model_card("x", Source.parse(path).preset(), about))


def reads(function, *arguments, **options):
    return lambda world: function(*arguments, **options)


def coded(word, status=404):
    """A fault with the code by which the Hub explains a status."""
    return {"status": status, "headers": {"X-Error-Code": word}}


def with_fields(**fields):
    """A fault: the list of a repository's files has other values."""
    return {"change": lambda body: json.dumps({**json.loads(body), **fields}).encode()}


def busy(status=429, **headers):
    return {"status": status, "headers": {n.replace("_", "-"): v for n, v in headers.items()}}


ENDPOINT = "huggingface_hub.constants.ENDPOINT"
OFFLINE = "huggingface_hub.constants.HF_HUB_OFFLINE"
HTTP_GET = "huggingface_hub.file_download.http_get"
DOWNLOAD = "huggingface_hub.HfApi.hf_hub_download"
READ_ONLY = OSError(errno.EROFS, "Read-only file system", "/x")
DENIED = PermissionError(errno.EACCES, "Permission denied", "/x")
URL = bucket.OFFICIAL + "x/B_16.npz"
UPSTREAM = "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"
INFO, HEAD, GET = "GET /api/models", "HEAD /us/.*safetensors", "GET /cdn"
GET_JSON, JSON_HEAD = "GET /us/digits/resolve/.*json", "HEAD .*config.json"
"""A small file, which is not stored with LFS."""
LONG = "a" * 300
WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 854600\n"
PACKED = {"Content-Encoding": "gzip"}
"""A small answer could grow to any size; the client asks for bytes as they are."""
HOSTILE = ("../../../../planted", "<path>/planted", "<path>/mine", 'W/"<path>/mine"')
HOSTILE += ("..", ".", "a/b", r"a\b", "C:x", "a b")
NO_FILE = {"status": 404, "headers": {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": "/x"}}
ADDRESSES = ("vit", "datasets/a/b", "a/b@", "a/b@..%2F..%2Fx", "a/b/../c", r"a/b\..\c")
EVIL = ("../../evil", "/tmp/evil", "..", ".git/config", "a\nb", "a\0b")
OF_PRESETS = {
    # Answers of the Hub
    "no sha": (fails(INFO, **with_fields(sha="main")), "the commit 'main'"),
    "no files": (fails(INFO, **with_fields(siblings=["x"])), "an invalid response"),
    "no Hub": (fails(INFO, status=200), "response (KeyError"),
    "no repository": (fails(INFO, **coded("RepoNotFound")), "set HF_TOKEN"),
    "no revision": (fails(INFO, **coded("RevisionNotFound")), "as %2F"),
    "no file": (fails(HEAD, **coded("EntryNotFound")), "no such file (404)"),
    "forbidden": (fails(HEAD, **busy(403, X_Error_Message="\x9b2J[/red]")), r"403: \x9b2J[/red]"),
    "busy": (fails(INFO, status=503), "down (503: on purpose). Try again later"),
    "a wait of a day": (fails(HEAD, **busy(Retry_After="86400")), "in 86,400 s"),
    "cut": (fails(GET, cut=0), "no connection to http"),
    "begun again": (fails(GET, cut=70_000, whole=True), "stops repeatedly"),
    "other bytes": (fails(GET, change=inverted), "damaged in the download"),
    "a pointer": (fails(GET, change=lambda body: POINTER), "the download failed"),
    **{
        f"drips at {where}": (fails(where, drip=True), "is too slow") for where in (INFO, HEAD, GET)
    },
    **{
        f"endless at {where}": (fails(where, endless=True), "more than the expected")
        for where in (INFO, GET, GET_JSON)
    },
    "packed": (fails(INFO, change=gzip.compress, headers=PACKED), "UnicodeDecodeError"),
    **{
        f"{header} {name!r}": (fails(JSON_HEAD, headers={header: name}), "is invalid")
        for header in ("ETag", "X-Repo-Commit")
        for name in HOSTILE
    },
    "ETag of LFS": (fails(HEAD, headers={"X-Linked-Etag": "<path>/mine"}), "is invalid"),
    "commit of no file": (fails(HEAD, **NO_FILE), "is invalid"),
    # Repositories, and the cache of the Hub
    **{
        f"address {address!r}": (asks(f"hf://{address}"), "expected hf://owner/repo")
        for address in ADDRESSES
    },
    "gated": (fails(HEAD, **coded("GatedRepo", 401)), "Accept its conditions at https://hug"),
    "no server": (fails(patches={ENDPOINT: "http://127.0.0.1:9"}), "http://127.0.0.1:9"),
    "no certificates": (asks(SSL_CERT_FILE="/no/such.pem"), "FileNotFoundError"),
    "no access": (fails(patches={DOWNLOAD: raising(READ_ONLY)}), "Give this user access"),
    "a full disk": (fails(patches={HTTP_GET: full}), "Free space, or set HF_HOME"),
    "a link out": (cached(CONFIG, lambda path, mine: path.symlink_to(mine)), "outside the cache"),
    "a pipe": (cached(CONFIG, lambda path, _: os.mkfifo(path)), "regular file"),
    "a circle": (cached("../../blobs", lambda path, _: path.symlink_to(path)), "this path"),
    "offline": (fails(patches={OFFLINE: True}), "Unset HF_HUB_OFFLINE, or load it"),
    # The bucket
    "503 of the bucket": (fetches(status=503), "answers 503"),
    "a bucket cut": (fetches(cut=70_000), "or it was interrupted"),
    "a silent bucket": (fetches(silence=0.3), "ReadTimeout"),
    "a login page": (fetches(change=lambda body: b"<html>"), "not an npz file"),
    "no bucket": (bucket_with("http://127.0.0.1:1"), "127.0.0.1"),
    "a bucket offline": (bucket_with("True", "HF_HUB_OFFLINE"), "not in the cache"),
    "the bucket's variable": (bucket_with("1", "KERAS_VIT_OFFLINE"), "Unset it"),
    "a mirror without scheme": (bucket_with("me:secret@mirror.org"), "is 'mirror.org'"),
    "a mirror's query": (bucket_with("https://mirror.org/?token=secret"), "is 'https://mirror"),
    "a file for a cache": (bucket_with("<folder>/file", "KERAS_VIT_CACHE"), "set KERAS_VIT_CACHE"),
    "a cache of nobody": (bucket_with("~nobody_here/x", "KERAS_VIT_CACHE"), "without ~"),
    # Preset folders
    "another format": (changed(state(format="timm")), "format is 'timm'"),
    "a later format": (changed(state(format_version=2, keras_vit_version="9.1")), "release 9.1"),
    "too few labels": (changed(state(class_names=["a"])), "expected 10 strings"),
    "a bad protocol": (changed(state(protocol={"name": "timm", "crop_pct": 2})), "crop_pct must"),
    "an unknown field": (changed(state(protocols="x")), "Did you mean 'protocol'?"),
    "no config": (changed(state(config={})), "needs patch_size"),
    # Uploads
    "a subfolder": (uploads(target="hf://us/flowers/sub"), "expected hf://owner/repo"),
    "no folder": (uploads(name="none"), "expected a folder"),
    "no README": (uploads(lose("README.md")), "Write it by `save_to_preset`"),
    "a foreign file": (uploads(lambda path: (path / "a.tex").touch()), "a.tex does not belong"),
    "a link": (uploads(link("README.md", "/etc/hostname")), "a link"),
    "a metric alone": (card(metrics=[{"metric_type": "x"}]), "objects with dataset_type"),
    # The catalog
    "an index": (reads(preset_named, "augreg/B_16.npz"), "augreg/index.csv"),
    "a path of AugReg": (reads(read_file_name, "../../x"), "S_16-i21k"),
    "no labels": (reads(read_file_name, f"{UPSTREAM}--"), "S_16-i21k"),
    "classes": (
        reads(keras_vit.info, f"augreg/{UPSTREAM}--flowers-steps_10k-lr_0.01-res_224"),
        "only in its files",
    ),
}
"""Calls that raise a PresetError, and a part of its message."""
OF_SOURCES = {
    "pickles alone": (holds({"pytorch_model.bin": b"\x80"}), "ask the authors"),
    "a huge JSON": (holds({CONFIG: b" " * (2**24 + 1), WEIGHTS: b""}), "16,777,217 bytes"),
    "an index of lists": (holds({INDEX: b'{"weight_map": {"x": []}}'}), "index.json"),
    **{f"shard {name!r}": (shard(name), f"names {name!r}") for name in EVIL},
    "weights in a circle": (changed(link(WEIGHTS, WEIGHTS), opened), "symbolic links"),
    "a long name": (reads(Source.parse, "b" * 5000), "there is no such preset"),
    "no such file": (reads(Source.parse, "dir/absent"), "there is no such preset"),
    "a pointer in a folder": (changed(write(WEIGHTS, lambda _: POINTER), opened), "git-lfs"),
    "a closed folder": (changed(lambda _: None, closed), "Permission denied"),
    "no weights": (changed(lose(WEIGHTS), opened), "does not exist"),
    "no config.json": (changed(lose(CONFIG)), "without the config.json"),
    "a dangling config.json": (changed(link(CONFIG, "gone")), "its target is"),
    "other bytes in a folder": (uploads(write(WEIGHTS, lambda file: file[:-8])), "its sha256 is"),
    "a name": (reads(preset_named, "vit_b16.augreg_i21k_ft_i1k_384x"), "Did you mean 'vit_b16.aug"),
    "a web address": (reads(Source.parse, "https://x.org/vit"), "hf://owner/repo"),
}
REFUSALS = {name: (call, PresetError, words) for name, (call, words) in OF_PRESETS.items()}
REFUSALS |= {name: (call, SourceError, words) for name, (call, words) in OF_SOURCES.items()}
REFUSALS |= {
    "a pointer for a file": (
        changed(lambda at: (at / "x").write_bytes(POINTER), lambda at: keras_vit.info(at / "x")),
        CheckpointError,
        "pointer of git-lfs",
    ),
    "no header": (holds({WEIGHTS: b"\xff" * 1000}), CheckpointError, "not a safetensors"),
    "other shapes": (uploads(state("config", mlp_dim=33)), CheckpointError, "expected (33,)"),
    "a broken disk": (reads(keras_vit.info, "/proc/self/mem"), CheckpointError, "Input/output"),
    "no alternative": (fetches(URL[:-4], URL + "x"), bucket.NotFoundError, "moved or renamed"),
    "a variant": (reads(list_presets, variant="vit_b61"), ConfigError, "vit_b16"),
    "a family": (reads(list_presets, family="dinov4"), ConfigError, "Did you mean 'dinov"),
}


def plain(call):
    """The call, refused in our words alone."""

    def refused(world):
        with pytest.raises(KerasViTError) as caught:
            call(world)
        raise world.plain(caught.value)

    return refused


REFUSALS = {name: (plain(call), *told) for name, (call, *told) in REFUSALS.items()}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)
