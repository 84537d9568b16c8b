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

NAME = "vit_models/imagenet21k+imagenet2012/ViT-B_16.npz"
URL = bucket.OFFICIAL + NAME.replace("+", "%2B")
MISSING = bucket.OFFICIAL + "vit_models/R50-ViT-B_16.npz"


@pytest.fixture
def server(hub):
    """A local bucket in place of the official bucket, and an empty cache."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("x.npy", bytes(300_000))
        hub.files[NAME] = file.getvalue()
    return hub


def test_a_file_is_downloaded_once(server, tmp_path, capsys, monkeypatch):
    """To the cache, with a record of its sha256; then without a request, also offline."""
    path = fetch(URL)
    assert path.read_bytes() == server.files[NAME]
    assert path.is_relative_to(tmp_path / "cache" / "storage.googleapis.com")
    digest = hashlib.sha256(server.files[NAME]).hexdigest()
    assert bucket.sha256_in_cache("https://host/absent.npz", URL) == (URL, digest)
    record = path.with_name("ViT-B_16.npz.json")
    assert set(path.parent.iterdir()) == {path, record}
    assert path.stat().st_mode == record.stat().st_mode  # users may share a cache
    assert fetch(URL) == path
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch(MISSING, URL) == path
    assert server.requests == [f"GET /{NAME}"]
    assert capsys.readouterr().err == ""


def test_a_file_that_the_user_put_into_the_cache_is_read(server):
    """No download has recorded its sha256."""
    path = bucket.place(URL)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    assert fetch(URL) == path
    assert not server.requests


def test_a_password_in_the_address_of_a_mirror_is_sent_and_never_shown(server, monkeypatch, caplog):
    """Messages, the record, and the log of the URL that was used name the mirror without it."""
    monkeypatch.setenv("KERAS_VIT_BUCKET", server.endpoint.replace("//", "//me:se%40cret@") + "/ ")
    for fault in ({"status": 503}, {"status": 404}, {"cut": 0}):
        server.fail("GET", **fault)
        with raises(PresetError, f"{server.endpoint}/vit_models") as caught:
            fetch(URL)
        assert "cret" not in str(caught.value), fault
        server.faults.clear()
    assert fetch(MISSING, URL) == bucket.place(URL)
    assert f"Downloaded {URL} instead" in caplog.text and server.endpoint in caplog.text
    assert "cret" not in caplog.text
    assert "cret" not in bucket.place(URL).with_name("ViT-B_16.npz.json").read_text()
    assert set(server.authorizations) == {"Basic bWU6c2VAY3JldA=="}


def test_the_cache_is_in_the_assets_of_hugging_face_or_in_the_given_folder(monkeypatch):
    """KERAS_VIT_CACHE names the folder."""
    monkeypatch.delenv("KERAS_VIT_CACHE", raising=False)
    assert bucket.cache_folder().parts[-2:] == ("assets", "keras_vit")
    monkeypatch.setenv("KERAS_VIT_CACHE", "~/weights")
    assert bucket.cache_folder() == Path.home() / "weights"
