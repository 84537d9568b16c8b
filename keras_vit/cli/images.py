"""Commands that read images: predict, embed, evaluate and probe."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from keras_vit.cli.console import (
    command_line,
    image_files,
    load_model,
    show,
    tell,
    warn_on_stderr,
)
from keras_vit.cli.options import Labelled, Loading, Positive
from keras_vit.config.pool import StagePooling
from keras_vit.errors import KerasViTError
from keras_vit.support.arguments import check_apart, check_data, check_results
from keras_vit.support.files import new_file
from keras_vit.support.progress import progress_bar
from keras_vit.support.text import counted

_ALL = Labelled()
_STORED = Loading()
_BATCH = 32
_NOT_IN_PERCENT = re.compile("loss|error|r2")
"""Metrics that are shown as they are."""


def predict(
    images: list[str],
    /,
    *,
    source: str,
    top: Positive | None = None,
    path: Path | None = None,
    loading: Loading = _STORED,
    json: bool = False,
) -> int:
    """Classify images, or predict segmentation and depth maps.

    An image that cannot be read is reported on stderr and skipped; the exit status is then 1.

    A map has the size of its image, which is resized to the model's size without a crop. For
    semantic segmentation the map is NAME.png, whose pixels are class indices shown in colours. For
    depth it is NAME.npy, float32, and a picture NAME.png, in which the smallest depth is black and
    the largest white. Images from several folders keep these folders.

    Example: keras-vit predict photos/ --source vit_b16.augreg_i21k_ft_i1k_224

    Args:
        images: image files, or folders of images.
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        top: number of labels per image, by default 5; a multi-label model by default returns all
            labels that reach their decision threshold.
        path: folder for the maps of a segmentation or depth model.
        json: print the result as JSON.
    """
    paths = image_files(images)
    if path is not None:
        from keras_vit.cli.maps import place_maps, write_maps

        places = place_maps(paths, path)
    model = load_model(source, "predict", writes_maps=path is not None, **loading.to_dict())
    unreadable: list[Path] = []
    answers: dict[str, Any] = {}
    with progress_bar(True, "Predicting", len(paths)) as advance:

        def skip(path: Path, reason: KerasViTError) -> None:
            warn_on_stderr(reason)
            unreadable.append(path)

        each: Iterator[Any]
        size, each = _BATCH, model.classify_each(paths, top, _BATCH, on_error=skip)
        if path is not None:
            size, each = 1, write_maps(model, places, skip)
        for image, answer in each:
            answers[str(image)] = answer
            if len(answers) % size == 0:  # the results of a batch come together
                advance(size)
        advance(len(answers) % size + len(unreadable))
    if path is not None and (answers or json):
        maps = {image: str(place) for image, place in answers.items()}
        show(json, ("image", "path"), [*maps.items()], maps)
    elif answers or json:
        rows = [(p, n, f"{q:.4f}") for p, labels in answers.items() for n, q in labels]
        named = {p: [{"label": n, "probability": q} for n, q in a] for p, a in answers.items()}
        show(json, ("image", "label", "probability"), rows, named)
    return int(bool(unreadable))


def embed(
    images: list[str],
    /,
    *,
    source: str,
    path: str,
    stage: str | None = None,
    pooling: StagePooling | None = None,
    output_dtype: Literal["float32", "float16"] = "float32",
    loading: Loading = _STORED,
    batch_size: Positive = 32,
) -> int:
    """Extract the features (embeddings) of images and write them to a NumPy file.

    NAME.npy has one row per image, and NAME.npy.json the paths. After an interruption the same
    command resumes. An image that cannot be read is reported on stderr and skipped; the exit status
    is then 1.

    Example: keras-vit embed photos/ --source vit_s14.dinov2 --path photos.npy

    Args:
        images: image files, or folders of images.
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        path: file to write, NAME.npy.
        stage: stage of the model whose output is written, such as block_3; by default pre_logits,
            the input of the head.
        pooling: how the tokens of the stage, by default of the last block, become one vector: token
            is the class token, gap the mean of the patch tokens, token_and_mean both concatenated.
        output_dtype: data type of the features; float16 halves the file.
        batch_size: number of images in a batch.
    """
    new_file(path, ".npy")
    paths = image_files(images)
    model = load_model(source, **loading.to_dict())
    from keras_vit.evaluation.embedding import embed as embed_images

    written = embed_images(
        model,
        paths,
        path,
        stage,
        pooling=pooling,
        output_dtype=output_dtype,
        batch_size=batch_size,
        on_error=lambda _, reason: warn_on_stderr(reason),
        progress=True,
    )
    tell(f"{counted(written.num_images, 'image')}: {path} written.")
    return int(bool(written.unreadable))


def evaluate(
    data: str,
    /,
    *,
    source: str,
    images: Labelled = _ALL,
    loading: Loading = _STORED,
    batch_size: Positive = 32,
    classes: bool = False,
    json: bool = False,
) -> int:
    """Measure a model on labelled images: accuracy, loss and calibration error.

    A multi-label model also gets mean average precision and F1. A regression model gets mean
    absolute error and R2 instead; its targets are columns of --labels-file. Classes of the images
    are matched with the model's labels by name. The exit status is 1 if images were skipped.

    Example: keras-vit evaluate photos/test --source run/best

    Args:
        data: folder with a folder of images per class, tfds:NAME, or hf:OWNER/NAME.
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        batch_size: number of images in a batch.
        classes: also show the metrics of each class, the worst first.
        json: print the result as JSON.
    """
    labels = images.to_dict()
    check_data(data, **labels)
    model = load_model(source, "evaluate", takes_regression=True, **loading.to_dict())
    from keras_vit.data import ImageSource
    from keras_vit.data.records import choose_task
    from keras_vit.evaluation.scores import CLASS_METRICS, METRICS
    from keras_vit.evaluation.scores import evaluate as evaluate_model

    labels["task"] = choose_task(images.task, model)
    named = ImageSource(data, **labels, on_error=images.on_error)
    scored = named.read(model.preprocessor, batch_size=batch_size)
    result = evaluate_model(model, scored, progress=True)
    found = result.to_dict()
    rows: list[Sequence[object]] = [("images", result.count)]
    rows += [(name, _in_words(name, found[name])) for name in METRICS if name in found]
    show(json, ("metric", "value"), rows, {**found, "class_names": model.class_names})
    if classes and not json:
        names = [name for name in CLASS_METRICS if name in found]
        head = ("class", "images", *(name.partition("_")[2] for name in names))
        columns = [result.class_counts, *(found[name] for name in names)]
        show(json, head, _per_class(columns, names, model.class_names))
    return int(bool(scored.unreadable))


def probe(
    data: str,
    /,
    *,
    source: str,
    path: Path,
    images: Labelled = _ALL,
    loading: Loading = _STORED,
    batch_size: Positive = 32,
) -> int:
    """Train a linear classifier or regression on frozen features, and find wrong labels.

    It takes about a minute. The folder PATH gets a preset, the results in probe.json, the features,
    and for a folder of images with classes a page index.html, which shows images with suspicious
    labels. The exit status is 1 if images were skipped.

    Example: keras-vit probe photos/ --source vit_s14.dinov2 --path run

    Args:
        data: folder with a folder of images per class, tfds:NAME, or hf:OWNER/NAME.
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        path: folder for the results.
        batch_size: number of images in a batch.
    """
    labels = images.to_dict()
    check_data(data, **labels)
    check_results(path)
    check_apart(path, data)
    model = load_model(source, **loading.to_dict())
    model.config.refuse_map("probe")
    from keras_vit.data import ImageSource
    from keras_vit.evaluation import write_page
    from keras_vit.evaluation.probing import probe as probe_model
    from keras_vit.support.files import write_json

    named = ImageSource(data, **labels, on_error=images.on_error).for_training()
    read = named.read(model.preprocessor, batch_size=batch_size)
    result: Any = probe_model(model, read, cache=path / "features", progress=True)
    origin = {"encoder": source, "data": data, "command": command_line()}
    built = result.build_model(model, origin)
    built.save_to_preset(path / "preset")
    write_json(path / "probe.json", result.to_dict())
    if read.paths is not None and result.task != "regression":
        facts = {"preset": str(path / "preset"), **built.provenance}
        title = f"{model.title} on {Path(data).name or data}"
        write_page(result, path / "index.html", provenance=facts, title=title)
    for line in result.summary():
        tell(line)
    if result.task != "regression":
        tell(command_line("predict", "IMAGE", "--source", path / "preset"))
    return int(bool(read.unreadable))


def _in_words(metric: str, value: float) -> str:
    return f"{value:.4f}" if _NOT_IN_PERCENT.search(metric) else f"{value:.2%}"


def _per_class(
    columns: Sequence[Sequence[Any]], metrics: Sequence[str], class_names: Sequence[str] | None
) -> Iterator[list[object]]:
    """Yields the metrics of each class, the worst first; classes without images have no row."""
    rows = [(k, row) for k, row in enumerate(zip(*columns, strict=True)) if row[-1] is not None]
    for k, (count, *values) in sorted(rows, key=lambda each: each[1][-1]):
        name = class_names[k] if class_names else str(k)
        yield [name, count, *map(_in_words, metrics, values)]
