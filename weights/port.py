"""Ports published checkpoints to presets: download, convert, verify, write, upload.

    KERAS_BACKEND=jax python weights/port.py vit_b16.augreg_i21k_ft_i1k_384 --out ported
    KERAS_BACKEND=jax python weights/port.py --all --out ported --upload hf://me/{name}

A preset that stands in the folder, whole and made from the file in the cache, is not made again:
a run that broke off goes on. One failure does not stop the others; it makes the status 1.

Verified are two outputs for one fixed image, before the preset is written and bit by bit after
it was read back. What they should be stands in `weights/expectations/<name>.json`; where there
is no such file, it is written with what came out, and no more is claimed than that.
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
from keras_vit import KerasViTError, PresetError, VisionTransformer
from keras_vit.checkpoints import inspect
from keras_vit.checkpoints.source import Source
from keras_vit.files import write_json
from keras_vit.presets import bucket, list_presets, save_preset
from keras_vit.presets.catalog import Preset, preset_named
from keras_vit.presets.preset_config import MODEL_CARD_FILE
from keras_vit.terminal.screen import Screen

EXPECTATIONS = Path(__file__).parent / "expectations"
TOLERANCE = 1e-4  # of max |value|: what float32 gives across backends, hybrids included
SAMPLES = 64
_DATASETS = {"i1k": "imagenet-1k", "i21k": "imagenet-21k"}

console = Screen()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a preset: `ported`, `there already` or `failed`, and why or how sure."""

    name: str
    result: str
    detail: str
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Ports what the command line names; returns 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="presets of `keras-vit list`, or augreg/<file>")
    parser.add_argument("--all", action="store_true", help="the whole catalog")
    parser.add_argument("--out", type=Path, default=Path("ported"), help="folder for the presets")
    parser.add_argument("--expectations", type=Path, default=EXPECTATIONS)
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
        outcomes.append(_outcome(name, arguments.out, arguments.expectations, arguments.upload))
    table = Table("preset", "result", "", "seconds")
    for outcome in outcomes:
        table.add_row(outcome.name, outcome.result, outcome.detail, f"{outcome.seconds:.1f}")
    console.print(table)
    return int(any(outcome.result == "failed" for outcome in outcomes))


def _outcome(name: str, out: Path, expectations: Path, upload: str | None) -> Outcome:
    start = time.perf_counter()
    try:
        row = preset_named(name)
        folder = out / _plain(name)
        if is_ported(row, folder):
            result, detail = "there already", ""
        else:
            result, detail = "ported", port(row, folder, expectations)
        if upload:
            # What the Hub has already is not sent again.
            detail = f"{detail} {keras_vit.upload_preset(upload.format(name=_plain(name)), folder)}"
    except Exception as error:  # the others must go on, whatever it was
        kind = "" if isinstance(error, KerasViTError) else f"{type(error).__name__}: "
        result, detail = "failed", f"{kind}{error}"
    keras.backend.clear_session()
    return Outcome(name, result, detail.strip(), time.perf_counter() - start)


def _plain(name: str) -> str:
    """A name for a folder and for the Hub."""
    return name.removeprefix("augreg/").removesuffix(".npz")


def is_ported(row: Preset, folder: Path) -> bool:
    """Whether a folder holds the whole preset, made from the file that is in the cache, if one is.

    The weights' names, shapes and length are compared with `config.json`; their bytes were
    when they were written.
    """
    if not (folder / MODEL_CARD_FILE).is_file():
        return False
    try:
        preset = Source.of(folder).preset()
        inspect(folder)
    except KerasViTError:
        return False
    if preset is None:
        return False
    made_from, wanted = preset.provenance, row.provenance()
    if str(row.source).startswith("hf://"):
        return made_from.get("repo") == row.source
    known = bucket.record_of(str(row.source), *row.alternatives) is not None
    keys = ("preset", "source", "sha256") if known else ("preset",)
    return "sha256" in made_from and all(made_from.get(key) == wanted.get(key) for key in keys)


def port(row: Preset, folder: Path, expectations: Path) -> str:
    """Makes one preset; returns what its verification amounts to.

    Raises:
        KerasViTError: the checkpoint cannot be had or does not fit its row, or its outputs
            are others than expected. No preset is written.
    """
    model = VisionTransformer.from_preset(row.name)
    if row.variant and row.num_classes and row.dialect != "timm" and model.config != row.config():
        raise PresetError(
            f"{row.name}: the file holds {model.config}, the catalog expects {row.config()}."
        )
    found = outputs(model)
    verdict = verify(row, model, found, expectations / f"{_plain(row.name)}.json")
    save_preset(model, folder, card=about(row))
    del model
    again = outputs(VisionTransformer.from_preset(folder))
    if not all(np.array_equal(found[name], again[name]) for name in found):
        raise PresetError(f"{folder}: read back, the preset gives other outputs.")
    return verdict


def about(row: Preset) -> dict[str, Any]:
    """Returns what the model card says beside the preset; scores are others', and said to be."""
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


def verify(row: Preset, model: VisionTransformer, found: dict[str, np.ndarray], path: Path) -> str:
    """Compares outputs with the stored ones, or stores them if there are none.

    Raises:
        PresetError: they differ by more than the tolerance, or belong to another file.
    """
    sampled = {name: sample(values) for name, values in found.items()}
    sha256 = model.provenance.get("sha256") or model.provenance.get("files")
    if not path.exists():
        by = f"keras_vit {keras_vit.__version__} on {keras.backend.backend()}"
        facts = {"preset": row.name, "sha256": sha256, "origin": by, "outputs": sampled}
        write_json(path, facts)
        return "not verified against the reference; expectations recorded"
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored.get("sha256") != sha256:
        raise PresetError(
            f"{path}: of the file with sha256 {stored.get('sha256')}, found {sha256}. The source "
            "was changed; delete the expectations to accept it."
        )
    for name, wanted in stored["outputs"].items():
        scale = max(wanted["max"], np.finfo("float32").tiny)
        pairs = zip([*sampled[name]["values"], sampled[name]["max"]],
                    [*wanted["values"], wanted["max"]], strict=True)  # fmt: skip
        difference = max(abs(mine - theirs) for mine, theirs in pairs) / scale
        if not difference <= TOLERANCE:  # nor NaN
            raise PresetError(
                f"{row.name}: {name} differs from {path} ({stored['origin']}) by {difference:.1e} "
                f"of its largest value, expected at most {TOLERANCE:.0e}."
            )
    if stored["origin"] == "reference":
        return f"verified against the reference to {TOLERANCE:.0e}"
    return f"equals {stored['origin']}; not verified against the reference"


def outputs(model: VisionTransformer) -> dict[str, np.ndarray]:
    """Returns the tokens behind the last norm, since some heads are zero, and the logits."""
    stages = {"encoder_norm": model.get_layer("encoder_norm").output, "logits": model.output}
    size = model.config.image_size
    if size is None:
        raise PresetError("A model of any size has no fixed image to be verified by.")
    return keras.Model(model.input, stages).predict(image(*size, model.config.channels), verbose=0)


def image(height: int, width: int, channels: int) -> np.ndarray:
    """Returns the fixed image: `float32 (1, height, width, channels)` in [-1, 1).

    Knuth's multiplicative hash of the index, so that no library's generator is part of it.
    """
    index = np.arange(height * width * channels, dtype=np.uint64)
    hashed = (index * np.uint64(2654435761)) % np.uint64(2**32) >> np.uint64(8)
    values = hashed.astype("float32") / np.float32(2**23) - np.float32(1)
    return values.reshape(1, height, width, channels)


def sample(values: np.ndarray) -> dict[str, Any]:
    """Returns evenly spaced numbers of an output, and its largest magnitude."""
    flat = np.asarray(values, "float32").reshape(-1)
    chosen = np.linspace(0, flat.size - 1, min(SAMPLES, flat.size)).astype(np.int64)
    return {"max": float(np.abs(flat).max()), "values": [float(v) for v in flat[chosen]]}


if __name__ == "__main__":
    raise SystemExit(main())
