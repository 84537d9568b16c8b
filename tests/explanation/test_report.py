"""The report of `keras-vit explain`, opened from disk in a real browser."""

import base64
import json
import re
import zlib

import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer, cli
from keras_vit.errors import ConfigError
from keras_vit.explanation import attention_maps
from keras_vit.explanation import report as report_module
from keras_vit.explanation.report import _between_patches, _tokens, overlay, write_report
from tests.browser import requested_urls, resize
from tests.digits import digits
from tests.helpers import random_tiny
from tests.processes import eventually

EVIL = "</script><script>alert(1)</script> $x$ [red] \x1b[2J\u202e \"'&"
SHOWN = "</script><script>alert(1)</script> $x$ [red] \\x1b[2J\\u202e \"'&"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of two digits by a model whose labels and provenance come from nobody's friend."""
    folder = tmp_path_factory.mktemp("report")
    _, test, _, classes = digits()
    paths = []
    for k in range(2):
        paths.append(folder / f"<b>{k} & $x$.png")
        Image.fromarray(test[k, ..., 0]).save(paths[-1])
    labels = [EVIL, *map(str, range(1, 10))]
    model = VisionTransformer.from_preset(
        "vit_digits", class_names=labels, provenance={"source": EVIL, EVIL: [EVIL]}
    )
    page = write_report(
        model,
        folder / "out",
        paths,
        targets=[EVIL, int(classes[0])],
        curves=True,
        command=f"run {EVIL}",
    )
    return page, model, paths


def opened(browser, page):
    browser.get(page.as_uri())

    def ready():
        viewers = browser.find_elements("css selector", ".viewer")
        return all(v.get_dom_attribute("data-ready") == "yes" for v in viewers) and viewers

    return eventually(ready)


def test_the_page_in_a_browser(browser, report):
    """No request but for the file, no error; slider, click and keys show the model's attention."""
    from selenium.webdriver import ActionChains, Keys

    page, model, paths = report
    viewers = opened(browser, page)
    assert len(viewers) == 2
    assert {url.split(":")[0] for url in requested_urls(browser)} <= {"file", "data"}
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []

    status = viewers[0].find_elements("css selector", "output")[1]
    assert status.text.startswith("block 4, mean of 4 heads: attention of what the head reads.")
    maps = attention_maps(model, model.preprocessor(paths[:1]), prepared=True)
    set_value = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    block, head = viewers[0].find_elements("css selector", "input")
    browser.execute_script(set_value, block, 2)
    browser.execute_script(set_value, head, 3)
    row = maps["block_2/attention"][0, 2, 0, 1:]
    assert status.text.startswith("block 2, head 2: attention of what the head reads.")
    assert f"is on row {row.argmax() // 4 + 1}, column {row.argmax() % 4 + 1}" in status.text

    canvas = viewers[0].find_element("css selector", "canvas")
    before = browser.execute_script("return arguments[0].toDataURL()", canvas)
    ActionChains(browser).move_to_element_with_offset(canvas, 30, 30).click().perform()
    assert "attention of the patch in row 3, column 3." in status.text
    assert browser.execute_script("return arguments[0].toDataURL()", canvas) != before
    canvas.send_keys(Keys.ARROW_LEFT)
    assert "row 3, column 2." in status.text
    viewers[0].find_element("css selector", "button").click()
    assert "attention of what the head reads." in status.text
    assert browser.execute_script("return arguments[0].toDataURL()", canvas) == before


def test_a_click_shows_the_patches_that_are_like_one(browser, report):
    """The last place of the slider, with the cosines of `model.tokens`; other blocks come back."""
    from selenium.webdriver import ActionChains

    page, model, paths = report
    viewer = opened(browser, page)[0]
    block, head = viewer.find_elements("css selector", "input")
    _, status = viewer.find_elements("css selector", "output")
    canvas = viewer.find_element("css selector", "canvas")
    set_value = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    browser.execute_script(set_value, block, block.get_attribute("max"))
    assert status.text == "likeness: choose a patch."
    assert not head.is_enabled()
    before = browser.execute_script("return arguments[0].toDataURL()", canvas)
    ActionChains(browser).move_to_element_with_offset(canvas, 30, 30).click().perform()
    assert browser.execute_script("return arguments[0].toDataURL()", canvas) != before
    patches = model.tokens(paths[:1]).patches[0].reshape(16, -1)
    unit = patches / np.linalg.norm(patches, axis=-1, keepdims=True)
    cosines = unit @ unit[10]
    assert status.text.startswith("likeness: cosine to the patch in row 3, column 3.")
    found = re.search(r"Least, (\S+), is on row (\d), column (\d)\.", status.text)
    least, row, column = found.groups()
    assert float(least) == pytest.approx(cosines.min(), abs=0.02)
    assert cosines[4 * int(row) + int(column) - 5] == pytest.approx(cosines.min(), abs=0.02)
    browser.execute_script(set_value, block, 2)
    assert "attention of the patch in row 3, column 3." in status.text
    assert head.is_enabled()


def test_the_components_of_tokens_keep_their_cosines():
    """In 8 bits, and in as many components as fit."""
    patches = np.random.default_rng(0).standard_normal((20, 48)) + 1
    unit = patches / np.linalg.norm(patches, axis=-1, keepdims=True)
    for room, tolerance in ((10_000, 0.01), (600, 0.2)):
        stored = _tokens(patches, room)
        assert len(stored["data"]) <= room + 20
        data = zlib.decompress(base64.b64decode(stored["data"]))
        vectors = np.frombuffer(data, "uint8").reshape(20, stored["width"]) - 128.0
        vectors *= stored["step"]
        np.testing.assert_allclose(vectors @ vectors.T, unit @ unit.T, atol=tolerance)


def test_text_of_strangers_is_inert(browser, report):
    """Labels, file names, provenance and command are shown letter by letter, and run nothing."""
    page, _, paths = report
    opened(browser, page)
    text = browser.find_element("css selector", "body").text
    assert f"What speaks for {SHOWN}" in text
    assert f"run {SHOWN}" in text
    assert f'"source": "{EVIL.split(maxsplit=1)[0]}' in text
    assert paths[0].name in [h.text for h in browser.find_elements("css selector", "h2")]
    assert not browser.find_elements("css selector", "h2 b")
    assert len(browser.find_elements("css selector", "script")) == 2
    source = page.read_text(encoding="utf-8")
    assert '"title":"What vit_digits sees"' in source
    assert "\x1b" not in source and "\u202e" not in source


def test_a_report_without_curves_computes_no_slow_method(tmp_path, monkeypatch):
    """By default: maps of three methods, and not one prediction of a changed image."""
    monkeypatch.setattr(report_module, "replace_pixels", pytest.fail)
    model = VisionTransformer.from_preset("vit_digits")
    page = write_report(model, tmp_path, digits()[1][:1]).read_text(encoding="utf-8")
    facts = json.loads(re.search('id="facts">(.*?)</script>', page)[1])
    (image,) = facts["images"]
    assert image["curves"] == []
    for one in image["classes"]:
        assert [m["method"] for m in one["maps"]] == ["relevance", "gradcam", "rollout"]
    rollouts = {one["maps"][2]["picture"] for one in image["classes"]}
    assert len(rollouts) == 1


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits_the_screen(browser, report, width):
    """Nothing is wider than the screen; every picture says what it shows."""
    resize(browser, width, 900)
    opened(browser, report[0])
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for image in browser.find_elements("css selector", "figure img"):
        assert len(image.get_dom_attribute("alt")) > 10


@pytest.mark.parametrize("room", [500_000, 60_000, 20_000, 100])
def test_attention_between_patches_fits_its_room(room):
    """Heads give way first, then every second block, then all; the last block goes last."""
    rng = np.random.default_rng(0)
    maps = {block: rng.dirichlet(np.ones(65), (1, 3, 65)) for block in range(6)}
    stored = _between_patches(maps, 1, room)
    if room == 100:
        assert stored is None
        return
    assert len(stored["data"]) <= room
    assert stored["heads"] == (room == 500_000)
    assert stored["blocks"][-1] == 5
    assert (len(stored["blocks"]) == 6) == (room > 20_000)


def test_invalid_requests_write_no_report(tmp_path, capsys):
    """One sentence each, and nothing is written."""
    out = tmp_path / "out"
    model = random_tiny(image_size=None, position_grid=(2, 2))
    with pytest.raises(ConfigError, match="fixed size: load it with image_size="):
        write_report(model, out, [np.zeros((16, 16, 3), "uint8")])
    (tmp_path / "no.png").write_bytes(b"no image")
    explain = ["explain", str(tmp_path / "no.png"), "--source", "vit_digits", "--path", str(out)]
    assert cli.main(explain) == 2
    assert "no.png" in capsys.readouterr().err
    Image.fromarray(np.zeros((8, 8), "uint8")).save(tmp_path / "no.png")
    assert cli.main([*explain, "--target", "cat"]) == 2
    assert "--target 'cat' is no label of the model" in capsys.readouterr().err
    assert not out.exists()


def test_an_overlay_leaves_the_photograph_where_its_map_is_zero():
    """Elsewhere the photograph shines through."""
    photo = np.random.default_rng(0).uniform(size=(4, 4, 3)).astype("float32")
    map_ = np.zeros((4, 4), "float32")
    map_[0, 0] = 2.0
    shown = overlay(photo, map_)
    np.testing.assert_array_equal(shown[1:], photo[1:])
    brighter = overlay(np.minimum(photo + 0.1, 1), map_)
    assert (brighter[0, 0] > shown[0, 0]).any()
