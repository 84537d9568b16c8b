"""Repositories as they are published, and as older and newer releases wrote them, are read.

The JSON is that of real repositories; beside it lies a sparse file with the names, types and shapes
of the published arrays, which takes no room on the disk.
"""

import copy
import gzip
import json
from pathlib import Path

import pytest

import keras_vit
from keras_vit.images.protocols import complete
from keras_vit.presets.catalog import preset_named
from tests.checkpoints.headers import write_sparse
from tests.runs import THOROUGH

pytestmark = pytest.mark.without_backend

FILE = Path(__file__).parents[1] / "data" / "published" / "repositories.json.gz"
REPOSITORIES = json.loads(gzip.decompress(FILE.read_bytes()))


def write(folder: Path, repository: dict) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in repository["json"].items():
        (folder / name).write_text(json.dumps(content))
    write_sparse(folder / repository["file"], repository["arrays"])
    return folder


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_published_repository_is_recognised(name, tmp_path):
    repository = REPOSITORIES[name]
    config = keras_vit.info(write(tmp_path, repository)).config
    found = {key: getattr(config, key) for key in repository["expected"]}
    assert found | {"patch_size": config.patch_size[0]} == repository["expected"]


CHANGES = json.loads((FILE.parent / "changes.json").read_text())
"""Keys of JSON that other releases write otherwise; null stands for no file."""


def _change(repository: dict, change: str) -> None:
    files, arrays = repository["json"], repository["arrays"]
    for name, keys in CHANGES[change].items():
        old = files.pop(name, {})
        if keys is not None:
            new = {**(old if name == "config.json" else {}), **keys}
            files[name] = {key: value for key, value in new.items() if value != "absent"}
    if change == "buffers":  # the numbers of positions that older releases have
        for name in [n for n in arrays if n.endswith("embeddings.position_embedding.weight")]:
            numbers = name.replace("position_embedding.weight", "position_ids")
            arrays[numbers] = ["I64", [1, arrays[name][1][0]]]


SOME = list(REPOSITORIES) if THOROUGH else [*list(REPOSITORIES)[::3], "siglip2-base-patch16-224"]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("change", CHANGES)
def test_what_another_release_wrote_gives_the_same_model(name, change, tmp_path):
    repository = copy.deepcopy(REPOSITORIES[name])
    expected = keras_vit.info(write(tmp_path / "plain", repository))
    _change(repository, change)
    info = keras_vit.info(write(tmp_path / "changed", repository))
    sizes = ("image_size", "position_grid") if change == "no preprocessor" else ()  # DINOv2's
    stated = {name: getattr(expected.config, name) for name in sizes}
    assert info.config.replace(**stated) == expected.config
    # One network has one family, but for classes that differ in parts which the file lacks.
    assert info.family.partition("/")[0] == expected.family.partition("/")[0]


PROCESSORS = json.loads((FILE.parent / "processors.json").read_text())
"""Forms of preprocessor_config.json of several releases, and what they mean."""


@pytest.mark.parametrize("form", PROCESSORS)
def test_each_form_of_a_processor_has_its_meaning(form, tmp_path):
    repository = copy.deepcopy(REPOSITORIES["openai-b32"])
    repository["json"]["preprocessor_config.json"], want = PROCESSORS[form]
    protocol = complete(keras_vit.info(write(tmp_path, repository)).protocol)
    assert {key: protocol[key] for key in want} == want


ROWS = json.loads((FILE.parent / "rows.json").read_text())
"""Rows of the catalog whose repository is among the published ones."""


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_catalog_has_the_configuration_of_its_repository(row, tmp_path):
    found = keras_vit.info(write(tmp_path, REPOSITORIES[ROWS[row]])).config
    assert preset_named(row).config().to_dict() == found.to_dict()
