"""Helpers of all rooms: backend, processor, limits, packages, files, text; workarounds for bugs.

The version is written here, so that `keras-vit doctor` also runs after the other distribution with
the import name keras_vit has replaced `keras_vit/__init__.py`.
"""

__version__ = "0.1.0"
