"""The command that draws maps of the image parts that decide a class."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from keras_vit.cli.console import image_files, load_model, tell
from keras_vit.cli.options import Pixels, drop_unset, size_of

Method = Literal[
    "relevance", "integrated_gradients", "gradcam", "occlusion", "rollout", "attention"
]


def explain(
    images: list[str],
    /,
    *,
    preset: str,
    out: Path = Path("report"),
    method: Method | None = None,
    target: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    image_size: Pixels | None = None,
) -> None:
    """Draw maps of the image parts that decide a class (needs matplotlib).

    The command writes a web page that opens from disk: attention of every block and head, and
    maps of several methods for two classes. With --out FILE.png it writes one picture of all
    images.

    Args:
        images: paths of image files or of folders of images.
        preset: name of a preset, path of a file or folder, or hf://owner/repo.
        out: path of the folder to write, or of a FILE.png.
        method: method that the page shows first, by default relevance, or that FILE.png shows, by
            default rollout.
        target: labels or numbers of the classes to explain; by default the two most probable
            classes of each image.
        image_size: pixels of the images, or height and width; by default the model's. A model of
            any size needs it.
    """
    paths = image_files(images)
    model = load_model(preset, **drop_unset({"image_size": size_of(image_size)}))
    if out.suffix.lower() == ".png":
        from keras_vit.explanation.drawing import draw_explanations

        draw_explanations(model, paths, out, method=method or "rollout")
        tell(f"{out} written.")
        return
    from keras_vit.explanation.report import write_report

    words = ["keras-vit", "explain", *images, "--preset", preset]
    words += ["--method", method or "relevance", *(["--target", *target] if target else [])]
    words += ["--image-size", *map(str, image_size)] if image_size else []
    written = write_report(
        model,
        out,
        paths,
        method=method or "relevance",
        targets=target or [],
        command=shlex.join([*words, "--out", str(out)]),
    )
    tell(f"{written} written.")
