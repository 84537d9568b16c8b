"""The command that writes a model for other runtimes."""

import argparse
from pathlib import Path
from typing import Any

from keras_vit.cli.console import ImageSize, console, image_files, positive
from keras_vit.cli.screen import Screen
from keras_vit.environment import backend

FORMATS = ("onnx", "openvino", "torch", "saved_model", "litert", "stablehlo", "transformers_js")


def add(commands: Any) -> None:
    """Adds export."""
    command = commands.add_parser("export", help="write a model that runs without keras_vit")
    command.add_argument("source", help="a name, a file or folder, or hf://owner/repo")
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    command.add_argument("--format", choices=FORMATS, default="onnx")
    command.add_argument(
        "--outputs", choices=("probabilities", "logits", "features"), default="probabilities"
    )
    command.add_argument(
        "--preprocessing",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="take uint8 images of any size, or prepared floats",
    )
    command.add_argument(
        "--image-size",
        type=positive,
        nargs="+",
        action=ImageSize,
        metavar="PIXELS",
        help="another one than the model's",
    )
    command.add_argument("--batch", type=positive, help="images of each call; any number else")
    command.add_argument("--precision", choices=("float32", "float16", "int8"), default="float32")
    command.add_argument(
        "--calibration",
        nargs="+",
        metavar="IMAGE",
        help="images or folders, for int8 of activations with fixed ranges",
    )
    command.add_argument(
        "--no-verify", action="store_true", help="do not compare the result with the model"
    )
    command.set_defaults(run=_export)


def _export(arguments: argparse.Namespace) -> None:
    backend.start()
    from keras_vit import VisionTransformer, export

    images = None
    if arguments.calibration:
        images = [str(path) for path in image_files(arguments.calibration)]
    with Screen(stderr=True).status("Exporting"):
        written = export(
            VisionTransformer.from_preset(arguments.source),
            arguments.out,
            arguments.format,
            preprocessing=arguments.preprocessing,
            outputs=arguments.outputs,
            image_size=arguments.image_size,
            batch=arguments.batch or "dynamic",
            precision=arguments.precision,
            calibration=images,
            verify=not arguments.no_verify,
        )
    compared = "not compared with the model"
    if (comparison := written.verification) is not None:
        compared = f"within {comparison.difference:.1e} of the model in its own runtime"
    size = f"{written.num_bytes / 1e6:,.1f} MB"
    console.print(f"{written.folder} written, {size}, {compared}.", soft_wrap=True)
    for note in written.notes:
        console.print(note, soft_wrap=True)
