"""The plans for full-size variants against the arrays of timm, transformers and keras-hub.

tests/data/manifests/README.md describes the manifests.
"""

import gzip
import json
from pathlib import Path

import pytest

from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.recognition import recognise
from keras_vit.checkpoints.translate import plan
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten
from keras_vit.models.builders import list_variants, variant

pytestmark = pytest.mark.without_backend

FOLDER = Path(__file__).parents[1] / "data" / "manifests"


def _presets(library: str) -> dict[str, dict]:
    """The presets of a library, each with its dialect."""
    manifest = json.loads(gzip.decompress((FOLDER / f"{library}.json.gz").read_bytes()))
    return {name: {**preset, "dialect": library} for name, preset in manifest["presets"].items()}


TIMM, TRANSFORMERS, KERAS_HUB = map(_presets, ("timm", "transformers", "keras_hub"))
PRESETS = TIMM | TRANSFORMERS | KERAS_HUB

presets = pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)


def make_config(preset) -> ViTConfig:
    """The configuration of the keras_vit variant of a preset."""
    fields = ("image_size", "num_classes", "representation_size")
    return variant(preset["variant"]).config(**{field: preset.get(field) for field in fields})


def read_shapes(preset) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in preset["shapes"].items()}


def test_the_manifests_have_every_variant():
    """timm has all, the others have the plain variants of the paper."""
    missing = set(list_variants()) - {preset["variant"] for preset in TIMM.values()}
    assert not missing, (
        "add them to tests/data/manifests as its README says, or leave out here what timm lacks"
    )
    plain = {"vit_b16", "vit_b32", "vit_l16", "vit_l32", "vit_h14"}
    for found in (TRANSFORMERS, KERAS_HUB):
        assert {preset["variant"] for preset in found.values()} == plain


@presets
def test_the_plan_has_exactly_the_names_and_shapes_of_the_preset(preset):
    """Each array once."""
    dialect, config = DIALECTS[preset["dialect"]], make_config(preset)
    moves = plan(config, dialect, dialect.prefix_for(config))
    planned = [(move.name, move.file_shape) for move in moves]
    assert len(dict(planned)) == len(planned)
    assert dict(planned) == read_shapes(preset)


@presets
def test_names_and_shapes_determine_dialect_and_sizes(preset):
    """All sizes of the variant except the number of heads."""
    found = recognise(read_shapes(preset), tuple(DIALECTS.values()))
    config = make_config(preset)
    assert found.dialect is DIALECTS[preset["dialect"]]
    assert found.prefix == found.dialect.prefix_for(config)
    sizes = ("patch_size", "hidden_size", "mlp_dim", "num_layers", "channels", "block.qkv_bias")
    if preset["dialect"] == "keras_hub":  # whose task.json states the head
        assert found.fields["num_heads"] == config.num_heads
    else:
        sizes += ("num_classes", "representation_size", "pool.kind")
        assert "num_heads" not in found.fields
    sizes += ("stem.kind", "stem.units") if config.stem.is_resnet else ()
    want = {**flatten(config.to_dict()), "patch_size": config.patch_size}
    assert {name: found.fields[name] for name in sizes} == {name: want[name] for name in sizes}
    assert found.fields["num_positions"] == config.num_positions
