"""Writes the record of a checkpoint, or compares the checkpoint with its record.

    KERAS_BACKEND=torch python -m weights.verify vit_b16.augreg_i21k_ft_i1k_384 record.json
    KERAS_BACKEND=torch python -m weights.verify vit_s14.dinov2 record.json --imagenet val/

A record is the evidence about a checkpoint, a few kilobytes of JSON: the sha256 of its weights,
the logits that the origin's code computes for two images of a formula, the preparation of images,
and the accuracy on labelled images if it was measured. An absent file is written. A present one is
compared, offline, with a folder of any library; the exit status is 1 if they differ.
`keras_vit/presets/evidence.json` holds the records of presets.
"""

import argparse
import datetime
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import keras_vit
from keras_vit import VisionTransformer, data, evaluate
from keras_vit.checkpoints.verification import (
    Check,
    check,
    compute,
    find_format,
    formula_images,
    image_shape,
    run_origin,
)
from keras_vit.images.protocols import compact, complete
from keras_vit.presets.source import Source
from keras_vit.support.files import write_json

SAMPLES = 64
KINDS = (".safetensors", ".h5", ".npz")
ORIGINS = ("library", "keras_vit")

Record = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Writes or compares the record that the command line names; returns 1 on a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", help="preset, file or folder, or hf://owner/repo")
    parser.add_argument("record", type=Path, help="JSON file to compare with, or to write")
    parser.add_argument("--by", choices=ORIGINS, default="library", help="code that runs")
    parser.add_argument("--imagenet", type=Path, help="folder of validation images, for top-1")
    parser.add_argument("--images", type=int, choices=(1_000, 50_000), default=1_000)
    arguments = parser.parse_args(argv)
    if arguments.record.exists():
        checks = compare(arguments.source, json.loads(arguments.record.read_text("utf-8")))
        for each in checks:
            result = "equal" if each.passed else f"differs by {each.difference:.1e}"
            print(f"{each.name}, {each.expected}: {result}")
        return int(not all(each.passed for each in checks))
    record = attest(arguments.source, by=arguments.by)
    if arguments.imagenet is not None:
        record |= score(arguments.source, arguments.imagenet, arguments.images)
    write_json(arguments.record, record)
    print(f"{arguments.record} written: {record['origin']}.")
    return 0


def attest(source: str | os.PathLike[str], by: str = "library", **fields: Any) -> Record:
    """Returns the record of a checkpoint.

    Args:
        source: a source as for `VisionTransformer.from_preset`.
        by: `"library"` for timm, transformers or keras-hub, the code that the files' format
            belongs to; `"keras_vit"` for keras_vit's own outputs, which say nothing about the
            origin. Presets of keras_vit have no other origin.
        **fields: arguments of `VisionTransformer.from_preset`.

    Raises:
        LibraryUnavailableError: the library cannot run the checkpoint.
    """
    place = Source.parse(source)
    model = VisionTransformer.from_preset(place, **fields)
    family = find_format(place, model, fields).name
    if by == "keras_vit" or family == "keras_vit":
        origin, outputs = f"keras_vit {keras_vit.__version__}", compute_outputs(model)
    else:
        origin, logits = run_origin(place, model, fields)
        outputs = {"logits": logits}
    return {
        "name": place.row.name if place.row else Path(place.name).name,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "family": family,
        "sha256": digests(place),
        "origin": origin,
        "image_shape": image_shape(model),
        "logits": sample(outputs["logits"]),
        "num_logits": outputs["logits"].shape[1],
        "norms": {name: norms(value) for name, value in outputs.items()},
        "protocol": complete(model.preprocessor.protocol),
    }


def compare(source: str | os.PathLike[str], record: Record, **fields: Any) -> list[Check]:
    """Returns the comparisons of a checkpoint with a record.

    Args:
        source: a source as for `VisionTransformer.from_preset`, of any library. The sha256 is
            compared if the format is the record's.
        record: contents of the JSON file.
        **fields: arguments of `VisionTransformer.from_preset`.
    """
    place = Source.parse(source)
    model = VisionTransformer.from_preset(place, **fields)
    origin, expected = record["origin"], dict(record["norms"])
    checks = []
    if record["family"] == find_format(place, model, fields).name:
        same = digests(place) == record["sha256"]
        checks.append(Check("sha256", " ".join(record["sha256"]), float(not same), 0.0))
    same = compact(record["protocol"]) == compact(model.preprocessor.protocol)
    checks.append(Check("protocol", record["protocol"]["name"], float(not same), 0.0))
    if list(image_shape(model)) != list(record["image_shape"]):
        return [*checks, Check("image size", f"{origin}: {record['image_shape']}", 1.0, 0.0)]
    outputs = compute_outputs(model, [name for name in expected if name != "logits"])
    checks += [check(f"norm of {n}", norms(outputs[n]), expected[n], origin) for n in expected]
    return [*checks, check("logits", sample(outputs["logits"]), record["logits"], origin)]


def compute_outputs(
    model: VisionTransformer, blocks: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """Returns the logits for `formula_images`, and the tokens behind blocks; three by default."""
    last = model.config.num_layers - 1
    names = [f"block_{k}" for k in sorted({0, (last + 1) // 2, last})]
    return compute(
        model, formula_images(*image_shape(model)), names if blocks is None else list(blocks)
    )


def score(source: str, folder: Path, count: int) -> dict[str, Any]:
    """Returns the accuracy in percent on `count` labelled images, of every class alike."""
    model = VisionTransformer.from_preset(source)
    images = data.from_folder(folder, model, 32)
    if count < len(images.labels):
        _, images = images.hold_out(count / len(images.labels))
    result = evaluate(model, images)
    return {"images": result.count, "top1": round(100 * result.top1, 2)}


def digests(source: Source) -> dict[str, str]:
    """Returns the sha256 of each file of weights, by file name."""
    with source.local() as path:
        files = [path] if path.is_file() else [p for p in path.iterdir() if p.suffix in KINDS]
        digests = {}
        for file in sorted(files):
            with file.open("rb") as stream:
                digests[file.name] = hashlib.file_digest(stream, "sha256").hexdigest()
        return digests


def sample(logits: np.ndarray) -> list[list[float]]:
    """Returns `SAMPLES` evenly spaced numbers of each row."""
    chosen = np.linspace(0, logits.shape[1] - 1, min(SAMPLES, logits.shape[1])).astype(int)
    return [[float(f"{value:.8g}") for value in row] for row in logits[:, chosen]]


def norms(values: np.ndarray) -> list[float]:
    """Returns one Euclidean norm per image, over all values of that image."""
    flat = np.asarray(values, "float64").reshape(len(values), -1)
    return [float(f"{norm:.8g}") for norm in np.linalg.norm(flat, axis=1)]


if __name__ == "__main__":
    raise SystemExit(main())
