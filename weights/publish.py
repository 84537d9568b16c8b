"""Publishes checkpoints of the catalog as presets on the Hub: download, check, write, upload.

    KERAS_BACKEND=torch python -m weights.publish OWNER --only 'vit_b16.*' --folder published
    python -m weights.publish OWNER --dry-run      # lists what would be published

Each row of the catalog becomes a preset folder and the repository OWNER/NAME. Its provenance has
the source and its sha256, the license and the reported top-1, which the model card shows. Outputs
are compared with the row's record in `keras_vit/presets/evidence.json`, if it has one, and with
those of the written folder, which must have the same bits.

A row whose preset is on the Hub, made from the same file, is skipped, and a complete folder is
uploaded without a second download, so that the same command continues. A failure does not stop the
others; a table at the end lists the failures, and the exit status is 1. Rows that are gated, or
whose license does not allow us to pass them on, are skipped.
"""

import argparse
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from rich.table import Table

import keras_vit
from keras_vit import KerasViTError, VisionTransformer
from keras_vit.checkpoints.opening import open_source
from keras_vit.checkpoints.reading import open_checkpoint
from keras_vit.checkpoints.saving import save_preset
from keras_vit.cli.console import Screen
from keras_vit.errors import PresetError
from keras_vit.presets import bucket
from keras_vit.presets.catalog import Preset, list_presets, preset_named
from keras_vit.presets.evidence import shipped
from keras_vit.presets.preset_config import MODEL_CARD_FILE
from keras_vit.presets.source import Source
from weights.verify import compare, compute_outputs, digests

LICENSES = ("Apache-2.0", "CC-BY-NC-4.0")
"""Licenses of the catalog that allow everyone to pass changed files on."""
_DATASETS = {"i1k": "imagenet-1k", "i21k": "imagenet-21k"}

console = Screen()


def main(argv: Sequence[str] | None = None) -> int:
    """Publishes the rows that the command line names; returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("owner", help="user or organization of the Hub")
    parser.add_argument("--only", default="*", help="pattern of names, such as 'vit_b16.*'")
    parser.add_argument("--folder", type=Path, default=Path("published"), help="for the presets")
    parser.add_argument("--dry-run", action="store_true", help="list the rows and connect nowhere")
    asked = parser.parse_args(argv)
    named = [preset_named(name) for name in list_presets() if fnmatch(name, asked.only)]
    rows = [row for row in named if row.folder is None]  # vit_digits is in the package
    if not rows:
        parser.error(f"--only {asked.only!r}: no row of the catalog has such a name")
    failures = Table("preset", "failure")
    for row in rows:
        address = f"hf://{asked.owner}/{row.name}"
        try:
            if reason := obstacle(row):
                said = f"skipped: {reason}"
            elif asked.dry_run:
                said = f"{row.source} -> {address}"
            else:
                said = publish(row, asked.folder / row.name, address)
        except Exception as error:  # the others must go on, whatever it was
            kind = "" if isinstance(error, KerasViTError) else f"{type(error).__name__}: "
            said = f"failed: {kind}{error}"
            failures.add_row(row.name, f"{kind}{error}")
        console.print(f"{row.name}: {said}", soft_wrap=True)
    if failures.row_count:
        console.print(failures)
    return int(failures.row_count > 0)


def obstacle(row: Preset) -> str:
    """Returns why a row cannot be published, or nothing."""
    if row.note.startswith("gated"):
        return "gated"
    return "" if row.license in LICENSES else f"license: {row.license}"


def publish(row: Preset, folder: Path, address: str) -> str:
    """Writes and uploads one preset, as far as that was not done; returns what was done.

    Raises:
        KerasViTError: the checkpoint cannot be loaded, does not fit its row or has other outputs
            than its record, or the Hub refuses.
    """
    if is_made(row, address):
        return f"there already: {address}"
    verdict = "written before"
    if not ((folder / MODEL_CARD_FILE).is_file() and is_made(row, folder)):
        verdict = write(row, folder)
    return f"{verdict}; {keras_vit.upload_preset(address, folder)}"


def is_made(row: Preset, source: str | Path) -> bool:
    """Whether a folder or a repository has the whole preset, made from the same file.

    Names, shapes and sizes of the weights are compared with `config.json`. Their bytes were
    compared when the preset was written. The sha256 of a file of a bucket is known once the file is
    in the cache.
    """
    try:
        with open_source(Source.parse(source), headers=True) as files:
            open_checkpoint(files, {})
            made_from = files.preset.provenance if files.preset else {}
    except KerasViTError:
        return False
    if str(row.source).startswith("hf://"):
        return made_from.get("repo") == row.source
    known = bucket.sha256_in_cache(str(row.source), *row.alternatives) is not None
    keys, wanted = ("preset", "source", "sha256") if known else ("preset",), row.provenance()
    return "sha256" in made_from and all(made_from.get(key) == wanted.get(key) for key in keys)


def write(row: Preset, folder: Path) -> str:
    """Writes one preset; returns with what its outputs were compared.

    Raises:
        KerasViTError: the checkpoint cannot be loaded, does not fit its row, or has other outputs
            than its record. No preset is written.
    """
    model = VisionTransformer.from_preset(row.name)
    stated = row.variant and row.num_classes and row.format_name != "timm"
    if stated and model.config != row.config():
        raise PresetError(
            f"{row.name}: the file holds {model.config}, the catalog expects {row.config()}."
        )
    verdict = "outputs not compared with the origin's code"
    if "norms" in (record := shipped().get(row.name, {})):
        for check in compare(row.name, record):
            if not check.passed:
                raise PresetError(
                    f"{row.name}: {check.name} differs from its record ({check.expected}) by "
                    f"{check.difference:.1e} of its largest value, expected at most "
                    f"{check.tolerance:.0e}."
                )
        verdict = f"outputs equal {record['origin']}"
    (sha256, *more) = (hashes := digests(Source.parse(row.name))).values()
    hashed: dict[str, Any] = {"sha256": hashes if more else sha256}
    model.provenance = MappingProxyType(hashed | dict(model.provenance))
    save_preset(model, folder, card=about(row))
    found, again = map(compute_outputs, (model, VisionTransformer.from_preset(folder)))
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
        "description": f"Converted from {row.source}. {row.note}".strip(),
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


if __name__ == "__main__":
    raise SystemExit(main())
