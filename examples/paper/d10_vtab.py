"""VTAB-1k (tables 2 and 9, D.10): those of its 19 tasks whose data are prepared here, as a table.

python examples/paper/d10_vtab.py vit_b16.orig_i21k_224 --image-size 384 --steps 2500

Without options the setting is the paper's, with updates of 512 images at a rate of 0.01. 1,000
images train, and the test images score; with --tune 800 train, and the other 200 score. `tfds
build NAME` prepares a data set; vtab_tasks.py has the names.
"""

import argparse
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from vtab_tasks import PROTOCOLS, TASKS

from keras_vit import VisionTransformer, evaluate
from keras_vit.data import from_tfds
from keras_vit.training import TransferRecipe


def score(
    folder, preset, splits, label="label", num_classes=0, *, steps, batch_size, tune, image_size
):
    """Fine-tunes a preset on a prepared data set; returns the accuracy on its other images."""
    builder = tfds.builder_from_directory(folder)
    split, per_cent, test = splits
    start = builder.info.splits[split].num_examples * per_cent // 100
    others = f"{split}[{start}:{start + 200}]"
    parts = ("train[:800]", others) if tune else (f"train[:800]+{others}", test)
    names = list(map(str, range(num_classes))) or builder.info.features[label].names
    how = {"label_column": label, "class_names": names if num_classes else None}
    model = VisionTransformer.from_preset(
        preset,
        num_classes=len(names),
        image_size=image_size,
        protocol=PROTOCOLS.get(builder.name),
    )
    train = from_tfds(builder, model, batch_size, split=parts[0], steps_per_epoch=steps, **how)
    recipe = TransferRecipe(
        steps,
        batch_size,
        learning_rate=0.01,  # table 4
        steps_per_epoch=steps,
    )
    model.compile(**recipe.compile_args(model))
    model.fit(train, **recipe.fit_args(model), shuffle=False, verbose=0)
    return evaluate(model, from_tfds(builder, model, split=parts[1], **how)).top1


def table(data_dir, preset, **setting):
    """Returns Markdown: each task, and the mean of each group that is complete."""
    found = {}
    for task, (name, *about) in TASKS.items():
        if versions := sorted(Path(data_dir, name).glob("[0-9]*.*.*")):
            found[task] = score(versions[-1], preset, *about, **setting)
    tasks = list(TASKS)
    groups = {"Natural": tasks[:7], "Specialized": tasks[7:11], "Structured": tasks[11:]}
    for group, members in {**groups, "VTAB": tasks}.items():
        if set(members) <= set(found):
            found[f"**{group}**"] = np.mean([found[task] for task in members])
    rows = [f"| {task} | {accuracy:.1%} |" for task, accuracy in found.items()]
    missing = [f"| {task} | not prepared |" for task in tasks if task not in found]
    return "\n".join(["| task | accuracy |", "|---|---:|", *rows, *missing, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("preset")
    parser.add_argument("--data-dir", default="~/tensorflow_datasets")
    parser.add_argument("--image-size", type=int, default=384)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("vtab.md"))
    arguments = vars(parser.parse_args())
    out, folder = arguments.pop("out"), Path(arguments.pop("data_dir")).expanduser()
    out.write_text(table(folder, **arguments))
    print(out.read_text())
