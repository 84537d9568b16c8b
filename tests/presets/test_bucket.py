"""Files of the bucket are downloaded once, whole or not at all, and compared with their sha256."""

import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from keras_vit.errors import PresetError
from keras_vit.presets import bucket
from keras_vit.presets.bucket import fetch
from tests.plain import raises

pytestmark = pytest.mark.without_backend


def npz() -> bytes:
    """A zip file of 300 kB."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("x.npy", bytes(300_000))
        return file.getvalue()


CONTENT = npz()
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NAME = "vit_models/imagenet21k+imagenet2012/ViT-B_16.npz"
URL = bucket.OFFICIAL + NAME.replace("+", "%2B")


@pytest.fixture
def server(hub):
    """A local bucket in place of the official bucket, and an empty cache."""
    hub.files[NAME] = CONTENT
    return hub


def test_a_file_is_downloaded_once(server, tmp_path, capsys):
    """To the cache, with a record of its sha256; the second call makes no request."""
    path = fetch(URL)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(tmp_path / "cache" / "storage.googleapis.com")
    assert bucket.sha256_in_cache("https://host/absent.npz", URL) == (URL, SHA256)
    record = path.with_name("ViT-B_16.npz.json")
    assert set(path.parent.iterdir()) == {path, record}
    assert path.stat().st_mode == record.stat().st_mode  # users may share a cache
    assert fetch(URL) == path
    assert server.requests == [f"GET /{NAME}"]
    assert capsys.readouterr().err == ""


def test_offline_reads_the_cache_and_opens_no_connection(server, monkeypatch):
    """A file that is not in the cache is refused."""
    for name, value in (("KERAS_VIT_OFFLINE", "1"), ("HF_HUB_OFFLINE", "True")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with raises(PresetError, URL, "not in the cache", "HF_HUB_OFFLINE", "Unset"):
                fetch(URL)
    assert not server.requests
    path = fetch(URL)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch("https://storage.googleapis.com/absent.npz", URL) == path


def test_alternative_urls_are_tried_in_turn(server, caplog):
    """If the server does not know a URL; the log names the URL that was used."""
    missing = bucket.OFFICIAL + "vit_models/R50-ViT-B_16.npz"
    assert fetch(missing, URL) == bucket.place(URL)
    assert f"Fetched {URL} instead" in caplog.text
    with raises(PresetError, "R50-ViT-B_16.npz", "also.npz", "404", "moved or renamed"):
        fetch(missing, bucket.OFFICIAL + "also.npz")


PAGE = {"change": lambda body: b"<html>Please log in to the network</html>"}
FAULTS = [
    ({"status": 503}, ("answers 503", "Try again later")),
    ({"status": 403}, ("answers 403 Forbidden", "public", "proxy")),
    ({"cut": 70_000}, ("no connection, or it broke off", "Check the network", "call again")),
    ({"silence": 0.3}, ("ReadTimeout", "call again")),
    (PAGE, ("no npz file, perhaps a page to log in", "call again")),
]


@pytest.mark.parametrize(("fault", "words"), FAULTS)
def test_a_fault_of_the_server_is_refused_and_leaves_nothing(fault, words, server, monkeypatch):
    """In one line with the address, and the next call goes through."""
    server.fail("GET", **fault)
    with monkeypatch.context() as patch, raises(PresetError, "B_16.npz", *words) as caught:
        patch.setattr(bucket, "TIMEOUT", 0.1)
        fetch(URL)
    assert "\n" not in str(caught.value)
    assert list(bucket.place(URL).parent.iterdir()) == []
    server.faults.clear()
    assert fetch(URL).read_bytes() == CONTENT


def test_a_refused_connection_is_told_from_an_absent_file(monkeypatch, hub):
    monkeypatch.setenv("KERAS_VIT_BUCKET", "http://127.0.0.1:1")
    with raises(PresetError, "http://127.0.0.1:1/vit_models", "no connection") as caught:
        fetch(URL)
    assert not isinstance(caught.value, bucket.NotFoundError)


def test_a_password_in_the_address_of_a_mirror_is_sent_and_never_shown(server, monkeypatch, caplog):
    """Messages and log records name the mirror without it."""
    monkeypatch.setenv("KERAS_VIT_BUCKET", server.endpoint.replace("//", "//me:se%40cret@") + "/ ")
    for fault in ({"status": 503}, {"status": 404}, {"cut": 0}):
        server.fail("GET", **fault)
        with raises(PresetError, f"{server.endpoint}/vit_models") as caught:
            fetch(URL)
        assert "cret" not in str(caught.value), fault
        server.faults.clear()
    assert fetch(bucket.OFFICIAL + "absent.npz", URL).read_bytes() == CONTENT
    assert "cret" not in caplog.text and server.endpoint in caplog.text
    assert "cret" not in bucket.place(URL).with_name("ViT-B_16.npz.json").read_text()
    assert set(server.authorizations) == {"Basic bWU6c2VAY3JldA=="}


NO_MIRRORS = {
    "mirror.org": "is 'mirror.org'",
    "ftp://mirror.org": "is 'ftp://mirror.org'",
    "http://mirror.org:port": "is 'http://mirror.org:port'",
    "me:secret@mirror.org": "is 'mirror.org'",
    "https://mirror.org/?token=secret": "is 'https://mirror.org/'",
}


@pytest.mark.parametrize("value", NO_MIRRORS)
def test_a_mirror_that_is_no_address_of_a_server_is_refused(value, hub, monkeypatch):
    """A query could hold a password too, and the name of the file would become a part of it."""
    monkeypatch.setenv("KERAS_VIT_BUCKET", value)
    expected = ("expected https://host or https://host/folder, without ?", "Correct or unset it")
    with raises(PresetError, f"KERAS_VIT_BUCKET {NO_MIRRORS[value]}", *expected) as caught:
        fetch(URL)
    assert "secret" not in str(caught.value)


def test_a_file_that_the_user_put_into_the_cache_is_read(server):
    """No download has recorded its sha256."""
    path = bucket.place(URL)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    assert fetch(URL) == path
    assert not server.requests


def test_a_cache_that_cannot_be_written_is_refused_by_name(server, monkeypatch, tmp_path):
    """The path of the cache is a file."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "file"))
    with raises(PresetError, NAME[-12:], f"{tmp_path / 'file'}", "set KERAS_VIT_CACHE"):
        fetch(URL)
    monkeypatch.setenv("KERAS_VIT_CACHE", "~nobody_here/cache")
    with raises(PresetError, "KERAS_VIT_CACHE is '~nobody_here/cache'", "Write the folder without"):
        fetch(URL)


def test_the_cache_is_in_the_assets_of_hugging_face_or_in_the_given_folder(monkeypatch):
    """KERAS_VIT_CACHE names the folder."""
    monkeypatch.delenv("KERAS_VIT_CACHE", raising=False)
    assert bucket.cache_folder().parts[-2:] == ("assets", "keras_vit")
    monkeypatch.setenv("KERAS_VIT_CACHE", "~/weights")
    assert bucket.cache_folder() == Path.home() / "weights"
