"""The gallery: every example of examples/ as a page, with a notebook for Colab.

The examples write files where they run, so the gallery runs a copy in docs/_build/examples.

    python docs/_extensions/gallery.py    # writes examples/notebooks/, after a change of an example
"""

import json
import re
import shutil
import tomllib
import warnings
from pathlib import Path
from typing import Any

# Examples that need another backend, a published checkpoint, or minutes are shown without output.
RUN = ("01", "02", "04", "05", "07", "10", "11", "12", "13", "14", "15", "16", "17", "19")
ON_KAGGLE = ("08_several_devices",)
"""Examples for the eight devices of Kaggle's TPU."""
ROOT = Path(__file__).parents[2]
EXAMPLES, NOTEBOOKS = ROOT / "examples", ROOT / "examples" / "notebooks"
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
STORED = URLS["Source"] + "/blob/main/examples/notebooks"
CHECKPOINT = "https://storage.googleapis.com/vit_models/imagenet21k%2Bimagenet2012/ViT-B_16.npz"


def copy_examples(docs: Path) -> Path:
    """Copies the examples, with badges, to a folder of the build, and returns it."""
    folder = docs / "_build" / "examples"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(docs / "_extensions" / "GALLERY_HEADER.rst", folder)
    for path in EXAMPLES.glob("[0-9]*.py"):
        text = re.sub(r"\n==+\n", rf"\g<0>\n{badges(path.stem)}", path.read_text(), count=1)
        (folder / path.name).write_text(text)
    return folder


def badges(name: str) -> str:
    """Returns the links from a page to its notebook on Colab and Kaggle."""
    path = f"{STORED}/{name}.ipynb"
    colab = path.replace("https://github.com", "https://colab.research.google.com/github")
    links = {"Colab": ("https://colab.research.google.com/assets/colab-badge.svg", colab)}
    if name in ON_KAGGLE:
        kaggle = f"https://kaggle.com/kernels/welcome?src={path}"
        links["Kaggle"] = ("https://kaggle.com/static/images/open-in-kaggle.svg", kaggle)
    return "".join(
        f".. image:: {image}\n   :target: {link}\n   :alt: Open in {place}\n\n"
        for place, (image, link) in links.items()
    )


def settings(docs: Path, execute: bool) -> dict[str, Any]:
    """Returns `sphinx_gallery_conf`."""
    return {
        "examples_dirs": str(docs / "_build" / "examples"),
        "gallery_dirs": "gallery",
        "filename_pattern": rf"/({'|'.join(RUN)})_" if execute else "^$",
        "within_subsection_order": "FileNameSortKey",
        "abort_on_example_error": True,
        "remove_config_comments": True,
        "show_memory": False,
        "show_signature": False,
        "min_reported_time": 1_000,
        "download_all_examples": False,
        "matplotlib_animations": False,
        "reset_modules": (_tidy,),
        "reset_modules_order": "both",
        "first_notebook_cell": None,
        "default_thumb_file": str(docs / "_static" / "thumbnail.png"),
        "plot_gallery": True,
    }


def _tidy(conf: dict[str, Any], name: str, when: str) -> None:
    """Removes the folders that an example wrote: one with a README would become a gallery.

    Warnings of other libraries stay out of the pages.
    """
    del name
    warnings.simplefilter("ignore")
    if when == "after":
        for folder in filter(Path.is_dir, Path(conf["examples_dirs"]).iterdir()):
            shutil.rmtree(folder)


def notebook(path: Path) -> str:
    """Returns the notebook of an example as JSON, without outputs."""
    from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF
    from sphinx_gallery.notebook import jupyter_notebook
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    conf = {**DEFAULT_GALLERY_CONF, "first_notebook_cell": _prepare(path)}
    _, blocks = split_code_and_text_blocks(str(path))
    book = jupyter_notebook(blocks, conf, str(path.parent))
    del book["metadata"]["language_info"]  # the version of this Python
    text = json.dumps(book, indent=1, ensure_ascii=False)
    link = rf"[\1]({URLS['Documentation']}/en/latest/\1.html)"
    return re.sub(r":doc:`/([^`]+)`", link, text) + "\n"


def _prepare(path: Path) -> str:
    """Returns the first cell: it installs what the example needs, and gives it its arguments."""
    text = path.read_text()
    extras = ["jax", "demo", *(["tfds"] if "tensorflow_datasets" in text else [])]
    arguments = re.findall(rf"python examples/{path.name}(.*)", text)[0].split()
    lines = [f'%pip install --quiet "keras-vit-zoo[{",".join(extras)}]"']
    if "__file__" in text:  # it imports from examples/paper
        lines += [f"!git clone --quiet --depth 1 {URLS['Source']} repository"]
    if Path(CHECKPOINT).name in arguments:
        lines += [f"!wget --quiet {CHECKPOINT}"]
    lines += ["import os", "import sys", "", 'os.environ["KERAS_BACKEND"] = "jax"']
    lines += [f"sys.argv = {json.dumps([path.name, *arguments])}"] if arguments else []
    lines += [f'__file__ = "repository/examples/{path.name}"'] if "__file__" in text else []
    return "\n".join(lines)


if __name__ == "__main__":
    NOTEBOOKS.mkdir(exist_ok=True)
    for example in sorted(EXAMPLES.glob("[0-9]*.py")):
        (NOTEBOOKS / f"{example.stem}.ipynb").write_text(notebook(example))
