"""The gallery: every example of examples/ as a page, with a notebook to download.

The examples write files where they run, so the gallery runs a copy in docs/_build/examples.
"""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

# Examples that need another backend, a published checkpoint, or minutes are shown without output.
RUN = ("01", "02", "04", "05", "07", "10", "11", "12", "13", "14", "15", "16", "17", "19")
NOTEBOOKS = ("01_classify_and_explain", "02_fine_tune_a_folder", "07_find_similar_images")


def copy_examples(docs: Path) -> Path:
    """Copies the examples to a folder of the build, and returns it."""
    folder = docs / "_build" / "examples"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    header = docs / "_extensions" / "GALLERY_HEADER.rst"
    for path in (header, *(docs.parent / "examples").glob("[0-9]*.py")):
        shutil.copy(path, folder)
    return folder


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


def notebook(path: Path, destination: Path) -> Path:
    """Writes the notebook that the gallery offers for an example."""
    from sphinx_gallery.gen_gallery import DEFAULT_GALLERY_CONF
    from sphinx_gallery.notebook import jupyter_notebook
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    conf = {**DEFAULT_GALLERY_CONF, "first_notebook_cell": None}
    _, blocks = split_code_and_text_blocks(str(path))
    destination.write_text(json.dumps(jupyter_notebook(blocks, conf, str(path.parent))))
    return destination
