"""The formats, one file each."""

import importlib
from types import MappingProxyType

from keras_vit.exporting.formats.base import Format

FORMATS = ("onnx", "openvino", "torch", "saved_model", "litert", "stablehlo", "transformers_js")
"""Names of the formats, as `keras_vit.export` takes them."""

BACKENDS = MappingProxyType(
    {"saved_model": "tensorflow", "litert": "tensorflow", "stablehlo": "jax"}
)
"""The backend that writes a format; torch writes all others."""


def load_format(name: str) -> Format:
    """Returns a format. Its converter is imported when it is used."""
    form: Format = importlib.import_module(f"keras_vit.exporting.formats.{name}").FORMAT
    return form
