"""Commands that train: finetune and demo."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from keras_vit.support.arguments import check_results, check_training
from keras_vit.training.recipes import AugregRecipe, Recipe, TransferRecipe

if TYPE_CHECKING:
    Options = Recipe
else:
    Options = make_options(
        Recipe,
        ("one_hot", "positive_weights"),  # the images and their labels say so
        steps=500,
        batch_size=64,
    )

_START = Group("Start, one of", validator=LimitedChoice(1, 1))
_LEARNS = Group("Weights that learn; without an option all", validator=mutually_exclusive)
_USUAL = Options()  # type: ignore[call-arg]
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
    head_only: Annotated[bool, Parameter(group=_LEARNS)] = False,
    trainable_blocks: Annotated[Positive | None, Parameter(group=_LEARNS)] = None,
    lora_rank: Annotated[Positive | None, Parameter(group=_LEARNS)] = None,
    fields: Reading = _STORED,
    pixel_range: PixelRange = None,
    dropout_rate: Share | None = None,
    dtype: DType | None = None,
    validation: str = "0.1",
) -> None:
    """Train a preset on images of your own, by the paper's recipe.

    The folder PATH gets the presets best/ and last/, log.csv and the state for --resume. The head
    of the preset is kept if the images have its classes. The learning rate is 0.01 by default, and
    0.001 from scratch or with AdamW.

    Example: keras-vit finetune photos/ --source vit_s14.dinov2 --path run

    Args:
        data: folder with a folder of images per class, tfds:NAME, or hf:OWNER/NAME.
        path: path of the folder for the results.
        source: name of a preset, path of a file or folder, or hf://owner/repo.
        from_scratch: architecture to train with fresh weights, such as vit_ti16, by the recipe of
            AugReg.
        resume: continue the training in the folder PATH.
        head_only: train the head alone.
        trainable_blocks: train this number of last blocks, and the head.
        lora_rank: train low-rank additions (LoRA) of this rank, and the head.
        pixel_range: values of black and white in images of more than 8 bits, such as 0 4095.
        dropout_rate: share of activations that training drops.
        dtype: dtype policy of the model, for 16-bit arithmetic.
        validation: share of the data that is held out, another folder or split, or none.
    """
    labels, held_out = images.to_dict(), _share_or_name(validation)
    check_training(data, path, resume=resume, validation=held_out, **labels)
    settings = drop_unset(vars(recipe))
    if "label_smoothing" in settings:
        settings["one_hot"] = True
    chosen: Recipe
    start: Any
    if source is not None:  # an unknown name is refused before a backend starts
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

    learns: Any = room.train_head if head_only else None
    if trainable_blocks is not None:
        learns = functools.partial(room.train_last_blocks, blocks=trainable_blocks)
    elif lora_rank is not None:
        learns = functools.partial(room.enable_lora, rank=lora_rank)
    finished = keras_vit.finetune(
        start,
        keras_vit.data.ImageSource(data, **labels, on_error=images.on_error),
        path=path,
        recipe=chosen,
        learns=learns,
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


def _share_or_name(validation: str) -> float | str | None:
    if validation == "none":
        return None
    try:
        return float(validation)
    except ValueError:
        return validation


def demo(*, path: Path = Path("demo")) -> None:
    """Show what keras_vit does: predict, fine-tune, save, reload and explain.

    Example: keras-vit demo --path demo

    Args:
        path: path of the folder for the results.
    """
    check_results(path)
    start_backend(saves=True)
    from keras_vit.cli.demo import run

    run(path)
