"""Workarounds for faults of Keras, TensorFlow, torch and XLA, one module or function per fault.

Each workaround says when the fault was found, which versions have it, what a user sees, and
which private name the workaround leans on. `docs/upstream/` has a report of each fault that can
be filed as it stands, and a table of the private names. `tests/keras_fixes/` has a canary of
each: a test that fails when the private name is gone or Keras no longer calls it, and that says
so when the fault itself is gone, and the workaround with it.
"""

from keras_vit.keras_fixes.trainer import FixedTrainer

__all__ = ["FixedTrainer"]
