"""The catalog beside its counterparts: each fact is timm's or keras-hub's, or has a reason."""

import fnmatch
import importlib
from importlib import metadata

import pytest

from keras_vit.config.weights.lexicon import num_parameters
from keras_vit.errors import SourceError
from keras_vit.presets.catalog import CATALOG, preset_named
from weights.counterparts import TABLE, compare_with_timm, names_in

STRICTNESS = ("MIT", "Apache-2.0", "CC-BY-NC-4.0", "CC-BY-NC-ND-4.0", "LicenseRef-DINOv3")
STRICTNESS += ("see the repository",)
"""The catalog's licenses, the most permissive first."""
WITHOUT = ("vit_digits", "*.gsam_*", "*.big_vision_*", "*.msn_*", "vit_[sl]*.sam_*")
WITHOUT += ("vit_b32.orig_i21k_ft_i1k_384", "vit_l16.orig_i21k_ft_i1k_*")
"""Rows of recipes that timm has not."""


def library(name, release=True):
    """A library, of the release beside which the table was made."""
    if name == "timm":
        pytest.importorskip("torch")
        from tests import torchvision_shim  # noqa: F401
    module = pytest.importorskip(name.replace("-", "_"))
    if release and (found := metadata.version(name)) != TABLE["releases"][name]:
        pytest.skip(f"the table was made beside {TABLE['releases'][name]}, not {found}")
    return module


def test_each_row_has_timms_facts_or_a_reason():
    """Protocol, licenses, files, classes and architecture; no reason is idle."""
    library("timm")
    assert compare_with_timm() == ([], []), "see tests/data/counterparts.json"


KERAS_HUB = names_in("keras-hub")
ANSWERS = {
    **{name: f"this name in keras-hub are {row!r}" for row, name in names_in("keras-hub").items()},
    "vit_base_patch32_224": "are 'vit_b32.orig_i21k_224', ",
    "dinov2_vits14": "is 'vit_s14.dinov2' here",
    "dinov2_vitl14_reg_lc": "is 'vit_l14_reg4.dinov2' here",
    "dinov3_vit7b16": "write 'hf://facebook/dinov3-vit7b16-pretrain-lvd1689m'",
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
            assert f"The weights with this name in timm are {same!r} here." in answer
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
