"""Exports a model to a folder that runs without keras_vit: ONNX, OpenVINO, torch.export and others.

`plan` declares formats and exports, `graph` is the function that is exported, `pixels` its
preprocessing, and `formats` the converters; `verification` runs the program of the folder's README.
"""

from keras_vit.exporting.formats import FORMATS
from keras_vit.exporting.writing import ExportResult

__all__ = ["FORMATS", "ExportResult"]
__dir__ = __all__.copy
