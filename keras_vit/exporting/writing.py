"""`export`: writes a folder that runs without keras_vit, and compares its outputs."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import keras

from keras_vit.config import ViTConfig
from keras_vit.config.rules import BOOL, choice
from keras_vit.errors import (
    ConfigError,
    ExportError,
    KerasViTError,
    expect_model,
    first_line,
    shown,
)
from keras_vit.exporting import child, documents, pixels, verification
from keras_vit.exporting.formats import FORMATS, load_format
from keras_vit.exporting.graph import ExportGraph
from keras_vit.exporting.plan import ExportPlan, Format
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support import arguments
from keras_vit.support.extras import is_installed
from keras_vit.support.files import replace_folder, room_checked

OUTPUTS = choice(*get_args(arguments.Outputs))
PRECISIONS = choice(*get_args(arguments.Precision))


@dataclasses.dataclass(frozen=True)
class ExportResult:
    """The result of `keras_vit.export`.

    Args:
        path: the output folder.
        format: name of the format.
        verification: difference from the original model, a
            `keras_vit.exporting.verification.Comparison`; None without a comparison.
        notes: sentences on what the export does differently from its arguments.
        num_bytes: size of all files in bytes.
    """

    path: Path
    format: str
    verification: verification.Comparison | None
    notes: tuple[str, ...]
    num_bytes: int


def export(
    model: VisionTransformer,
    path: str | os.PathLike[str],
    format: arguments.Format = "onnx",
    *,
    preprocessing: bool = True,
    outputs: arguments.Outputs | None = None,
    image_size: int | tuple[int, int] | None = None,
    batch: int | Literal["dynamic"] = "dynamic",
    precision: arguments.Precision = "float32",
    calibration: Any = None,
    verify: bool = True,
) -> ExportResult:
    """Exports a model to ONNX, OpenVINO, PyTorch, TensorFlow or LiteRT, to run without keras_vit.

    The folder has the model, `labels.txt`, `README.md` with a short program that runs it, and
    `export.json` with input, protocol, provenance and verification. It is written atomically. A
    format that needs another backend is written in a separate process of that backend.

    Args:
        model: a `VisionTransformer`; it is exported in float32, whatever its policy.
        path: output folder. An existing export of the same format is replaced.
        format: `"onnx"`, `"openvino"`, `"torch"` (torch.export), `"saved_model"` (TensorFlow)
            or `"litert"`.
        preprocessing: whether the exported model takes uint8 images
            `(batch, height, width, channels)` of any size, and resizes, crops and scales them by
            the model's protocol; otherwise it takes prepared floats. `docs/export.md` states how
            closely both agree.
        outputs: `"probabilities"`, two for a model with one logit; `"logits"`, also the values of a
            regression or depth model; or `"features"`, the output of `pre_logits`. None for the
            probabilities of a model with classes, else the logits. A dense head gives a map of the
            prepared image, `(batch, height, width, classes)` or depths `(batch, height, width)`.
        image_size: image size, if other than the model's; position embeddings are resized.
        batch: number of images in each call, or `"dynamic"` for any number.
        precision: `"float32"`, `"float16"`, or `"int8"` for quantised matrix products.
        calibration: images of any kind that `model.preprocessor` takes, on which int8 calibrates
            the ranges of activations. Without them, each call measures the ranges (ONNX, LiteRT),
            or activations stay float32 (OpenVINO).
        verify: whether the program of `README.md` is run in a new process, and its outputs are
            compared with those of the model.

    Returns:
        The folder, and the largest difference from the model.

    Raises:
        ConfigError: an argument has an invalid value.
        ExportError: the format cannot hold the model, a converter or runtime is not installed, or
            the outputs differ from those of the model. Nothing is written.
        WriteError: the folder cannot be written; its earlier content is unchanged.
    """
    expect_model(model)
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise ConfigError(f"path: expected the path of a folder, found {shown(path)}.")
    BOOL.check("preprocessing", preprocessing)
    BOOL.check("verify", verify)
    choice(*FORMATS).check("format", format)
    form = load_format(format)
    if outputs is None:
        outputs = "logits" if model.prediction.predicts_values else "probabilities"
    config = model.config if image_size is None else model.config.replace(image_size=image_size)
    _check_arguments(format, form, config, outputs, batch, precision)
    notes = []
    protocol = model.preprocessor.protocol
    prepares, reason = _preparation(form, config, protocol) if preprocessing else ("nothing", None)
    notes += [reason] if reason else []
    if model.dtype_policy.name != "float32":
        notes.append(f"The policy {model.dtype_policy.name} became float32.")
    plan = ExportPlan(
        format=format,
        outputs=outputs,
        prepares=prepares,
        config=config,
        rescale=model.rescale,
        batch=None if batch == "dynamic" else batch,
        precision=precision,
        protocol=protocol,
    )
    if refusal := form.refusal(plan):
        raise ExportError(f"format={format!r}: {refusal}")
    if calibration is not None and not (precision == "int8" and form.takes_calibration):
        raise ConfigError(
            "calibration= is only for precision='int8' of format='onnx' and 'openvino'; omit it."
        )
    _check_installed(format, form, precision, verify)
    folder = Path(path)
    names = (form.model, *form.further, *documents.FILES)
    weights = 4 * model.count_params()
    with replace_folder(folder, names, ExportError) as new, room_checked(new, weights):
        rebuilt = child.rebuild(model, plan, new.parent)
        graph = ExportGraph(rebuilt, plan)
        images = None if calibration is None else list(graph.inputs(calibration))
        if images == []:
            raise ConfigError("calibration: expected at least one image.")
        action, passing = f"format={format!r}: the converter failed", (KerasViTError, OSError)
        with _failures_named(action, new, *passing, MemoryError):
            if keras.backend.backend() == form.backend:
                form.write(graph, plan, new)
            else:
                child.write_elsewhere(model, plan, new, form.backend)
            form.finish(new, plan, images)
        comparison = verification.verify(form, graph, new, images) if verify else None
        documents.write(new, form, graph, comparison, notes)
        size = sum(file.stat().st_size for file in new.rglob("*") if file.is_file())
    return ExportResult(folder, format, comparison, tuple(notes), size)


def _check_arguments(
    name: str, form: Format, config: ViTConfig, outputs: str, batch: int | str, precision: str
) -> None:
    """Refuses arguments of `export` that are invalid, or that do not fit the format or the model.

    Raises:
        ConfigError: an argument has an invalid value.
        ExportError: the format cannot hold the model.
    """
    OUTPUTS.check("outputs", outputs)
    PRECISIONS.check("precision", precision)
    if batch != "dynamic" and not (type(batch) is int and batch > 0):
        raise ConfigError(f"batch={batch!r}: expected a positive int or 'dynamic'.")
    config.refuse_packed("An export")
    if outputs != "features" and config.num_classes == 0:
        raise ConfigError(
            f"outputs={outputs!r}: a model with num_classes=0 has no head. Export its features "
            "with outputs='features'."
        )
    if outputs == "features":
        config.refuse_map("outputs='features'")
    if precision not in form.precisions:
        raise ExportError(
            f"format={name!r} does not support {precision}; 'onnx', 'openvino' and 'litert' do."
        )


def _preparation(
    form: Format, config: ViTConfig, protocol: ProtocolSpec
) -> tuple[Literal["resize", "scale", "nothing"], str | None]:
    """Returns the preprocessing in the graph, and a sentence if steps are omitted."""
    if reason := pixels.refusal(protocol, config.image_size):
        return "nothing", (f"The model cannot include {reason}, so it takes prepared float images.")
    if config.image_size is None:
        return "scale", None
    if not form.any_size:
        return "scale", "The format takes images of one size, so resize them first."
    return "resize", None


@contextlib.contextmanager
def _failures_named(action: str, folder: Path, *passing: type[Exception]) -> Iterator[None]:
    """Raises `ExportError` for every exception of a converter, as they have no common base.

    Args:
        action: the failed step as a clause, the beginning of the message.
        folder: the unfinished folder, whose path is removed from the message.
        passing: exceptions that are not changed.
    """
    try:
        yield
    except passing:
        raise
    except Exception as error:
        # torch's exporter wraps the cause in a summary.
        cause = first_line(error.__cause__ or error, f"{folder}{os.sep}")
        raise ExportError(f"{action}: {cause} Nothing was written.") from error


def _check_installed(name: str, form: Format, precision: str, verify: bool) -> None:
    """Raises `ExportError` if a converter or the runtime of a format is not installed."""
    converters = {**form.writes, **(form.quantises if precision == "int8" else {})}
    for modules, purpose in ((converters, "written"), (form.reads if verify else {}, "verified")):
        missing = {module: extra for module, extra in modules.items() if not is_installed(module)}
        if missing:
            extras = ",".join(sorted(set(missing.values())))
            verb = "is" if len(missing) == 1 else "are"
            way = " Or skip the comparison: verify=False, --no-verify."
            raise ExportError(
                f"format={name!r} is {purpose} by {', '.join(missing)}, which {verb} not "
                f"installed: pip install --upgrade 'keras-vit-zoo[{extras}]'."
                f"{way if purpose == 'verified' else ''}"
            )
