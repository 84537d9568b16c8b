"""The data of `fit`, `evaluate` and `predict` as Keras's data adapters, which a backend may change.

Keras accepts a data adapter in place of data. It decides there how arrays, data sets and
generators become the batches of a backend.

Leans on: `keras.src.trainers.data_adapters.get_data_adapter`.
"""

import inspect
from typing import Any

import keras
from keras.src.trainers import data_adapters

_SIGNATURES = {
    name: inspect.signature(getattr(keras.Model, name)) for name in ("fit", "evaluate", "predict")
}


class AdaptedData:
    """A model that changes the adapters of its data; Keras handles `validation_split`."""

    def _adapted(self, adapter: Any, purpose: str) -> Any:
        """Returns the adapter that `fit`, `evaluate` or `predict` gets in place of an adapter."""
        return adapter

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.fit`."""
        given = _SIGNATURES["fit"].bind(self, *args, **kwargs).arguments
        validation = given.get("validation_data")
        if self.compiled and validation is not None:  # type: ignore[attr-defined]
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(validation)
            given["validation_data"] = self._adapter(
                "evaluate",
                x,
                y,
                sample_weight,
                given.get("validation_batch_size") or given.get("batch_size"),
                given.get("validation_steps"),
            )
        # Otherwise Keras raises, or splits the arrays.
        if self.compiled and (validation is not None or not given.get("validation_split")):  # type: ignore[attr-defined]
            given["x"] = self._adapter(
                "fit",
                given.get("x"),
                given.pop("y", None),
                given.pop("sample_weight", None),
                given.get("batch_size"),
                given.get("steps_per_epoch"),
                given.pop("shuffle", True),
                given.pop("class_weight", None),
            )
        return super().fit(**_without_self(given))  # type: ignore[misc]

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as `keras.Model.evaluate`."""
        given = _SIGNATURES["evaluate"].bind(self, *args, **kwargs).arguments
        further = given.pop("kwargs", {})  # `fit` passes data that it has already prepared here
        if self.compiled and not further:  # type: ignore[attr-defined]
            given["x"] = self._adapter(
                "evaluate",
                given.get("x"),
                given.pop("y", None),
                given.pop("sample_weight", None),
                given.get("batch_size"),
                given.get("steps"),
            )
        return super().evaluate(**_without_self(given), **further)  # type: ignore[misc]

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predicts as `keras.Model.predict`."""
        given = _SIGNATURES["predict"].bind(self, *args, **kwargs).arguments
        given["x"] = self._adapter(
            "predict", given["x"], None, None, given.get("batch_size"), given.get("steps")
        )
        return super().predict(**_without_self(given))  # type: ignore[misc]

    def _adapter(
        self,
        purpose: str,
        x: Any,
        y: Any,
        sample_weight: Any,
        batch_size: int | None,
        steps: int | None,
        shuffle: bool = False,
        class_weight: Any = None,
    ) -> Any:
        return self._adapted(
            data_adapters.get_data_adapter(
                x, y, sample_weight, batch_size, steps, shuffle, class_weight
            ),
            purpose,
        )


def _without_self(given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "self"}
