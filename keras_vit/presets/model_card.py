"""Writes the model card of a preset, README.md: metadata for the Hub, and text for readers."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from keras_vit.config.variants import find_variant
from keras_vit.errors import PresetError, nearest
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.support.text import counted, in_markdown

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
    """Returns the model card of a preset, with metadata rendered by huggingface_hub.

    Name and provenance may come from strangers, so their markup is escaped. `description` is the
    caller's Markdown, and is not escaped.

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
    variant = find_variant(config) or f"{config.num_layers} blocks, width {config.hidden_size}"
    task = preset.prediction.task.replace("_label", "-label classification")
    count = preset.prediction.num_answers
    answers = counted(count, "output") if preset.prediction.predicts_values else f"{count} classes"
    kind = f"for {task} with {answers}" if count else "encoder without a classification head"
    last = 'outputs = model.predict(model.preprocessor("image.jpg"))'
    if config.has_one_prediction and preset.task != "regression":
        last = 'print(model.classify("image.jpg"))'
    origin = "\n".join(_list(preset.provenance))
    description = f"{about['description'].strip()}\n\n" if about.get("description") else ""
    return f"""# {in_markdown(name)}

{description}A Vision Transformer {kind}
({variant}). It takes images of {size} with {counted(config.channels, "channel")},
and runs in Keras 3 on JAX, PyTorch and TensorFlow.

```python
import keras_vit

model = keras_vit.VisionTransformer.from_preset({json.dumps(name)})
{last}
```

The preset includes the preprocessing of images, the protocol `{_shown(preset.protocol)}`.

## Provenance

{origin or "Not recorded."}
"""


def _list(facts: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yields the facts as lines of a list, with nested lists for mappings."""
    for key, value in facts.items():
        inside = isinstance(value, Mapping)
        yield f"{indent}- {in_markdown(key)}:{'' if inside else f' {in_markdown(_shown(value))}'}"
        yield from _list(value, f"{indent}  ") if inside else ()


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
