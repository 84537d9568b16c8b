"""Commands that train: finetune, pretrain and demo."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import LimitedChoice, mutually_exclusive

from keras_vit.cli.console import command_line, console, start_backend, tell
from keras_vit.cli.options import (
    DType,
    Labelled,
    PixelRange,
    Positive,
    Reading,
    Share,
    drop_unset,
    make_options,
)
from keras_vit.config.views import Views
from keras_vit.support.arguments import check_results, check_training
from keras_vit.training.recipes import AugregRecipe, PretrainRecipe, Recipe, TransferRecipe

if TYPE_CHECKING:
    Options = Recipe
    PretrainOptions = Recipe
else:
    Options = make_options(
        Recipe,
        ("one_hot", "positive_weights"),  # the images and their labels say so
        steps=500,
        batch_size=64,
    )
    PretrainOptions = make_options(
        Recipe,
        ("one_hot", "positive_weights", "label_smoothing", "augmentation"),
        steps=1000,
        batch_size=256,
    )

_START = Group("Initial weights, one of", validator=LimitedChoice(1, 1))
_TRAINABLE = Group("Trainable weights, by default all", validator=mutually_exclusive)
_USUAL = Options()  # type: ignore[call-arg]
_USUAL_PRETRAINING = PretrainOptions()  # type: ignore[call-arg]
_ALL = Labelled()
_STORED = Reading()


def finetune(
    data: str,
    /,
    *,
    path: Path,
    images: Labelled = _ALL,
    source: Annotated[str | None, Parameter(group=_START)] = None,
    from_scratch: Annotated[str | None, Parameter(group=_START)] = None,
    resume: bool = False,
    recipe: Annotated[Options, Parameter(name="*")] = _USUAL,
    head_only: Annotated[bool, Parameter(group=_TRAINABLE)] = False,
    trainable_blocks: Annotated[Positive | None, Parameter(group=_TRAINABLE)] = None,
    lora_rank: Annotated[Positive | None, Parameter(group=_TRAINABLE)] = None,
    fields: Reading = _STORED,
    pixel_range: PixelRange = None,
    dropout_rate: Share | None = None,
    dtype: DType | None = None,
    validation: str = "0.1",
) -> None:
    """Fine-tune a preset on your own labelled images, or train a model from scratch.

    The folder PATH gets the presets best/ and last/, log.csv and the state for --resume. The head
    of the preset is kept if the images have its classes. The learning rate is 0.01 by default, and
    0.001 from scratch or with AdamW. BiT's rule for --steps is 500 below 20,000 images and 10,000
    below 500,000.

    Example: keras-vit finetune photos/ --source vit_s14.dinov2 --path run

    Args:
        data: folder with a folder of images per class, tfds:NAME, or hf:OWNER/NAME.
        path: folder for the results.
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        from_scratch: architecture to train from random weights, such as vit_ti16, by the recipe of
            AugReg.
        resume: continue the training in the folder PATH.
        head_only: train only the head; the encoder is frozen.
        trainable_blocks: train the last blocks, this many, and the head; the rest is frozen.
        lora_rank: train low-rank adapters (LoRA) of this rank, and the head.
        pixel_range: values of black and white in images of more than 8 bits, such as 0 4095.
        dropout_rate: fraction of the activations that training drops.
        dtype: dtype policy of the model, for 16-bit arithmetic.
        validation: fraction of the data that is held out, another folder or split, or none.
    """
    labels, held_out = images.to_dict(), _share_or_name(validation)
    check_training(data, path, resume=resume, validation=held_out, **labels)
    settings = drop_unset(vars(recipe))
    if "label_smoothing" in settings:
        settings["one_hot"] = True
    chosen: Recipe
    start: Any
    if source is not None:  # an unknown name fails before a backend starts
        from keras_vit.checkpoints import Source, reading

        start = Source.parse(source)
        reading.info(start, **fields.to_dict()).config.refuse_map("finetune")
        is_sgd = settings.get("optimizer", "sgd") == "sgd"
        usual = {"learning_rate": 0.01} if is_sgd else {}
        chosen = TransferRecipe(**{**usual, **settings})
    else:
        from keras_vit.models.builders import variant

        start = variant(str(from_scratch))
        chosen = AugregRecipe(**settings)
    start_backend(saves=True)
    import keras_vit

    room = keras_vit.training

    trainable: Any = room.train_head if head_only else None
    if trainable_blocks is not None:
        trainable = functools.partial(room.train_last_blocks, blocks=trainable_blocks)
    elif lora_rank is not None:
        trainable = functools.partial(room.enable_lora, rank=lora_rank)
    finished = keras_vit.finetune(
        start,
        keras_vit.data.ImageSource(data, **labels, on_error=images.on_error),
        path=path,
        recipe=chosen,
        trainable=trainable,
        resume=resume,
        validation=held_out,
        progress=True,
        pixel_range=pixel_range,
        dtype=dtype,
        dropout_rate=dropout_rate,
        **fields.to_dict(),
    )
    for name, best in {"accuracy": max, "pr_auc": max, "mean_absolute_error": min}.items():
        if scores := finished.history.get(f"val_{name}"):
            console.print(f"Best {name} in validation: {best(scores):.4g}")
    console.print("Next commands:")
    if images.task != "regression":
        tell(f"  {command_line('predict', 'IMAGE', '--source', finished.path)}")
    table = ["--labels-file", "TABLE"] if images.labels_file else []
    table += ["--path-column", images.path_column] if images.path_column else []
    for column in images.label_column or ():
        table += ["--label-column", column]
    tell(f"  {command_line('evaluate', 'TEST_IMAGES', *table, '--source', finished.path)}")


def pretrain(
    data: str,
    /,
    *,
    path: Path,
    labels: str | None = None,
    split: str | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    source: Annotated[str | None, Parameter(group=_START)] = None,
    from_scratch: Annotated[str | None, Parameter(group=_START)] = None,
    resume: bool = False,
    recipe: Annotated[PretrainOptions, Parameter(name="*")] = _USUAL_PRETRAINING,
    no_flip: bool = False,
    fields: Reading = _STORED,
    pixel_range: PixelRange = None,
    dtype: DType | None = None,
) -> None:
    """Train an encoder on your own images without labels (self-supervised learning).

    The method is LeJEPA (arXiv 2511.08544). The folder PATH gets the preset last/, log.csv and the
    state for --resume. The log has the loss, the rank of the embeddings and, with --labels, the
    accuracy of nearest neighbours (k-NN). The learning rate is 0.0005 * sqrt(batch_size / 256) by
    default, and 100 passes over the images are usual.

    Example: keras-vit pretrain photos/ --source vit_s14.dinov2 --path run

    Args:
        data: folder of images, in folders of any depth; tfds:NAME, or hf:OWNER/NAME.
        path: folder for the results.
        labels: other images, with labels, for the k-NN accuracy: a folder with a folder of images
            per class, tfds:NAME or hf:OWNER/NAME.
        split: split of a tfds: or hf: data set to train on; by default train.
        on_error: raise stops at an image that cannot be read, skip continues without it.
        source: name of a preset, path of a file or folder, or hf://owner/repo, to continue from.
        from_scratch: architecture to train from random weights, such as vit_ti16.
        resume: continue the training in the folder PATH.
        no_flip: never mirror the views, for images such as text.
        pixel_range: values of black and white in images of more than 8 bits, such as 0 4095.
        dtype: dtype policy of the model, for 16-bit arithmetic.
    """
    check_training(data, path, resume=resume, validation=labels, split=split, is_labelled=False)
    chosen = PretrainRecipe(**drop_unset(vars(recipe)), views=Views(flip=not no_flip))
    from keras_vit.checkpoints import Source
    from keras_vit.models.builders import variant

    # An unknown name fails before a backend starts.
    start = variant(str(from_scratch)) if source is None else Source.parse(source)
    start_backend(saves=True)
    import keras_vit

    finished = keras_vit.pretrain(
        keras_vit.data.ImageSource(data, split=split, on_error=on_error),
        source=start,
        path=path,
        recipe=chosen,
        labels=labels,
        resume=resume,
        progress=True,
        pixel_range=pixel_range,
        dtype=dtype,
        **fields.to_dict(),
    )
    console.print("Next command:")
    tell(f"  {command_line('probe', labels or 'IMAGES', '--source', finished.path)}")


def _share_or_name(validation: str) -> float | str | None:
    if validation == "none":
        return None
    try:
        return float(validation)
    except ValueError:
        return validation


def demo(*, path: Path = Path("demo"), images: Path | None = None) -> None:
    """Show what keras_vit does: predict, fine-tune, save, reload and explain.

    With --images it only writes handwritten digits as files to practise on, in a folder per class,
    even and odd: `train` and `test`. vit_digits has not seen those of `test`.

    Example: keras-vit demo --path demo

    Args:
        path: path of the folder for the results.
        images: path of a new folder for the images.
    """
    if images is not None:
        from keras_vit.cli.digits import write_digits

        print(write_digits(images))
        return
    check_results(path)
    start_backend(saves=True)
    from keras_vit.cli.demo import run

    run(path)
