"""The report of `keras-vit explain`: what stands in its file, and the page in a real browser."""

import base64
import functools
import json
import re
import zlib

import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer
from keras_vit.explanation import attention_maps
from keras_vit.explanation.report import (
    _between_patches,
    _overlay_patches,
    _tokens,
    overlay,
    write_report,
)
from tests.browser import requested_urls, resize
from tests.digits import digits
from tests.helpers import random_tiny
from tests.processes import eventually
from tests.runs import THOROUGH

EVIL = "</script><script>alert(1)</script> $x$ [red] \x1b[2J\u202e \"'&"
SHOWN = "</script><script>alert(1)</script> $x$ [red] \\x1b[2J\\u202e \"'&"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of two digits by a model whose labels and provenance come from nobody's friend."""
    folder = tmp_path_factory.mktemp("report")
    _, test, _, classes = digits()
    paths = [folder / f"<b>{k} & $x$.png" for k in range(2)]
    for path, image in zip(paths, test, strict=False):
        Image.fromarray(image[..., 0]).save(path)
    labels = [EVIL, *map(str, range(1, 10))]
    model = VisionTransformer.from_preset(
        "vit_digits", class_names=labels, provenance={"source": EVIL, EVIL: [EVIL]}
    )
    options = {"targets": [EVIL, int(classes[0])], "curves": THOROUGH, "command": f"run {EVIL}"}
    return write_report(model, folder / "out", paths, **options), model, paths


def read_facts(page):
    return json.loads(re.search('id="facts">(.*?)</script>', page)[1])


def unpack(text):
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), "uint8").astype("float64")


def test_the_file_holds_the_maps_the_attention_and_the_words_of_strangers(report):
    """Every word as data without control characters; the page has its own script alone, and no
    address."""
    page, model, paths = report
    source = page.read_text(encoding="utf-8")
    facts = read_facts(source)
    names = ", ".join(path.name for path in paths)
    assert facts["title"] == f"What vit_digits sees in {names}"
    assert facts["command"] == f"run {SHOWN}"
    assert [image["name"] for image in facts["images"]] == [path.name for path in paths]
    assert facts["images"][0]["classes"][0]["label"] == SHOWN
    assert bool(facts["images"][0]["curves"]) == THOROUGH
    assert source.count("<script") == 2 and "<b>" not in source
    assert "\x1b" not in source and "\u202e" not in source
    assert {*re.findall(r"https?:[^\"]+", source)} == {"http://www.w3.org/2000/svg"}
    attention = facts["images"][0]["attention"]
    maps = attention_maps(model, model.preprocessor(paths[:1]), prepared=True)
    expected = [row for weights in maps.values() for row in weights[0, :, 0, 1:]]
    shares = unpack(attention["read"]).reshape(-1, 16) / 255
    found = (shares**2 * np.array(attention["largest"])[:, None]).reshape(len(maps), -1, 16)
    np.testing.assert_allclose(np.concatenate(found[:, 1:]), expected, atol=0.01)


def test_a_heatmap_is_smooth_and_keeps_the_values_of_the_patches():
    """It rises from patch to patch without edges; pixels that no patch reads have none."""
    patches = np.zeros((4, 4), "float32")
    patches[3, 2] = 1
    config = random_tiny(image_size=(18, 16), patch_size=4).config
    shown = _overlay_patches(np.zeros((18, 16, 1)), patches, config, times=20)
    assert shown.shape == (360, 320, 3)
    assert max(np.abs(np.diff(shown[:320], axis=axis)).max() for axis in (0, 1)) < 0.06
    (brightest,) = overlay(np.zeros((1, 1, 1)), np.ones((1, 1)))[0]
    np.testing.assert_allclose(shown[280, 200], brightest, atol=0.02)
    assert shown[:, :40].max() == 0 == shown[320:].max()


def test_tokens_and_attention_fit_their_room():
    """In 8 bits; tokens keep their cosines, in as many components as fit. Of attention, heads and
    then blocks give way, the last block at the end."""
    patches = np.random.default_rng(0).standard_normal((20, 48)) + 1
    unit = patches / np.linalg.norm(patches, axis=-1, keepdims=True)
    for room, tolerance in ((10_000, 0.01), (600, 0.2)):
        stored = _tokens(patches, room)
        assert len(stored["data"]) <= room + 20
        vectors = (unpack(stored["data"]).reshape(20, stored["width"]) - 128) * stored["step"]
        np.testing.assert_allclose(vectors @ vectors.T, unit @ unit.T, atol=tolerance)
    rows = np.random.default_rng(0).dirichlet(np.ones(65), (6, 1, 3, 65))
    for room, has_heads, is_whole in ((500_000, True, True), (60_000, False, True), (20_000, 0, 0)):
        stored = _between_patches(rows, 1, room)
        assert len(stored["data"]) <= room and stored["blocks"][-1] == 5
        assert (stored["heads"], len(stored["blocks"]) == 6) == (has_heads, is_whole)


SLIDE = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
DRAWN = "return arguments[0].toDataURL()"


@pytest.mark.nightly
def test_the_page_in_a_browser(browser, report):
    """No request but for the file, no error; slider, click and keys show the model's attention. In
    the last place of the slider a click shows the patches that are like one. Words of
    strangers are shown letter by letter, and run nothing."""
    from selenium.webdriver import ActionChains, Keys

    page, model, paths = report
    find, run = functools.partial(browser.find_elements, "css selector"), browser.execute_script
    browser.get(page.as_uri())
    eventually(lambda: len(find(".viewer[data-ready=yes]")) == 2)
    (canvas, *_), (block, head, *_), (_, status, *_), (button, *_) = (
        find(f".viewer {tag}") for tag in ("canvas", "input", "output", "button")
    )

    def click():
        ActionChains(browser).move_to_element_with_offset(canvas, 30, 30).click().perform()

    assert {url.split(":")[0] for url in requested_urls(browser)} <= {"file", "data"}
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    of_classifier = "Attention of the tokens that the classifier reads to each patch"
    assert status.text.startswith(f"{of_classifier} (block 4, mean of 4 heads).")
    maps = attention_maps(model, model.preprocessor(paths[:1]), prepared=True)
    run(SLIDE, block, 2)
    run(SLIDE, head, 3)
    row = maps["block_2/attention"][0, 2, 0, 1:]
    assert status.text.startswith(f"{of_classifier} (block 2, head 2).")
    assert f"in row {row.argmax() // 4 + 1}, column {row.argmax() % 4 + 1}" in status.text
    before = run(DRAWN, canvas)
    click()
    assert "Attention of the patch in row 3, column 3 to each patch" in status.text
    assert run(DRAWN, canvas) != before
    canvas.send_keys(Keys.ARROW_LEFT)
    assert "row 3, column 2 to each patch" in status.text
    button.click()
    assert of_classifier in status.text
    assert run(DRAWN, canvas) == before

    run(SLIDE, block, block.get_attribute("max"))
    assert status.text == "Similarity of patches: choose a patch." and not head.is_enabled()
    before = run(DRAWN, canvas)
    click()
    assert run(DRAWN, canvas) != before
    patches = model.tokens(paths[:1]).patches[0].reshape(16, -1)
    unit = patches / np.linalg.norm(patches, axis=-1, keepdims=True)
    cosines = unit @ unit[10]
    assert status.text.startswith("Cosine similarity to the patch in row 3, column 3.")
    found = re.search(r"minimum is (\S+), in row (\d), column (\d)\.", status.text)
    least, row, column = map(float, found.groups())
    place = int(4 * row + column - 5)
    assert [least, cosines[place]] == pytest.approx([cosines.min()] * 2, abs=0.02)

    (body,) = find("body")
    for words in (f"for {SHOWN}", f"run {SHOWN}", f'"source": "{EVIL.split(maxsplit=1)[0]}'):
        assert words in body.text
    assert paths[0].name in [heading.text for heading in find("h2")] and not find("h2 b")
    assert len(find("script")) == 2


SMOOTHNESS = """
const [canvas] = document.querySelectorAll(".viewer canvas");
const { width, height } = canvas;
const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
const row = Array.from({ length: width }, (_, k) => pixels[4 * (width * (height / 8) + k)]);
const jumps = row.slice(1).map((value, k) => Math.abs(value - row[k]));
return [Math.max(...jumps), Math.max(...row) - Math.min(...row)];
"""


@pytest.mark.nightly
@pytest.mark.parametrize("width", [400, 1280, 1920])
def test_the_page_fills_its_width_with_smooth_maps(browser, tmp_path, width):
    """Of a model without provenance it shows none; nothing is wider than the screen."""
    model = random_tiny(patch_size=4)
    page = write_report(model, tmp_path, [np.zeros((16, 16, 3), "uint8")])
    resize(browser, width, 900)
    browser.get(page.as_uri())
    find = functools.partial(browser.find_elements, "css selector")
    eventually(lambda: find(".viewer[data-ready=yes]"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    edges = [figure.rect["x"] + figure.rect["width"] for figure in find("figure")]
    assert 0.95 * width < max(edges) < width
    assert not find("#provenance")[0].is_displayed() and not find("#command")[0].is_displayed()
    jump, span = browser.execute_script(SMOOTHNESS)
    assert span > 20 and jump < span / 8
