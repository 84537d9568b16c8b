"""The plans for keras-hub's full-size presets against the arrays that keras-hub writes.

`tests/data/make_keras_hub_manifest.py` makes the manifest and describes it.
"""

import gzip
import json
import math
from pathlib import Path

import pytest

from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.recognition import recognise
from keras_vit.checkpoints.translate import plan
from keras_vit.config import ViTConfig
from keras_vit.variants import variant
from keras_vit.weights import lexicon

pytestmark = pytest.mark.without_backend

MANIFEST = Path(__file__).parents[1] / "data" / "manifests" / "keras_hub.json.gz"
PRESETS = json.loads(gzip.decompress(MANIFEST.read_bytes()))["presets"]
KERAS_HUB = DIALECTS["keras_hub"]

presets = pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)


def config_of(preset) -> ViTConfig:
    """The configuration of the keras_vit variant of a preset."""
    return variant(preset["variant"]).config(preset["image_size"], preset["num_classes"])


def shapes_of(preset) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in preset["shapes"].items()}


def test_the_manifest_has_every_plain_size_of_the_paper():
    """B/16, B/32, L/16, L/32 and H/14, in a file that stays small."""
    variants = {preset["variant"] for preset in PRESETS.values()}
    assert variants == {"vit_b16", "vit_b32", "vit_l16", "vit_l32", "vit_h14"}
    assert MANIFEST.stat().st_size < 60_000


@presets
def test_the_plan_has_exactly_the_names_and_shapes_of_the_preset(preset):
    """Each array once."""
    moves = plan(config_of(preset), KERAS_HUB)
    planned = [(move.name, move.file_shape) for move in moves]
    assert len(dict(planned)) == len(planned)
    assert dict(planned) == shapes_of(preset)


@presets
def test_the_plan_has_every_weight_of_the_variant(preset):
    """Each weight once."""
    config = config_of(preset)
    paths = [path for move in plan(config, KERAS_HUB) for path in move.paths]
    assert sorted(paths) == sorted(weight.path for weight in lexicon.weights(config))


@presets
def test_names_and_shapes_determine_dialect_and_sizes(preset):
    """Without JSON."""
    found = recognise(shapes_of(preset), tuple(DIALECTS.values()))
    config = config_of(preset)
    assert found.dialect is KERAS_HUB
    told = ("patch_size", "hidden_size", "mlp_dim", "num_heads", "num_layers", "channels")
    assert {name: found.fields[name] for name in told} == {n: getattr(config, n) for n in told}


@presets
def test_the_backbone_has_the_published_number_of_parameters(preset):
    """The number that keras-hub states for the preset, without the head."""
    config = config_of(preset).replace(num_classes=0)
    counted = sum(math.prod(weight.shape) for weight in lexicon.weights(config))
    assert counted == preset["parameters"]
