"""The catalog: every row is consistent, and official files load by the name of their row."""

import re
from dataclasses import replace
from urllib.parse import unquote

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints.families import formats_named
from keras_vit.checkpoints.moves import plan
from keras_vit.checkpoints.writing import choose_format
from keras_vit.config.weights import lexicon
from keras_vit.errors import CheckpointError, PresetError
from keras_vit.images.protocols import complete
from keras_vit.models.builders import variant
from keras_vit.presets import bucket, catalog
from keras_vit.presets.augreg import read_file_name
from keras_vit.presets.catalog import CATALOG, Preset, list_presets, preset_named
from keras_vit.presets.preset_config import ModelFacts
from tests.checkpoints.headers import write_sparse
from tests.golden import CASES, FAMILIES, FOLDER, expected, outputs, relative_error
from tests.helpers import random_tiny, to_numpy
from tests.plain import raises

FETCHED = {name: row for name, row in CATALOG.items() if row.folder is None}
VIT = {name: row for name, row in FETCHED.items() if row.family == "vit"}

VIT_NAME = re.compile(
    r"(?P<variant>\w+)\.(orig|augreg2?|g?sam|big_vision)_(?P<data>i21k|i1k|(i21k|i1k)_ft_i1k)"
    r"(_\d+ep)?_(?P<size>\d+)"
)
NAME = re.compile(r"vit_(ti|s|m|b|l|h|g|bigg|so400m_)\d+(plus|_reg\d)?\.[a-z0-9_]+")
HUB = re.compile(r"hf://[\w-]+/[\w.-]+")
BUCKET = re.compile(r"https://storage\.googleapis\.com/(vit_models|big_vision)/([\w./-]|%2B)+\.npz")
FIELDS = ("pathology", "radiology", "biology", "biomedicine", "satellites")
"""Families of encoders of single fields."""
UPSTREAM = "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"
GATED = ("hf://MahmoodLab/", "hf://paige-ai/", "hf://bioptimus/", "hf://prov-gigapath/")
CLASS_NAMES = {"i21k": (21843, "imagenet21k"), "i1k": (1000, "imagenet1k")}
MILLIONS = {
    "vit_g14.dinov2": 1136.5,
    "vit_l14.clip_openai_336": 304.3,
    "vit_so400m_14.siglip_webli_384": 428.2,
    "vit_ti16.deit_distilled_i1k_224": 5.9,
    "vit_m16.deit3_i1k_224": 38.8,
    "vit_b16.deit3_i21k_ft_i1k_384": 86.9,
    "vit_h14.deit3_i1k_224": 632.1,
    "vit_l16.mae_i1k_224": 303.3,
    "vit_h14.ijepa_i1k_224": 630.8,
}
"""Millions of parameters that the papers, timm and the model cards report."""


@pytest.mark.parametrize("name", FETCHED)
def test_a_row_keeps_the_schema(name, tmp_path):
    """Its name, sources and facts are well formed and agree; no two rows share a source."""
    row, is_vit = CATALOG[name], name in VIT
    sources = (row.source, *row.alternatives)
    for source in sources:
        if not HUB.fullmatch(source):
            assert is_vit and BUCKET.fullmatch(source)
            assert bucket.place(source).name == unquote(source).rpartition("/")[2]
    others = [s for r in FETCHED.values() if r is not row for s in (r.source, *r.alternatives)]
    assert not set(sources) & set(others)
    complete(row.protocol)
    assert (row.top1 is None) == (not row.reported)
    assert row.top1 is None or 70 < row.top1 < 90
    # These licenses have to be accepted before a download.
    is_gated = row.family == "dinov3" or row.source.startswith(GATED)
    assert row.note.startswith("gated: accept the license") == is_gated
    assert bool(row.feature) == (row.family in FIELDS)
    if row.timm:  # with arrays of the row's shapes, the card's arguments state the row's model
        moves, file = plan(row.config(), formats_named("timm")[0]), tmp_path / "x.safetensors"
        write_sparse(file, {move.name: ("F32", move.file_shape) for move in moves})
        stated = keras_vit.info(file, read={"timm": row.timm})
        assert stated.config == row.config()
        protocols = [complete(protocol) for protocol in (stated.protocol, row.protocol)]
        for key in {"mean", "std"} & row.timm.keys():
            assert protocols[0][key] == protocols[1][key]
    assert row.zero_head == (".orig_i21k_224" in name)
    if not is_vit:
        assert NAME.fullmatch(name) and row.unverified and row.license
        return
    parts = VIT_NAME.fullmatch(name)
    assert parts, f"{name}: a recipe or data that VIT_NAME, above, does not list yet"
    stated = (row.variant, row.data, row.image_size, row.license)
    assert stated == (parts["variant"], parts["data"], int(parts["size"]), "Apache-2.0")
    assert (row.num_classes, row.class_names) == CLASS_NAMES[row.data.split("_ft_")[-1]]
    assert bool(row.unverified) >= bool(row.alternatives)
    if ".augreg_" in name:
        facts = read_file_name(row.source.rpartition("/")[2])
        same = ("variant", "image_size", "num_classes", "protocol", "class_names")
        assert {key: getattr(row, key) for key in same} == {key: facts[key] for key in same}
        assert row.data.startswith(facts["data"].partition("_ft_")[0])


@pytest.mark.parametrize("name", FETCHED)
def test_the_format_of_a_row_holds_its_model(name):
    """A name for every weight, its arithmetic, and no refusal, but of towers of open_clip.

    The parameters are those that reports state, to their digits.
    """
    config, formats = CATALOG[name].config(), formats_named(CATALOG[name].format_name)
    if ".bio" in name:
        moves = plan(config, formats[0])
    else:
        moves = choose_format(ModelFacts(config), formats).moves
    assert sum(len(move.paths) for move in moves) == len(list(lexicon.weights(config)))
    if reported := MILLIONS.get(name):
        count = lexicon.num_parameters(config) / 1e6
        assert abs(count - reported) <= max(0.06, reported * 0.002)


def test_list_presets_filters_by_each_fact_alone_and_together():
    assert list_presets() == list(CATALOG)
    assert list_presets(family="dinov3") == [n for n in CATALOG if ".dinov3_" in n]
    assert list_presets(data="digits", hybrid=False) == ["vit_digits"]
    assert list_presets("r50_vit_b16", resolution=384) == ["r50_vit_b16.orig_i21k_ft_i1k_384"]
    assert len(list_presets(hybrid=True)) + len(list_presets(hybrid=False)) == len(CATALOG)


def test_a_row_or_a_file_name_of_augreg_is_described_without_a_download(monkeypatch):
    """Configuration, protocol, labels and provenance, as far as the name states them."""
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    card = keras_vit.info("vit_b16.augreg_i21k_ft_i1k_384")
    assert card.config == variant("vit_b16").config(384)
    assert (card.family, card.variant) == ("google", "vit_b16")
    assert (card.protocol["resize_small"], card.class_names) == (448, "imagenet1k")
    assert card.provenance["reported_top1"] == 85.49
    assert keras_vit.info(f"augreg/{UPSTREAM}").class_names == "imagenet21k"
    name = f"{UPSTREAM}--cifar100-steps_10k-lr_0.01-res_224"
    assert keras_vit.info(f"augreg/{name}").config.num_classes == 100


def make(name, source, **fields):
    """A row of a small model."""
    stated = {"variant": None, "data": "i1k", "image_size": 16, "num_classes": 5, **fields}
    return Preset(name, source=source, **{"protocol": {"name": "timm"}, **stated})


@pytest.fixture
def add(monkeypatch):
    """Adds a row to the catalog."""
    monkeypatch.setattr(catalog, "CATALOG", dict(CATALOG))
    return lambda row: catalog.CATALOG.update({row.name: row})


@pytest.fixture
def rows(hub, tmp_path, add):
    """Catalog rows of small models, whose files a local bucket serves."""
    model = random_tiny(representation_size=16)
    checkpoints.save(model, tmp_path / "x.npz", "google")
    hub.files["vit_models/imagenet21k/tiny+x.npz"] = (tmp_path / "x.npz").read_bytes()
    hub.files["big_vision/sincos.npz"] = (FOLDER / "bv_sincos_rep.npz").read_bytes()
    google = bucket.OFFICIAL + "vit_models/imagenet21k/"
    tiny = make("tiny", google + "tiny%2Bx.npz", protocol="paper")
    add(replace(tiny, top1=81.5, reported="a paper", zero_head=True))
    add(replace(tiny, name="dash", source=google + "tiny-x.npz", alternatives=(tiny.source,)))
    add(replace(tiny, name="gone", source=google + "gone.npz", unverified="whether it is"))
    sincos = {"num_classes": 6, "fields": {"position": "sincos2d"}}
    add(make("sincos", bucket.OFFICIAL + "big_vision/sincos.npz", **sincos))
    return model


def test_an_official_file_loads_by_its_name(rows, caplog):
    """With weights, protocol and provenance; a head of zeros that is kept is logged."""
    model = VisionTransformer.from_preset("tiny", num_classes=3, image_size=32, name="mine")
    assert (model.name, model.output_shape) == ("mine", (None, 3))
    assert model.config.image_size == (32, 32)
    assert "zeros, so" not in caplog.text
    model = VisionTransformer.from_preset("tiny")
    images = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    assert np.array_equal(model.predict(images, verbose=0), rows.predict(images, verbose=0))
    assert model.preprocessor.protocol == "paper"
    _, sha256 = bucket.sha256_in_cache(preset_named("tiny").source)
    facts = {"preset": "tiny", "sha256": sha256, "reported_top1": 81.5}
    assert facts.items() <= dict(model.provenance).items()
    assert "tiny: the head was published as zeros" in caplog.text


def test_a_row_states_what_its_file_does_not(rows):
    """The image size of computed positions; other addresses, and the doubt if none is found."""
    assert VisionTransformer.from_preset("sincos").config.image_size == (16, 16)
    assert VisionTransformer.from_preset("dash").provenance["source"].endswith("tiny%2Bx.npz")
    with raises(PresetError, "gone.npz", "404", "gone: unverified is whether it is"):
        VisionTransformer.from_preset("gone")


def test_a_file_of_augreg_loads_by_its_name(hub, tmp_path):
    """The file determines the number of classes."""
    checkpoints.save(variant("vit_ti16")(32, num_classes=3), tmp_path / "x.npz", "google")
    name = f"{UPSTREAM}--pets-steps_0k-lr_0.003-res_32".replace("S_16", "Ti_16")
    hub.files[f"vit_models/augreg/{name}.npz"] = (tmp_path / "x.npz").read_bytes()
    loaded = VisionTransformer.from_preset(f"augreg/{name}.npz")
    assert (loaded.config.num_classes, loaded.config.image_size) == (3, (32, 32))


def test_a_row_may_have_its_file_on_the_hub(hub, add):
    """Protocol and provenance come from the row, of a family's repository from its files."""
    own, source = {"name": "timm", "crop_pct": 0.875}, "hf://timm/vit_tiny.again"
    stated = {"num_classes": 6, "protocol": own, "top1": 80.0, "reported": "x"}
    add(make("again", source, format_name="timm", **stated))
    hub.add("timm/vit_tiny.again", FOLDER / CASES["timm_token"]["checkpoint"])
    model, want = VisionTransformer.from_preset("again"), expected("timm_token")
    assert model.preprocessor.protocol == own
    facts = {"preset": "again", "repo": source, "reported_top1": 80.0}
    assert facts.items() <= dict(model.provenance).items()
    assert (
        relative_error(outputs(model, want["image"], ["logits"])["logits"], want["logits"]) < 1e-5
    )

    folder = FAMILIES / "hf_dinov2_model"
    facts = {"family": "dinov2", "format_name": "transformers/dinov2", "num_classes": 0}
    add(make("dino", "hf://us/dino", fields=CATALOG["vit_b14.dinov2"].fields, **facts))
    hub.add("us/dino", folder)
    model, want = VisionTransformer.from_preset("dino"), expected("hf_dinov2_model")
    assert relative_error(to_numpy(model(want["image"])), want["pre_logits"]) <= 1e-5
    assert model.preprocessor.protocol == keras_vit.info(folder).protocol


def test_a_row_loads_with_the_arguments_of_its_card(hub, add):
    """They stand for the class of the MLP, which the repository's JSON cannot state."""
    card = {"model_name": "vit_little_patch16_reg1_gap_256", "std": [0.25, 0.25, 0.25]}
    own = {"family": "pathology", "format_name": "timm", "timm": card, "feature": "mean"}
    add(make("again", "hf://owner/encoder", num_classes=0, **own))
    hub.add("owner/encoder", FAMILIES / "timm_reg1_gap")
    assert VisionTransformer.from_preset("again").preprocessor.protocol["std"] == 0.25
    with raises(CheckpointError, "registers=3, but the arrays have 1"):
        VisionTransformer.from_preset("again", read={"timm": {**card, "reg_tokens": 3}})
