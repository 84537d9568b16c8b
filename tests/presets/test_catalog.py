"""The catalog: every row is consistent, and official files load by the name of their row."""

import math
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
from keras_vit.errors import CheckpointError, ConfigError, PresetError
from keras_vit.images.protocols import complete
from keras_vit.models.builders import variant
from keras_vit.presets import bucket, catalog
from keras_vit.presets.augreg import read_file_name
from keras_vit.presets.catalog import CATALOG, Preset, list_presets, preset_named
from keras_vit.presets.preset_config import ModelFacts
from tests import family_goldens
from tests.checkpoints.headers import write_sparse
from tests.config.test_variants import COUNTS
from tests.golden import CASES, FOLDER, expected, outputs, relative_error
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
GATED = tuple(
    f"hf://{owner}/" for owner in ("MahmoodLab", "paige-ai", "bioptimus", "prov-gigapath")
)
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
GAP_COUNTS = {
    "vit_s16": 22_049_896,
    "vit_b16": 86_566_120,
    "vit_s32": 22_878_184,
    "vit_b32": 88_222_696,
}
"""Parameters with 1000 classes of models that average their patches."""


def check_card(row, folder):
    """The arguments of the card, and arrays of the row's shapes, state the row's model."""
    moves = plan(row.config(), formats_named("timm")[0])
    write_sparse(folder / "x.safetensors", {m.name: ("F32", m.file_shape) for m in moves})
    stated = keras_vit.info(folder / "x.safetensors", read={"timm": row.timm})
    assert stated.config == row.config()
    for key in ("mean", "std"):
        if key in row.timm:
            assert complete(stated.protocol)[key] == complete(row.protocol)[key]


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
    if row.timm:
        check_card(row, tmp_path)
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
    """A name for every weight, its arithmetic, and no refusal, but of towers of open_clip."""
    config, formats = CATALOG[name].config(), formats_named(CATALOG[name].format_name)
    if ".bio" in name:
        moves = plan(config, formats[0])
    else:
        moves = choose_format(ModelFacts(config), formats).moves
    assert sum(len(move.paths) for move in moves) == len(list(lexicon.weights(config)))


@pytest.mark.parametrize("name", MILLIONS)
def test_parameters_equal_the_reported_numbers(name):
    """To the digits of the reports."""
    count = lexicon.num_parameters(CATALOG[name].config())
    assert abs(count / 1e6 - MILLIONS[name]) <= max(0.06, MILLIONS[name] * 0.002)


@pytest.mark.parametrize("name", VIT)
def test_parameters_equal_the_counts_of_the_reference(name):
    """The count of the variant, plus positions of other sizes and pre_logits."""
    row = CATALOG[name]
    config = row.config()
    if config.position == "sincos2d":  # the count without a class token, minus the positions
        expected = GAP_COUNTS[row.variant] - 196 * config.hidden_size
    elif row.fields.get("pool.kind") == "gap":
        expected = GAP_COUNTS[row.variant]
    else:
        expected = COUNTS[row.variant][row.num_classes == 21843]
    at_224 = variant(row.variant).config().source_grid
    more = math.prod(config.source_grid) - math.prod(at_224)
    expected += more * config.hidden_size
    if width := config.representation_size:
        expected += config.hidden_size * width + width
    assert lexicon.num_parameters(config) == expected, (
        f"{name}: wrong fields, or fields that the sum above leaves out"
    )


def test_list_presets_filters_by_variant_data_resolution_and_hybrid():
    """Alone and together; unknown values are refused with the nearest."""
    assert list_presets() == list(CATALOG)
    assert list_presets(family="dinov3") == [n for n in CATALOG if ".dinov3_" in n]
    with raises(ConfigError, "family='dinov4'", "Did you mean 'dinov", "siglip"):
        list_presets(family="dinov4")
    assert list_presets(variant="vit_h14") == ["vit_h14.orig_i21k_224"]
    assert list_presets(data="digits", hybrid=False) == ["vit_digits"]
    assert list_presets("r50_vit_b16", resolution=384) == ["r50_vit_b16.orig_i21k_ft_i1k_384"]
    assert all("r" in name[:3] for name in list_presets(hybrid=True))
    assert len(list_presets(hybrid=True)) + len(list_presets(hybrid=False)) == len(CATALOG)
    with raises(ConfigError, "'vit_b61'", "vit_b16"):
        list_presets(variant="vit_b61")
    with raises(ConfigError, "data='i21'", "Did you mean 'i21k'", "i21k_ft_i1k"):
        list_presets(data="i21")


def test_an_unknown_name_is_refused_with_the_nearest():
    """Of a row, a file of AugReg, whose message names the index, and a web address."""
    with raises(PresetError, "expected hf://owner/repo"):
        VisionTransformer.from_preset("https://example.org/vit")
    with raises(
        PresetError, "_384x' is no preset", "Did you mean 'vit_b16.augreg_i21k_ft_i1k_384'"
    ):
        preset_named("vit_b16.augreg_i21k_ft_i1k_384x")
    with raises(PresetError, "'B_16'", "no file name of AugReg", "augreg/index.csv"):
        preset_named("augreg/B_16.npz")


def test_a_row_is_described_without_a_download(monkeypatch):
    """Configuration, protocol, labels and provenance, also for a file of AugReg."""
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    card = keras_vit.info("vit_b16.augreg_i21k_ft_i1k_384")
    assert card.config == variant("vit_b16").config(384)
    assert (card.family, card.variant) == ("google", "vit_b16")
    assert (card.protocol["resize_small"], card.class_names) == (448, "imagenet1k")
    assert card.provenance["reported_top1"] == 85.49
    upstream = "augreg/Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
    assert keras_vit.info(upstream).class_names == "imagenet21k"
    name = f"{upstream}--cifar100-steps_10k-lr_0.01-res_224"
    assert keras_vit.info(name).config.num_classes == 100
    with raises(PresetError, "number of classes is known only to its files"):
        keras_vit.info(name.replace("cifar100", "flowers"))


@pytest.fixture
def rows(hub, tmp_path, monkeypatch):
    """Catalog rows of small models, whose files a local bucket serves."""
    model = random_tiny(representation_size=16)
    checkpoints.save(model, tmp_path / "x.npz", "google")
    hub.files["vit_models/imagenet21k/tiny+x.npz"] = (tmp_path / "x.npz").read_bytes()
    hub.files["big_vision/sincos.npz"] = (FOLDER / "bv_sincos_rep.npz").read_bytes()
    google = bucket.OFFICIAL + "vit_models/imagenet21k/"
    tiny = Preset("tiny", None, "i21k", google + "tiny%2Bx.npz", 16, 5, "paper")
    sincos = {"source": bucket.OFFICIAL + "big_vision/sincos.npz", "num_classes": 6}
    made = (
        replace(tiny, top1=81.5, reported="a paper", zero_head=True),
        replace(tiny, name="dash", source=google + "tiny-x.npz", alternatives=(tiny.source,)),
        replace(tiny, name="gone", source=google + "gone.npz", unverified="whether it is"),
        replace(tiny, name="sincos", fields={"position": "sincos2d"}, **sincos),
    )
    monkeypatch.setattr(catalog, "CATALOG", {**CATALOG, **{row.name: row for row in made}})
    return model


def test_an_official_file_loads_by_its_name(rows, caplog):
    """With weights, protocol, and the sha256 in its provenance; a zero head is logged."""
    model = VisionTransformer.from_preset("tiny")
    images = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    assert np.array_equal(model.predict(images, verbose=0), rows.predict(images, verbose=0))
    assert model.preprocessor.protocol == "paper"
    _, sha256 = bucket.sha256_in_cache(preset_named("tiny").source)
    facts = {"preset": "tiny", "sha256": sha256, "reported_top1": 81.5}
    assert facts.items() <= dict(model.provenance).items()
    assert "tiny: the head was published as zeros" in caplog.text


def test_a_new_head_is_loaded_without_the_warning_of_a_zero_head(rows, caplog):
    """Other classes, image size and name."""
    model = VisionTransformer.from_preset("tiny", num_classes=3, image_size=32, name="mine")
    assert (model.name, model.output_shape) == ("mine", (None, 3))
    assert model.config.image_size == (32, 32)
    assert "zeros, so" not in caplog.text


def test_computed_positions_take_the_image_size_of_the_row(rows):
    """A file without stored positions does not determine the image size."""
    assert VisionTransformer.from_preset("sincos").config.image_size == (16, 16)


def test_unverified_urls_have_alternatives_and_say_so_on_failure(rows):
    """The message names the fact that is not verified."""
    assert VisionTransformer.from_preset("dash").provenance["source"].endswith("tiny%2Bx.npz")
    with raises(PresetError, "gone.npz", "404", "gone: unverified is whether it is"):
        VisionTransformer.from_preset("gone")


def test_a_row_may_have_its_file_on_the_hub(hub, monkeypatch):
    """The Hub's client downloads the weights; protocol and provenance come from the row."""
    own = {"name": "timm", "crop_pct": 0.875}
    source = "hf://timm/vit_tiny.again"
    row = Preset("again", None, "i1k", source, 16, 6, own, 80.0, "x", format_name="timm")
    monkeypatch.setattr(catalog, "CATALOG", {"again": row})
    case = CASES["timm_token"]
    hub.add("timm/vit_tiny.again", FOLDER / case["checkpoint"])
    model = VisionTransformer.from_preset("again")
    assert model.preprocessor.protocol == own
    facts = {"preset": "again", "repo": source, "reported_top1": 80.0}
    assert facts.items() <= dict(model.provenance).items()
    names = set(expected("timm_token")) - {"image"}
    got = outputs(model, expected("timm_token")["image"], names)
    assert relative_error(got["logits"], expected("timm_token")["logits"]) < 1e-5


def test_a_row_of_a_family_loads_from_its_repository(hub, monkeypatch):
    """Weights and protocol come from the repository; the model has a head only on request."""
    source, folder = "hf://facebook/dinov2.again", family_goldens.FOLDER / "hf_dinov2_model"
    facts = {"family": "dinov2", "format_name": "transformers/dinov2"}
    facts["fields"] = CATALOG["vit_b14.dinov2"].fields
    row = Preset("again", None, "x", source, 16, 0, {"name": "timm"}, **facts)
    monkeypatch.setattr(catalog, "CATALOG", {"again": row})
    hub.add("facebook/dinov2.again", folder)
    model = VisionTransformer.from_preset("again")
    want = family_goldens.expected("hf_dinov2_model")
    assert relative_error(to_numpy(model(want["image"])), want["pre_logits"]) <= 1e-5
    assert VisionTransformer.from_preset("again", num_classes=3).output_shape == (None, 3)
    assert model.preprocessor.protocol == keras_vit.info(folder).protocol


def test_a_row_loads_with_the_arguments_of_its_card(hub, monkeypatch, tmp_path):
    """They stand for the class of the MLP, which the repository's JSON cannot state."""
    timm_file = family_goldens.FOLDER / "timm_reg1_gap"
    source = "hf://owner/encoder"
    card = {"model_name": "vit_little_patch16_reg1_gap_256", "std": [0.25, 0.25, 0.25]}
    own = {"family": "pathology", "format_name": "timm", "timm": card, "feature": "mean"}
    row = Preset("again", None, "x", source, 16, 0, {"name": "timm"}, **own)
    monkeypatch.setattr(catalog, "CATALOG", {"again": row})
    hub.add("owner/encoder", timm_file)
    assert VisionTransformer.from_preset("again").preprocessor.protocol["std"] == 0.25
    other = {**card, "reg_tokens": 3}
    with pytest.raises(CheckpointError, match="registers=3, and the arrays have 1"):
        VisionTransformer.from_preset("again", read={"timm": other})
