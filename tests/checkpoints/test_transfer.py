"""Loading files into models, saving models to files, and converting files to files."""

import json
import logging
import shutil
import tracemalloc

import keras
import ml_dtypes
import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints import transfer
from keras_vit.checkpoints.containers import open_arrays, write_npz
from keras_vit.checkpoints.opening import OpenSource
from keras_vit.errors import CheckpointError
from tests.families import FAMILIES
from tests.golden import CASES, FOLDER, expected, load_case, relative_error
from tests.helpers import assert_same_arrays, random_tiny, stored, tiny

GAP = {"pool": {"kind": "gap"}, "tokens": {"class_tokens": 0}}
SOURCE = FOLDER / "vit_token_published.npz"


def assert_same_file(left, right):
    """Fails unless two files have the same names, shapes, dtypes and bits."""
    assert_same_arrays(stored(left), stored(right))


@pytest.mark.on_one_backend("torch")
@pytest.mark.parametrize(
    ("family", "name"),
    [
        *(("google", name) for name in ("vit_token_published", "hybrid_r26", "vit_headless")),
        *(("google_linen", name) for name in ("vit_token_linen", "hybrid_r50_64x48")),
    ],
)
def test_loading_and_saving_an_official_file_is_bitwise_equal(family, name, tmp_path):
    """Names, shapes and bits, also of norms of shape (1, 1, 1, C), and the names of flax linen."""
    checkpoints.save(load_case(name), tmp_path / "back.npz", family=family)
    assert_same_file(FOLDER / CASES[name]["checkpoint"], tmp_path / "back.npz")


def test_names_of_another_number_than_the_classes_are_left_out(tmp_path, caplog):
    folder = shutil.copytree(FOLDER / "hf_classifier", tmp_path / "classifier")
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "tench", "1": "goldfish"}
    (folder / "config.json").write_text(json.dumps(config))
    assert VisionTransformer.from_preset(folder).class_names is None
    assert "classifier: 2 names for a head of" in caplog.text


def test_convert_translates_published_names_to_linen_and_back(tmp_path):
    """The converted file equals the reference's file of the other naming, bit by bit."""
    published, linen = FOLDER / "vit_token_published.npz", FOLDER / "vit_token_linen.npz"
    keras_vit.convert(published, tmp_path / "linen.npz", "google_linen")
    assert_same_file(tmp_path / "linen.npz", linen)
    keras_vit.convert(linen, tmp_path / "published.npz", "google")
    assert_same_file(tmp_path / "published.npz", published)


@pytest.mark.parametrize(("image_size", "written"), [(None, True), ((None, None), False)])
def test_convert_takes_the_words_for_the_size_of_load(image_size, written, tmp_path):
    """None for the stored size, `(None, None)` for any size; the positions are the same."""
    keras_vit.convert(SOURCE, tmp_path / "x.npz", "google", image_size=image_size)
    assert VisionTransformer.from_preset(SOURCE, image_size=image_size).config.image_size == (
        keras_vit.info(SOURCE).config.image_size if written else None
    )
    same = VisionTransformer.from_preset(
        tmp_path / "x.npz", position_grid=VisionTransformer.from_preset(SOURCE).config.grid
    )
    assert same.config.grid == VisionTransformer.from_preset(SOURCE).config.grid


def test_convert_may_resize_and_drop_the_head(tmp_path):
    """As on loading."""
    keras_vit.convert(SOURCE, tmp_path / "x.npz", "google", image_size=24, num_classes=0)
    found = keras_vit.info(tmp_path / "x.npz").config
    assert (found.image_size, found.num_classes) == ((24, 24), 0)


@pytest.mark.parametrize("prefix", ["params/", "opt/target/"])
def test_training_checkpoints_load_without_their_optimizer_state(prefix, tmp_path):
    """Their names have a prefix; `inspect` lists the arrays that are ignored."""
    arrays = {prefix + name: array for name, array in stored(SOURCE).items()}
    if prefix == "opt/target/":
        arrays["opt/state/step"] = np.zeros((), "int32")
        arrays["opt/state/param_states/cls/momentum"] = np.zeros((1, 1, 24), "float32")
    write_npz(tmp_path / "x.npz", arrays.items())
    info = keras_vit.info(tmp_path / "x.npz")
    assert info.prefix == prefix
    assert set(info.ignored.values()) <= {"optimizer state"}
    want = expected("vit_token_published")
    logits = VisionTransformer.from_preset(tmp_path / "x.npz").predict(want["image"], verbose=0)
    assert relative_error(logits, want["logits"]) <= 1e-5


@pytest.mark.on_one_backend("torch")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_files_of_other_float_types_load_and_convert(dtype, tmp_path):
    """16-bit values become float32 exactly; NumPy shows bfloat16 as two bytes of void."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays = {name: array.astype(kind) for name, array in stored(SOURCE).items()}
    write_npz(tmp_path / "x.npz", arrays.items())
    if dtype == "bfloat16":
        with np.load(tmp_path / "x.npz") as file:
            assert file["cls"].dtype == np.dtype("V2")
    variables = transfer.weights_by_path(VisionTransformer.from_preset(tmp_path / "x.npz"))
    got = keras.ops.convert_to_numpy(variables["head/kernel"])
    assert np.array_equal(got, arrays["head/kernel"].astype("float32"))
    keras_vit.convert(tmp_path / "x.npz", tmp_path / "y.npz", "google")
    assert_same_file(tmp_path / "x.npz", tmp_path / "y.npz")


@pytest.mark.on_one_backend("torch")
@pytest.mark.parametrize("gn_axes", [1, 4])
def test_group_norm_arrays_of_rank_1_and_rank_4_load(gn_axes, tmp_path):
    """(C,) under published names, and (1, 1, 1, C) under the names of linen."""
    source = "hybrid_r50_64x48.npz" if gn_axes == 4 else "hybrid_r50.npz"
    arrays = {
        name: array.reshape((1,) * (gn_axes - 1) + (-1,)) if "gn" in name else array
        for name, array in stored(FOLDER / source).items()
    }
    write_npz(tmp_path / "x.npz", arrays.items())
    name = "hybrid_r50_64x48" if gn_axes == 4 else "hybrid_r50"
    want = expected(name)
    model = VisionTransformer.from_preset(
        tmp_path / "x.npz", image_size=tuple(CASES[name]["config"]["image_size"])
    )
    logits = model.predict(want["image"], verbose=0)
    assert relative_error(logits, want["logits"]) <= 1e-5


def test_a_new_head_is_zero_and_logged(caplog):
    """Another number of classes gives one line in the log, another image size a second one."""
    caplog.set_level(logging.INFO, logger="keras_vit")
    VisionTransformer.from_preset(SOURCE)
    assert caplog.records == []
    model = VisionTransformer.from_preset(SOURCE, num_classes=3)
    kernel = keras.ops.convert_to_numpy(model.get_layer("head").kernel)
    assert kernel.shape == (24, 3)
    assert not kernel.any()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "new head with zero weights for 3 classes; the file has 7 classes" in said[0]
    VisionTransformer.from_preset(SOURCE, image_size=(24, 12))
    assert "resized from 4x4 to 6x3 (bilinear_align_corners)" in caplog.text


def test_a_resized_relative_position_bias_is_logged(tmp_path, caplog):
    """The message has both grids; a model of the stored size gives none."""
    checkpoints.save(random_tiny(**FAMILIES["beit"]), tmp_path / "x", "timm")
    caplog.set_level(logging.INFO, logger="keras_vit")
    VisionTransformer.from_preset(tmp_path / "x")
    assert "position bias" not in caplog.text
    VisionTransformer.from_preset(tmp_path / "x", image_size=24)
    assert "relative position bias resized from 2x2 to 3x3 patches" in caplog.text


def test_positions_are_resized_to_a_grid_with_an_equal_number_of_cells(tmp_path):
    """From 4x9 to 6x6."""
    model = random_tiny(image_size=(32, 72), **GAP)
    checkpoints.save(model, tmp_path / "x.npz")
    square = VisionTransformer.from_preset(tmp_path / "x.npz", position_grid=(4, 9), image_size=48)
    stored = keras.ops.convert_to_numpy(model.get_layer("position_embedding").embedding)
    got = keras.ops.convert_to_numpy(square.get_layer("position_embedding").embedding)
    assert got.shape == stored.shape
    assert np.array_equal(got[0, [0, 5, 30, 35]], stored[0, [0, 8, 27, 35]])  # corners stay
    assert not np.allclose(got, stored)


def test_load_passes_arguments_to_the_model():
    """The pooled and the unpooled form of a classifier have the same weights."""
    model = VisionTransformer.from_preset(
        SOURCE, dtype="mixed_bfloat16", name="mine", data_format="channels_first"
    )
    assert (model.dtype_policy.name, model.name) == ("mixed_bfloat16", "mine")
    assert model.count_params() == keras_vit.info(SOURCE).num_parameters
    assert model.input_shape == (None, 3, 16, 16)
    assert VisionTransformer.from_preset(SOURCE, pool={"kind": "unpooled"}).output_shape == (
        None,
        17,
        7,
    )


def test_weight_paths_do_not_depend_on_the_name_or_the_outer_model():
    """A nested model named "inner" has the paths of a model alone."""
    inner = tiny(name="inner")
    outer = keras.Sequential([keras.Input((16, 16, 3)), inner])
    names = transfer.weights_by_path(inner).keys()
    assert outer.count_params() == inner.count_params()
    assert names == transfer.weights_by_path(tiny()).keys()


def test_overwriting_a_file_in_place_does_not_change_the_loaded_model(tmp_path):
    """Files are mapped into memory, but the weights of the model are copies."""
    path = tmp_path / "x.npz"
    path.write_bytes(SOURCE.read_bytes())
    model = VisionTransformer.from_preset(path)
    images = np.random.default_rng(0).uniform(-1, 1, (1, 16, 16, 3)).astype("float32")
    before = model.predict(images, verbose=0)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    np.testing.assert_array_equal(model.predict(images, verbose=0), before)


def test_reading_holds_one_array_at_a_time(tmp_path):
    """Besides the model, a load needs memory for the largest array, not for the whole file."""
    sizes = {"hidden_size": 128, "mlp_dim": 512, "num_layers": 8, "num_heads": 4}
    model = VisionTransformer(patch_size=8, image_size=16, num_classes=2, **sizes)
    checkpoints.save(model, tmp_path / "x.npz")
    file_size = (tmp_path / "x.npz").stat().st_size
    tracemalloc.start()
    with open_arrays(tmp_path / "x.npz") as reader:
        opened = transfer.open_checkpoint(OpenSource(reader, {}), {})
        for _path, array in transfer._read_weights(opened, opened.info.config):
            del array
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < file_size / 4


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_with_nan_or_infinite_weights_is_not_saved(bad, tmp_path):
    """The message names the weight; no file is written."""
    model = random_tiny()
    kernel = model.get_layer("block_0").mlp.dense_0.kernel
    values = keras.ops.convert_to_numpy(kernel).copy()
    values[3, 2] = bad
    kernel.assign(values)
    for save in (
        lambda: checkpoints.save(model, tmp_path / "x.npz"),
        lambda: checkpoints.save(model, tmp_path / "x", "timm", lossy=True),
        lambda: model.save_to_preset(tmp_path / "preset"),
    ):
        with pytest.raises(ValueError, match="block_0/mlp/dense_0/kernel holds NaN or infinity"):
            save()
    assert list(tmp_path.iterdir()) == []


def test_a_weight_beyond_the_range_of_float16_is_refused(tmp_path, caplog):
    """The message names the weight and its largest value; under mixed_float16 it is a warning."""
    model = random_tiny()
    model.get_layer("block_0").mlp.dense_0.bias.assign(np.full(32, 1e6))
    checkpoints.save(model, tmp_path / "x.npz")
    with pytest.raises(CheckpointError, match="block_0/mlp/dense_0/bias holds 1e.06, and"):
        VisionTransformer.from_preset(tmp_path / "x.npz", dtype="float16")
    with caplog.at_level(logging.WARNING, "keras_vit"):
        VisionTransformer.from_preset(tmp_path / "x.npz", dtype="mixed_float16")
    assert "block_0/mlp/dense_0/bias" in caplog.text
    caplog.clear()
    VisionTransformer.from_preset(tmp_path / "x.npz", dtype="mixed_bfloat16")
    assert not caplog.text


@pytest.mark.parametrize("image_size", [None, 32], ids=["stored", "resized"])
@pytest.mark.parametrize("path", ["position_embedding/embedding", "head/kernel"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_beyond_the_range_of_float32_is_refused(path, image_size, sign, tmp_path):
    """A float64 array is finite before its cast, and would be infinite after it."""
    model = random_tiny()
    checkpoints.save(model, tmp_path / "x.npz")
    arrays = dict(np.load(tmp_path / "x.npz"))
    name = "head/kernel" if path == "head/kernel" else next(n for n in arrays if "pos_emb" in n)
    arrays[name] = np.full(arrays[name].shape, sign * 1e300)
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(CheckpointError, match=rf"{path} holds 1e.300, and float32 ends at 3.4028"):
        VisionTransformer.from_preset(tmp_path / "x.npz", image_size=image_size)


def test_a_part_may_be_given_as_such_or_as_a_dict_of_what_changes():
    """A dict keeps the other fields of the file's part."""
    source = FOLDER / "timm_token"
    for pool in (keras_vit.config.Pool("unpooled"), {"kind": "unpooled"}):
        assert VisionTransformer.from_preset(source, pool=pool).output_shape == (None, 17, 7)
    block = VisionTransformer.from_preset(source, block={"epsilon": 1e-3}).config.block
    assert (block.epsilon, block.activation) == (1e-3, "gelu")
