"""Laws of translation, for every format: total, injective, and inverse in both directions."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.checkpoints.adapt import adapt_config
from keras_vit.checkpoints.families.keys import merge
from keras_vit.checkpoints.families.names import TORCH
from keras_vit.checkpoints.moves import plan
from keras_vit.checkpoints.opening import OpenSource
from keras_vit.checkpoints.reading import open_checkpoint
from keras_vit.checkpoints.transfer import weights_by_path
from keras_vit.checkpoints.writing import Written
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten
from keras_vit.config.weights import lexicon
from keras_vit.errors import CheckpointError
from keras_vit.images.protocols import complete
from keras_vit.models.builders import list_variants, variant
from keras_vit.presets.preset_config import PresetConfig
from tests.checkpoints.drawn import ALL_VALUES, WRITTEN, models, written
from tests.checkpoints.headers import Headers
from tests.families import FAMILIES
from tests.helpers import assert_same_arrays, tiny
from tests.thorough import times

formats = pytest.mark.parametrize("format", WRITTEN, ids=lambda f: f"{f.name} {f.class_name}")

NOT_IN_FILES = {
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
    "stochastic_depth_rate": 0.0,
    "position_resize": None,
}
"""Fields that a file may leave out, with the value that is then read: they act in training alone,
or at other sizes of images than the stored one, where the library's way is read."""


def facts_of(config: ViTConfig) -> dict[str, object]:
    """The fields by path, each in one spelling for all models that compute alike."""
    fields = flatten(config.to_dict())
    fields["position_grid"] = config.source_grid
    if fields["block.layer_scale"]:
        fields["block.layer_scale"] = "an array of the file has replaced the initial value"
    if config.stem.is_packed:  # the number of patches counts
        fields["image_size"] = config.packed_shape
    return fields


def find_differences(want: ViTConfig, got: ViTConfig) -> dict[str, object]:
    """The fields of which another value is read than a file may leave out."""
    facts, found = facts_of(want), facts_of(got)
    return {
        path: found.get(path)
        for path in facts.keys() | found.keys()
        if facts.get(path) != found.get(path)
        if NOT_IN_FILES.get(path, path) not in (None, found.get(path))
    }


def random_arrays(shapes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


def weights_from(moves, file_arrays) -> dict[str, np.ndarray]:
    return dict(pair for move in moves for pair in move.to_weights(file_arrays[move.name]))


def arrays_from(moves, weights) -> dict[str, np.ndarray]:
    return {move.name: move.to_array([weights[path] for path in move.paths]) for move in moves}


def shapes_of(moves) -> dict[str, tuple[int, ...]]:
    return {move.name: move.file_shape for move in moves}


def test_a_name_for_a_layer_that_the_lexicon_lacks_is_an_error():
    with pytest.raises(LookupError, match="block_{l}/nrom is neither a layer nor a weight"):
        TORCH.names({"block_{l}/nrom": "norm1"})


@pytest.mark.usefixtures("blank_models")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pool": {"kind": "map"}, "position": "sincos2d"},
        {"pool": {"kind": "gap"}, "representation_size": 12, "num_classes": 0},
        {"stem": {"kind": "resnet", "units": [2, 1], "width_factor": 0.5}, "patch_size": 1},
        *FAMILIES.values(),
    ],
)
def test_the_lexicon_lists_every_weight_of_a_model_once(fields):
    """With the path and shape that it has in the Keras model."""
    model = tiny(**{"patch_size": 4, "num_layers": 2, **fields})
    listed = [(weight.path, weight.shape) for weight in lexicon.weights(model.config)]
    assert len(dict(listed)) == len(listed)
    held = {path: tuple(v.shape) for path, v in weights_by_path(model).items()}
    assert held == dict(listed)


@pytest.mark.without_backend
def test_the_laws_draw_every_field():
    """Those of the parts too."""
    parts = {path for path, values in ALL_VALUES.items() if not values}
    assert parts == {"tokens", "block", "pool"}


@pytest.mark.without_backend
@formats
@given(data=st.data())
@settings(max_examples=times(3, 20), deadline=None)
def test_reading_and_writing_are_inverse_bit_by_bit(format, data):
    """Each weight is in one array; no name stands twice; shapes and bits are kept both ways."""
    own = written(format, data.draw(models(format)))
    shapes = shapes_of(own.moves)
    assert len(shapes) == len(own.moves)
    file_arrays = random_arrays(shapes)
    weights = weights_from(own.moves, file_arrays)
    listed = {weight.path: weight.shape for weight in lexicon.weights(own.config)}
    assert {path: array.shape for path, array in weights.items()} == listed
    assert_same_arrays(arrays_from(own.moves, weights), file_arrays)
    others = random_arrays(listed)
    assert_same_arrays(weights_from(own.moves, arrays_from(own.moves, others)), others)


def open_written(own: Written, prefix: str, training: str):
    """The checkpoint that is read, and the caller's fields: those that no array or key tells."""
    config, format, files = own.config, own.format, own.files
    if files:
        images = format.library.images
        files = merge([files, images.write(complete(images.default(config)), config)])
        files = json.loads(json.dumps(files))
    asked, preset = {}, None
    if format.name == "keras_vit":
        content = json.loads(json.dumps(PresetConfig(config).to_dict()))
        preset = PresetConfig.from_dict(content, "config.json")
    else:
        if config.pool.kind == "unpooled":  # the arrays are those of the pooled form
            asked["pool"] = {"kind": "unpooled"}
        if config.image_size is None:
            asked["image_size"] = None
        if config.position == "sincos2d":  # a class token without positions could be a lost array
            asked["position"] = "sincos2d"
    if not files and not preset:
        if config.pool.kind == "gap":  # an encoder alone does not show its pooling
            asked["pool"] = {"kind": "gap"}
        asked["position_grid"] = config.source_grid
        asked["image_size"] = config.image_size
        asked["num_heads"] = config.num_heads  # a fused axis hides the number of heads
    folded = format.family.fold.write(Headers(shapes_of(own.moves)), files)
    lost = format.row.prefix.removesuffix(prefix)
    names = {training + name.removeprefix(lost): name for name in folded.shapes}
    reader = Headers({new: folded.shapes[name] for new, name in names.items()})
    return open_checkpoint(OpenSource(reader, files, preset, is_folder=True), asked), asked


@pytest.mark.without_backend
@formats
@given(data=st.data())
@settings(max_examples=times(3, 20), deadline=None)
def test_a_written_file_is_read_as_the_same_model(format, data):
    """Below the prefix of the library or none, and below one of a training."""
    own = written(format, data.draw(models(format)))
    prefix = data.draw(st.sampled_from(sorted({format.row.prefix, ""})))
    training = data.draw(st.sampled_from(["", "state_dict.model."]))
    opened, asked = open_written(own, prefix, training)
    assert (opened.format, opened.info.prefix) == (format, training + prefix)
    assert opened.info.undetermined == ()
    config = own.config
    if config.image_size and "image_size" in asked:  # the caller's images resize the positions
        config = config.replace(position_grid=None)
    assert find_differences(config, adapt_config(opened, asked)) == {}


@pytest.mark.without_backend
@pytest.mark.parametrize("name", list_variants())
@pytest.mark.parametrize("format", [f for f in WRITTEN if not f.row.words], ids=lambda f: f.name)
def test_a_variant_has_a_name_for_every_weight_or_is_refused(format, name):
    """At full size; no name stands for two weights."""
    config = variant(name).config()
    if config.stem.is_resnet and "root/conv/kernel" not in format.names:
        with pytest.raises(CheckpointError, match="no place for root/conv/kernel: .* ResNet stem"):
            plan(config, format)
        return
    moves = plan(config, format)
    assert len(shapes_of(moves)) == len(moves)
    paths = [path for move in moves for path in move.paths]
    assert sorted(paths) == sorted(weight.path for weight in lexicon.weights(config))
