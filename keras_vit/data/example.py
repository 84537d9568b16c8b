"""An example image that ships with the package, so that a first prediction needs no download."""

from pathlib import Path


def example_image() -> Path:
    """Returns the path of an example image, a handwritten 8: a grey PNG of 128 by 128 pixels.

    The digit is one of the test images of the preset `vit_digits` (scikit-learn's digits, enlarged
    bicubically from 8 by 8 pixels), which the preset was not trained on.

    >>> from keras_vit.data import example_image
    >>> example_image().name
    'digit.png'
    """
    return Path(__file__).with_name("digit.png")
