"""Writes the README.md of a preset: metadata for the Hub, and text for readers."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from keras_vit.config.variants import find_variant
from keras_vit.errors import PresetError, nearest
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.support.text import in_markdown

LIBRARY = "keras-vit-zoo"
"""`library_name`. For `keras` the Hub would show `keras.saving.load_model("hf://...")`, which reads
another layout (`model-libraries.ts` of huggingface.js); the tag `keras` marks a Keras model.
"""

_METADATA = (
    "license",
    "license_name",
    "license_link",
    "datasets",
    "language",
    "base_model",
    "tags",
)
_FIELDS = (*_METADATA, "description", "metrics")


def model_card(name: str, preset: PresetConfig, about: Mapping[str, Any] | None = None) -> str:
    """Returns a model card with its metadata block, rendered by huggingface_hub.

    Name and provenance may come from strangers, so their markup is escaped. `description` is the
    caller's own Markdown.

    Args:
        name: name of the preset for `from_preset`.
        preset: contents of `config.json` of the preset.
        about: facts that the preset does not state: `description`, a text; `license`,
            `license_name`, `license_link`, `datasets`, `language`, `base_model` and
            `tags` as in `huggingface_hub.ModelCardData`; `metrics`, a list of results,
            each with `dataset_type`, `dataset_name`, `metric_type`, `metric_value` and
            optional fields of `huggingface_hub.EvalResult`. License and base model
            default to the values in the provenance.

    Raises:
        PresetError: a field is unknown, or a result lacks a field.
    """
    from huggingface_hub import ModelCard, ModelCardData

    about = dict(about or {})
    for field in about:
        if field not in _FIELDS:
            raise PresetError(
                f"card: unknown field {field!r}.{nearest(field, _FIELDS)} "
                f"Known: {', '.join(_FIELDS)}."
            )
    results = _results(about.get("metrics", ()))
    metadata = {**_known_from(preset.provenance), **{k: about[k] for k in _METADATA if k in about}}
    tags = metadata.pop("tags", ())
    tags = [*([tags] if isinstance(tags, str) else tags), "keras", "vision-transformer"]
    classifies = preset.config.has_one_prediction
    try:
        data = ModelCardData(
            library_name=LIBRARY,
            pipeline_tag="image-classification" if classifies else "image-feature-extraction",
            tags=tags,
            metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
            model_name=name if results else None,
            eval_results=results or None,
            **metadata,
        )
        return str(ModelCard(f"---\n{data.to_yaml()}\n---\n\n{_text(name, preset, about)}"))
    except (TypeError, ValueError) as error:
        raise PresetError(f"card: {error}") from error


def _known_from(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata that follow from the provenance of the weights."""
    base = provenance.get("base")  # of a fine-tuned preset
    metadata = _known_from(base) if isinstance(base, Mapping) else {}
    if isinstance(provenance.get("license"), str):
        metadata["license"] = provenance["license"].lower()  # as the Hub writes SPDX
    if isinstance(provenance.get("repo"), str):
        metadata["base_model"] = provenance["repo"].removeprefix("hf://")
    return metadata


def _results(metrics: Any) -> list[Any]:
    from huggingface_hub import EvalResult

    try:
        return [EvalResult(**{"task_type": "image-classification", **m}) for m in metrics]
    except (TypeError, ValueError) as error:
        raise PresetError(
            f"card: metrics={metrics!r}: expected a list of objects with dataset_type, "
            f"dataset_name, metric_type and metric_value ({error})."
        ) from error


def _text(name: str, preset: PresetConfig, about: Mapping[str, Any]) -> str:
    config = preset.config
    size = "any size" if config.image_size is None else "{}x{} pixels".format(*config.image_size)
    last = 'outputs = model.predict(model.preprocessor("image.jpg"))'
    if config.has_one_prediction and preset.task != "regression":
        last = 'print(model.classify("image.jpg"))'
    words = "values" if preset.prediction.predicts_values else "classes"
    origin = "\n".join(_list(preset.provenance))
    description = f"{about['description'].strip()}\n\n" if about.get("description") else ""
    return f"""# {in_markdown(name)}

{description}A Vision Transformer ({find_variant(config) or "of its own size"}) for {size},
{config.channels} channel(s) and {preset.prediction.num_answers} {words}, for
Keras 3 on TensorFlow, JAX and torch.

```python
import keras_vit

model = keras_vit.VisionTransformer.from_preset({json.dumps(name)})
{last}
```

Images are prepared as by the protocol `{_shown(preset.protocol)}`, which the preset carries.

## Provenance

{origin or "Not recorded."}
"""


def _list(facts: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yields the facts as lines of a list, those of a mapping below its name."""
    for key, value in facts.items():
        inside = isinstance(value, Mapping)
        yield f"{indent}- {in_markdown(key)}:{'' if inside else f' {in_markdown(_shown(value))}'}"
        yield from _list(value, f"{indent}  ") if inside else ()


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
