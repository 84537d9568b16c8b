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
from keras_vit.presets.catalog import CATALOG, Preset, preset_named

TABLE = json.loads((Path(__file__).parents[1] / "data" / "counterparts.json").read_text())
"""The releases that were compared, and each difference with its reason."""

_ACTIVATIONS = {
    **{word: word for word in ("gelu", "quick_gelu", "gelu_tanh")},
    **{"GELU": "gelu", "SiLU": "silu"},
}
_SPDX = {
    "apache-2.0": "Apache-2.0",
    "cc-by-nc-4.0": "CC-BY-NC-4.0",
    "dinov3-license": "LicenseRef-DINOv3",
}
_POOLS = {"token": "token", "avg": "gap", "map": "map"}


def of_keras_vit(row: Preset) -> dict:
    """The facts of a row; `crop` is the share of the resized image's smaller side."""
    config, protocol = row.config(), complete(row.protocol)
    squashes = protocol["name"] == "paper" or (
        protocol["name"] == "transformers" and protocol["crop_mode"] == "squash"
    )
    facts = {
        "pixels": row.image_size,
        "classes": config.projection_size or config.num_classes,
        "licenses": {row.license, *row.licenses.values()},
        "activation": config.block.activation,
        "registers": config.tokens.registers,
        "qkv_bias": bool(config.block.qkv_bias),
        "layer_scale": config.block.layer_scale is not None,
        "pre_norm": config.block.input_norm == "tokens",
        "head": config.pool.kind,
        "mean": protocol["mean"],
        "std": protocol["std"],
        "interpolation": protocol.get("interpolation", "bilinear"),
        "crop": protocol.get("crop_pct", 1.0),
        "squash": squashes and protocol.get("crop_pct", 1.0) == 1.0,
    }
    if protocol["name"] == "big_vision":
        facts["interpolation"] = protocol["method"]
        facts["crop"] = (protocol["image_size"] or 224) / (protocol["resize_small"] or 256)
    if not row.source.startswith("hf://"):
        facts["file"] = row.source.rpartition("/")[2]
    return facts


def of_timm(tag: str) -> dict:
    """The facts of a pretrained model of timm, without a model built."""
    import timm

    config = timm.get_pretrained_cfg(tag)
    row = find_row(tag)
    assert row is not None, f"{tag}: no architecture of timm's in families/timm/registry.json"
    given = {"global_pool": "token", **read_defaults(row), **row}
    is_distilled = "Distilled" in given.get("class", "")
    pool = "token_and_distillation" if is_distilled else _POOLS[given["global_pool"]]
    facts = {
        "pixels": config.input_size[-1],
        "classes": config.num_classes,
        "license": _SPDX[config.license],
        "activation": _ACTIVATIONS[given.get("act_layer", "gelu")],
        "registers": given.get("reg_tokens", given.get("num_reg_tokens", 0)),
        "qkv_bias": given.get("qkv_bias", True),
        "layer_scale": given.get("init_values") is not None,
        "pre_norm": given.get("pre_norm", False) or given.get("use_pre_transformer_norm", False),
        "head": pool,
        "mean": _one(config.mean),
        "std": _one(config.std),
        "interpolation": config.interpolation,
        "crop": config.crop_pct,
        "squash": config.crop_mode == "squash",
    }
    if config.url and config.url.endswith(".npz"):
        facts["file"] = config.url.rpartition("/")[2]
    return facts


def _one(values: tuple) -> float | list[float]:
    return values[0] if len(set(values)) == 1 else list(values)


STRICTNESS = (
    *("MIT", "Apache-2.0", "CC-BY-NC-4.0", "CC-BY-NC-ND-4.0"),
    *("LicenseRef-DINOv3", "see the repository"),
)
"""The catalog's licenses, the most permissive first."""


def names_in(library: str) -> dict[str, str]:
    """The names of the catalog's rows in another library."""
    rows = CATALOG.values()
    return {row.name: row.counterparts[library] for row in rows if library in row.counterparts}


def answer_to(name: str) -> str:
    """The message for a name that the catalog lacks."""
    with pytest.raises(SourceError) as error:
        preset_named(name)
    return str(error.value)


def _needs(library: str) -> None:
    if (release := metadata.version(library)) != TABLE["releases"][library]:
        pytest.skip(f"the table was made beside {TABLE['releases'][library]}, not {release}")


def _reasons(name: str, fact: str, ours: object, theirs: object) -> list[dict]:
    return [
        row
        for row in TABLE["differences"]
        if row["fact"] == fact
        and any(fnmatch.fnmatchcase(name, pattern) for pattern in row["rows"])
        and (row["ours"], row["theirs"]) in ((ours, theirs), (None, None))
    ]


def test_each_row_has_timms_facts_or_a_reason():
    """Protocol, licenses, classes and architecture, as far as both name them; no idle reason."""
    pytest.importorskip("torch")
    from tests import torchvision_shim  # noqa: F401

    pytest.importorskip("timm")
    _needs("timm")
    unnamed, used = [], []
    for name, tag in names_in("timm").items():
        mine, theirs = of_keras_vit(CATALOG[name]), of_timm(tag)
        assert theirs.pop("license") in mine.pop("licenses"), name
        for fact in mine.keys() & theirs.keys():
            if mine[fact] == theirs[fact]:
                continue
            reasons = _reasons(name, fact, mine[fact], theirs[fact])
            used += reasons
            if len(reasons) != 1:
                unnamed.append((name, fact, mine[fact], theirs[fact], len(reasons)))
        if "file" in theirs:
            elsewhere = CATALOG[name].files_elsewhere.get("timm")
            assert theirs["file"] == (elsewhere or mine["file"]), name
    assert not unnamed, "a wrong fact, or one without its reason in tests/data/counterparts.json"
    assert [row for row in TABLE["differences"] if row not in used] == []


def test_each_plain_vit_of_timm_is_answered_with_its_row_or_address():
    """The full names are different; an architecture is answered with all its rows."""
    pytest.importorskip("torch")
    from tests import torchvision_shim  # noqa: F401

    timm = pytest.importorskip("timm")
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
    for name in pretrained:
        answer = answer_to(name)
        if name in ours:
            file = CATALOG[ours[name]].files_elsewhere.get("timm")
            same = f"augreg/{file}" if file else ours[name]
            assert f"The weights that timm gives this name are {same!r} here." in answer
            assert (f"Other trainings of the same model: {ours[name]!r}." in answer) == bool(file)
        else:
            assert f"write 'hf://timm/{name}'." in answer
    assert "are 'vit_b32.orig_i21k_224', " in answer_to("vit_base_patch32_224")


@pytest.mark.parametrize("name", names_in("keras-hub"))
def test_a_name_of_keras_hub_is_answered_with_its_row(name):
    answer = answer_to(CATALOG[name].counterparts["keras-hub"])
    assert f"The weights that keras-hub gives this name are {name!r} here." in answer


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("dinov2_vits14", "is 'vit_s14.dinov2' here"),
        ("dinov2_vitb14_reg", "is 'vit_b14_reg4.dinov2' here"),
        ("dinov2_vitl14_reg_lc", "is 'vit_l14_reg4.dinov2' here"),
        ("dinov3_vits16", "is 'vit_s16.dinov3_lvd1689m' here"),
        ("dinov3_vits16plus", "is 'vit_s16plus.dinov3_lvd1689m' here"),
        ("dinov3_vit7b16", "write 'hf://facebook/dinov3-vit7b16-pretrain-lvd1689m'"),
        ("dino_vitb8", "write 'hf://facebook/dino-vitb8'"),
    ],
)
def test_a_name_of_torch_hub_is_answered_with_its_row_or_address(name, answer):
    assert answer in answer_to(name)


def test_every_timm_row_of_the_catalog_has_its_counterpart():
    """Rows without one are of recipes that timm has not; each is named by its pattern."""
    without = ("vit_digits", "*.gsam_*", "*.big_vision_*", "*.msn_*", "vit_[sl]*.sam_*")
    without += ("vit_b32.orig_i21k_ft_i1k_384", "vit_l16.orig_i21k_ft_i1k_*")
    # Encoders of single fields, which have a feature, are built by arguments and have no name.
    rest = [n for n, row in CATALOG.items() if n not in names_in("timm") and not row.feature]
    unnamed = [n for n in rest if not any(fnmatch.fnmatchcase(n, p) for p in without)]
    assert not unnamed, "give timm's name in counterparts, or the pattern here if timm has none"


@pytest.mark.parametrize("name", names_in("keras-hub"))
def test_the_body_of_a_row_has_keras_hubs_parameters(name):
    """DINOv2's positions stand twice in keras-hub's count; DINOv3's counts are rounded."""
    pytest.importorskip("keras_hub")
    _needs("keras-hub")
    preset = CATALOG[name].counterparts["keras-hub"]
    module = f"keras_hub.src.models.{(family := preset.partition('_')[0])}.{family}_presets"
    theirs = importlib.import_module(module).backbone_presets[preset]["metadata"]["params"]
    config = CATALOG[name].config().replace(num_classes=0, representation_size=None)
    mine = num_parameters(config)
    if family == "dinov2":
        mine += config.num_positions * config.hidden_size
    assert mine == (pytest.approx(theirs, rel=0.02) if family == "dinov3" else theirs)


def test_the_strictest_of_the_stated_licenses_counts():
    """Rows with two sources name both."""
    for row in CATALOG.values():
        assert row.license in STRICTNESS
        if row.licenses:
            assert len(row.licenses) > 1
            assert row.license == max(row.licenses.values(), key=STRICTNESS.index)
    both = {row.family for row in CATALOG.values() if row.licenses}
    assert both == {"mae", "msn", "clip"}
    assert CATALOG["vit_l14.clip_laion2b_224"].provenance()["licenses"]["timm 1.0.31"]
