"""The plans for full-size variants against the arrays of timm, transformers and keras-hub.

tests/data/manifests/README.md describes the manifests.
"""

import gzip
import json
from pathlib import Path

import pytest

from keras_vit.checkpoints.families import FORMATS, formats_named
from keras_vit.checkpoints.families.family import Stated
from keras_vit.checkpoints.match import find_match
from keras_vit.checkpoints.moves import plan
from keras_vit.checkpoints.prefix import find_encoder
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten
from keras_vit.models.builders import list_variants, variant
from tests.checkpoints.headers import Headers

pytestmark = pytest.mark.without_backend

FOLDER = Path(__file__).parents[1] / "data" / "manifests"


def _presets(library: str) -> dict[str, dict]:
    """The presets of a library, each with its format."""
    manifest = json.loads(gzip.decompress((FOLDER / f"{library}.json.gz").read_bytes()))
    return {name: {**preset, "family": library} for name, preset in manifest["presets"].items()}


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


def find_format(preset):
    """The format of a preset, which has a head if its model has one."""
    formats = [f for f in formats_named(preset["family"]) if f.name == preset["family"]]
    return next(f for f in formats if f.row.head in (None, bool(preset.get("num_classes"))))


@presets
def test_the_plan_has_exactly_the_names_and_shapes_of_the_preset(preset):
    """Each array once."""
    format = find_format(preset)
    moves = plan(make_config(preset), format, format.row.prefix)
    assert len({move.name for move in moves}) == len(moves)
    assert {move.name: move.file_shape for move in moves} == read_shapes(preset)


@presets
def test_names_and_shapes_determine_format_and_sizes(preset):
    """All sizes of the variant except the number of heads."""
    format, config = find_format(preset), make_config(preset)
    encoder = find_encoder(Headers(read_shapes(preset)), FORMATS)
    match = find_match(encoder, {f.library: Stated() for f in FORMATS}, FORMATS)
    found = match.evidence.fields
    assert (match.format, encoder.prefix) == (format, format.row.prefix)
    sizes = ["patch_size", "hidden_size", "mlp_dim", "num_layers", "channels"]
    if preset["family"] == "keras_hub":  # whose task.json states the head
        assert found["num_heads"] == config.num_heads
    else:
        assert found.get("num_classes", 0) == config.num_classes
        assert "num_heads" not in found
    if config.representation_size:
        sizes.append("representation_size")
    sizes += ("stem.kind", "stem.units") if config.stem.is_resnet else ()
    want = {**flatten(config.to_dict()), "patch_size": config.patch_size}
    if preset["family"] == "timm" and config.stem.is_resnet:
        want["stem.kind"] = "resnet_timm"
    assert {name: found[name] for name in sizes} == {name: want[name] for name in sizes}
