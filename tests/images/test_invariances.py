"""What must not change a prepared picture: its form, its batch, its other channels."""

import io
import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.images.packing import pack_image
from keras_vit.images.protocols import compact, complete
from tests.images.pictures import picture
from tests.images.rows import ROWS, SIZES, pictures
from tests.plain import normal
from tests.runs import times

pytestmark = pytest.mark.without_backend


@pytest.mark.parametrize("row", ROWS)
@given(image=pictures(least=5), size=st.sampled_from(SIZES))
@settings(max_examples=times(6, 100), deadline=None)
def test_a_picture_is_prepared_alike_in_every_form(row, image, size, tmp_path_factory):
    """As a file, bytes, an array, floats of both ranges, and in a batch or a generator."""
    prepare = Preprocessor(size, protocol=ROWS[row][0])
    expected = prepare(image)
    assert (expected.shape, expected.dtype) == ((1, *size, 3), "float32")
    file = io.BytesIO()
    image.save(file, "tiff")
    path = tmp_path_factory.getbasetemp() / "drawn.tiff"
    path.write_bytes(file.getvalue())
    pixels = np.asarray(image.convert("RGB"))
    forms = [path, str(path), file.getvalue(), file, pixels, pixels[None]]
    forms += [pixels.transpose(2, 0, 1), pixels.astype("float64"), pixels / 255]
    for form in forms:
        np.testing.assert_array_equal(prepare(form), expected)
    other = Image.new("RGB", (9, 7))
    for batch in (prepare([other, image, *forms]), prepare(x for x in (other, image, pixels))):
        np.testing.assert_array_equal(batch[1:], np.repeat(expected, len(batch) - 1, axis=0))


@pytest.mark.parametrize("row", ROWS)
@given(image=pictures(least=5), size=st.sampled_from(SIZES))
@settings(max_examples=times(4, 50), deadline=None)
def test_each_channel_and_either_data_format_is_prepared_alike(row, image, size):
    """A channel as a grey image; seven channels; and `pixels` undoes mean and std."""
    protocol = complete(ROWS[row][0])
    pixels = np.asarray(image.convert("RGB"))
    assume(len(pixels) != 7)  # rows that may be channels are refused
    mean, std = (np.broadcast_to(protocol[key], 3) for key in ("mean", "std"))
    (expected,) = Preprocessor(size, protocol=protocol)(pixels)
    of_seven = {"mean": np.resize(mean, 7).tolist(), "std": np.resize(std, 7).tolist()}
    seven = Preprocessor(size, 7, protocol={**protocol, **of_seven})
    (found,) = seven(np.concatenate([pixels, pixels, pixels[..., :1]], -1))
    for k in range(7):
        np.testing.assert_array_equal(found[..., k], expected[..., k % 3])
    alone = {**protocol, "mean": float(mean[2]), "std": float(std[2])}
    (grey,) = Preprocessor(size, 1, protocol=alone)(pixels[..., 2:])
    np.testing.assert_array_equal(grey[..., 0], expected[..., 2])
    first = Preprocessor(size, protocol=protocol, data_format="channels_first")
    np.testing.assert_array_equal(first(pixels)[0].transpose(1, 2, 0), expected)
    unscaled = Preprocessor(size, protocol=protocol, scaled=False)(pixels)
    np.testing.assert_allclose(first.pixels(first(pixels)), unscaled / 255, atol=1e-6)


BILINEAR = {"name": "timm", "interpolation": "bilinear"}


@pytest.mark.parametrize("protocol", ["big_vision", BILINEAR, "transformers", "keras_hub"])
def test_floats_are_not_rounded(protocol):
    """Fractions of pixels keep their precision."""
    preprocess, photo = Preprocessor(224, protocol=protocol), picture((427, 640))
    pixels = preprocess(photo)
    half = (preprocess(photo / 2.0) + 1) * 2 - 1
    assert 0 < np.abs(half - pixels).max() <= 2 * 2 / 255


IMAGENETS = {"name": "transformers", "mean": [0.485, 0.456, 0.406]}
COMPACT = [
    ("timm", "timm"),
    ({"name": "timm", "crop_pct": 0.9}, "timm"),
    ({"name": "timm", "mean": [0.5, 0.5, 0.5], "std": (0.5,)}, "timm"),
    (IMAGENETS, IMAGENETS),
]


@pytest.mark.parametrize(("protocol", "stored"), COMPACT)
def test_default_parameters_of_a_protocol_are_not_stored(protocol, stored):
    """Equal protocols have one compact form, in plain JSON."""
    assert Preprocessor(224, protocol=protocol).protocol == compact(protocol) == stored
    assert json.loads(json.dumps(compact(protocol))) == stored


def test_a_protocol_stores_the_image_size_of_its_resize_small():
    protocol = {"name": "big_vision", "resize_small": 448}
    assert Preprocessor(384, protocol=protocol).protocol == {**protocol, "image_size": 384}


@given(rows=st.integers(1, 4), columns=st.integers(1, 4), padding=st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_patches_lie_row_by_row_with_their_places_and_padding(rows, columns, padding):
    """The row and the column stand after the pixels of a patch; padding is 0 and -1."""
    image, count = normal(2 * rows, 3 * columns, 3), rows * columns
    packed = pack_image(image, (2, 3), count + padding)
    assert packed.shape == (count + padding, 20)
    for number, (row, column) in enumerate(np.ndindex(rows, columns)):
        pixels = image[2 * row : 2 * row + 2, 3 * column : 3 * column + 3]
        np.testing.assert_array_equal(packed[number], [*pixels.ravel(), row, column])
    assert not packed[count:, :-2].any() and (packed[count:, -2:] == -1).all()
