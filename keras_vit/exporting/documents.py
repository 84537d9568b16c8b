"""Writes labels.txt, README.md and export.json of an exported model."""

import dataclasses
from pathlib import Path

from keras_vit.exporting.graph import ExportGraph
from keras_vit.exporting.plan import INPUT, ExportPlan, Format
from keras_vit.exporting.verification import Comparison
from keras_vit.images.decoding import MODES
from keras_vit.images.protocols import complete
from keras_vit.support import __version__
from keras_vit.support.files import write_json
from keras_vit.support.text import in_markdown

FILES = ("labels.txt", "README.md", "export.json")
_BEST = "best = outputs[0].argmax()\nprint(repr(labels[best]), outputs[0][best])\n"
_FRACTIONS = """\
classes = outputs[0].argmax(-1)  # of every pixel
for k, label in enumerate(labels):
    print(repr(label), (classes == k).mean())
"""


def write(
    folder: Path,
    form: Format,
    graph: ExportGraph,
    comparison: Comparison | None,
    notes: list[str],
) -> None:
    """Writes `labels.txt`, `README.md` and `export.json` into the folder of an export.

    Args:
        folder: the folder to write to.
        form: the format.
        graph: the model by the plan of the export.
        comparison: comparison of the exported model with the original, or None.
        notes: a sentence for each difference of the export from its arguments.
    """
    plan, model = graph.plan, graph.model
    has_columns = plan.outputs == "logits" and not model.prediction.is_binary
    has_columns = has_columns and model.task != "depth"
    class_names = model.class_names if has_columns or plan.outputs == "probabilities" else None
    if class_names is not None:
        text = "".join(" ".join(label.split()) + "\n" for label in class_names)
        (folder / "labels.txt").write_text(text, encoding="utf-8", errors="backslashreplace")
    described = {
        "format": plan.format,
        "keras_vit_version": __version__,
        "model": form.model,
        "input": {
            "name": INPUT,
            "dtype": plan.input_dtype,
            "shape": list(plan.input_shape),
            "pixels": _pixels(plan),
        },
        "output": plan.outputs,
        "precision": plan.precision,
        "preprocessing_in_the_graph": plan.prepares,
        "name": model.title,
        **graph.facts(),
        "config": model.config.to_dict(),
        "task": model.task,
        "classifier_activation": model.prediction.classifier_activation,
        "rescale": model.rescale,
        "notes": notes,
        "verification": None if comparison is None else dataclasses.asdict(comparison),
    }
    write_json(folder / "export.json", described)
    shape = ", ".join("any" if side is None else str(side) for side in plan.input_shape)
    verified = "these outputs were not compared with those of the original model."
    if comparison is not None:
        verified = (
            f"on {comparison.images}, the outputs of the program below differ from those of the "
            f"original model by at most {comparison.difference:.1e} of the largest output "
            f"(tolerance {comparison.tolerance:g})."
        )
    remarks = "".join(f"- Note: {note}\n" for note in notes)
    (folder / "README.md").write_text(
        f"# {in_markdown(model.title)}\n\nA Vision Transformer in the format {plan.format}, "
        f"exported by keras_vit {__version__}. It runs without keras_vit.\n\n"
        f"- Input `{INPUT}`: {plan.input_dtype}, shape ({shape}), {_pixels(plan)}.\n"
        f"- Output: {_outputs(plan)}.\n- Verification: {verified}\n{remarks}\n"
        f"{_program(form, plan, class_names is not None)}",
        encoding="utf-8",
    )


def _pixels(plan: ExportPlan) -> str:
    if plan.prepares == "resize":
        return "pixels in [0, 255], images of any size; the model includes preprocessing"
    if plan.prepares == "scale":
        return "pixels in [0, 255], resized to this shape; the model includes normalisation"
    prepared = "pixels resized and normalised by the protocol in export.json"
    return "resized pixels in [0, 255]" if plan.rescale else prepared


def _outputs(plan: ExportPlan) -> str:
    if (dense := plan.config.dense) is None:
        return plan.outputs
    words, axis = (plan.outputs, ", classes") if dense.is_segmentation else ("depths", "")
    return f"{words} of the pixels of the prepared image, shape (batch, height, width{axis})"


def _images(plan: ExportPlan) -> str:
    """Returns the lines of the program that read a photograph, or an array for other channels."""
    if (mode := MODES.get(plan.config.channels)) is None:
        # Files of images have 1, 3 or 4 channels.
        lines = ['images = np.load("photo.npy")[None]  # (1, height, width, channels), uint8']
    else:
        axis = "[None, ..., None]" if mode == "L" else "[None]"
        opened = f'photo.convert("{mode}")'
        lines = [
            'photo = ImageOps.exif_transpose(Image.open("photo.jpg"))',
            'if photo.mode.startswith("I;16"):  # Pillow would clip at 255',
            "    photo = Image.fromarray((np.asarray(photo) >> 8).astype(np.uint8))",
        ]
        if plan.prepares != "resize":
            lines.append("# This ignores the aspect ratio; the protocol in export.json may crop.")
            height, width = plan.config.image_size or tuple(3 * side for side in plan.config.stride)
            opened += f".resize(({width}, {height}), Image.Resampling.BILINEAR)"
        lines.append(f"images = np.asarray({opened}){axis}")
    if plan.prepares == "nothing" and plan.rescale:
        lines.append("images = images.astype(np.float32)")
    elif plan.prepares == "nothing":
        mean, std = (complete(plan.protocol)[key] for key in ("mean", "std"))
        lines.append(f"images = ((images / 255 - {mean}) / {std}).astype(np.float32)")
    if plan.batch not in (None, 1):
        lines.append(f"images = np.repeat(images, {plan.batch}, axis=0)")
    return "\n".join(lines)


def _program(form: Format, plan: ExportPlan, has_labels: bool) -> str:
    program = form.program.format(images=_images(plan))
    if has_labels:
        program += 'labels = open("labels.txt", encoding="utf-8").read().splitlines()\n'
        program += _FRACTIONS if plan.config.dense else _BEST
    else:
        program += "print(outputs.shape, outputs)\n"
    return f"```python\nfrom PIL import Image, ImageOps\n{program}```\n"
