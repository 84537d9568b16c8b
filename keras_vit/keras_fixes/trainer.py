"""The base class that gives a `keras.Model` every workaround of its backend's trainer."""

import keras

from keras_vit.keras_fixes.one_at_a_time import OneAtATime

if keras.backend.backend() == "jax" and not keras.config.is_nnx_enabled():
    from keras_vit.keras_fixes.jax_devices import DividedBatches
    from keras_vit.keras_fixes.jax_state import StateInPlace

    class _OfTheBackend(DividedBatches, StateInPlace):  # type: ignore[misc]
        """Workarounds for JAX."""

elif keras.backend.backend() == "tensorflow":
    from keras_vit.keras_fixes.tensorflow_arrays import PredictsArrays
    from keras_vit.keras_fixes.tensorflow_replicas import EqualShares

    class _OfTheBackend(PredictsArrays, EqualShares):  # type: ignore[no-redef]
        """Workarounds for TensorFlow."""

elif keras.backend.backend() == "openvino":
    from keras_vit.keras_fixes.openvino_predict import CompiledFromWeights as _OfTheBackend
elif keras.backend.backend() == "torch":
    from keras_vit.keras_fixes.torch_gradients import GradientsFreedFirst as _OfTheBackend
else:

    class _OfTheBackend:  # type: ignore[no-redef]
        """Other backends need no workaround."""


class FixedTrainer(OneAtATime, _OfTheBackend):  # type: ignore[misc]
    """A base class to be placed before `keras.Model` among the bases of a model.

    A model with this base can be used by several threads, survives a failed `fit`, `evaluate`
    and `predict`, and predicts on OpenVINO from its present weights. On TensorFlow it ends its
    epochs without a wait, predicts a few images without tracing a pipeline, and refuses training
    batches that the replicas of a strategy do not divide. On torch it begins its steps without the
    gradients of the previous step. On JAX it divides batches of any size among the devices of
    `keras.distribution`.
    """


class FixedModel(FixedTrainer, keras.Model):
    """A functional `keras.Model` with the workarounds: a slice of another model, to predict."""
