"""The command that writes a model for other runtimes."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from keras_vit.cli.console import image_files, load_model, tell
from keras_vit.cli.options import Pixels, Positive, size_of
from keras_vit.cli.screen import Screen

Format = Literal[
    "onnx", "openvino", "torch", "saved_model", "litert", "stablehlo", "transformers_js"
]


def export(
    source: str,
    /,
    *,
    out: Path,
    format: Format = "onnx",
    outputs: Literal["probabilities", "logits", "features"] = "probabilities",
    preprocessing: Annotated[bool, Parameter(negative="--no-preprocessing")] = True,
    image_size: Pixels | None = None,
    batch: Positive | None = None,
    precision: Literal["float32", "float16", "int8"] = "float32",
    calibration: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    verify: Annotated[bool, Parameter(negative="--no-verify")] = True,
) -> None:
    """Write a model that runs without keras_vit.

    Args:
        source: a name, a file or folder, or hf://owner/repo.
        out: folder to write.
        format: format of the file.
        outputs: answer of the exported model.
        preprocessing: take uint8 images of any size; without it, prepared floats.
        image_size: pixels, or height and width, if other than the model's.
        batch: images of each call; by default any number.
        precision: type of the weights.
        calibration: images or folders, for int8 of activations with fixed ranges.
        verify: compare the result with the model.
    """
    images = [str(path) for path in image_files(calibration)] if calibration else None
    model = load_model(source)
    from keras_vit.exporting import export as export_model

    with Screen(stderr=True).status("Exporting"):
        written = export_model(
            model,
            out,
            format,
            preprocessing=preprocessing,
            outputs=outputs,
            image_size=size_of(image_size),
            batch=batch or "dynamic",
            precision=precision,
            calibration=images,
            verify=verify,
        )
    compared = "not compared with the model"
    if (comparison := written.verification) is not None:
        compared = f"within {comparison.difference:.1e} of the model in its own runtime"
    tell(f"{written.folder} written, {written.num_bytes / 1e6:,.1f} MB, {compared}.")
    for note in written.notes:
        tell(note)
