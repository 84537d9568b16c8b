"""Bad files are refused by an error that names file and array, the value found and expected."""

import io
import zipfile

import numpy as np
import pytest

import keras_vit
from keras_vit import KerasViTError, VisionTransformer
from keras_vit.checkpoints.containers import write_npz
from keras_vit.errors import CheckpointError, ConfigError
from tests.golden import FOLDER
from tests.words import raises

SOURCE = FOLDER / "vit_token_published.npz"
BLOCK = "Transformer/encoderblock_1"


@pytest.fixture
def arrays():
    """The arrays of a good file, which the tests damage."""
    with np.load(SOURCE) as file:
        return dict(file)


def refused(tmp_path, arrays, error=CheckpointError, **fields) -> str:
    """Writes arrays, or the bytes of a file, loads them, and returns the refusal's message."""
    path = tmp_path / "spoilt.npz"
    if isinstance(arrays, bytes):
        path.write_bytes(arrays)
    else:
        write_npz(path, arrays.items())
    with pytest.raises(error) as caught:
        VisionTransformer.from_preset(path, **fields)
    message = str(caught.value)
    if error is CheckpointError:
        assert str(path) in message
    return message


def test_one_message_lists_all_missing_misshapen_and_unexpected_arrays(tmp_path, arrays):
    """With shapes, axes, keras_vit's path and the nearest name; the majority decides a size."""
    arrays[f"{BLOCK}/MlpBlock_3/Dense_0/kernl"] = arrays.pop(f"{BLOCK}/MlpBlock_3/Dense_0/kernel")
    arrays["Transformer/encoder_norm/scale"] = np.zeros(25, "float32")
    message = refused(tmp_path, arrays)
    assert "3 arrays do not fit" in message
    assert "misshapen: Transformer/encoder_norm/scale is (25,), expected (24,) [hidden_" in message
    assert f"missing: {BLOCK}/MlpBlock_3/Dense_0/kernel, expected (24, 40)" in message
    assert "[hidden_size, mlp_dim] for block_1/mlp/dense_0/kernel" in message
    assert f"nearest unclaimed name: {BLOCK}/MlpBlock_3/Dense_0/kernl" in message
    assert f"unexpected: {BLOCK}/MlpBlock_3/Dense_0/kernl (24, 40)" in message


def test_a_gap_in_the_blocks_is_refused(tmp_path, arrays):
    """The blocks are not renumbered, as vit_jax does."""
    arrays = {name.replace("block_1", "block_2"): array for name, array in arrays.items()}
    message = refused(tmp_path, arrays)
    assert "missing: Transformer/encoderblock_1/LayerNorm_0/scale" in message
    assert "16 arrays do not fit" in message


def test_a_file_loaded_as_another_variant_is_refused(tmp_path):
    """The message names an array with both shapes."""
    from keras_vit.checkpoints.dialects import DIALECTS
    from keras_vit.checkpoints.translate import plan
    from keras_vit.models.builders import variant

    moves = plan(variant("vit_ti16").config(num_classes=2), DIALECTS["google"])
    arrays = {m.name: np.zeros(m.file_shape, "float16") for m in moves}
    message = refused(tmp_path, arrays, read={"variant": "vit_s16"})
    assert "do not fit vit_s16 as google has it" in message
    assert "head/kernel is (192, 2), expected (384, 2)" in message


def test_a_field_that_the_arrays_contradict_is_refused(tmp_path, arrays):
    """The field is neither ignored nor overruled."""
    message = refused(tmp_path, arrays, mlp_dim=41)
    assert "MlpBlock_3/Dense_0/bias is (40,), expected (41,) [mlp_dim]" in message


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"image_siz": 24}, ConfigError, "Unknown field image_siz. Did you mean 'image_size'?"),
        ({"read": {"variant": "vitb16"}}, ConfigError, "Did you mean 'vit_b16'?"),
        ({"read": {"family": "gogle"}}, KerasViTError, "family 'gogle'. Did you mean 'google'?"),
        ({"read": {"prefx": "a."}}, ConfigError, "read has no key 'prefx'. Did you mean 'prefix'?"),
        ({"prefix": "a."}, ConfigError, "Unknown field prefix. Give read={'prefix': ...}."),
        ({"read": "timm"}, ConfigError, "read must be a dict with keys of family, variant, prefix"),
    ],
)
def test_an_unknown_argument_is_refused_with_the_nearest_name(
    tmp_path, arrays, fields, error, message
):
    """A field of the configuration, a variant, and a dialect."""
    assert message in refused(tmp_path, arrays, error, **fields)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_array_with_nan_or_infinity_is_refused_by_name(tmp_path, arrays, bad):
    """A single bad number is enough."""
    arrays["head/kernel"][3, 2] = bad
    message = refused(tmp_path, arrays)
    assert "array 'head/kernel' holds NaN or infinity" in message


def test_a_representation_layer_that_the_file_lacks_is_refused(tmp_path, arrays):
    """It is not filled with random numbers."""
    message = refused(tmp_path, arrays, representation_size=24)
    assert "representation_size=24, but the file has None" in message


def test_positions_that_are_no_square_need_an_image_size():
    """The message names the arguments; the size is not guessed."""
    words = ("15 positions are no square grid", "image_size=(height, width)")
    with raises(CheckpointError, *words, "position_grid=(rows, columns)"):
        VisionTransformer.from_preset(FOLDER / "vit_gap.npz")
    with raises(CheckpointError, words[0]):
        VisionTransformer.from_preset(FOLDER / "vit_gap.npz", image_size=(40, 24))
    with pytest.raises(
        CheckpointError,
        match=r"position_grid=\(4, 4\) has 16 cells, but the file has positions for 15",
    ):
        VisionTransformer.from_preset(FOLDER / "vit_gap.npz", position_grid=(4, 4))


def test_arrays_of_another_network_are_refused(tmp_path):
    """The message names some of the arrays."""
    message = refused(tmp_path, {"conv1/kernel": np.zeros((7, 7, 3, 64), "float32")})
    assert "no Vision Transformer in any of the families" in message
    assert "conv1/kernel" in message


def test_an_npz_with_pickled_objects_is_refused(tmp_path):
    """No object is unpickled."""
    buffer = io.BytesIO()
    np.savez(buffer, cls=np.array([{"a": 1}], dtype=object))
    assert "array 'cls' holds pickled Python objects" in refused(tmp_path, buffer.getvalue())


def test_a_torch_pickle_is_refused_with_the_way_to_safetensors(tmp_path):
    """A torch zip is distinguished from an npz file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02}.")
    message = refused(tmp_path, buffer.getvalue())
    assert "torch pickle" in message and "safetensors.torch.save_file" in message
    assert "Python pickle" in refused(tmp_path, b"\x80\x04\x95" + bytes(20))


@pytest.mark.parametrize("kept", [0, 3, 100, 20_000])
def test_a_cut_npz_file_is_refused(tmp_path, kept):
    """The message says that the file is not complete, or no npz file."""
    message = refused(tmp_path, SOURCE.read_bytes()[:kept])
    assert "not a complete npz" in message or "no npz (zip)" in message


def test_a_zip_of_other_files_is_no_damaged_array(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("model/readme.txt", "hello")
    with raises(CheckpointError, "a zip without arrays", "model/readme.txt", "Unpack it"):
        keras_vit.info(tmp_path / "x.zip")


def test_a_source_that_is_no_name_is_refused_with_the_way_to_a_file():
    with raises(CheckpointError, "A source is a path", "found {'w': 1}", "save_file"):
        keras_vit.info({"w": 1})


def test_an_html_page_saved_as_a_file_is_refused_by_its_first_bytes(tmp_path):
    """Failed downloads leave such files."""
    assert "begins with b'<!DOCTYP'" in refused(tmp_path, b"<!DOCTYPE html><html></html>")


def test_an_array_with_damaged_bytes_is_refused_by_name(tmp_path):
    """The checksum of the zip finds the damage."""
    content = bytearray(SOURCE.read_bytes())
    with zipfile.ZipFile(SOURCE) as file:
        member = max(file.infolist(), key=lambda info: info.file_size)
    middle = member.header_offset + member.compress_size // 2
    content[middle] ^= 0xFF
    message = refused(tmp_path, bytes(content))
    assert f"array {member.filename.removesuffix('.npy')!r} is damaged" in message


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_one_name_are_refused(tmp_path):
    """Neither of them is chosen."""
    buffer = io.BytesIO()
    npy = io.BytesIO()
    np.save(npy, np.zeros(3, "float32"))
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("cls.npy", npy.getvalue())
        file.writestr("cls.npy", npy.getvalue())
    assert "array 'cls' stands twice" in refused(tmp_path, buffer.getvalue())


def test_an_absent_path_and_an_empty_folder_are_refused(tmp_path):
    """The message says that the path does not exist, or that the folder has no weights."""
    with pytest.raises(CheckpointError, match="it does not exist"):
        VisionTransformer.from_preset(tmp_path / "absent.npz")
    with pytest.raises(CheckpointError, match=r"expected one file of weights .* found none"):
        VisionTransformer.from_preset(tmp_path)


def test_presets_in_subfolders_are_named(tmp_path):
    """As `best/` and `last/` of a training, whose folder itself is no preset."""
    for name in ("best", "last"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=f"Name one of its presets: {tmp_path}/best, "):
        VisionTransformer.from_preset(tmp_path)
