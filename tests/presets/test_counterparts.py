"""The catalog beside its counterparts: each fact is timm's or keras-hub's, or has a reason."""

import fnmatch
import importlib
import json
from importlib import metadata
from pathlib import Path

import pytest

from keras_vit.checkpoints.families.timm.architectures import find_row, read_defaults
from keras_vit.config.weights.lexicon import num_parameters
from keras_vit.errors import SourceError
from keras_vit.images.protocols import complete
from keras_vit.presets.catalog import CATALOG, preset_named

TABLE = json.loads((Path(__file__).parents[1] / "data" / "counterparts.json").read_text())
"""The releases that were compared, and each difference with its reason."""
HERE = {"GELU": "gelu", "SiLU": "silu", "avg": "gap", "dinov3-license": "licenseref-dinov3"}
"""Words of timm, and those of the catalog, in small letters."""
STRICTNESS = ("MIT", "Apache-2.0", "CC-BY-NC-4.0", "CC-BY-NC-ND-4.0", "LicenseRef-DINOv3")
STRICTNESS += ("see the repository",)
"""The catalog's licenses, the most permissive first."""
WITHOUT = ("vit_digits", "*.gsam_*", "*.big_vision_*", "*.msn_*", "vit_[sl]*.sam_*")
WITHOUT += ("vit_b32.orig_i21k_ft_i1k_384", "vit_l16.orig_i21k_ft_i1k_*")
"""Rows of recipes that timm has not."""


def names_in(library):
    """The names of the catalog's rows in another library."""
    rows = CATALOG.values()
    return {row.name: row.counterparts[library] for row in rows if library in row.counterparts}


def library(name, release=True):
    """A library, of the release beside which the table was made."""
    if name == "timm":
        pytest.importorskip("torch")
        from tests import torchvision_shim  # noqa: F401
    module = pytest.importorskip(name.replace("-", "_"))
    if release and (found := metadata.version(name)) != TABLE["releases"][name]:
        pytest.skip(f"the table was made beside {TABLE['releases'][name]}, not {found}")
    return module


def of_keras_vit(row):
    """The facts of a row; `crop` is the share of the resized image's smaller side."""
    config, protocol = row.config(), complete(row.protocol)
    crop, interpolation = protocol.get("crop_pct", 1.0), protocol.get("interpolation", "bilinear")
    squashes = protocol["name"] == "paper" or protocol.get("crop_mode") == "squash"
    if protocol["name"] == "big_vision":
        interpolation = protocol["method"]
        crop = (protocol["image_size"] or 224) / (protocol["resize_small"] or 256)
    return {
        "pixels": row.image_size,
        "classes": config.projection_size or config.num_classes,
        "activation": config.block.activation,
        "registers": config.tokens.registers,
        "qkv_bias": bool(config.block.qkv_bias),
        "layer_scale": config.block.layer_scale is not None,
        "pre_norm": config.block.input_norm == "tokens",
        "head": config.pool.kind,
        "mean": protocol["mean"],
        "std": protocol["std"],
        "interpolation": interpolation,
        "crop": crop,
        "squash": squashes and protocol.get("crop_pct", 1.0) == 1.0,
    }


def of_timm(tag, config):
    """The facts of a pretrained model of timm, without a model built."""
    row = find_row(tag)
    assert row is not None, f"{tag}: no architecture of timm's in families/timm/registry.json"
    given = {"global_pool": "token", "act_layer": "gelu", **read_defaults(row), **row}
    is_distilled = "Distilled" in given.get("class", "")
    pool = "token_and_distillation" if is_distilled else given["global_pool"]
    mean, std = (v[0] if len(set(v)) == 1 else list(v) for v in (config.mean, config.std))
    return {
        "pixels": config.input_size[-1],
        "classes": config.num_classes,
        "activation": HERE.get(given["act_layer"], given["act_layer"]),
        "registers": given.get("reg_tokens", given.get("num_reg_tokens", 0)),
        "qkv_bias": given.get("qkv_bias", True),
        "layer_scale": given.get("init_values") is not None,
        "pre_norm": given.get("pre_norm", False) or given.get("use_pre_transformer_norm", False),
        "head": HERE.get(pool, pool),
        "mean": mean,
        "std": std,
        "interpolation": config.interpolation,
        "crop": config.crop_pct,
        "squash": config.crop_mode == "squash",
    }


def test_each_row_has_timms_facts_or_a_reason():
    """Protocol, licenses, files, classes and architecture; no reason is idle."""
    timm = library("timm")
    unnamed, used = [], []
    for name, tag in names_in("timm").items():
        row, config = CATALOG[name], timm.get_pretrained_cfg(tag)
        mine, theirs = of_keras_vit(row), of_timm(tag, config)
        stated = {license.lower() for license in (row.license, *row.licenses.values())}
        assert HERE.get(config.license, config.license) in stated, name
        if config.url and config.url.endswith(".npz"):
            mine["file"], theirs["file"] = (u.rpartition("/")[2] for u in (row.source, config.url))
            assert theirs["file"] == (row.files_elsewhere.get("timm") or mine["file"]), name
        for fact in (fact for fact in mine if mine[fact] != theirs[fact]):
            reasons = [
                difference
                for difference in TABLE["differences"]
                if difference["fact"] == fact
                and any(fnmatch.fnmatchcase(name, pattern) for pattern in difference["rows"])
                and (difference["ours"], difference["theirs"])
                in ((mine[fact], theirs[fact]), (None, None))
            ]
            used += reasons
            if len(reasons) != 1:
                unnamed.append((name, fact, mine[fact], theirs[fact], len(reasons)))
    assert not unnamed, "a wrong fact, or one without its reason in tests/data/counterparts.json"
    assert [row for row in TABLE["differences"] if row not in used] == []


KERAS_HUB = names_in("keras-hub")
ANSWERS = {
    **{
        name: f"keras-hub gives this name are {row!r}"
        for row, name in names_in("keras-hub").items()
    },
    "vit_base_patch32_224": "are 'vit_b32.orig_i21k_224', ",
    "dinov2_vits14": "is 'vit_s14.dinov2' here",
    "dinov2_vitb14_reg": "is 'vit_b14_reg4.dinov2' here",
    "dinov2_vitl14_reg_lc": "is 'vit_l14_reg4.dinov2' here",
    "dinov3_vits16": "is 'vit_s16.dinov3_lvd1689m' here",
    "dinov3_vits16plus": "is 'vit_s16plus.dinov3_lvd1689m' here",
    "dinov3_vit7b16": "write 'hf://facebook/dinov3-vit7b16-pretrain-lvd1689m'",
    "dino_vitb8": "write 'hf://facebook/dino-vitb8'",
}


def test_a_name_of_another_library_is_answered_with_its_row_or_address():
    """Of keras-hub, of torch.hub, and of each plain ViT of the installed timm."""
    timm = library("timm", release=False)
    ours = {tag: name for name, tag in names_in("timm").items()}
    assert len(ours) == len(names_in("timm"))
    pretrained = {
        name
        for module in ("vision_transformer", "vision_transformer_hybrid", "deit", "eva")
        for name in timm.list_models(module=module, pretrained=True)
        if not name.startswith("test_")
    }
    unknown = ours.keys() - (pretrained & set(timm.list_pretrained()))
    assert not unknown, "the installed timm has no such weights"
    for name in pretrained | ANSWERS.keys():
        with pytest.raises(SourceError) as error:
            preset_named(name)
        answer = str(error.value)
        if name in ANSWERS:
            assert ANSWERS[name] in answer
        elif name in ours:
            file = CATALOG[ours[name]].files_elsewhere.get("timm")
            same = f"augreg/{file}" if file else ours[name]
            assert f"The weights that timm gives this name are {same!r} here." in answer
            assert (f"Other trainings of the same model: {ours[name]!r}." in answer) == bool(file)
        else:
            assert f"write 'hf://timm/{name}'." in answer


def test_every_row_names_its_counterpart_and_the_strictest_of_its_licenses():
    """Rows with two sources name both. Encoders of single fields have no name in timm."""
    for name, row in CATALOG.items():
        is_known = name in names_in("timm") or row.feature
        assert is_known or any(fnmatch.fnmatchcase(name, p) for p in WITHOUT), name
        licenses = list(row.licenses.values())
        assert len(licenses) != 1
        assert row.license == max(licenses or [row.license], key=STRICTNESS.index)
    assert {row.family for row in CATALOG.values() if row.licenses} == {"mae", "msn", "clip"}
    assert CATALOG["vit_l14.clip_laion2b_224"].provenance()["licenses"]["timm 1.0.31"]


@pytest.mark.parametrize("name", KERAS_HUB)
def test_the_body_of_a_row_has_keras_hubs_parameters(name):
    """DINOv2's positions stand twice in keras-hub's count; DINOv3's counts are rounded."""
    library("keras-hub")
    preset = CATALOG[name].counterparts["keras-hub"]
    module = f"keras_hub.src.models.{(family := preset.partition('_')[0])}.{family}_presets"
    theirs = importlib.import_module(module).backbone_presets[preset]["metadata"]["params"]
    config = CATALOG[name].config().replace(num_classes=0, representation_size=None)
    mine = num_parameters(config)
    if family == "dinov2":
        mine += config.num_positions * config.hidden_size
    assert mine == (pytest.approx(theirs, rel=0.02) if family == "dinov3" else theirs)
