"""Loading files into models, saving models to files, and converting files to files."""

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
from tests.checkpoints.files import find
from tests.families import FAMILIES
from tests.golden import CASES, FOLDER, load_case
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import assert_same_arrays, edit_json, normal, stored

GAP = {"pool": {"kind": "gap"}, "tokens": {"class_tokens": 0}}
SOURCE = FOLDER / "vit_token_published.npz"


def assert_same_file(left, right):
    """Fails unless two files have the same names, shapes, dtypes and bits."""
    assert_same_arrays(stored(left), stored(right))


LINEN = FOLDER / "vit_token_linen.npz"


@pytest.mark.parametrize(
    "name",
    ["vit_token_published", "hybrid_r26", "vit_headless", "vit_token_linen", "hybrid_r50_64x48"],
)
def test_an_official_file_is_saved_and_converted_bit_for_bit(name, tmp_path):
    """Names, shapes and bits, also of norms of shape (1, 1, 1, C), and the names of flax linen."""
    source = FOLDER / CASES[name]["checkpoint"]
    family = keras_vit.info(source).family
    checkpoints.save(load_case(name), tmp_path / "saved.npz", family=family)
    assert_same_file(source, tmp_path / "saved.npz")
    for other, way in ((LINEN, "google_linen"), (SOURCE, "google")):
        if name in ("vit_token_published", "vit_token_linen"):
            keras_vit.convert(source, tmp_path / "converted.npz", way)
            assert_same_file(tmp_path / "converted.npz", other)


NUMBERS = {"0, 1": "classifier: 2 names for a head of", "0, 7": "id2label"}


@pytest.mark.parametrize("numbers", NUMBERS)
def test_names_of_other_numbers_than_the_classes_are_left_out(numbers, tmp_path, caplog):
    folder = shutil.copytree(FOLDER / "hf_classifier", tmp_path / "classifier")
    edit_json(folder / "config.json", id2label=dict.fromkeys(numbers.split(", "), "tench"))
    assert VisionTransformer.from_preset(folder).class_names is None
    assert NUMBERS[numbers] in caplog.text


@pytest.mark.parametrize("size", [None, (None, None), 24])
def test_convert_takes_the_words_for_the_size_of_load(size, tmp_path):
    """None for the stored size, `(None, None)` for any size: the positions are then the same."""
    keras_vit.convert(SOURCE, tmp_path / "x.npz", "google", image_size=size, num_classes=0)
    whole = VisionTransformer.from_preset(SOURCE, image_size=size).config
    assert whole.image_size == {None: (16, 16), 24: (24, 24)}.get(size)
    found = keras_vit.info(tmp_path / "x.npz").config
    assert (found.grid, found.num_classes) == ((6, 6) if size == 24 else (4, 4), 0)


@pytest.mark.parametrize("prefix", ["params/", "opt/target/"])
def test_training_checkpoints_load_without_their_optimizer_state(prefix, tmp_path):
    """Their names have a prefix; `info` lists the arrays that are ignored."""
    arrays = {prefix + name: array for name, array in stored(SOURCE).items()}
    if prefix == "opt/target/":
        arrays["opt/state/step"] = np.zeros((), "int32")
        arrays["opt/state/param_states/cls/momentum"] = np.zeros((1, 1, 24), "float32")
    write_npz(tmp_path / "x.npz", arrays.items())
    info = keras_vit.info(tmp_path / "x.npz")
    assert info.prefix == prefix
    assert set(info.ignored.values()) <= {"optimizer state"}
    keras_vit.convert(tmp_path / "x.npz", tmp_path / "y.npz", "google")
    assert_same_file(SOURCE, tmp_path / "y.npz")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_files_of_other_float_types_load_and_convert(dtype, tmp_path):
    """16-bit values become float32 exactly; NumPy shows bfloat16 as two bytes of void."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays = {name: array.astype(kind) for name, array in stored(SOURCE).items()}
    write_npz(tmp_path / "x.npz", arrays.items())
    if dtype == "bfloat16":
        with np.load(tmp_path / "x.npz") as file:
            assert file["cls"].dtype == np.dtype("V2")
    found = transfer.weights_by_path(VisionTransformer.from_preset(tmp_path / "x.npz"))
    assert np.array_equal(to_numpy(found["head/kernel"]), arrays["head/kernel"].astype("float32"))
    keras_vit.convert(tmp_path / "x.npz", tmp_path / "y.npz", "google")
    assert_same_file(tmp_path / "x.npz", tmp_path / "y.npz")


@pytest.mark.parametrize(("name", "axes"), [("hybrid_r50", 1), ("hybrid_r50_64x48", 4)])
def test_group_norm_arrays_of_rank_1_and_rank_4_load(name, axes, tmp_path):
    """(C,) under published names, and (1, 1, 1, C) under the names of linen."""
    source, arrays = FOLDER / CASES[name]["checkpoint"], {}
    for key, array in stored(source).items():
        arrays[key] = array.reshape((1,) * (axes - 1) + (-1,)) if "gn" in key else array
    write_npz(tmp_path / "x.npz", arrays.items())
    family, size = keras_vit.info(source).family, tuple(CASES[name]["config"]["image_size"])
    keras_vit.convert(tmp_path / "x.npz", tmp_path / "y.npz", family, image_size=size)
    assert_same_file(source, tmp_path / "y.npz")


def test_what_is_new_or_resized_is_logged(tmp_path, caplog):
    """Another number of classes gives a head of zeros and one line, another size a second one."""
    checkpoints.save(random_tiny(**FAMILIES["beit"]), tmp_path / "x", "timm")
    caplog.set_level(logging.INFO, logger="keras_vit")
    caplog.clear()
    VisionTransformer.from_preset(tmp_path / "x")
    VisionTransformer.from_preset(SOURCE)
    assert caplog.records == []
    kernel = to_numpy(VisionTransformer.from_preset(SOURCE, num_classes=3).get_layer("head").kernel)
    assert kernel.shape == (24, 3)
    assert not kernel.any()
    (said,) = [record.getMessage() for record in caplog.records]
    assert "new head with zero weights for 3 classes; the file has 7 classes" in said
    VisionTransformer.from_preset(SOURCE, image_size=(24, 12))
    assert "resized from 4x4 to 6x3 (bilinear_align_corners)" in caplog.text
    VisionTransformer.from_preset(tmp_path / "x", image_size=24)
    assert "relative position bias resized from 2x2 to 3x3 patches" in caplog.text


def test_positions_are_resized_to_a_grid_with_an_equal_number_of_cells(tmp_path):
    """From 4x9 to 6x6."""
    model = random_tiny(image_size=(32, 72), **GAP)
    checkpoints.save(model, tmp_path / "x.npz")
    square = VisionTransformer.from_preset(tmp_path / "x.npz", position_grid=(4, 9), image_size=48)
    stored, got = (
        to_numpy(one.get_layer("position_embedding").embedding) for one in (model, square)
    )
    assert got.shape == stored.shape
    assert np.array_equal(got[0, [0, 5, 30, 35]], stored[0, [0, 8, 27, 35]])  # corners stay
    assert not np.allclose(got, stored)


def test_load_passes_arguments_to_the_model():
    fields = {"dtype": "mixed_bfloat16", "name": "mine", "data_format": "channels_first"}
    model = VisionTransformer.from_preset(SOURCE, **fields)
    assert (model.dtype_policy.name, model.name) == ("mixed_bfloat16", "mine")
    assert model.count_params() == keras_vit.info(SOURCE).num_parameters
    assert model.input_shape == (None, 3, 16, 16)


def test_weight_paths_do_not_depend_on_the_name_or_the_outer_model():
    """A nested model named "inner" has the paths of a model alone."""
    inner = tiny(name="inner")
    outer = keras.Sequential([keras.Input((16, 16, 3)), inner])
    names = transfer.weights_by_path(inner).keys()
    assert outer.count_params() == inner.count_params()
    assert names == transfer.weights_by_path(tiny()).keys()


def test_overwriting_a_file_in_place_does_not_change_the_loaded_model(tmp_path):
    """Files are mapped into memory, but the weights of the model are copies."""
    path, images = shutil.copy(SOURCE, tmp_path / "x.npz"), normal(1, 16, 16, 3)
    model = VisionTransformer.from_preset(path)
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
    values = to_numpy(kernel).copy()
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
    for name in ("hf_dinov3_model", "timm_dinov3"):
        stated, rope = keras_vit.info(find(name)).config, {"theta": 50.0}
        assert keras_vit.info(find(name), rope=rope).config == stated.replace(rope=rope)
