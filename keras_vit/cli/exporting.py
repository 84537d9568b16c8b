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
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        out: path of the folder to write.
        format: format of the exported model.
        outputs: numbers that the exported model returns.
        preprocessing: the exported model takes uint8 images of any size and prepares them;
            --no-preprocessing: it takes prepared floats.
        image_size: pixels of the images, or height and width; by default the model's.
        batch: number of images in a call; by default any number.
        precision: number format of the weights.
        calibration: image files or folders from which int8 takes the ranges of the activations.
        verify: compare the exported model with the original; --no-verify leaves it out.
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
