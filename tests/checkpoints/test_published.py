"""Repositories as they are published, and as older and newer releases wrote them, are read.

The JSON is that of real repositories; beside it lies a sparse file with the names, types and shapes
of the published arrays, which takes no room on the disk.
"""

import copy
import gzip
import json
import math
from pathlib import Path

import pytest

import keras_vit
from keras_vit.images.protocols import complete
from keras_vit.presets.catalog import preset_named
from tests.thorough import THOROUGH

pytestmark = pytest.mark.without_backend

FILE = Path(__file__).parents[1] / "data" / "published" / "repositories.json.gz"
REPOSITORIES = json.loads(gzip.decompress(FILE.read_bytes()))
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8}


def write_sparse(path: Path, arrays: dict) -> None:
    """Writes the header of a safetensors file, and a hole in place of the numbers."""
    header, end = {}, 0
    for name, (dtype, shape) in arrays.items():
        start, end = end, end + math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def write(folder: Path, repository: dict) -> Path:
    for name, content in repository["json"].items():
        (folder / name).write_text(json.dumps(content))
    write_sparse(folder / repository["file"], repository["arrays"])
    return folder


def read_sizes(info) -> dict:
    config = info.config
    return {
        "hidden_size": config.hidden_size,
        "num_layers": config.num_layers,
        "patch_size": config.patch_size[0],
        "num_classes": config.num_classes,
    }


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_published_repository_is_recognised(name, tmp_path):
    repository = REPOSITORIES[name]
    info = keras_vit.info(write(tmp_path, repository))
    assert read_sizes(info) == repository["expected"]
    poolings = {"siglip": "map", "ijepa": "gap", "reg-1layer": "token_and_mean"}
    poolings |= {"deit-base-distilled": "token_and_distillation"}
    pooling = next((pooling for part, pooling in poolings.items() if part in name), "token")
    assert info.config.pool.kind == pooling


_PIXELS = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
CHANGES = {
    "no class": {"config.json": {"architectures": ...}},
    "no release": {
        "config.json": dict.fromkeys(
            ("transformers_version", "torch_dtype", "dtype", "_name_or_path"), ...
        )
    },
    "keys of other releases and of training": {
        "config.json": {
            **{"dtype": "bfloat16", "_attn_implementation": "sdpa", "attention_type": "sdpa"},
            **{"encoder_stride": 16, "initializer_range": 0.5, "mask_ratio": 0.6},
            **{"use_cache": True, "problem_type": None, "num_labels": 2},
        }
    },
    "a feature extractor": {
        "preprocessor_config.json": {
            **{"feature_extractor_type": "ViTFeatureExtractor", "do_resize": True, "size": 224},
            **{**_PIXELS, "do_normalize": True},
        }
    },
    "an image processor": {
        "preprocessor_config.json": {
            **{"image_processor_type": "BitImageProcessorFast", "size": {"shortest_edge": 256}},
            **{"crop_size": {"height": 224, "width": 224}, "resample": 3, "do_center_crop": True},
            **{**_PIXELS, "default_to_square": False},
        }
    },
    "no preprocessor": {"preprocessor_config.json": None},
    "16 bits": {},
    "buffers": {},
}
"""Keys of JSON that other releases write otherwise: `...` for an absent key, None for no file."""


def _change(repository: dict, change: str) -> None:
    files, arrays = repository["json"], repository["arrays"]
    for name, keys in CHANGES[change].items():
        old = files.pop(name, {})
        if keys is not None:
            new = {**(old if name == "config.json" else {}), **keys}
            files[name] = {key: value for key, value in new.items() if value is not ...}
    for name, (dtype, shape) in list(arrays.items()):
        if change == "16 bits" and dtype == "F32":
            arrays[name][0] = "BF16"
        if change == "buffers" and name.endswith("embeddings.position_embedding.weight"):
            # Numbers of positions that older releases stored.
            numbers = name.replace("position_embedding.weight", "position_ids")
            arrays[numbers] = ["I64", [1, shape[0]]]
    if change == "buffers":
        arrays["empty"] = ["F32", [0, 8]]


SOME = list(REPOSITORIES) if THOROUGH else [*list(REPOSITORIES)[::3], "siglip2-base-patch16-224"]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("change", CHANGES)
def test_what_another_release_wrote_gives_the_same_model(name, change, tmp_path):
    repository = copy.deepcopy(REPOSITORIES[name])
    plain, changed = tmp_path / "plain", tmp_path / "changed"
    for folder in (plain, changed):
        folder.mkdir()
    expected = keras_vit.info(write(plain, repository))
    _change(repository, change)
    info = keras_vit.info(write(changed, repository))
    sizes = ("image_size", "position_grid") if change == "no preprocessor" else ()  # DINOv2's
    stated = {name: getattr(expected.config, name) for name in sizes}
    assert info.config.replace(**stated) == expected.config
    # One network has one dialect, but for classes that differ in parts which the file lacks.
    assert info.family.partition("/")[0] == expected.family.partition("/")[0]


def test_dinov3_without_registers_has_none(tmp_path):
    """Both forms: an array of zero rows, and no array."""
    repository = copy.deepcopy(REPOSITORIES["dinov3-s16"])
    repository["json"]["config.json"]["num_register_tokens"] = 0
    name = next(name for name in repository["arrays"] if name.endswith("register_tokens"))
    repository["arrays"][name][1][1] = 0
    assert keras_vit.info(write(tmp_path, repository)).config.tokens.registers == 0
    del repository["arrays"][name]
    assert keras_vit.info(write(tmp_path, repository)).config.tokens.registers == 0


def test_a_classifier_is_found_by_its_arrays_where_no_class_is_named(tmp_path):
    """SigLIP's classifier has an attention pooling in its file, which the class does not use."""
    repository = copy.deepcopy(REPOSITORIES["siglip-base-patch16-224"])
    repository["json"]["config.json"].pop("architectures", None)
    arrays = {n: a for n, a in repository["arrays"].items() if n.startswith("vision_model.")}
    arrays |= {"classifier.weight": ["F32", [10, 768]], "classifier.bias": ["F32", [10]]}
    info = keras_vit.info(write(tmp_path, {**repository, "arrays": arrays}))
    assert (info.family, info.config.num_classes) == ("transformers/siglip_classifier", 10)
    assert info.config.pool.kind == "gap"


def test_names_that_do_not_number_the_classes_are_left_out(tmp_path, caplog):
    repository = copy.deepcopy(REPOSITORIES["google-vit-base"])
    repository["json"]["config.json"]["id2label"] = {"0": "a", "7": "b"}
    assert keras_vit.info(write(tmp_path, repository)).class_names is None
    assert "id2label of the keys 0, 7, expected 0 to 1" in caplog.text


CROPPED = {"crop_pct": 1.0, "name": "transformers", "crop_mode": "center"}
SCALED = {"crop_pct": 1.0, "name": "transformers"}
PROCESSORS = {
    "an int of a CLIPFeatureExtractor": (
        {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224},
        CROPPED,
    ),
    "no crop_size": (
        {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 256}},
        {**CROPPED, "crop_pct": 0.875},
    ),
    "an int of a DeiTFeatureExtractor": (
        {
            **{"feature_extractor_type": "DeiTFeatureExtractor", "size": 256},
            **{"crop_size": 224, "do_center_crop": True},
        },
        {**SCALED, "crop_pct": 0.875},
    ),
    "a pair": ({"feature_extractor_type": "ViTFeatureExtractor", "size": [224, 224]}, SCALED),
    "nulls": (
        {
            **{"image_processor_type": "ViTImageProcessorFast", "crop_size": None},
            **{"size": {"height": 224, "width": 224}, "resample": None, "image_mean": None},
        },
        SCALED,
    ),
}
"""Forms of preprocessor_config.json of several releases, and what they mean."""


@pytest.mark.parametrize("form", PROCESSORS)
def test_each_form_of_a_processor_has_its_meaning(form, tmp_path):
    repository = copy.deepcopy(REPOSITORIES["openai-b32"])
    repository["json"]["preprocessor_config.json"], want = PROCESSORS[form]
    protocol = complete(keras_vit.info(write(tmp_path, repository)).protocol)
    assert {key: protocol[key] for key in want} == want


ROWS = {
    "vit_b14.dinov2": "dinov2-base",
    "vit_g14.dinov2": "dinov2-giant",
    "vit_l14.dinov2": "dinov2-large",
    "vit_s14.dinov2": "dinov2-small",
    "vit_b14_reg4.dinov2": "dinov2-reg-base",
    "vit_l14_reg4.dinov2": "dinov2-reg-large",
    "vit_s14_reg4.dinov2": "dinov2-reg-small",
    "vit_s16.dinov3_lvd1689m": "dinov3-s16",
    "vit_s16plus.dinov3_lvd1689m": "dinov3-s16plus",
    "vit_b32.clip_openai_224": "openai-b32",
    "vit_b32.clip_laion2b_224": "laion-b32-hf",
    "vit_b16.siglip_webli_224": "siglip-base-patch16-224",
    "vit_so400m_14.siglip_webli_384": "siglip-so400m-patch14-384",
    "vit_b16.siglip2_webli_224": "siglip2-base-patch16-224",
    "vit_so400m_14.siglip2_webli_384": "siglip2-so400m-patch14-384",
    "vit_ti16.deit_i1k_224": "deit-tiny-patch16-224",
    "vit_s16.deit_i1k_224": "deit-small-patch16-224",
    "vit_b16.deit_i1k_224": "deit-base-patch16-224",
    "vit_b16.deit_distilled_i1k_224": "deit-base-distilled-224",
    "vit_b16.mae_i1k_224": "vit-mae-base",
    "vit_s16.msn_i1k_224": "vit-msn-small",
    "vit_h14.ijepa_i1k_224": "ijepa_vith14_1k",
    "vit_h16.ijepa_i1k_448": "ijepa_vith16_1k",
}
"""Rows of the catalog whose repository is among the published ones."""


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_catalog_has_the_configuration_of_its_repository(row, tmp_path):
    found = keras_vit.info(write(tmp_path, REPOSITORIES[ROWS[row]])).config
    assert preset_named(row).config().to_dict() == found.to_dict()
