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
ROWS = """
const rows = [...document.querySelectorAll("#labels tr")];
return rows.map((row) => [...row.cells].map((cell) => cell.innerText));
"""
WIDTH = "return arguments[0].complete && arguments[0].naturalWidth"


@pytest.mark.nightly
def test_a_dropped_image_is_classified_and_its_map_is_seen(browser, tmp_path):
    """Labels as `classify` gives them, two pictures, the message of a refusal; no other server."""
    _, images, _, classes = digits()
    nine, three = (encoded(images[(classes == k).argmax(), ..., 0]) for k in (9, 3))
    names = [*map(str, range(9)), EVIL]
    model = VisionTransformer.from_preset("vit_digits", class_names=names, name="digits")
    with served(model) as address:
        browser.get(f"{address}/")
        eventually(lambda: browser.title == "digits")
        browser.execute_script(DROP, base64.b64encode(nine).decode())
        shown = eventually(lambda: browser.execute_script(ROWS))
        expected = model.classify(nine)[0]
        assert shown == [[visible(name), f"{100 * share:.1f} %"] for name, share in expected]
        assert expected[0][0] == EVIL  # a program gets the label as it is
        photo, drawn = browser.find_elements("css selector", "main img")
        eventually(lambda: browser.execute_script(WIDTH, photo))
        eventually(lambda: browser.execute_script(WIDTH, drawn) == 256)
        caption = browser.find_element("id", "caption").text
        assert caption == f"Evidence for {visible(EVIL)} (relevance); dark areas have little"
        (tmp_path / "digit.png").write_bytes(three)
        browser.find_element("id", "file").send_keys(str(tmp_path / "digit.png"))
        eventually(lambda: browser.execute_script(ROWS)[0][0] == "3")
        assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        browser.execute_script(DROP, base64.b64encode(b"no image").decode())
        status = browser.find_element("id", "status")
        eventually(lambda: "not a readable image" in status.text)
        assert not browser.find_element("id", "answer").is_displayed()
        browser.get(f"{address}/docs")
        eventually(lambda: "Classify images" in browser.find_element("css selector", "body").text)
        allowed = (address, "blob:", "data:")
        assert all(url.startswith(allowed) for url in requested_urls(browser))


def test_the_page_may_run_its_own_script_and_no_other(address):
    """The policy names the hash of what stands between the tags; /docs names no other server."""
    answer = requests.get(f"{address}/", timeout=60)
    policy = answer.headers["Content-Security-Policy"]
    for tag in ("script", "style"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy
    docs = requests.get(f"{address}/docs", timeout=60).text
    assert re.findall(r'(?:src|href)="(.*?)"', docs)
    assert not re.findall(r'(?:src|href)="\w+:', docs)


@pytest.mark.nightly
def test_the_page_of_a_model_without_a_head_shows_its_features(browser, image):
    """Two pictures, no table of labels, no error."""
    model = VisionTransformer.from_preset("vit_digits", num_classes=0, name="encoder")
    with served(model) as address:
        browser.get(f"{address}/")
        eventually(lambda: browser.title == "encoder")
        browser.execute_script(DROP, base64.b64encode(image).decode())
        eventually(lambda: browser.find_element("id", "map").is_displayed())
        assert not browser.find_element("id", "table").is_displayed()
        assert "PCA" in browser.find_element("id", "caption").text
        assert browser.find_element("id", "about").text.startswith("features; images of 16")
