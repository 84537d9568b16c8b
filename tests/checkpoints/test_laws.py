"""Laws of translation, checked for every dialect: total, injective, and inverse both ways."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.checkpoints.adapt import adapt_config
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.timm import architectures
from keras_vit.checkpoints.inspection import open_checkpoint
from keras_vit.checkpoints.opening import OpenSource
from keras_vit.checkpoints.transfer import weights_by_path
from keras_vit.checkpoints.translate import plan
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten, nest
from keras_vit.config.weights import lexicon
from keras_vit.errors import CheckpointError
from keras_vit.models.builders import list_variants, variant
from keras_vit.presets.preset_config import PresetConfig
from tests.checkpoints.drawn import ALL_VALUES, PLAIN, WRITTEN, models
from tests.checkpoints.headers import Headers
from tests.families import FAMILIES
from tests.helpers import assert_same_arrays, tiny
from tests.thorough import times

dialects = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
written_dialects = pytest.mark.parametrize("dialect", WRITTEN, ids=lambda dialect: dialect.name)


NOT_DRAWN = dict.fromkeys(("tokens", "block", "pool"), "its fields are drawn")
NOT_IN_FILES = {
    **dict.fromkeys(
        ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate"),
        "acts in training alone",
    ),
    "position_resize": "acts at other image sizes than the stored one",
}
"""Fields that a file may leave out, so that the library's or our default is read, and why."""


def facts_of(config: ViTConfig) -> dict[str, object]:
    """The fields by path, each in one spelling for all models that compute alike."""
    fields = flatten(config.to_dict())
    fields["position_grid"] = config.source_grid
    if fields["block.layer_scale"]:
        fields["block.layer_scale"] = "an array of the file has replaced the initial value"
    if config.stem.is_packed:  # the number of patches counts
        fields["image_size"] = config.packed_shape
    return fields


def random_arrays(shapes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


def weights_from(moves, file_arrays) -> dict[str, np.ndarray]:
    return dict(pair for move in moves for pair in move.to_weights(file_arrays[move.name]))


def arrays_from(moves, weights) -> dict[str, np.ndarray]:
    return {move.name: move.to_array([weights[path] for path in move.paths]) for move in moves}


@pytest.mark.without_backend
@dialects
def test_a_dialect_names_words_of_the_lexicon_alone(dialect):
    assert dialect.words.keys() <= {word.path for word in lexicon.LEXICON}


@pytest.mark.without_backend
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
    assert {path for path, values in ALL_VALUES.items() if not values} == set(NOT_DRAWN)
    assert ALL_VALUES.keys() >= set(NOT_IN_FILES)


@pytest.mark.without_backend
@written_dialects
@given(data=st.data())
@settings(max_examples=times(5, 20), deadline=None)
def test_reading_and_writing_are_inverse_bit_by_bit(dialect, data):
    """Laws 2 and 3: names, shapes and bits are kept in both directions; no name stands twice."""
    config = data.draw(models(dialect))
    moves = plan(config, dialect, dialect.prefix_for(config))
    shapes = {move.name: move.file_shape for move in moves}
    assert len(shapes) == len(moves)
    file_arrays = random_arrays(shapes)
    weights = weights_from(moves, file_arrays)
    listed = {weight.path: weight.shape for weight in lexicon.weights(config)}
    assert {path: array.shape for path, array in weights.items()} == listed
    assert_same_arrays(arrays_from(moves, weights), file_arrays)
    others = random_arrays(listed)
    assert_same_arrays(weights_from(moves, arrays_from(moves, others)), others)


@pytest.mark.without_backend
@written_dialects
@given(data=st.data(), prefix=st.integers(0, 3))
@settings(max_examples=times(5, 20), deadline=None)
def test_a_written_file_is_read_as_the_same_model(dialect, data, prefix):
    """Names, shapes and JSON files determine dialect, prefix and configuration."""
    config = data.draw(models(dialect))
    files = json.loads(json.dumps(dialect.write_json(config, None)))
    prefix = dialect.prefixes[prefix % len(dialect.prefixes)]
    if files or dialect.name == "transformers":
        prefix = dialect.prefix_for(config)
    shapes = {move.name: move.file_shape for move in plan(config, dialect, prefix)}
    asked, preset = {}, None
    if config.pool.kind == "unpooled":  # the arrays are those of the pooled form
        asked["pool"] = {"kind": "unpooled"}
    if config.image_size is None:
        asked["image_size"] = None
    if config.position == "sincos2d":  # a class token without positions could be a lost array
        asked["position"] = "sincos2d"
    if dialect.name == "keras_vit":
        content = json.loads(json.dumps(PresetConfig(config).to_dict()))
        asked, preset = {}, PresetConfig.from_dict(content, "config.json")
    elif not files:
        if config.pool.kind == "gap":  # an encoder alone does not show its pooling
            asked["pool"] = {"kind": "gap"}
        asked["position_grid"] = config.source_grid
        asked["image_size"] = config.image_size
        asked["num_heads"] = config.num_heads  # a fused axis hides the number of heads
    written = dialect.fold.write(Headers(shapes), files) if dialect.fold else Headers(shapes)
    opened = open_checkpoint(OpenSource(written, files, preset), asked)
    assert (opened.info.family, opened.info.prefix) == (dialect.name, prefix)
    assert opened.info.undetermined == ()
    read = adapt_config(opened, asked)
    if config.image_size and not (files or preset):  # the caller's images resize the positions
        config = config.replace(position_grid=None)
    plain = facts_of(ViTConfig.from_dict(nest({**PLAIN, **dialect.compute_arithmetic({})})))
    want, got = facts_of(config), facts_of(read)
    lost = {path for path in NOT_IN_FILES if path in got and got[path] == plain[path]}
    assert {p: got.get(p) for p in want if got.get(p) != want[p] and p not in lost} == {}


@pytest.mark.without_backend
@pytest.mark.parametrize("name", list_variants())
@pytest.mark.parametrize("dialect", [d for d in WRITTEN if "/" not in d.name], ids=lambda d: d.name)
def test_a_variant_has_a_name_for_every_weight_or_is_refused(dialect, name):
    """At full size; no name stands for two weights."""
    config = variant(name).config()
    if config.stem.is_resnet and not dialect.all_names("root/conv/kernel"):
        with pytest.raises(CheckpointError, match="no place for root/conv/kernel: .* ResNet stem"):
            plan(config, dialect)
        return
    moves = plan(config, dialect)
    names = [move.name for move in moves]
    paths = [p for move in moves for p in move.paths]
    assert len(set(names)) == len(names)
    assert sorted(paths) == sorted(weight.path for weight in lexicon.weights(config))


def _packs_gate_and_value(row) -> bool:
    """As timm's constructors of `VisionTransformer` and of `Eva` decide it."""
    if row.get("class") == "Eva":
        return not (row.get("scale_mlp") or row.get("swiglu_align_to"))
    return row["mlp_layer"] == "GluMlp"


GATED = {
    name: row
    for name, row in architectures.rows()
    if (row.get("swiglu_mlp") or row.get("mlp_layer", "Mlp") != "Mlp") and "sapiens" not in name
}
"""Sapiens 2 has fewer heads of key and value than of query, which keras_vit lacks."""


@pytest.mark.without_backend
@pytest.mark.parametrize("name", GATED)
def test_timm_stores_a_gated_mlp_as_its_architecture_does(name):
    """As one array or two, whatever the configuration; a file with the other storage is read."""
    row = GATED[name]
    dialect = DIALECTS["timm/eva" if row.get("class") == "Eva" else "timm"]
    fields = dialect.read_json({"config.json": {"architecture": name}}).fields
    sizes = {"hidden_size": 16, "mlp_dim": 24, "num_heads": 2, "num_layers": 2, "num_classes": 0}
    sizes |= {"patch_size": 4, "image_size": 16}
    config = ViTConfig.from_dict(nest({**dialect.conventions, **fields, **sizes}))
    shapes = {move.name: move.file_shape for move in plan(config, dialect)}
    first = {n for n in shapes if n.startswith("blocks.0.mlp.fc1") and n.endswith("weight")}
    halves = {f"blocks.0.mlp.fc1_{half}.weight" for half in "gx"}
    packed = {"blocks.0.mlp.fc1.weight"}
    assert first == (packed if _packs_gate_and_value(row) else halves)
    for other in (packed, halves):
        moves = plan(config, dialect, "", other)
        assert other <= {move.name for move in moves}
