"""The catalog's rows of the families: consistent facts, parameter counts, and loading."""

import math
import re

import pytest

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.checkpoints.dialects import DIALECTS, dialects_named
from keras_vit.checkpoints.dialects.base import find_met
from keras_vit.checkpoints.translate import plan
from keras_vit.images.protocols import complete
from keras_vit.models.config import Numerics
from keras_vit.models.weights import lexicon
from keras_vit.presets import catalog
from keras_vit.presets.catalog import CATALOG, Preset
from tests.family_goldens import FOLDER, expected, relative_error
from tests.helpers import to_numpy

ROWS = {name: row for name, row in CATALOG.items() if row.family != "vit"}
NAME = re.compile(r"vit_(ti|s|m|b|l|h|g|bigg|so400m_)\d+(plus|_reg4)?\.[a-z0-9_]+")

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


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_a_name_in_its_dialect_for_every_weight(name):
    """Name, protocol, license and source of the row are well formed."""
    row = ROWS[name]
    assert NAME.fullmatch(name)
    config, dialect = row.config(), DIALECTS[row.dialect]
    paths = [
        path for move in plan(config, dialect, dialect.prefix_for(config)) for path in move.paths
    ]
    assert len(paths) == len(list(lexicon.weights(config)))
    assert find_met(dialect.refusals, config) == ([dialect.only_read] if dialect.only_read else [])
    complete(row.protocol)
    assert row.unverified
    assert row.license
    # DINOv3's license has to be accepted before a download.
    assert row.note.startswith("gated: accept the license") == (row.family == "dinov3")
    assert re.fullmatch(r"hf://[\w-]+/[\w.-]+", row.source)
    assert len({other.source for other in ROWS.values()}) == len(ROWS)


@pytest.mark.parametrize("name", [name for name, row in CATALOG.items() if row.folder is None])
def test_the_arithmetic_of_a_row_is_that_of_its_dialect(name):
    """Two families have a GELU or an epsilon of their own, which their files state."""
    row = CATALOG[name]
    dialect, config = dialects_named(row.dialect)[0], row.config().to_dict()
    numerics = (dialect.numerics or Numerics()).to_dict()
    differ = {key for key, value in numerics.items() if config["numerics"][key] != value}
    own = {"layer_norm_epsilon"} if row.family == "ijepa" else set()
    assert differ <= ({"gelu"} if ".clip_laion" in name else own)
    if row.family != "vit":
        stated = {key: value for key, value in dialect.conventions.items() if key not in row.fields}
        assert stated.pop("num_classes", row.num_classes) == row.num_classes
        assert {key: config[key] for key in stated} == stated


@pytest.mark.parametrize("name", MILLIONS)
def test_parameters_equal_the_reported_numbers(name):
    """To the digits of the reports."""
    count = sum(math.prod(weight.shape) for weight in lexicon.weights(ROWS[name].config()))
    assert abs(count / 1e6 - MILLIONS[name]) <= max(0.06, MILLIONS[name] * 0.002)


def test_a_row_loads_from_its_repository(hub, monkeypatch):
    """Weights and protocol come from the repository; the model has a head only on request."""
    source = "hf://facebook/dinov2.again"
    own = {"family": "dinov2", "dialect": "transformers/dinov2"}
    fields = CATALOG["vit_b14.dinov2"].fields
    row = Preset("again", None, "x", source, 16, 0, {"name": "timm"}, **own, fields=fields)
    monkeypatch.setattr(catalog, "CATALOG", {"again": row})
    hub.add("facebook/dinov2.again", FOLDER / "hf_dinov2_model")
    model = VisionTransformer.from_preset("again")
    headed = VisionTransformer.from_preset("again", num_classes=3)
    want = expected("hf_dinov2_model")
    assert relative_error(to_numpy(model(want["image"])), want["pre_logits"]) <= 1e-5
    assert headed.output_shape == (None, 3)
    own = keras_vit.info(FOLDER / "hf_dinov2_model").protocol
    assert model.preprocessor.protocol == own
