"""The page at /, in a real browser: an image is dropped, labels and a map are seen."""

import base64
import hashlib
import re

import pytest
import requests

from keras_vit import VisionTransformer
from keras_vit.support.text import visible
from tests.browser import requested_urls
from tests.digits import digits, encoded
from tests.processes import eventually
from tests.serving.live import served

EVIL = "<img src=x onerror=alert(1)><b>nine</b>\u202egnp.\u200b\x1b[2J"
DROP = """
const bytes = Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0));
const dropped = new DataTransfer();
dropped.items.add(new File([bytes], "digit.png", { type: "image/png" }));
const options = { dataTransfer: dropped, bubbles: true, cancelable: true };
document.getElementById("drop").dispatchEvent(new DragEvent("drop", options));
"""


@pytest.fixture(scope="module")
def model():
    names = [*map(str, range(9)), EVIL]
    return VisionTransformer.from_preset("vit_digits", class_names=names, name="digits")


def drop(browser, content):
    browser.execute_script(DROP, base64.b64encode(content).decode())


def rows(browser):
    """Label and probability of each row, read at once: the page may replace them meanwhile."""
    script = "return [...document.querySelectorAll('#labels tr')]"
    return browser.execute_script(f"{script}.map((row) => [...row.cells].map((c) => c.innerText))")


def test_a_dropped_image_is_classified_and_its_map_is_seen(browser, address, model, tmp_path):
    """Labels as `classify` gives them, two pictures, no foreign request, no error."""
    _, images, _, classes = digits()
    nine, other = ((classes == 9).argmax(), (classes == 3).argmax())
    for kind in ("performance", "browser"):
        browser.get_log(kind)  # of the tests before
    browser.get(f"{address}/")
    eventually(lambda: browser.title == "digits")
    drop(browser, encoded(images[nine, ..., 0]))
    eventually(lambda: rows(browser))
    expected = model.classify(encoded(images[nine, ..., 0]))[0]
    assert rows(browser) == [[visible(name), f"{100 * share:.1f} %"] for name, share in expected]
    assert expected[0][0] == EVIL  # a program gets the label as it is
    pictures = browser.find_elements("css selector", "main img")
    assert len(pictures) == 2
    width = "return arguments[0].complete && arguments[0].naturalWidth"
    eventually(lambda: all(browser.execute_script(width, picture) for picture in pictures))
    assert browser.execute_script(width, pictures[1]) == 256
    caption = browser.find_element("id", "caption").text
    assert caption == f"What speaks for {visible(EVIL)} (relevance); dark: little"

    path = tmp_path / "digit.png"
    path.write_bytes(encoded(images[other, ..., 0]))
    browser.find_element("id", "file").send_keys(str(path))
    eventually(lambda: rows(browser)[0][0] == "3")
    assert all(url.startswith((address, "blob:")) for url in requested_urls(browser))
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_page_of_a_model_without_a_head_shows_its_features(browser):
    """Two pictures, no table of labels, no error."""
    _, images, _, _ = digits()
    model = VisionTransformer.from_preset("vit_digits", num_classes=0, name="encoder")
    with served(model) as address:
        browser.get_log("browser")  # of the tests before
        browser.get(f"{address}/")
        eventually(lambda: browser.title == "encoder")
        drop(browser, encoded(images[0, ..., 0]))
        eventually(lambda: browser.find_element("id", "map").is_displayed())
        assert not browser.find_element("id", "table").is_displayed()
        assert "main components" in browser.find_element("id", "caption").text
        assert browser.find_element("id", "about").text.startswith("features; images of 16")
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_page_may_run_its_own_script_and_no_other(address):
    """The policy names the hash of what stands between the tags."""
    answer = requests.get(f"{address}/", timeout=60)
    policy = answer.headers["Content-Security-Policy"]
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_a_file_that_is_no_image_shows_the_message_of_the_server(browser, address):
    """The labels of the image before are taken away."""
    browser.get(f"{address}/")
    eventually(lambda: browser.title == "digits")
    drop(browser, b"no image")
    status = browser.find_element("id", "status")
    eventually(lambda: "not a readable image" in status.text)
    assert not browser.find_element("id", "answer").is_displayed()


def test_the_openapi_page_needs_no_network(browser, address):
    """Its script and style come from the server, and it shows the routes."""
    browser.get_log("performance")
    browser.get(f"{address}/docs")
    eventually(lambda: "/classify" in browser.find_element("css selector", "body").text)
    assert all(url.startswith((address, "data:")) for url in requested_urls(browser))
