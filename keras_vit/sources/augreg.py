"""The 50,000 checkpoints of AugReg: the contents of their file names, and a search of their index.

Steiner et al. (2022), https://arxiv.org/abs/2106.10270. A file's name states its training and,
behind two dashes, its fine-tuning:

    B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_384
"""

import csv
import dataclasses
import functools
import math
import re
from pathlib import Path
from typing import Any

from keras_vit.config.variants import variant_named
from keras_vit.errors import PresetError, nearest
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.sources.bucket import OFFICIAL, fetch

FOLDER = OFFICIAL + "vit_models/augreg/"
INDEX = FOLDER + "index.csv"

_VARIANTS = {
    "Ti_16": "vit_ti16",
    "S_16": "vit_s16",
    "S_32": "vit_s32",
    "B_8": "vit_b8",
    "B_16": "vit_b16",
    "B_32": "vit_b32",
    "L_16": "vit_l16",
    "R_Ti_16": "r_vit_ti16",
    "R26_S_32": "r26_vit_s32",
    "R26_B_32": "r26_vit_b32",
    "R50_L_32": "r50_vit_l32",
}
"""Key of AUGREG_CONFIGS in `vit_jax/configs/models.py` -> name of the variant."""

_CLASSES = {
    "i1k": 1000,
    "i21k": 21843,
    "imagenet2012": 1000,
    "cifar10": 10,
    "cifar100": 100,
    "oxford_iiit_pet": 37,
    "resisc45": 45,
}
_LABELS = {"i1k": "imagenet1k", "imagenet2012": "imagenet1k", "i21k": "imagenet21k"}

_NAME = re.compile(
    r"(?P<model>\w+)-(?P<data>\w+)-\d+ep-lr_[\w.]+-aug_\w+-wd_[\w.]+-do_[\w.]+-sd_[\w.]+"
    r"(--(?P<adapt_data>[\w-]+)-steps_\w+-lr_[\w.]+-res_(?P<resolution>\d+))?"
)


def facts_of_name(name: str) -> dict[str, Any]:
    """Returns the fields of a catalog's row that a file name states, with or without `.npz`.

    Images are cropped from 448 pixels to 384 (`configs/augreg.py`), or from 256 to 224, which is
    big_vision's default.

    Raises:
        PresetError: the name has another form.
    """
    name = name.removesuffix(".npz")
    match = _NAME.fullmatch(name)
    if match is None:
        raise PresetError(
            f"{name!r}: no file name of AugReg; expected for example "
            "'S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0', with or without "
            "'--imagenet2012-steps_20k-lr_0.03-res_384'. search_augreg() lists them."
        )
    last = match["adapt_data"] or match["data"]
    resolution = int(match["resolution"] or 224)  # pre-training is at 224 pixels
    crop: ProtocolSpec = {"name": "big_vision", "resize_small": 448, "image_size": 384}
    return {
        "name": f"augreg/{name}.npz",
        "source": f"{FOLDER}{name}.npz",
        "variant": _VARIANTS.get(match["model"]),
        "data": match["data"] + (f"_ft_{last}" if match["adapt_data"] else ""),
        "image_size": resolution,
        "num_classes": _CLASSES.get(last),
        "labels": _LABELS.get(last),
        "protocol": crop if resolution == 384 else "big_vision",
    }


@dataclasses.dataclass(frozen=True, slots=True)
class AugRegRow:
    """A row of the index, with the column names of `get_augreg_df` in `vit_jax`.

    Empty numbers of the index are None. Accuracies are fractions of 1.

    Args:
        name: name of the model, such as `"B/16"` or `"R26+S/32"`.
        ds: pre-training data: `i1k`, `i21k` (300 epochs both), `i21k_30` (30 epochs).
        lr, aug, wd, do, sd: learning rate, augmentation, weight decay, dropout and stochastic
            depth of the pre-training.
        best_val, final_val, final_test: accuracies of the pre-training.
        adapt_ds, adapt_lr, adapt_steps, adapt_resolution: data, learning rate, updates and
            pixels of the fine-tuning.
        adapt_final_val, adapt_final_test: accuracies of the fine-tuned model.
        params: number of parameters.
        infer_samples_per_sec: images per second on a V100, by timm's implementation.
        filename, adapt_filename: names of the two checkpoints, without `.npz`.
    """

    name: str
    ds: str
    lr: float | None
    aug: str
    wd: float | None
    do: float | None
    sd: float | None
    best_val: float | None
    final_val: float | None
    final_test: float | None
    adapt_ds: str
    adapt_lr: float | None
    adapt_steps: int | None
    adapt_resolution: int | None
    adapt_final_val: float | None
    adapt_final_test: float | None
    params: float | None
    infer_samples_per_sec: float | None
    filename: str
    adapt_filename: str

    @property
    def variant(self) -> str | None:
        """Name of the model in `list_variants()`, or None."""
        return _VARIANTS.get(re.sub(r"[+/]", "_", self.name))

    @property
    def score(self) -> float | None:
        """Test accuracy after fine-tuning."""
        return self.adapt_final_test

    @property
    def source(self) -> str:
        """The argument of `VisionTransformer.from_preset` for the fine-tuned model."""
        return f"augreg/{self.adapt_filename}.npz"

    @property
    def upstream(self) -> str:
        """The argument of `VisionTransformer.from_preset` for the model before fine-tuning."""
        return f"augreg/{self.filename}.npz"


def search_augreg(
    variant: str | None = None,
    data: str | None = None,
    resolution: int | None = None,
    augmentation: str | None = None,
    min_score: float | None = None,
    *,
    adapt_data: str | None = "imagenet2012",
    limit: int | None = None,
) -> list[AugRegRow]:
    """Searches AugReg's index, which is downloaded once; the best test accuracy comes first.

    Args:
        variant: name of a variant, such as `"vit_b16"`.
        data: data of the pre-training: `i1k`, `i21k`, `i21k_30`.
        resolution: pixels of the fine-tuning, 224 or 384.
        augmentation: augmentation of the pre-training, such as `"medium1"` or `"none"`.
        min_score: least test accuracy after fine-tuning, a fraction of 1.
        adapt_data: data of the fine-tuning; None for any.
        limit: most rows to return.

    Raises:
        PresetError: the index cannot be downloaded or is damaged, or a value is in no row.
        ConfigError: the variant is unknown.

    A row is loaded by its `source`:

        VisionTransformer.from_preset(search_augreg("vit_s16", resolution=224)[0].source)
    """
    if variant is not None:
        variant_named(variant)
    path = fetch(INDEX)
    rows = _read(path, path.stat().st_mtime_ns)
    filters = {
        "ds": data, "adapt_ds": adapt_data, "adapt_resolution": resolution, "aug": augmentation,
    }  # fmt: skip
    filters = {column: value for column, value in filters.items() if value is not None}
    for column, value in filters.items():
        values = sorted({str(getattr(row, column)) for row in rows})
        if str(value) not in values:
            raise PresetError(
                f"{column}={value!r}: the index has none.{nearest(str(value), values)} It has "
                f"{', '.join(values)}."
            )
    matches = [
        row
        for row in rows
        if (variant is None or row.variant == variant)
        and all(getattr(row, column) == value for column, value in filters.items())
        and (min_score is None or (row.score is not None and row.score >= min_score))
    ]
    matches.sort(key=lambda row: -math.inf if row.score is None else row.score, reverse=True)
    return matches[:limit]


@functools.lru_cache(maxsize=1)
def _read(path: Path, _changed: int) -> tuple[AugRegRow, ...]:
    """Reads the index once per process, and again after a change of the file."""
    line = 1
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            rows = []
            for fields in reader:
                line = reader.line_num
                values: dict[str, Any] = {name: _value(name, fields[name]) for name in fields}
                rows.append(AugRegRow(**values))
    except (OSError, ValueError, TypeError, AttributeError, LookupError, csv.Error) as error:
        raise PresetError(
            f"{path}: line {line}: not the index that this release reads ({error}). Delete the "
            "file to fetch it again; a newer keras_vit may know its form."
        ) from error
    if not rows:
        raise PresetError(f"{path}: the table is empty. Delete the file to download it again.")
    return tuple(rows)


_TYPES = {field.name: field.type for field in dataclasses.fields(AugRegRow)}


def _value(column: str, text: str) -> Any:
    """Returns a value of the index; an empty number is None, as pandas writes NaN."""
    if _TYPES[column] is str:
        return text.strip()
    if not text.strip():
        return None
    whole = _TYPES[column] == (int | None)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (whole and not number.is_integer()):
        raise ValueError(f"column {column} is {text!r}, expected a number")
    return int(number) if whole else number
