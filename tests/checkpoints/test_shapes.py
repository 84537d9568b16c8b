"""What names and shapes alone determine: full-size presets of other libraries, and grids.

tests/data/manifests/README.md describes the manifests.
"""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_vit
from keras_vit.checkpoints.families import FORMATS, formats_named
from keras_vit.checkpoints.families.family import Stated
from keras_vit.checkpoints.match import find_match
from keras_vit.checkpoints.moves import plan
from keras_vit.checkpoints.prefix import find_encoder
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten
from keras_vit.models.builders import list_variants, variant
from tests.checkpoints.files import DATA, timm_shapes, write_shapes
from tests.checkpoints.headers import Headers
from tests.runs import times

pytestmark = pytest.mark.without_backend


def _presets(library: str) -> dict[str, dict]:
    """The presets of a library, each with its format."""
    manifest = json.loads(gzip.decompress((DATA / "manifests" / f"{library}.json.gz").read_bytes()))
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
def test_the_plan_has_the_names_and_shapes_of_the_preset_which_determine_its_sizes(preset):
    """Each array once; and the format. The number of heads alone stays open."""
    format, config, shapes = find_format(preset), make_config(preset), read_shapes(preset)
    moves = plan(config, format, format.row.prefix)
    assert len({move.name for move in moves}) == len(moves)
    assert {move.name: move.file_shape for move in moves} == shapes
    encoder = find_encoder(Headers(shapes), FORMATS)
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


SIDES = st.integers(2, 25)
OPEN = {"pool": {"kind": "token"}, "rope": None}
OPEN |= {"block": {"activation": "gelu", "epsilon": 1e-6}}


def read_grid(folder, positions, registers, patch=4, **fields):
    """The grid that is read from a number of positions, and how many tokens have positions."""
    path = write_shapes(folder / "x", timm_shapes(positions, registers, patch))
    facts = {"num_heads": 2, **(OPEN if registers else {}), **fields}
    config = keras_vit.info(path, **facts).config
    return config.grid, config.num_prefix_positions


@given(data=st.data())
@settings(max_examples=times(20, 200), deadline=None)
def test_a_stated_grid_is_read(data, tmp_path_factory):
    """With or without positions of the class token and of registers; wide, tall and square."""
    registers, grid = data.draw(st.sampled_from([0, 4])), data.draw(st.tuples(SIDES, SIDES))
    tokens = data.draw(st.sampled_from([0, 1, 1 + registers]))
    stated = {"position_grid": grid, **data.draw(st.sampled_from([{}, {"image_size": 64}]))}
    positions = grid[0] * grid[1] + tokens
    folder = tmp_path_factory.mktemp("grid")
    assert read_grid(folder, positions, registers, **stated) == (grid, tokens)


READ = (
    # The square of the usual tokens, without a line of log.
    *((side**2 + 1, 0, {}, (side, side), 1) for side in (4, 7, 14)),
    *((side**2 + 5, 4, {}, (side, side), 5) for side in (5, 14)),
    # An image size with the patches of one reading decides.
    (25, 0, {"image_size": 20}, (5, 5), 0),
    (25, 0, {"image_size": (16, 24)}, (4, 6), 1),
    (24, 0, {"image_size": (16, 24)}, (4, 6), 0),
    (29, 4, {"image_size": (16, 24)}, (4, 6), 5),
)
"""Positions, registers, what the caller says; the grid, and the number of tokens with positions."""


@pytest.mark.parametrize(("positions", "registers", "fields", "grid", "tokens"), READ)
def test_one_reading_is_read(positions, registers, fields, grid, tokens, tmp_path, caplog):
    assert read_grid(tmp_path, positions, registers, **fields) == (grid, tokens)
    assert not caplog.records


def test_an_unusual_reading_is_not_passed_over(tmp_path, caplog):
    """The square of a usual image is read, with a line on the other reading."""
    for positions, registers, patch, fields, side, tokens, other in (
        (50, 0, 32, {"image_size": (160, 320)}, 7, 1, "50 patches and 0"),
        (196, 0, 16, {}, 14, 0, "195 patches and 1"),
        (1369, 4, 14, {}, 37, 0, "1368 patches and 1"),
    ):
        found = read_grid(tmp_path, positions, registers, patch, **fields)
        assert found == ((side, side), tokens)
        assert f"{side} x {side} patches and {tokens}" in caplog.text and other in caplog.text
