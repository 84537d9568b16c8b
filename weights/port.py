"""Ports published checkpoints to presets: download, convert, verify, write, upload.

    KERAS_BACKEND=jax python -m weights.port vit_b16.augreg_i21k_ft_i1k_384 --out ported
    KERAS_BACKEND=jax python -m weights.port --all --out ported --upload hf://me/{name}

A complete preset in the folder that was made from the file in the cache is not made again, so that
a second run continues the first. A failure does not stop the others; the exit status is then 1.

Each preset is compared with its record, `weights/evidence/<name>.json`, before it is written,
and bit by bit with itself after it was read back. An absent record is written with the outputs of
keras_vit, and the table says so. `verify.py` writes records by the origin's code.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from rich.table import Table

import keras_vit
from keras_vit import KerasViTError, VisionTransformer
from keras_vit.checkpoints.opening import open_source
from keras_vit.checkpoints.reading import open_checkpoint
from keras_vit.checkpoints.saving import save_preset
from keras_vit.checkpoints.verification import formula_images
from keras_vit.cli.console import Screen
from keras_vit.errors import PresetError
from keras_vit.presets import bucket
from keras_vit.presets.catalog import Preset, list_presets, preset_named
from keras_vit.presets.preset_config import MODEL_CARD_FILE
from keras_vit.presets.source import Source
from keras_vit.support.files import write_json
from weights.verify import attest, compare

RECORDS = Path(__file__).parent / "evidence"
_DATASETS = {"i1k": "imagenet-1k", "i21k": "imagenet-21k"}

console = Screen()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one preset.

    Args:
        name: name of the preset.
        result: `"ported"`, `"there already"` or `"failed"`.
        detail: cause of the failure, or the evidence about the outputs.
        seconds: duration.
    """

    name: str
    result: str
    detail: str
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Ports the presets that the command line names; returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="presets of `keras-vit list`, or augreg/<file>")
    parser.add_argument("--all", action="store_true", help="the whole catalog")
    parser.add_argument("--out", type=Path, default=Path("ported"), help="folder for the presets")
    parser.add_argument("--evidence", type=Path, default=RECORDS)
    parser.add_argument("--upload", metavar="hf://OWNER/{name}", help="where each preset goes")
    arguments = parser.parse_args(argv)
    if arguments.all == bool(arguments.names):
        parser.error("expected names, or --all")
    if arguments.upload and "{name}" not in arguments.upload:
        parser.error("--upload: expected an address with {name} in it")
    names = arguments.names or [n for n in list_presets() if preset_named(n).folder is None]
    outcomes: list[Outcome] = []
    for name in names:
        console.print(f"{len(outcomes) + 1} of {len(names)}: {name}")
        outcomes.append(_outcome(name, arguments.out, arguments.evidence, arguments.upload))
    table = Table("preset", "result", "", "seconds")
    for outcome in outcomes:
        table.add_row(outcome.name, outcome.result, outcome.detail, f"{outcome.seconds:.1f}")
    console.print(table)
    return int(any(outcome.result == "failed" for outcome in outcomes))


def _outcome(name: str, out: Path, records: Path, upload: str | None) -> Outcome:
    start = time.perf_counter()
    try:
        row = preset_named(name)
        folder = out / _plain(name)
        if is_ported(row, folder):
            result, detail = "there already", ""
        else:
            result, detail = "ported", port(row, folder, records)
        if upload:
            # What the Hub has already is not sent again.
            detail = f"{detail} {keras_vit.upload_preset(upload.format(name=_plain(name)), folder)}"
    except Exception as error:  # the others must go on, whatever it was
        kind = "" if isinstance(error, KerasViTError) else f"{type(error).__name__}: "
        result, detail = "failed", f"{kind}{error}"
    keras.backend.clear_session()
    return Outcome(name, result, detail.strip(), time.perf_counter() - start)


def _plain(name: str) -> str:
    """Returns the name of a preset for a folder and for the Hub."""
    return name.removeprefix("augreg/").removesuffix(".npz")


def is_ported(row: Preset, folder: Path) -> bool:
    """Whether a folder holds the whole preset, made from the file that the cache may have.

    Names, shapes and sizes of the weights are compared with `config.json`. Their bytes were
    compared when the preset was written.
    """
    if not (folder / MODEL_CARD_FILE).is_file():
        return False
    try:
        with open_source(Source.parse(folder), headers=True) as files:
            open_checkpoint(files, {})
            preset = files.preset
    except KerasViTError:
        return False
    if preset is None:
        return False
    made_from, wanted = preset.provenance, row.provenance()
    if str(row.source).startswith("hf://"):
        return made_from.get("repo") == row.source
    known = bucket.sha256_in_cache(str(row.source), *row.alternatives) is not None
    keys = ("preset", "source", "sha256") if known else ("preset",)
    return "sha256" in made_from and all(made_from.get(key) == wanted.get(key) for key in keys)


def port(row: Preset, folder: Path, records: Path) -> str:
    """Makes one preset; returns the evidence about its outputs, in words.

    Raises:
        KerasViTError: the checkpoint cannot be loaded, does not fit its row, or has other outputs
            than its record. No preset is written.
    """
    model = VisionTransformer.from_preset(row.name)
    if (
        row.variant
        and row.num_classes
        and row.format_name != "timm"
        and model.config != row.config()
    ):
        raise PresetError(
            f"{row.name}: the file holds {model.config}, the catalog expects {row.config()}."
        )
    found = outputs(model)
    verdict = verify(row, records / f"{_plain(row.name)}.json")
    save_preset(model, folder, card=about(row))
    del model
    again = outputs(VisionTransformer.from_preset(folder))
    if not all(np.array_equal(found[name], again[name]) for name in found):
        raise PresetError(f"{folder}: read back, the preset gives other outputs.")
    return verdict


def about(row: Preset) -> dict[str, Any]:
    """Returns the facts of the model card that the preset does not state.

    The score is marked as reported by others.
    """
    facts: dict[str, Any] = {
        "license": row.license.lower(),
        "datasets": [_DATASETS[word] for word in row.data.split("_ft_") if word in _DATASETS],
        "description": f"Ported from {row.source}. {row.note}".strip(),
    }
    if row.top1 is not None:
        metric = {
            "dataset_type": "imagenet-1k",
            "dataset_name": f"ImageNet-1k validation (reported by {row.reported})",
            "metric_type": "accuracy",
            "metric_value": row.top1,
        }
        facts["metrics"] = [metric]
    return facts


def verify(row: Preset, path: Path) -> str:
    """Compares a preset with its record, or records what keras_vit computes if there is none.

    Raises:
        PresetError: a comparison failed.
    """
    if not path.exists():
        write_json(path, attest(row.name, by="keras_vit"))
        return "not compared with the origin's code; keras_vit's outputs recorded"
    record = json.loads(path.read_text(encoding="utf-8"))
    for check in compare(row.name, record):
        if not check.passed:
            raise PresetError(
                f"{row.name}: {check.name} differs from {path} ({check.expected}) by "
                f"{check.difference:.1e} of its largest value, expected at most "
                f"{check.tolerance:.0e}. If the source was changed, delete the record to accept "
                "it."
            )
    return f"equals its record of {record['origin']}"


def outputs(model: VisionTransformer) -> dict[str, np.ndarray]:
    """Returns the logits, and the tokens behind the last norm: some heads are zero."""
    stages = {"encoder_norm": model.get_layer("encoder_norm").output, "logits": model.output}
    size = model.config.image_size
    if size is None:
        raise PresetError("A model of any size has no fixed image to be verified by.")
    images = formula_images(*size, model.config.channels)
    return keras.Model(model.input, stages).predict(images, verbose=0)


if __name__ == "__main__":
    raise SystemExit(main())
