"""Epochs without what Keras's own wait for under TensorFlow and hold on to under torch.

TensorFlow: tf.data tunes a data set in a thread that sleeps for 10 ms, then 20, 40, and so on up to
a minute. Whoever deletes an iterator that is not exhausted, as `fit`, `evaluate` and `predict` do
when they have counted their batches, wakes that thread and waits for its end. But the thread is
woken a moment before it can see that it is cancelled (`CancellationManager::StartCancel` of
TensorFlow 2.21 tells everybody first, and says `IsCancelled` afterwards), so that in about half of
all calls it sleeps on, and the call returns after up to twice its time. Without tuning there is no
such thread, and `tf.data.AUTOTUNE` stands for a number of threads that does not change.

torch: Keras lets go of a step's gradients after the forward pass of the next one, where they stand
beside all that this pass keeps for its own: the highest point of the whole epoch.
"""

from typing import Any

import keras

if keras.backend.backend() == "torch":
    import torch


class LeanEpochs:
    """A `keras.Model` that ends its epochs at once, and begins a step without gradients.

    Data sets of tf.data are not tuned, unless their own options ask for it. A model that merely
    contains one of these is Keras's own. It gets the same from a `tf.data.Dataset` with
    `options.autotune.enabled = False`.
    """

    if keras.backend.backend() == "tensorflow":

        @property
        def distribute_strategy(self) -> Any:
            """The `tf.distribute.Strategy` that Keras trains with."""
            return _Untuned(super().distribute_strategy)  # type: ignore[misc]

    elif keras.backend.backend() == "torch":

        @torch.compiler.disable  # once for gradients that are there, and once for none
        def zero_grad(self, set_to_none: bool = True) -> None:
            """Torch's own; under `remat` gradients become zeros, whose places are kept.

            Among the arrays of a block that come and go, a gradient that stays leaves gaps that
            none of the next block's fits in.
            """
            if not (set_to_none and getattr(self, "remat", False)):
                return super().zero_grad(set_to_none)  # type: ignore[misc]
            for variable in self.trainable_weights:  # type: ignore[attr-defined]
                weight = variable.value
                if weight.grad is None:
                    weight.grad = weight.new_zeros(weight.shape)
                else:
                    weight.grad.detach_().zero_()

        def train_step(self, data: Any) -> Any:
            """Keras's step, after those gradients that the last one left."""
            self.zero_grad()
            return super().train_step(data)  # type: ignore[misc]


class _Untuned:
    """A strategy in all but the options of the data sets that it distributes."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # Keras asks what kind of strategy it has
        return type(self._strategy)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        import tensorflow as tf

        if dataset.options().autotune.enabled is None:
            untuned = tf.data.Options()
            untuned.autotune.enabled = False
            dataset = dataset.with_options(untuned)
        return self._strategy.experimental_distribute_dataset(dataset, options)
