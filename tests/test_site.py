"""The site builds without a warning, its links lead somewhere, and it works in a browser."""

import ast
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

import keras_vit
from keras_vit.presets.catalog import CATALOG
from tests.browser import resize
from tests.digits import LOOPS, write_folders
from tests.test_docs import RUN_AS_NOTEBOOKS

ROOT = Path(__file__).parents[1]
NOTEBOOKS, ON_TPU = ROOT / "examples" / "notebooks", "08_several_devices"
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
PAGES = ("index", "models", "coming_from", "devices", "api/keras_vit", "families/augreg", "domains",
         "licenses", "api/keras_vit.data/ImageData", "api/keras_vit/finetune")  # fmt: skip
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sphinx") is None, reason="needs the group docs"
)


def extension(name):
    """The functions of a file of docs/_extensions."""
    return runpy.run_path(str(ROOT / "docs" / "_extensions" / f"{name}.py"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built with every warning as an error; the gallery's examples are not run.

    The first worker of a run builds it, and the others wait for it.
    """
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with FileLock(out.with_suffix(".lock")):
        if not out.exists():
            build(out)
    return out / "html"


def build(out):
    """Runs Sphinx; the folder has its name when all pages are written."""
    begun = out.with_suffix(".begun")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    places = ["-d", str(begun / "trees"), str(ROOT / "docs"), str(begun / "html")]
    variables = {**os.environ, "KERAS_VIT_GALLERY": "no", "PYTHONPATH": str(ROOT)}
    options = {"env": variables, "capture_output": True, "text": True}
    built = subprocess.run([*command, *places], check=False, **options)
    assert built.returncode == 0, built.stderr
    begun.rename(out)


def test_every_internal_link_leads_somewhere(site, tmp_path):
    """The checker of `make docs` finds none, and finds one that a page is given."""
    dead_links = extension("links")["dead_links"]
    assert dead_links(site) == []
    copy = shutil.copytree(site, tmp_path / "site")
    (copy / "broken.html").write_text('<a href="start.html#no-such-place">x</a><img src="no.png">')
    assert len(dead_links(copy)) == 2


def test_every_public_name_has_an_entry_and_every_model_a_row(site):
    """Each name of each `__all__` is an anchor of the API reference; the page of models has those
    of the catalog in its order."""
    text = "".join(path.read_text() for path in (site / "api").rglob("*.html"))
    anchors = set(re.findall(r'id="(keras_vit\.[\w.]+)"', text))
    top = {f"keras_vit.{name}" for name in keras_vit.__all__}
    modules = {name for name in top if f"module-{name}" in text or name in sys.modules}
    assert top - modules <= anchors
    assert "keras_vit.training.TransferRecipe" in anchors
    assert len(anchors) > 200
    rows = re.findall(r"<tr[^>]*>\s*<td.*?</td>", (site / "models.html").read_text(), re.DOTALL)
    names = [re.sub("<.*?>", "", row, flags=re.DOTALL).strip() for row in rows]
    assert names[: len(CATALOG)] == list(CATALOG)
    licenses = (site / "licenses.html").read_text()
    assert all(f">{name}<" in licenses for name in CATALOG)


def test_a_class_page_has_methods_of_keras_vit_without_those_of_keras(site):
    """`compile` stays, because keras_vit documents arguments of its own; helpers do not."""
    page = (site / "api/keras_vit/VisionTransformer.html").read_text()
    methods = set(re.findall(r'id="keras_vit\.VisionTransformer\.(\w+)"', page))
    assert {"classify", "from_preset", "compile"} <= methods
    assert not {"fit", "build", "get_config", "make_train_function", "symbolic_call"} & methods
    page = (site / "api/keras_vit/ViTConfig.html").read_text()
    assert "keras_vit.ViTConfig.replace" in page
    assert "ViTConfig.refuse" not in page


@pytest.mark.parametrize("slug", ["augreg", "dinov2"])
def test_the_code_of_a_family_page_runs(slug, tmp_path, monkeypatch):
    """With `vit_digits` or its encoder instead of the published weights, and two steps."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    pages = extension("families_pages")
    (family,) = [each for each in pages["read_families"]() if each["slug"] == slug]
    monkeypatch.chdir(tmp_path)
    write_folders(tmp_path, LOOPS.get, train=120, test=0)
    (tmp_path / "train").rename("photos")
    shutil.copy(keras_vit.data.example_image(), "photo.jpg")
    source = "vit_digits"
    if slug == "dinov2":
        source = str(tmp_path / "encoder")
        encoder = keras_vit.VisionTransformer.from_preset("vit_digits", num_classes=0)
        encoder.save_to_preset(source)
    recipe = keras_vit.training.TransferRecipe(steps=2, batch_size=4)
    monkeypatch.setattr(keras_vit, "finetune", partial(keras_vit.finetune, recipe=recipe))
    code, found = re.subn('(?<=^source = ").*(?="$)', source, pages["example"](family), flags=re.M)
    assert found == 1
    names = {}
    exec(compile(code, slug, "exec"), names)
    assert (tmp_path / "finetuned" / "best").exists()
    if slug == "dinov2":
        assert names["vectors"].shape == (1, 64)


def test_the_code_of_every_family_page_is_python(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    pages = extension("families_pages")
    blocks = [pages["example"](family) for family in pages["read_families"]()]
    assert len([*map(ast.parse, blocks)]) > 25


def test_each_search_finds_its_page_first(site, browser):
    """The searches of `make docs`; one whose page is another one is reported."""
    wrong_results = extension("search_check")["wrong_results"]
    assert wrong_results(site, browser) == []
    (line,) = wrong_results(site, browser, {"regression": "devices"})
    assert line.startswith("regression: expected devices first, found ")


@pytest.mark.nightly
def test_a_heading_sorts_the_models_and_words_filter_them(site, browser):
    """By the keyboard; `aria-sort` tells the order, and models without a value stand last."""
    browser.get((site / "models.html").as_uri())
    cells = "return [...document.querySelectorAll('.models-table tbody tr:not([hidden])')].map("
    headings = browser.find_elements("css selector", ".models-table th")
    (column,) = [k for k, heading in enumerate(headings) if heading.text.startswith("top-1")]
    for order, sign in (("descending", -1), ("ascending", 1)):
        headings[column].find_element("css selector", "button").send_keys("\n")
        assert headings[column].get_attribute("aria-sort") == order
        texts = browser.execute_script(f"{cells} row => row.cells[{column}].textContent.trim())")
        values = [sign * float(text) for text in texts if text]
        assert values == sorted(values)
        assert not any(texts[len(values) :])
    browser.find_element("css selector", "input[type=search]").send_keys("dinov2 reg4")
    names = browser.execute_script(f"{cells} row => row.cells[0].textContent.trim())")
    assert names
    assert all("dinov2" in name and "reg4" in name for name in names)


@pytest.mark.nightly
def test_every_page_fits_the_screen(site, browser):
    """On 400 pixels, wide tables and code scroll in themselves, the page does not."""
    resize(browser, 400, 800)
    for name in PAGES:
        browser.get((site / f"{name}.html").as_uri())
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 400, name


def test_a_page_of_the_gallery_opens_its_notebook_on_colab(site):
    """In the repository that pyproject.toml names; one page on Kaggle, too."""
    for path in NOTEBOOKS.glob("*.ipynb"):
        page = (site / "gallery" / f"{path.stem}.html").read_text()
        owner = URLS["Source"].removeprefix("https://github.com/")
        stored = f"{owner}/blob/main/examples/notebooks/{path.name}"
        assert f'href="https://colab.research.google.com/github/{stored}"' in page
        assert ("kaggle.com" in page) == (path.stem == ON_TPU)


def test_the_notebooks_are_those_of_the_examples():
    """After a change of an example, `python docs/_extensions/gallery.py` writes them again."""
    write = extension("gallery")["notebook"]
    examples = {path.stem: write(path) for path in (ROOT / "examples").glob("[0-9]*.py")}
    assert {path.stem: path.read_text() for path in NOTEBOOKS.iterdir()} == examples


@pytest.mark.parametrize(
    "name", [*RUN_AS_NOTEBOOKS, pytest.param(ON_TPU, marks=pytest.mark.nightly)]
)
def test_a_notebook_of_the_gallery_runs(name, tmp_path):
    """From top to bottom in a new kernel, without the line that installs keras_vit."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    install, notebook.cells[0].source = notebook.cells[0].source.split("\n", 1)
    assert install.startswith('%pip install --quiet "keras-vit-zoo[jax,')
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert any(cell.get("outputs") for cell in notebook.cells)


def test_links_of_the_readme_are_absolute_in_the_package():
    """The substitutions of pyproject.toml leave no relative link; pictures are raw files."""
    hooks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]
    readme = written = (ROOT / "README.md").read_text()
    for rule in hooks["hooks"]["fancy-pypi-readme"]["substitutions"]:
        written = re.sub(rule["pattern"], rule["replacement"], written)
        links = re.findall(rule["pattern"], readme)
        assert links and all((ROOT / link.split("#")[0]).exists() for link in links)
    assert not re.findall(r"\]\((?!https?://|#)", written)
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*\.webp)\)", written)
    assert pictures and all("/raw." in link or "//raw." in link for link in pictures)
