"""Loading files into models, saving models to files, and converting files to files."""

import logging
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
from keras_vit.config.weights import lexicon
from tests.checkpoints.drawn import KINDS
from tests.checkpoints.files import copy, find
from tests.families import FAMILIES
from tests.formulas import torch_resize
from tests.golden import CASES, FOLDER, load_case
from tests.helpers import assert_close, random_tiny, tiny, to_numpy
from tests.plain import HYBRID, assert_same_arrays, normal, stored

GAP = {"pool": {"kind": "gap"}, "tokens": {"class_tokens": 0}}
SOURCE, LINEN = FOLDER / "vit_token_published.npz", FOLDER / "vit_token_linen.npz"


@pytest.mark.usefixtures("blank_models")
@pytest.mark.parametrize("fields", [{"num_classes": 0}, HYBRID, *KINDS])
def test_the_lexicon_lists_every_weight_of_a_model_once(fields):
    """With its path and shape in the Keras model, whatever the name or the outer model."""
    model = tiny(**{"patch_size": 4, "num_layers": 2, "name": "inner", **fields})
    keras.Sequential([keras.Input((16, 16, 3)), model])
    listed = [(weight.path, weight.shape) for weight in lexicon.weights(model.config)]
    assert len(dict(listed)) == len(listed)
    held = transfer.weights_by_path(model)
    assert {path: tuple(weight.shape) for path, weight in held.items()} == dict(listed)


@pytest.mark.parametrize("name", ["vit_token_published", "vit_token_linen", "hybrid_r50_64x48"])
def test_an_official_file_is_saved_and_converted_bit_for_bit(name, tmp_path):
    """Names, shapes and bits, also of norms of shape (1, 1, 1, C), and the names of flax linen."""
    source = FOLDER / CASES[name]["checkpoint"]
    checkpoints.save(load_case(name), tmp_path / "x.npz", family=keras_vit.info(source).family)
    assert_same_arrays(stored(tmp_path / "x.npz"), stored(source))
    for other, family in ((LINEN, "google_linen"), (SOURCE, "google")) if "vit" in name else ():
        keras_vit.convert(source, tmp_path / "x.npz", family)
        assert_same_arrays(stored(tmp_path / "x.npz"), stored(other))


STATE = {"opt/state/step": np.zeros((), "int32"), "opt/state/cls": np.zeros((1, 1, 24), "f4")}
FORMS = {
    "a training": ("vit_token_published", lambda n, a: (f"params/{n}", a), {}),
    "an optimizer": ("vit_token_published", lambda n, a: (f"opt/target/{n}", a), STATE),
    "the time of ViT-G": ("bv_map", lambda n, a: (n.replace("MAPHead_0/", ""), a), {}),
    "before 2022": ("bv_gap", lambda n, a: (n.replace("pos_e", "Transformer/pos_e"), a), {}),
}
"""A golden, the name and array in another form of its file, and arrays that are left out."""


@pytest.mark.parametrize("form", FORMS)
def test_another_form_of_a_file_holds_the_same_weights(form, tmp_path):
    """The last two as by `fix_old_checkpoints` of big_vision."""
    name, change, more = FORMS[form]
    case, found = CASES[name], []
    arrays = dict(change(*pair) for pair in stored(FOLDER / case["checkpoint"]).items())
    write_npz(tmp_path / "x.npz", (arrays | more).items())
    sizes = {"image_size": tuple(case["config"]["image_size"])}
    assert more.keys() <= keras_vit.info(tmp_path / "x.npz", **sizes).ignored.keys()
    for source in (FOLDER / case["checkpoint"], tmp_path / "x.npz"):
        family = keras_vit.info(FOLDER / case["checkpoint"]).family
        keras_vit.convert(source, tmp_path / "y.npz", family, **sizes)
        found.append(stored(tmp_path / "y.npz"))
    assert_same_arrays(*found)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_files_of_other_float_types_load_and_convert(dtype, tmp_path):
    """16-bit values become float32 exactly; NumPy shows bfloat16 as two bytes of void."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays = {name: array.astype(kind) for name, array in stored(SOURCE).items()}
    write_npz(tmp_path / "x.npz", arrays.items())
    model = VisionTransformer.from_preset(tmp_path / "x.npz")
    kernel = to_numpy(model.get_layer("head").kernel)
    assert np.array_equal(kernel, arrays["head/kernel"].astype("float32"))
    keras_vit.convert(tmp_path / "x.npz", tmp_path / "y.npz", "google")
    assert_same_arrays(stored(tmp_path / "x.npz"), stored(tmp_path / "y.npz"))


@pytest.mark.parametrize(("size", "side"), [(None, 4), ((None, None), 4), (24, 6)])
def test_convert_takes_the_words_for_the_size_of_load(size, side, tmp_path):
    """None for the stored size, `(None, None)` for any size: the positions are then the same."""
    keras_vit.convert(SOURCE, tmp_path / "x.npz", "google", image_size=size, num_classes=0)
    found = keras_vit.info(tmp_path / "x.npz").config
    assert (found.grid, found.num_classes) == ((side, side), 0)


def test_what_is_new_or_resized_is_logged(tmp_path, caplog):
    """Another number of classes gives a head of zeros and one line, another size a second one."""
    checkpoints.save(random_tiny(**FAMILIES["beit"]), tmp_path / "x", "timm")
    caplog.set_level(logging.INFO, logger="keras_vit")
    for source, fields, words in (
        (tmp_path / "x", {}, []),
        (SOURCE, {}, []),
        (SOURCE, {"num_classes": 3}, ["zero weights for 3 classes; the file has 7 classes"]),
        (SOURCE, {"image_size": (24, 12)}, ["resized from 4x4 to 6x3 (bilinear_align_corners)"]),
        (tmp_path / "x", {"image_size": 24}, ["bias resized from 2x2 to 3x3 patches"]),
    ):
        caplog.clear()
        model = VisionTransformer.from_preset(source, **fields)
        assert len(caplog.records) == len(words)
        assert [word for word in words if word not in caplog.text] == []
        assert ("num_classes" in fields) == (not to_numpy(model.get_layer("head").kernel).any())


def test_positions_are_resized_to_a_grid_with_an_equal_number_of_cells(tmp_path):
    """From 4x9 to 6x6."""
    model = random_tiny(image_size=(32, 72), **GAP)
    checkpoints.save(model, tmp_path / "x.npz")
    square = VisionTransformer.from_preset(tmp_path / "x.npz", position_grid=(4, 9), image_size=48)
    own, got = (to_numpy(m.get_layer("position_embedding").embedding) for m in (model, square))
    assert got.shape == own.shape
    assert np.array_equal(got[0, [0, 5, 30, 35]], own[0, [0, 8, 27, 35]])  # corners stay
    assert not np.allclose(got, own)


@pytest.mark.parametrize("target", [(8, 8), (4, 12), (3, 12), (2, 2)])
def test_resized_patches_equal_the_pseudo_inverse_of_the_paper(target, tmp_path):
    """`pinv(B^T) w` of FlexiViT, with B made of the resized basis vectors (torch's bilinear).

    Up, down and with unequal sides; the image size of the file is kept.
    """
    model, resize = random_tiny(patch_size=(4, 6), image_size=24), torch_resize("bilinear")
    checkpoints.save(model, tmp_path / "x.npz")
    kernel, basis = to_numpy(model.get_layer("patch_embedding").kernel), np.eye(24)
    matrix = np.concatenate([resize(v[:, None], (4, 6), target) for v in basis], axis=1)
    expected = (np.linalg.pinv(matrix.T) @ kernel.reshape(24, -1)).reshape(*target, 3, 16)
    resized = VisionTransformer.from_preset(tmp_path / "x.npz", patch_size=target, image_size=24)
    assert (resized.config.patch_size, resized.config.image_size) == (target, (24, 24))
    assert_close(resized.get_layer("patch_embedding").kernel, expected, 1e-6)


def test_load_passes_arguments_to_the_model():
    fields = {"dtype": "mixed_bfloat16", "name": "mine", "data_format": "channels_first"}
    model = VisionTransformer.from_preset(SOURCE, **fields)
    assert (model.dtype_policy.name, model.name) == ("mixed_bfloat16", "mine")
    assert model.count_params() == keras_vit.info(SOURCE).num_parameters
    assert model.input_shape == (None, 3, 16, 16)


def test_a_part_may_be_given_as_such_or_as_a_dict_of_what_changes():
    """A dict keeps the other fields of the file's part."""
    source = FOLDER / "timm_token"
    pool = keras_vit.config.Pool("unpooled")
    config = keras_vit.info(source, pool=pool, block={"epsilon": 1e-3}).config
    assert (config.block.epsilon, config.block.activation) == (1e-3, "gelu")
    assert config.pool.kind == "unpooled"
    stated, rope = keras_vit.info(find("timm_dinov3")).config, {"theta": 50.0}
    assert keras_vit.info(find("timm_dinov3"), rope=rope).config == stated.replace(rope=rope)


def test_overwriting_a_file_in_place_does_not_change_the_loaded_model(tmp_path):
    """Files are mapped into memory, but the weights of the model are copies."""
    path, images = copy("vit_token_published.npz", tmp_path), normal(1, 16, 16, 3)
    model = VisionTransformer.from_preset(path)
    before = model.predict(images, verbose=0)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    np.testing.assert_array_equal(model.predict(images, verbose=0), before)


def test_reading_holds_one_array_at_a_time(tmp_path):
    """Besides the model, a load needs memory for the largest array, not for the whole file."""
    path = tmp_path / "x.npz"
    checkpoints.save(tiny(hidden_size=128, mlp_dim=512, num_layers=8), path)
    tracemalloc.start()
    with open_arrays(path) as reader:
        opened = transfer.open_checkpoint(OpenSource(reader, {}), {})
        for _path, array in transfer._read_weights(opened, opened.info.config):
            del array
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 4


def test_a_weight_beyond_the_range_of_float16_is_a_warning_under_mixed_float16(tmp_path, caplog):
    model = random_tiny()
    model.get_layer("block_0").mlp.dense_0.bias.assign(np.full(32, 1e6))
    checkpoints.save(model, tmp_path / "x.npz")
    VisionTransformer.from_preset(tmp_path / "x.npz", dtype="mixed_bfloat16")
    assert not caplog.text
    VisionTransformer.from_preset(tmp_path / "x.npz", dtype="mixed_float16")
    assert "block_0/mlp/dense_0/bias" in caplog.text
