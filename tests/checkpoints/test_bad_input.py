"""Bad files get one exception that names file and key, what was found and expected."""

import io
import zipfile

import numpy as np
import pytest

from keras_vit import CheckpointError, ConfigError, checkpoints
from keras_vit.checkpoints.containers import open_arrays, parts_of, write_npz
from tests.golden import FOLDER

SOURCE = FOLDER / "vit_token_published.npz"
BLOCK = "Transformer/encoderblock_1"


@pytest.fixture
def arrays():
    """The arrays of a good file, to be spoilt."""
    with np.load(SOURCE) as file:
        return dict(file)


def refused(tmp_path, arrays, error=CheckpointError, **fields) -> str:
    """Writes the arrays, loads them, and returns the message of the refusal."""
    path = tmp_path / "spoilt.npz"
    write_npz(path, parts_of(arrays.items()))
    with pytest.raises(error) as caught:
        checkpoints.load(path, **fields)
    message = str(caught.value)
    if error is CheckpointError:
        assert str(path) in message
    return message


def refused_bytes(tmp_path, content: bytes) -> str:
    path = tmp_path / "spoilt.npz"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_missing_array(tmp_path, arrays):
    """The name, its shape in numbers and words, our path and the nearest unclaimed name."""
    arrays[f"{BLOCK}/MlpBlock_3/Dense_0/kernl"] = arrays.pop(f"{BLOCK}/MlpBlock_3/Dense_0/kernel")
    message = refused(tmp_path, arrays)
    assert "2 arrays do not fit" in message
    assert f"missing: {BLOCK}/MlpBlock_3/Dense_0/kernel, expected (24, 40)" in message
    assert "[hidden_size, mlp_dim] for block_1/mlp/dense_0/kernel" in message
    assert f"nearest unclaimed name: {BLOCK}/MlpBlock_3/Dense_0/kernl" in message
    assert f"unexpected: {BLOCK}/MlpBlock_3/Dense_0/kernl (24, 40)" in message


def test_misshapen_array(tmp_path, arrays):
    """Found and expected shape; the majority of arrays decides what is expected."""
    arrays["Transformer/encoder_norm/scale"] = np.zeros(25, "float32")
    message = refused(tmp_path, arrays)
    assert "1 array does not fit" in message
    assert (
        "misshapen: Transformer/encoder_norm/scale is (25,), expected (24,) [hidden_size]"
        in message
    )


def test_missing_block_is_named(tmp_path, arrays):
    """A gap in the blocks is no shorter model, as it is for the reference's renumbering."""
    arrays = {name.replace("block_1", "block_2"): array for name, array in arrays.items()}
    message = refused(tmp_path, arrays)
    assert "missing: Transformer/encoderblock_1/LayerNorm_0/scale" in message
    assert "16 arrays do not fit" in message


def test_several_faults_in_one_message(tmp_path, arrays):
    """All differences at once."""
    del arrays["cls"], arrays["head/bias"]
    arrays["extra"] = np.zeros(3, "float32")
    arrays["embedding/bias"] = np.zeros(1, "float32")
    message = refused(tmp_path, arrays, classifier="token", image_size=16)
    assert "missing: cls" in message and "missing: head/bias" in message
    assert "unexpected: extra (3,)" in message and "misshapen: embedding/bias" in message


def test_wrong_variant_names_the_one_that_fits(tmp_path):
    """Asked for as another variant, a file says what it is."""
    from keras_vit.checkpoints.dialects import DIALECTS
    from keras_vit.checkpoints.translate import plan
    from keras_vit.variants import variant

    moves = plan(variant("vit_ti16").config(num_classes=2), DIALECTS["google"])
    arrays = {n: np.zeros(m.file_shape, "float16") for m in moves for n in m.names}
    message = refused(tmp_path, arrays, variant="vit_s16")
    assert "do not fit vit_s16 in the google dialect" in message
    assert "The shapes fit vit_ti16." in message
    assert "head/kernel is (192, 2), expected (384, 2)" in message


def test_contradicting_field(tmp_path, arrays):
    """A field that the arrays contradict is refused, not overruled."""
    message = refused(tmp_path, arrays, mlp_dim=41)
    assert "MlpBlock_3/Dense_0/bias is (40,), expected (41,) [mlp_dim]" in message


def test_unknown_field(tmp_path, arrays):
    """A misspelt argument gets the nearest name."""
    message = refused(tmp_path, arrays, ConfigError, image_siz=24)
    assert "Unknown field image_siz. Did you mean 'image_size'?" in message


def test_unknown_variant(tmp_path, arrays):
    """So does a misspelt variant."""
    assert "Did you mean 'vit_b16'?" in refused(tmp_path, arrays, ConfigError, variant="vitb16")


def test_unknown_dialect(tmp_path, arrays):
    """And a misspelt dialect."""
    path = tmp_path / "spoilt.npz"
    write_npz(path, parts_of(arrays.items()))
    with pytest.raises(CheckpointError, match="Unknown dialect 'gogle'. Did you mean 'google'"):
        checkpoints.load(path, dialect="gogle")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights(tmp_path, arrays, bad):
    """One bad number in one array is found and named."""
    arrays["head/kernel"][3, 2] = bad
    message = refused(tmp_path, arrays)
    assert "array 'head/kernel' holds NaN or infinity" in message


def test_integers_are_no_weights(tmp_path, arrays):
    """A wrong type is named with the one found."""
    arrays["cls"] = np.zeros((1, 1, 24), "int32")
    assert "cls is int32, expected a float" in refused(tmp_path, arrays)


def test_representation_layer_is_not_invented(tmp_path, arrays):
    """A layer that the file lacks is not filled with random numbers."""
    message = refused(tmp_path, arrays, representation_size=24)
    assert "representation_size=24 was asked for, the file has None" in message


def test_rectangle_is_asked_for():
    """Positions that are no square do not tell an image size, and no size is guessed."""
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load(FOLDER / "vit_gap.npz")
    message = str(caught.value)
    assert "15 positions are no square grid" in message
    assert "image_size=(height, width)" in message and "position_grid=(rows, columns)" in message
    with pytest.raises(CheckpointError, match="15 positions are no square grid"):
        checkpoints.load(FOLDER / "vit_gap.npz", image_size=(40, 24))
    with pytest.raises(CheckpointError, match=r"position_grid=\(4, 4\) has 16 cells, the file 15"):
        checkpoints.load(FOLDER / "vit_gap.npz", position_grid=(4, 4))


def test_no_vision_transformer(tmp_path):
    """Arrays of something else are refused with what they look like."""
    message = refused(tmp_path, {"conv1/kernel": np.zeros((7, 7, 3, 64), "float32")})
    assert "no Vision Transformer in any of the dialects" in message
    assert "conv1/kernel" in message


def test_pickled_objects(tmp_path):
    """An npz with Python objects is refused before anything is unpickled."""
    buffer = io.BytesIO()
    np.savez(buffer, cls=np.array([{"a": 1}], dtype=object))
    assert "array 'cls' holds pickled Python objects" in refused_bytes(tmp_path, buffer.getvalue())


def test_torch_pickle(tmp_path):
    """A torch zip is told from an npz, with the way to a safetensors file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02}.")
    message = refused_bytes(tmp_path, buffer.getvalue())
    assert "torch pickle" in message and "safetensors.torch.save_file" in message
    assert "Python pickle" in refused_bytes(tmp_path, b"\x80\x04\x95" + bytes(20))


@pytest.mark.parametrize("kept", [0, 3, 100, 20_000])
def test_truncated_file(tmp_path, kept):
    """A cut download says so."""
    message = refused_bytes(tmp_path, SOURCE.read_bytes()[:kept])
    assert "not a complete npz" in message or "neither an npz" in message


def test_error_page_instead_of_a_file(tmp_path):
    """The first bytes show what was saved in place of weights."""
    assert "begins with b'<!DOCTYP'" in refused_bytes(tmp_path, b"<!DOCTYPE html><html></html>")


def test_flipped_bytes_in_an_array(tmp_path):
    """The zip's checksum finds them, and the message names the array."""
    content = bytearray(SOURCE.read_bytes())
    with zipfile.ZipFile(SOURCE) as file:
        member = max(file.infolist(), key=lambda info: info.file_size)
    middle = member.header_offset + member.compress_size // 2
    content[middle] ^= 0xFF
    message = refused_bytes(tmp_path, bytes(content))
    assert f"array {member.filename.removesuffix('.npy')!r} is damaged" in message


def test_header_that_promises_terabytes(tmp_path):
    """A header is compared with what is stored before memory is asked for."""
    buffer = io.BytesIO()
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6)}
    )
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("cls.npy", header.getvalue() + bytes(16))
    message = refused_bytes(tmp_path, buffer.getvalue())
    assert "array 'cls' says it is (1000000, 1000000) float32" in message
    assert "but 16 are stored" in message


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_names(tmp_path):
    """Two members of one name are not resolved in silence."""
    buffer = io.BytesIO()
    npy = io.BytesIO()
    np.save(npy, np.zeros(3, "float32"))
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("cls.npy", npy.getvalue())
        file.writestr("cls.npy", npy.getvalue())
    assert "array 'cls' stands twice" in refused_bytes(tmp_path, buffer.getvalue())


def test_safetensors_header_of_terabytes(tmp_path):
    """The header's length is checked by the library; the file is named."""
    content = (2**42).to_bytes(8, "little") + b"{" + bytes(100)
    assert "not a complete safetensors file" in refused_bytes(tmp_path, content)


def test_missing_file_and_folder(tmp_path):
    """A path that is no file says what it is."""
    with pytest.raises(CheckpointError, match="it does not exist"):
        checkpoints.load(tmp_path / "absent.npz")
    with pytest.raises(CheckpointError, match=r"expected one file of weights .* found none"):
        checkpoints.load(tmp_path)


def test_an_npz_that_is_replaced_is_read_as_it_was(tmp_path):
    """One open serves the head, the directory and the arrays."""
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros(3))
    opened = open_arrays(path)
    np.savez(tmp_path / "y.npz", b=np.ones(300))
    (tmp_path / "y.npz").replace(path)
    with opened as reader:
        assert reader.shapes == {"a": (3,)}
        assert not reader.read("a").any()
