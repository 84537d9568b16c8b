"""Verifies presets of the catalog, and records how far in keras_vit/presets/verified.json.

    KERAS_BACKEND=jax python weights/verify.py --all --imagenet imagenet/val --images 50000
    KERAS_BACKEND=jax python weights/verify.py vit_b16.augreg_i21k_ft_i1k_384

Each preset is downloaded and passes up to four comparisons: length and checksum of its file; its
outputs for one fixed image with those of `weights/expectations/` (`weights/port.py`); its accuracy
on 1,000 validation images, and on all 50,000. `imagenet/val` holds a folder per class, named by
WordNet id or label. A score is compared with the score that the catalog reports.

A record is written after each preset, so that a run that was stopped goes on: presets with a record
of as many images are left out, unless `--again` is given. One failure does not stop the others.
"""

import argparse
import dataclasses
import datetime
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import port
from rich.table import Table
from train_digits import digits

import keras_vit
from keras_vit import KerasViTError, VisionTransformer
from keras_vit.files import write_json
from keras_vit.presets import list_presets, verified
from keras_vit.presets.catalog import Preset, preset_named
from keras_vit.presets.verified import Verified
from keras_vit.terminal.screen import Screen

FULL = 50_000
TOLERANCE = 0.3  # points of 50,000 images: resampling and decoding of JPEG differ that much
console = Screen()


def main(argv: Sequence[str] | None = None) -> int:
    """Verifies what the command line names; returns 1 if a comparison or a preset failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="presets of `keras-vit list`")
    parser.add_argument("--all", action="store_true", help="the whole catalog")
    parser.add_argument("--imagenet", type=Path, help="folder of the validation images")
    parser.add_argument("--images", type=int, choices=(1_000, FULL), default=1_000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--expectations", type=Path, default=port.EXPECTATIONS)
    parser.add_argument("--records", type=Path, default=verified.FILE)
    parser.add_argument("--again", action="store_true", help="repeat what has a record")
    arguments = parser.parse_args(argv)
    if arguments.all == bool(arguments.names):
        parser.error("expected names, or --all")
    table = Table("preset", "result")
    failed = False
    for name in arguments.names or list_presets():
        records = _read(arguments.records)
        known = Verified(**records.get(name, {}))
        if not arguments.again and _is_enough(known, name, arguments):
            table.add_row(name, f"{known}, from {known.date}")
            continue
        try:
            found = verify(preset_named(name), arguments)
        except Exception as error:  # the others must go on, whatever it was
            kind = "" if isinstance(error, KerasViTError) else f"{type(error).__name__}: "
            table.add_row(name, f"failed: {kind}{error}")
            failed = True
            continue
        finally:
            keras.backend.clear_session()
        records[name] = dataclasses.asdict(found)
        write_json(arguments.records, dict(sorted(records.items())))
        doubt = difference(found)
        failed |= bool(doubt)
        table.add_row(name, f"{found}{doubt}")
    console.print(table)
    return int(failed)


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _is_enough(known: Verified, name: str, arguments: argparse.Namespace) -> bool:
    """Whether a record answers all that this run can ask of a preset."""
    row = preset_named(name)
    scored = row.num_classes == 1000 and arguments.imagenet is not None
    return bool(known.digest) and (not scored or known.images >= arguments.images)


def verify(row: Preset, arguments: argparse.Namespace) -> Verified:
    """Makes every comparison that the data at hand allow for one preset.

    Raises:
        KerasViTError: the checkpoint cannot be had, is damaged, or gives other outputs than
            expected.
    """
    model = VisionTransformer.from_preset(row.name)
    digest = model.provenance.get("sha256") or _digest(row, model)
    path = arguments.expectations / f"{row.name}.json"
    port.verify(row, model, port.outputs(model), path)
    origin = json.loads(path.read_text(encoding="utf-8"))["origin"]
    found = Verified(digest, origin, date=datetime.date.today().isoformat(), expected=row.top1)
    if row.folder is not None:
        _, images, _, classes = digits()
        score = keras_vit.evaluate(model, (model.preprocessor(images), classes))
        return dataclasses.replace(found, images=score.count, top1=round(100 * score.top1, 2))
    if row.num_classes != 1000 or arguments.imagenet is None:
        return found
    data = keras_vit.data.from_folder(arguments.imagenet, model, arguments.batch_size)
    if arguments.images < len(data.labels):  # of every class alike
        _, data = data.hold_out(arguments.images / len(data.labels))
    score = keras_vit.evaluate(model, data)
    return dataclasses.replace(found, images=score.count, top1=round(100 * score.top1, 2))


def _digest(row: Preset, model: VisionTransformer) -> str:
    """Returns the digest that loading compared: of the package's preset, or the Hub's commit."""
    if row.folder is not None:
        config = json.loads((row.folder / "config.json").read_text(encoding="utf-8"))
        return str(config["weights_sha256"])
    return str(model.provenance.get("files") or model.provenance.get("revision") or "")


def difference(found: Verified) -> str:
    """Returns a warning if a score is further from the reported one than chance explains."""
    if found.top1 is None or found.expected is None:
        return ""
    share = found.expected / 100
    chance = 0.0 if found.images >= FULL else 300 * math.sqrt(share * (1 - share) / found.images)
    if abs(found.top1 - found.expected) <= TOLERANCE + chance:
        return ""
    return f"; {found.top1 - found.expected:+.2f} points from the reported score"


if __name__ == "__main__":
    raise SystemExit(main())
