"""A model out of the process that it was trained in: one folder that runs without keras_vit.

`plan` is what one export shall be, `graph` the function that is written down, `pixels` its
preprocessing, `formats` the ways to write it; `verification` opens the result in its own runtime.
"""

from keras_vit.exporting.formats import FORMATS
from keras_vit.exporting.writing import Exported, export

__all__ = ["FORMATS", "Exported", "export"]
