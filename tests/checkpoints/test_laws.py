"""Laws of translation, for every format: total, injective, and inverse in both directions."""

import dataclasses
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.checkpoints.adapt import adapt_config
from keras_vit.checkpoints.containers import renamed
from keras_vit.checkpoints.families.keys import merge
from keras_vit.checkpoints.moves import _PARTS_OF_PATHS, plan
from keras_vit.checkpoints.opening import OpenSource, open_source
from keras_vit.checkpoints.reading import Checkpoint, open_checkpoint
from keras_vit.checkpoints.writing import Written
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten
from keras_vit.config.vit import SWITCHES
from keras_vit.config.weights import lexicon
from keras_vit.errors import CheckpointError
from keras_vit.images.protocols import complete
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.presets.source import Source
from tests.checkpoints.drawn import ALL_VALUES, CHANGES, WRITTEN, accepted, changed, models, written
from tests.checkpoints.files import DATA
from tests.checkpoints.headers import Headers
from tests.plain import assert_same_arrays
from tests.runs import THOROUGH, times

pytestmark = pytest.mark.without_backend

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


def folded(own: Written):
    """The arrays of a written model by name and shape, as the library folds them."""
    return own.format.family.fold.write(Headers(shapes_of(own.moves)), files_of(own))


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
    lost, shapes = format.row.prefix.removesuffix(prefix), folded(own).shapes
    reader = Headers({training + n.removeprefix(lost): shape for n, shape in shapes.items()})
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
    "num_classes": ("a single logit for two classes",),
    "block.gated": ("block.activation=",),
    "pool.kind": ("pool.norm=",),
    "tokens.registers": ("position=",),
    "tokens.class_tokens": ("pool.kind=",),
    # One key states two fields: the refusal names the one that the library's model has too.
    "block.projection_bias": ("block.mlp_bias=",),
    "block.qkv_bias": ("block.projection_bias=",),
    "block.input_norm": ("patch_bias=", "that no architecture has"),
}
"""Field -> words for another one, which a refusal names in its place."""


def words_for(field: str) -> list[str]:
    """The words of which a refusal for a field has some."""
    switches = [s for s in SWITCHES.values() if s.field in (field, field.partition(".")[0])]
    return [f"{field}=", f"{field}.", *(s.words for s in switches), *TIED.get(field, ())]


IN_BRACKETS = str.maketrans("[]", "()")


def other_models(format):
    """Models that the format holds, and each with another value of a field; a third per format.

    All values per format in `make test-thorough`.
    """
    switches = {switch.field for switch in SWITCHES.values()}
    for field, value in CHANGES if THOROUGH else CHANGES[WRITTEN.index(format) % 3 :: 3]:
        others = [((field, value), other) for other in CHANGES if other[0] != field]
        tried = [((field, value),), *(others if field in switches else ())]
        bases = [base for base in accepted(format) if flatten(base.to_dict()).get(field) != value]
        models = ((own, base, changed(base, *own)) for own in tried for base in bases[:1])
        yield from [model for model in models if model[2]][:1]


@formats
def test_a_model_with_another_field_is_read_back_or_refused_by_field_and_value(format):
    """A switch that needs a second field is turned on with it."""
    for changes, _, config in other_models(format):
        answer = written(format, config)
        if isinstance(answer, Written):
            assert find_differences(answer, *open_written(answer)) == {}, changes
            continue
        message, values = str(answer), flatten(config.to_dict())
        words = [word for path, _ in changes for word in words_for(path)]
        words += [*_PARTS_OF_PATHS.values(), *format.find_met(config)]
        assert any(word in message for word in words), (changes, message)
        assert len(message) < 700
        for path in {path for path, _ in changes if f"{path}=" in message}:
            stated = f"{path}={values[path]!r}", f"{path}={values[path]!r}".translate(IN_BRACKETS)
            assert any(word in message for word in (*stated, "found")), message


@formats
def test_json_of_one_model_beside_arrays_of_another_is_read_as_one_or_refused(format):
    """Never as a mixture; what is read is a model that has these arrays."""
    for changes, base, config in other_models(format):
        own, other = written(format, base), written(format, config)
        if not isinstance(other, Written) or not own.files:
            continue
        _, asked = open_written(other)
        source = OpenSource(Headers(folded(own).shapes), files_of(other), is_folder=True)
        try:
            opened = open_checkpoint(source, asked)
        except CheckpointError as refusal:
            assert len(str(refusal)) < 2500, changes
        else:
            found = [find_differences(model, opened, asked) for model in (own, other)]
            assert {} in found, (changes, found)


STATED = [format for format in WRITTEN if format.library.json]
FOLDERS = [
    path.parent
    for folder in ("golden", "families")
    for path in sorted((DATA / folder).glob("*/model.safetensors"))
]
MAY_LACK = ("head/", "pre_logits/", "projection/", "mask_token/")
"""Starts of the paths of weights without which a file holds an encoder."""
UNSTATED = ("class_token/", "block_0/attention/query/bias")
"""Starts of the paths of weights without which people train an architecture of timm, whose
config.json does not say so."""


def kinds_of(moves, optional=MAY_LACK):
    """The names of the arrays of a file, by kind: those that differ in their numbers."""
    kinds = {}
    for move in moves:
        if not move.paths[0].startswith(optional):
            kinds.setdefault(re.sub(r"\d+", "#", move.name), set()).add(move.name)
    return kinds.values()


@pytest.mark.parametrize("format", STATED, ids=lambda f: f"{f.name} {f.class_name}")
@given(data=st.data())
@settings(max_examples=times(1, 10), deadline=None)
def test_arrays_that_the_json_promises_are_missed(format, data):
    own = written(format, data.draw(models(format)))
    _, asked = open_written(own, format.row.prefix, "")
    is_radio = format.class_name == "RadioModel"  # whose files have layer scales or not
    scales = ("block_0/attention_scale/", "block_0/mlp_scale/") if is_radio else ()
    if format.family.name == "timm/naflex":  # without all of these it is read with RMSNorm
        norms = ("attention_norm", "mlp_norm")
        scales += tuple(f"block_{k}/{norm}/beta" for k in range(3) for norm in norms)
    for lost in kinds_of(own.moves, MAY_LACK + scales):
        left = Headers(shapes_of(move for move in own.moves if move.name not in lost))
        with pytest.raises(CheckpointError):
            open_checkpoint(OpenSource(left, own.files, is_folder=True), asked)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_arrays_that_a_class_or_an_architecture_implies_are_missed(folder):
    with open_source(Source.parse(folder), headers=True) as files:
        opened = open_checkpoint(files, {})
        for lost in kinds_of(opened.moves, (*MAY_LACK, *UNSTATED)):
            names = (
                n for n in files.reader.shapes if n.removeprefix(opened.info.prefix) not in lost
            )
            left = renamed(files.reader, ((name, name) for name in names))
            with pytest.raises(CheckpointError):
                open_checkpoint(dataclasses.replace(files, reader=left), {})
