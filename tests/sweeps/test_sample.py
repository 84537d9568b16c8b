"""A sample of the sweeps, and the documentation of all sweeps."""

from pathlib import Path

import pytest

from tests.sweeps import classes, results

pytest.importorskip("torch")
from tests import torchvision_shim  # noqa: F401

on_torch = pytest.mark.on_one_backend("torch")
CLASSES = {
    "transformers": ("Dinov2WithRegistersModel", "IJepaModel", "FlavaImageModel"),
    "keras_hub": ("DINOV3Backbone", "SigLIPVisionEncoder"),
}


@on_torch
@pytest.mark.parametrize("library", CLASSES)
def test_random_models_of_a_library_are_equal(library):
    """Every array is random, and the outputs are within 1e-5 of the library's."""
    pytest.importorskip(library, exc_type=ImportError)
    outcomes = list(classes.outcomes(library, CLASSES[library]))
    assert [outcome.folder for outcome in outcomes] == ["equal"] * len(CLASSES[library])


SAMPLE = {
    "vit_small_patch14_reg4_dinov2": ("equal", "refused"),  # 16 positions fit two grids
    "vit_base_patch16_siglip_224": ("equal", "refused"),
    "vit_so400m_patch14_siglip_384": ("equal", "refused"),
    "vit_small_patch16_dinov3": ("equal", "equal"),
    "vit_tiny_r_s16_p8_224": ("equal", "equal"),
    "beit_base_patch16_224": ("equal", "refused"),
}
"""Architectures of timm, and what becomes of them by folder and by file."""


@on_torch
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_timm(name):
    """Equal to timm, or refused; never wrong."""
    pytest.importorskip("timm")
    from tests.sweeps import timm  # imports torchvision

    [outcome] = timm.outcomes("timm", (name,))
    verdicts = (outcome.folder.partition(":")[0], outcome.file.partition(":")[0])
    assert verdicts == SAMPLE[name]


@pytest.mark.without_backend
@pytest.mark.parametrize("library", results.PACKAGES)
def test_the_record_has_the_table_of_the_last_sweep(library):
    """RECORD.md is written by the sweep, from the JSON in the repository."""
    assert results.documented(library) == results.markdown(library)


@pytest.mark.without_backend
def test_the_record_has_the_table_of_the_releases():
    assert results.documented("releases") == results.releases_markdown()


@pytest.mark.without_backend
def test_the_sweeps_reach_their_counts():
    """330 tags of timm's core, 400 with eva.py; nothing is silently wrong, by folder or by file."""
    outcomes = {library: results.read(library)[1] for library in results.PACKAGES}
    core = [o for o in outcomes["timm"] if o.group not in ("eva", "beit")]
    assert sum(results.counts(core, "folder").values()) == 347
    assert results.counts(core, "folder")["equal"] >= 330
    assert results.counts(outcomes["timm"], "folder")["equal"] >= 400
    for library, found in outcomes.items():
        assert results.counts(found, "folder")["wrong"] == 0
        assert results.counts(found, "file")["wrong"] == 0
        assert library == "timm" or results.counts(found, "folder")["refused"] == 0


@pytest.mark.without_backend
@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_front_pages_have_the_numbers_of_the_last_sweep(page):
    """How many of timm's pretrained models are read, and how many are refused."""
    found = results.counts(results.read("timm")[1], "folder")
    words = " ".join((Path(__file__).parents[2] / page).read_text().split())
    assert f"Of timm's {sum(found.values())} pretrained models of plain ViT modules, " in words
    assert f"reads {found['equal']} with equal outputs and refuses {found['refused']}" in words
