"""Laws of translation, for every format: total, injective, and inverse in both directions."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.checkpoints.adapt import adapt_config
from keras_vit.checkpoints.containers import renamed
from keras_vit.checkpoints.families.keys import merge
from keras_vit.checkpoints.families.names import TORCH
from keras_vit.checkpoints.moves import _PARTS_OF_PATHS, plan
from keras_vit.checkpoints.opening import OpenSource
from keras_vit.checkpoints.reading import Checkpoint, open_checkpoint
from keras_vit.checkpoints.transfer import weights_by_path
from keras_vit.checkpoints.writing import Written
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten
from keras_vit.config.vit import SWITCHES
from keras_vit.config.weights import lexicon
from keras_vit.images.protocols import complete
from keras_vit.presets.preset_config import PresetConfig
from tests.checkpoints.drawn import ALL_VALUES, CHANGES, WRITTEN, accepted, changed, models, written
from tests.checkpoints.headers import Headers
from tests.families import FAMILIES
from tests.helpers import tiny
from tests.plain import assert_same_arrays
from tests.runs import times

formats = pytest.mark.parametrize("format", WRITTEN, ids=lambda f: f"{f.name} {f.class_name}")

NOT_IN_FILES = {
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
    "stochastic_depth_rate": 0.0,
    "position_resize": None,
}
"""Fields that a file may leave out, with the value that is then read: they act in training alone,
or at other sizes of images than the stored one, where the library's way is read. A class that
resizes positions for each image fixes the latter."""


def facts_of(config: ViTConfig) -> dict[str, object]:
    """The fields by path, each in one spelling for all models that compute alike."""
    fields = flatten(config.to_dict())
    fields["position_grid"] = config.source_grid
    if fields["block.layer_scale"]:
        fields["block.layer_scale"] = "an array of the file has replaced the initial value"
    if config.stem.is_packed:  # the number of patches counts
        fields["image_size"] = config.packed_shape
    return fields


def find_differences(own: Written, opened: Checkpoint, asked: dict) -> dict[str, object]:
    """The fields of which another value is read than a file may leave out."""
    config = own.config
    if config.image_size and "image_size" in asked:  # the caller's images resize the positions
        config = config.replace(position_grid=None)
    facts, found = facts_of(config), facts_of(adapt_config(opened, asked))
    resizes = config.has_learned_positions and "position_resize" in own.format.fixed
    left = {path: v for path, v in NOT_IN_FILES.items() if path != "position_resize" or not resizes}
    return {
        path: found.get(path)
        for path in facts.keys() | found.keys()
        if facts.get(path) != found.get(path)
        if left.get(path, path) not in (None, found.get(path))
    }


def random_arrays(shapes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


def weights_from(moves, reader) -> dict[str, np.ndarray]:
    return dict(pair for move in moves for pair in move.to_weights(reader.read(move.name)))


def arrays_from(moves, weights) -> dict[str, np.ndarray]:
    return {move.name: move.to_array([weights[path] for path in move.paths]) for move in moves}


def shapes_of(moves) -> dict[str, tuple[int, ...]]:
    return {move.name: move.file_shape for move in moves}


def test_a_name_that_the_lexicon_lacks_or_without_its_axes_is_an_error():
    with pytest.raises(LookupError, match="block_{l}/nrom is neither a layer nor a weight"):
        TORCH.names({"block_{l}/nrom": "norm1"})
    with pytest.raises(LookupError, match="give its axes after a colon, with qkv"):
        TORCH.names({"block_{l}/attention/{qkv}": "layers.{l}.qkv"})


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


def test_the_laws_draw_every_field():
    """Those of the parts too."""
    parts = {path for path, values in ALL_VALUES.items() if not values}
    assert parts == {"tokens", "block", "pool"}


TRAININGS = ("", "state_dict.model.", "_orig_mod.module.backbone.", "timm_model.", "a.b_c.")
TRAININGS += ("module.", "backbone.")
"""Prefixes of wrappers and trainings."""


def files_of(own: Written) -> dict:
    """The JSON files of a model, with the preparation of images."""
    if not own.files:
        return {}
    images = own.format.library.images
    protocol = images.write(complete(images.default(own.config)), own.config)
    return json.loads(json.dumps(merge([own.files, protocol])))


@formats
@given(data=st.data())
@settings(max_examples=times(3, 20), deadline=None)
def test_reading_and_writing_are_inverse_bit_by_bit(format, data):
    """From the library's files to a model and back, as the library folds its arrays.

    Each weight is in one array; no name stands twice; shapes and bits are kept both ways.
    """
    own = written(format, data.draw(models(format)))
    listed = {weight.path: weight.shape for weight in lexicon.weights(own.config)}
    weights, files, fold = random_arrays(listed), files_of(own), format.family.fold
    keys = format.library.read(files, [format]).keys

    def write(weights):
        arrays = arrays_from(own.moves, weights)
        assert {n: a.shape for n, a in arrays.items()} == shapes_of(own.moves)
        assert len(arrays) == len(own.moves)
        return fold.write(Headers(shapes_of(own.moves), arrays), files)

    def read(reader):
        names = [(name.removeprefix(format.row.prefix), name) for name in reader.shapes]
        reader = fold.read(renamed(reader, names), keys)
        return weights_from(plan(own.config, format, names=reader.shapes), reader)

    stored = write(weights)
    found = read(stored)
    assert_same_arrays(found, weights)
    again = write(found)
    assert_same_arrays(*({n: one.read(n) for n in one.shapes} for one in (stored, again)))


def open_written(own: Written, prefix: str = "", training: str = ""):
    """The checkpoint that is read, and the caller's fields: those that no array or key tells."""
    config, format, files = own.config, own.format, files_of(own)
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


@formats
@given(data=st.data())
@settings(max_examples=times(3, 20), deadline=None)
def test_a_written_file_is_read_as_the_same_model(format, data):
    """Below the prefix of the library or none, and below one of a training."""
    own = written(format, data.draw(models(format)))
    prefix = data.draw(st.sampled_from(sorted({format.row.prefix, ""})))
    training = data.draw(st.sampled_from(TRAININGS))
    opened, asked = open_written(own, prefix, training)
    assert (opened.format, opened.info.prefix) == (format, training + prefix)
    assert opened.info.undetermined == ()
    assert find_differences(own, opened, asked) == {}


TIED = {
    "num_classes": ("one logit for two classes",),
    "block.gated": ("block.activation=",),
    "pool.kind": ("pool.norm=",),
    "tokens.registers": ("position=",),
    "tokens.class_tokens": ("pool.kind=",),
    # One key states two fields: the refusal names the one that the library's model has too.
    "block.projection_bias": ("block.mlp_bias=",),
    "block.qkv_bias": ("block.projection_bias=",),
    "block.input_norm": ("patch_bias=", "that no architecture of timm has together"),
}
"""Field -> words for another one, which a refusal names in its place."""


def words_for(field: str) -> list[str]:
    """The words of which a refusal for a field has some."""
    switches = [s for s in SWITCHES.values() if s.field in (field, field.partition(".")[0])]
    return [f"{field}=", f"{field}.", *(s.words for s in switches), *TIED.get(field, ())]


@formats
def test_a_model_with_another_field_is_read_back_or_refused_by_its_name(format):
    """Every value of every field; a switch that needs a second field is turned on with it."""
    switches = {switch.field for switch in SWITCHES.values()}
    for field, value in CHANGES:
        others = [((field, value), other) for other in CHANGES if other[0] != field]
        tried = [((field, value),), *(others if field in switches else ())]
        bases = [base for base in accepted(format) if flatten(base.to_dict()).get(field) != value]
        models = ((own, changed(base, *own)) for own in tried for base in bases[:1])
        changes, config = next(((own, one) for own, one in models if one), ((), None))
        if config is None:
            continue
        answer = written(format, config)
        if isinstance(answer, Written):
            assert find_differences(answer, *open_written(answer)) == {}, changes
        else:
            words = [word for path, _ in changes for word in words_for(path)]
            words += [*_PARTS_OF_PATHS.values(), *format.find_met(config)]
            assert any(word in str(answer) for word in words), (changes, str(answer))
            assert len(str(answer)) < 700
