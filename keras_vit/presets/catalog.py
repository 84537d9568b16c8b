"""The presets that have a name: one declaration per published checkpoint.

The form of a name is `<variant>.<recipe>_<data>[_ft_<data>]_<size>`. Every other file of AugReg has
the name `augreg/<file name>.npz`. Sources: the README of google-research/vision_transformer (the
"README" below) and its issues ("VT#"), `VANITY_NAMES` in `models/vit.py` of big_vision, and
the tables of timm, which reads the same files.

The catalog leaves out FlexiViT's files (patches of 32 pixels to be resized: big_vision#31) and
big_vision's DeiT-3 files (LayerScale), which the big_vision dialect cannot read;
`imagenet21k/ViT-B_8.npz` (VT#139), for which only its existence is documented; and a fine-tuned
H/14, which was never published (VT#133).
"""

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.dialects import dialects_named
from keras_vit.checkpoints.lexicon import num_parameters
from keras_vit.config import Numerics, ViTConfig
from keras_vit.errors import ConfigError, PresetError, SourceError, nearest
from keras_vit.preparation.protocols import ProtocolSpec
from keras_vit.presets import bucket
from keras_vit.presets.augreg import FOLDER as _AUGREG
from keras_vit.presets.augreg import AugRegFile, protocol_at
from keras_vit.presets.bucket import BucketFile
from keras_vit.presets.families import ROWS as FAMILY_ROWS
from keras_vit.presets.families import UNVERIFIED, FamilyRow
from keras_vit.presets.hub import SCHEME, HubFolder
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.terminal.messages import log
from keras_vit.variants import list_variants
from keras_vit.variants import variant as variant_named


@dataclasses.dataclass(frozen=True)
class Preset:
    """A row of the catalog.

    Args:
        name: name for `from_preset`.
        variant: a name of `list_variants()`, or None.
        data: data of the training and of the fine-tuning: `i21k`, `i1k`, `i21k_ft_i1k`,
            `i1k_ft_i1k`.
        source: URL, or `hf://owner/repo`; None for a preset inside this package.
        image_size: side of the images in pixels.
        num_classes: number of classes of its head; None if only the file states it.
        protocol: preparation of images.
        top1: reported accuracy on ImageNet's validation images in percent.
        reported: source of `top1`, and its protocol if it differs from `protocol`.
        upstream_top1: accuracy in percent on held-out images of the pre-training data, at the
            end of the pre-training (VT#62).
        unverified: the part of `source` that could not be verified.
        alternatives: other spellings of `source`, tried in turn.
        zero_head: whether the head was published as zeros.
        note: a warning for users.
        fields: fields of `ViTConfig` in which the model differs from its variant.
        dialect: dialect of the file, for its arithmetic; the file is recognised without it.
        labels: name of a shipped list, or None.
        license: SPDX identifier.
        family: family for `list_presets`; `"vit"` for the paper's model.
        folder: folder of an embedded preset.
    """

    name: str
    variant: str | None
    data: str
    source: str | None
    image_size: int
    num_classes: int | None
    protocol: ProtocolSpec
    top1: float | None = None
    reported: str = ""
    upstream_top1: float | None = None
    unverified: str = ""
    alternatives: tuple[str, ...] = ()
    zero_head: bool = False
    note: str = ""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    dialect: str = "google"
    labels: str | None = None
    license: str = "Apache-2.0"
    family: str = "vit"
    folder: Path | None = None

    @property
    def hybrid(self) -> bool:
        """Whether a ResNet stands before the Transformer."""
        return self.variant is not None and variant_named(self.variant).config().resnet is not None

    @property
    def mebibytes(self) -> float | None:
        """Size of the float32 weights in MiB; None if only the file determines it."""
        if self.num_classes is None or (self.variant is None and self.family == "vit"):
            return None
        return num_parameters(self.config()) * 4 / 2**20

    def config(self) -> ViTConfig:
        """Returns the configuration, without a download.

        Raises:
            PresetError: only the file, or the `config.json` of a folder, states it.
        """
        if self.family != "vit":
            return self._config_of_family()
        if self.variant is None or self.num_classes is None:
            unknown = "size" if self.variant is None else "number of classes"
            raise PresetError(
                f"{self.name}: its {unknown} is known only to its files. Load it with its weights, "
                "or build the model by a variant's name."
            )
        # A checkpoint states no dropout; AugReg fine-tunes without dropout (`configs/augreg.py`).
        numerics = dialects_named(self.dialect)[0].numerics
        fields = {"dropout_rate": 0.0, **({"numerics": numerics} if numerics else {})}
        return variant_named(self.variant).config(
            self.image_size, self.num_classes, **{**fields, **self.fields}
        )

    def _config_of_family(self) -> ViTConfig:
        """Returns the configuration from the dialect's conventions and the fields of the row."""
        dialect = dialects_named(self.dialect)[0]
        given = dict(self.fields)
        numerics = {**(dialect.numerics or Numerics()).to_dict(), **given.pop("numerics", {})}
        own = {"image_size": self.image_size, "num_classes": self.num_classes}
        fields = {**dialect.conventions, **own, **given, "numerics": numerics}
        return ViTConfig.from_dict(fields)

    def preset_config(self) -> PresetConfig:
        """Returns the `PresetConfig` of the row, without a download; raises as `config`."""
        return PresetConfig(self.config(), self.protocol, self.labels, self.provenance())

    def place(self) -> "BucketFile | HubFolder":
        """Returns the place of the files; for a repository, the Hub states its commit.

        Raises:
            PresetError: the Hub refuses or fails.
        """
        source = str(self.source)
        if source.startswith(SCHEME):
            return HubFolder.locate(source)
        doubt = f" {self.name}: unverified is {self.unverified}." if self.unverified else ""
        return BucketFile(source, self.alternatives, doubt)

    def told(self) -> dict[str, Any]:
        """Returns arguments of `checkpoints.load`, without the dialect, which the file shows."""
        told: dict[str, Any] = {"labels": self.labels}
        if self.family == "vit":
            told["protocol"] = self.protocol  # the files of other families state their protocol
        if self.variant and not str(self.source).startswith(SCHEME):
            told["variant"] = self.variant
        if self.fields.get("position") == "sincos2d":
            told["image_size"] = self.image_size  # the file has no positions to infer it from
        return told

    def provenance(self) -> dict[str, Any]:
        """Returns the origin of the weights, as plain JSON types."""
        facts: dict[str, Any] = {"preset": self.name, "source": self.source}
        if self.source and not self.source.startswith("hf://"):
            record = bucket.record_of(self.source, *self.alternatives)
            facts |= {} if record is None else {"source": record.url, "sha256": record.sha256}
        facts |= {"license": self.license, "data": self.data}
        if self.top1 is not None:
            facts |= {"reported_top1": self.top1, "reported_by": self.reported}
        if self.upstream_top1 is not None:
            facts |= {"upstream_top1": self.upstream_top1, "upstream_reported_by": _UPSTREAM}
        return facts | ({"note": self.note} if self.note else {})

    def announce(self, config: ViTConfig) -> None:
        """Warns in the log if the loaded model has kept a head that was published as zeros."""
        if self.zero_head and config.num_classes == self.num_classes:
            log.warning(
                "%s: the head was published as zeros, so all logits are 0. Give num_classes for "
                "a new one to train, or 0 for features.",
                self.name,
            )


_GOOGLE = bucket.OFFICIAL + "vit_models/"
_BIG_VISION = bucket.OFFICIAL + "big_vision/"
_ORIG_21K, _ORIG_FT = _GOOGLE + "imagenet21k/", _GOOGLE + "imagenet21k%2Bimagenet2012/"
_A = "i21k-300ep-lr_0.001-aug_"  # AugReg's recommended all have it
_FT = "--imagenet2012-steps_20k-lr_"

_README = "README, where the score's protocol is not stated"
_REPLICATION = "README, a replication with dropout 0.0, not this file"
_TIMM = "timm, bicubic crop 0.9 at 224 pixels, 1.0 at 384"
_TIMM_224 = {"name": "timm", "crop_pct": 0.9, "interpolation": "bicubic"}
_UPSTREAM = "VT#62, on held-out images of ImageNet-21k, with the head that was not published"
_448 = protocol_at(384)
_LR = "the fine-tuning's learning rate: that of the 384 pixel file is assumed"
_SAM = "the file name: third parties link it, the README names the folder alone"
_GSAM = "validates badly with every preprocessing that timm's author tried (timm#1302)"
_HEADLESS = "the head is zero (VT#10); pre_logits precedes it and was dropped at fine-tuning"


def _pre_logits(width: int) -> dict[str, Any]:
    return {"representation_size": width}


# fmt: off
_ROWS = (
    Preset("vit_digits", None, "digits", None, 16, 10, "paper", folder=Path(__file__).parent / "vit_digits",
           note="handwritten digits, 16 pixels, grey; ships with keras_vit, under 1 MB"),

    # Dosovitskiy et al. (2021). Squashed to size, as `vit_jax/input_pipeline.py` does.
    Preset("vit_b16.orig_i21k_224",     "vit_b16",     "i21k", _ORIG_21K + "ViT-B_16.npz",       224, 21843, "paper", upstream_top1=47.88, zero_head=True, note=_HEADLESS, fields=_pre_logits(768)),
    Preset("vit_b32.orig_i21k_224",     "vit_b32",     "i21k", _ORIG_21K + "ViT-B_32.npz",       224, 21843, "paper", upstream_top1=44.04, zero_head=True, note=_HEADLESS, fields=_pre_logits(768)),
    Preset("vit_l16.orig_i21k_224",     "vit_l16",     "i21k", _ORIG_21K + "ViT-L_16.npz",       224, 21843, "paper", upstream_top1=49.90, zero_head=True, note=_HEADLESS, fields=_pre_logits(1024)),
    Preset("vit_l32.orig_i21k_224",     "vit_l32",     "i21k", _ORIG_21K + "ViT-L_32.npz",       224, 21843, "paper", upstream_top1=45.42, zero_head=True, note=_HEADLESS, fields=_pre_logits(1024)),
    Preset("vit_h14.orig_i21k_224",     "vit_h14",     "i21k", _ORIG_21K + "ViT-H_14.npz",       224, 21843, "paper", upstream_top1=49.06, zero_head=True, note=_HEADLESS, fields=_pre_logits(1280)),
    Preset("r50_vit_b16.orig_i21k_224", "r50_vit_b16", "i21k", _ORIG_21K + "R50%2BViT-B_16.npz", 224, 21843, "paper", zero_head=True, note=_HEADLESS, fields=_pre_logits(768),
           unverified="whether its name has a plus or a dash", alternatives=(_ORIG_21K + "R50-ViT-B_16.npz",)),
    Preset("vit_b16.orig_i21k_ft_i1k_384",     "vit_b16",     "i21k_ft_i1k", _ORIG_FT + "ViT-B_16.npz",       384, 1000, "paper", 84.53, _REPLICATION),
    Preset("vit_b32.orig_i21k_ft_i1k_384",     "vit_b32",     "i21k_ft_i1k", _ORIG_FT + "ViT-B_32.npz",       384, 1000, "paper", 81.66, _REPLICATION),
    Preset("vit_l16.orig_i21k_ft_i1k_384",     "vit_l16",     "i21k_ft_i1k", _ORIG_FT + "ViT-L_16.npz",       384, 1000, "paper", 84.47, _REPLICATION),
    Preset("vit_l32.orig_i21k_ft_i1k_384",     "vit_l32",     "i21k_ft_i1k", _ORIG_FT + "ViT-L_32.npz",       384, 1000, "paper", 81.89, _REPLICATION),
    Preset("r50_vit_b16.orig_i21k_ft_i1k_384", "r50_vit_b16", "i21k_ft_i1k", _ORIG_FT + "R50%2BViT-B_16.npz", 384, 1000, "paper", 84.99, _TIMM,
           note="the README's replication has 85.08 with dropout 0.1; VT#39 measured 83.4"),
    Preset("vit_b16.orig_i21k_ft_i1k_224",     "vit_b16",     "i21k_ft_i1k", _ORIG_FT + "ViT-B_16-224.npz",   224, 1000, "paper", 81.2, "README of 29.10.2020, as expected"),
    Preset("vit_l16.orig_i21k_ft_i1k_224",     "vit_l16",     "i21k_ft_i1k", _ORIG_FT + "ViT-L_16-224.npz",   224, 1000, "paper", 82.7, "README of 29.10.2020, as expected"),

    # Steiner et al. (2022), the README's recommendation. Their heads are real, without pre_logits.
    Preset("vit_l16.augreg_i21k_224",     "vit_l16",     "i21k", _AUGREG + f"L_16-{_A}strong1-wd_0.1-do_0.0-sd_0.0.npz",     224, 21843, "big_vision"),
    Preset("vit_b16.augreg_i21k_224",     "vit_b16",     "i21k", _AUGREG + f"B_16-{_A}medium1-wd_0.1-do_0.0-sd_0.0.npz",     224, 21843, "big_vision"),
    Preset("vit_b8.augreg_i21k_224",      "vit_b8",      "i21k", _AUGREG + f"B_8-{_A}medium2-wd_0.1-do_0.0-sd_0.0.npz",      224, 21843, "big_vision",
           note="big_vision recommends this one; vit_b8.augreg_i21k_ft_i1k_224 began as aug_medium1"),
    Preset("vit_s16.augreg_i21k_224",     "vit_s16",     "i21k", _AUGREG + f"S_16-{_A}light1-wd_0.03-do_0.0-sd_0.0.npz",     224, 21843, "big_vision"),
    Preset("vit_ti16.augreg_i21k_224",    "vit_ti16",    "i21k", _AUGREG + f"Ti_16-{_A}none-wd_0.03-do_0.0-sd_0.0.npz",      224, 21843, "big_vision"),
    Preset("vit_b32.augreg_i21k_224",     "vit_b32",     "i21k", _AUGREG + f"B_32-{_A}light1-wd_0.1-do_0.0-sd_0.0.npz",      224, 21843, "big_vision"),
    Preset("vit_s32.augreg_i21k_224",     "vit_s32",     "i21k", _AUGREG + f"S_32-{_A}none-wd_0.1-do_0.0-sd_0.0.npz",        224, 21843, "big_vision"),
    Preset("r50_vit_l32.augreg_i21k_224", "r50_vit_l32", "i21k", _AUGREG + f"R50_L_32-{_A}medium1-wd_0.1-do_0.1-sd_0.1.npz", 224, 21843, "big_vision"),
    Preset("r26_vit_s32.augreg_i21k_224", "r26_vit_s32", "i21k", _AUGREG + f"R26_S_32-{_A}light1-wd_0.1-do_0.0-sd_0.0.npz",  224, 21843, "big_vision"),
    Preset("r_vit_ti16.augreg_i21k_224",  "r_vit_ti16",  "i21k", _AUGREG + f"R_Ti_16-{_A}none-wd_0.03-do_0.0-sd_0.0.npz",    224, 21843, "big_vision"),
    Preset("vit_l16.augreg_i21k_ft_i1k_384",     "vit_l16",     "i21k_ft_i1k", _AUGREG + f"L_16-{_A}strong1-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_384.npz",     384, 1000, _448, 85.59, _README),
    Preset("vit_b16.augreg_i21k_ft_i1k_384",     "vit_b16",     "i21k_ft_i1k", _AUGREG + f"B_16-{_A}medium1-wd_0.1-do_0.0-sd_0.0{_FT}0.03-res_384.npz",     384, 1000, _448, 85.49, _README),
    Preset("vit_s16.augreg_i21k_ft_i1k_384",     "vit_s16",     "i21k_ft_i1k", _AUGREG + f"S_16-{_A}light1-wd_0.03-do_0.0-sd_0.0{_FT}0.03-res_384.npz",     384, 1000, _448, 83.73, _README),
    Preset("vit_ti16.augreg_i21k_ft_i1k_384",    "vit_ti16",    "i21k_ft_i1k", _AUGREG + f"Ti_16-{_A}none-wd_0.03-do_0.0-sd_0.0{_FT}0.03-res_384.npz",      384, 1000, _448, 78.22, _README),
    Preset("vit_b32.augreg_i21k_ft_i1k_384",     "vit_b32",     "i21k_ft_i1k", _AUGREG + f"B_32-{_A}light1-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_384.npz",      384, 1000, _448, 83.59, _README),
    Preset("vit_s32.augreg_i21k_ft_i1k_384",     "vit_s32",     "i21k_ft_i1k", _AUGREG + f"S_32-{_A}none-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_384.npz",        384, 1000, _448, 79.58, _README),
    Preset("r50_vit_l32.augreg_i21k_ft_i1k_384", "r50_vit_l32", "i21k_ft_i1k", _AUGREG + f"R50_L_32-{_A}medium1-wd_0.1-do_0.1-sd_0.1{_FT}0.01-res_384.npz", 384, 1000, _448, 85.99, _README),
    Preset("r26_vit_s32.augreg_i21k_ft_i1k_384", "r26_vit_s32", "i21k_ft_i1k", _AUGREG + f"R26_S_32-{_A}light1-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_384.npz",  384, 1000, _448, 83.85, _README),
    Preset("r_vit_ti16.augreg_i21k_ft_i1k_384",  "r_vit_ti16",  "i21k_ft_i1k", _AUGREG + f"R_Ti_16-{_A}none-wd_0.03-do_0.0-sd_0.0{_FT}0.03-res_384.npz",    384, 1000, _448, 75.40, _README),
    # The README has no file at 224 pixels; the rows with a score are the files that timm reads.
    Preset("vit_b8.augreg_i21k_ft_i1k_224",      "vit_b8",      "i21k_ft_i1k", _AUGREG + f"B_8-{_A}medium1-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_224.npz",      224, 1000, "big_vision", 85.84, _TIMM),
    Preset("vit_b16.augreg_i21k_ft_i1k_224",     "vit_b16",     "i21k_ft_i1k", _AUGREG + f"B_16-{_A}medium1-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_224.npz",     224, 1000, "big_vision", 84.53, _TIMM),
    Preset("vit_s16.augreg_i21k_ft_i1k_224",     "vit_s16",     "i21k_ft_i1k", _AUGREG + f"S_16-{_A}light1-wd_0.03-do_0.0-sd_0.0{_FT}0.03-res_224.npz",     224, 1000, "big_vision", 81.40, _TIMM),
    Preset("vit_ti16.augreg_i21k_ft_i1k_224",    "vit_ti16",    "i21k_ft_i1k", _AUGREG + f"Ti_16-{_A}none-wd_0.03-do_0.0-sd_0.0{_FT}0.03-res_224.npz",      224, 1000, "big_vision", 75.45, _TIMM),
    Preset("r50_vit_l32.augreg_i21k_ft_i1k_224", "r50_vit_l32", "i21k_ft_i1k", _AUGREG + f"R50_L_32-{_A}medium1-wd_0.1-do_0.1-sd_0.1{_FT}0.01-res_224.npz", 224, 1000, "big_vision", 84.43, _TIMM),
    Preset("r_vit_ti16.augreg_i21k_ft_i1k_224",  "r_vit_ti16",  "i21k_ft_i1k", _AUGREG + f"R_Ti_16-{_A}none-wd_0.03-do_0.0-sd_0.0{_FT}0.03-res_224.npz",    224, 1000, "big_vision", 71.80, _TIMM),
    Preset("vit_l16.augreg_i21k_ft_i1k_224",     "vit_l16",     "i21k_ft_i1k", _AUGREG + f"L_16-{_A}strong1-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_224.npz",     224, 1000, "big_vision",
           unverified=_LR, alternatives=(_AUGREG + f"L_16-{_A}strong1-wd_0.1-do_0.0-sd_0.0{_FT}0.03-res_224.npz",)),
    Preset("vit_b32.augreg_i21k_ft_i1k_224",     "vit_b32",     "i21k_ft_i1k", _AUGREG + f"B_32-{_A}light1-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_224.npz",      224, 1000, "big_vision",
           unverified=_LR, alternatives=(_AUGREG + f"B_32-{_A}light1-wd_0.1-do_0.0-sd_0.0{_FT}0.03-res_224.npz",)),
    Preset("vit_s32.augreg_i21k_ft_i1k_224",     "vit_s32",     "i21k_ft_i1k", _AUGREG + f"S_32-{_A}none-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_224.npz",        224, 1000, "big_vision",
           unverified=_LR, alternatives=(_AUGREG + f"S_32-{_A}none-wd_0.1-do_0.0-sd_0.0{_FT}0.03-res_224.npz",)),
    Preset("r26_vit_s32.augreg_i21k_ft_i1k_224", "r26_vit_s32", "i21k_ft_i1k", _AUGREG + f"R26_S_32-{_A}light1-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_224.npz",  224, 1000, "big_vision",
           unverified=_LR, alternatives=(_AUGREG + f"R26_S_32-{_A}light1-wd_0.1-do_0.0-sd_0.0{_FT}0.03-res_224.npz",)),
    # ImageNet-1k alone, as timm chose them.
    Preset("vit_s16.augreg_i1k_ft_i1k_224", "vit_s16", "i1k_ft_i1k", _AUGREG + f"S_16-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_224.npz", 224, 1000, "big_vision", 78.84, _TIMM),
    Preset("vit_s16.augreg_i1k_ft_i1k_384", "vit_s16", "i1k_ft_i1k", _AUGREG + f"S_16-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0{_FT}0.01-res_384.npz", 384, 1000, _448, 81.13, _TIMM),
    Preset("vit_b32.augreg_i1k_ft_i1k_224", "vit_b32", "i1k_ft_i1k", _AUGREG + f"B_32-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.1-sd_0.1{_FT}0.01-res_224.npz", 224, 1000, "big_vision", 74.91, _TIMM),
    Preset("vit_b32.augreg_i1k_ft_i1k_384", "vit_b32", "i1k_ft_i1k", _AUGREG + f"B_32-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.1-sd_0.1{_FT}0.01-res_384.npz", 384, 1000, _448, 78.75, _TIMM),
    Preset("vit_b16.augreg_i1k_ft_i1k_224", "vit_b16", "i1k_ft_i1k", _AUGREG + f"B_16-i1k-300ep-lr_0.001-aug_strong2-wd_0.1-do_0.1-sd_0.1{_FT}0.01-res_224.npz", 224, 1000, "big_vision", 79.15, _TIMM),
    Preset("vit_b16.augreg_i1k_ft_i1k_384", "vit_b16", "i1k_ft_i1k", _AUGREG + f"B_16-i1k-300ep-lr_0.001-aug_strong2-wd_0.1-do_0.1-sd_0.1{_FT}0.01-res_384.npz", 384, 1000, _448, 81.10, _TIMM),
    # AugReg's ImageNet-21k models, fine-tuned anew by timm, whose GELU is exact.
    Preset("vit_b16.augreg2_i21k_ft_i1k_224", "vit_b16", "i21k_ft_i1k", "hf://timm/vit_base_patch16_224.augreg2_in21k_ft_in1k", 224, 1000, _TIMM_224, 85.11, _TIMM, dialect="timm"),
    Preset("vit_b8.augreg2_i21k_ft_i1k_224",  "vit_b8",  "i21k_ft_i1k", "hf://timm/vit_base_patch8_224.augreg2_in21k_ft_in1k",  224, 1000, _TIMM_224, 86.25, _TIMM, dialect="timm"),

    # Chen et al. (2022), sharpness-aware minimisation. The protocol is that of the scores.
    Preset("vit_b16.sam_i1k_224", "vit_b16", "i1k", _GOOGLE + "sam/ViT-B_16.npz", 224, 1000, _TIMM_224, 80.25, _TIMM),
    Preset("vit_b32.sam_i1k_224", "vit_b32", "i1k", _GOOGLE + "sam/ViT-B_32.npz", 224, 1000, _TIMM_224, 73.70, _TIMM),
    Preset("vit_s16.sam_i1k_224", "vit_s16", "i1k", _GOOGLE + "sam/ViT-S_16.npz", 224, 1000, _TIMM_224, unverified=_SAM),
    Preset("vit_l16.sam_i1k_224", "vit_l16", "i1k", _GOOGLE + "sam/ViT-L_16.npz", 224, 1000, _TIMM_224, unverified=_SAM),
    Preset("vit_l32.sam_i1k_224", "vit_l32", "i1k", _GOOGLE + "sam/ViT-L_32.npz", 224, 1000, _TIMM_224, unverified=_SAM),
    # Zhuang et al. (2022), surrogate gap guided. VT#223 names B_16, VT#215 the four sizes; no class token.
    Preset("vit_b16.gsam_i1k_224", "vit_b16", "i1k", _GOOGLE + "gsam/ViT-B_16.npz", 224, 1000, "big_vision", note=_GSAM, fields={"classifier": "gap"}),
    Preset("vit_b32.gsam_i1k_224", "vit_b32", "i1k", _GOOGLE + "gsam/ViT-B_32.npz", 224, 1000, "big_vision", note=_GSAM, fields={"classifier": "gap"}, unverified=_SAM),
    Preset("vit_s16.gsam_i1k_224", "vit_s16", "i1k", _GOOGLE + "gsam/ViT-S_16.npz", 224, 1000, "big_vision", note=_GSAM, fields={"classifier": "gap"}, unverified=_SAM),
    Preset("vit_s32.gsam_i1k_224", "vit_s32", "i1k", _GOOGLE + "gsam/ViT-S_32.npz", 224, 1000, "big_vision", note=_GSAM, fields={"classifier": "gap"}, unverified=_SAM),

    # Beyer et al. (2022), https://arxiv.org/abs/2205.01580: average pooling, computed positions.
    Preset("vit_s16.big_vision_i1k_90ep_224",  "vit_s16", "i1k", _BIG_VISION + "vit_s16_i1k_90ep.npz",  224, 1000, "big_vision", 76.5, "big_vision's `configs/vit_s16_i1k.py`",
           dialect="big_vision", fields={"classifier": "gap", "position": "sincos2d", "representation_size": 384}),
    Preset("vit_s16.big_vision_i1k_150ep_224", "vit_s16", "i1k", _BIG_VISION + "vit_s16_i1k_150ep.npz", 224, 1000, "big_vision", 78.5, "arXiv 2205.01580, for a training of 150 epochs",
           dialect="big_vision", fields={"classifier": "gap", "position": "sincos2d", "representation_size": 384}),
    Preset("vit_s16.big_vision_i1k_300ep_224", "vit_s16", "i1k", _BIG_VISION + "vit_s16_i1k_300ep.npz", 224, 1000, "big_vision", 80.0, "arXiv 2205.01580, for a training of 300 epochs",
           dialect="big_vision", fields={"classifier": "gap", "position": "sincos2d", "representation_size": 384}),
)
# fmt: on


def _of_family(row: FamilyRow) -> Preset:
    """Returns the row of the catalog for a row of a family."""
    shared = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return Preset(variant=None, unverified=UNVERIFIED, **shared)


_SHIPPED_LABELS = {1000: "imagenet1k", 21843: "imagenet21k"}

CATALOG = {
    row.name: dataclasses.replace(row, labels=_SHIPPED_LABELS.get(row.num_classes or 0))
    for row in (*_ROWS, *map(_of_family, FAMILY_ROWS))
}


def list_presets(
    variant: str | None = None,
    data: str | None = None,
    resolution: int | None = None,
    hybrid: bool | None = None,
    family: str | None = None,
) -> list[str]:
    """Returns the names of the presets in the catalog that match every given argument.

    Args:
        variant: name of a variant, such as `"vit_b16"`.
        data: data of the training, `"i21k"`, `"i1k"`, or with fine-tuning, `"i21k_ft_i1k"`.
        resolution: side of the images in pixels.
        hybrid: True for models with a ResNet before the Transformer, False for models without.
        family: name of a family, such as `"dinov2"`; `"vit"` is the paper's model and AugReg's.

    Raises:
        ConfigError: the variant is unknown, or no row has such data, resolution or family.
    """
    if variant is not None:
        variant_named(variant)
    known = sorted({row.data for row in CATALOG.values()})
    if data is not None and data not in known:
        raise ConfigError(
            f"data={data!r}: no preset.{nearest(data, known)} Known: {', '.join(known)}."
        )
    families = sorted({row.family for row in CATALOG.values()})
    if family is not None and family not in families:
        raise ConfigError(
            f"family={family!r}: no preset.{nearest(family, families)} Known: "
            f"{', '.join(families)}."
        )
    sizes = sorted({row.image_size for row in CATALOG.values()})
    if resolution is not None and resolution not in sizes:
        raise ConfigError(
            f"resolution={resolution}: no preset has it. Known: {', '.join(map(str, sizes))}; any "
            "other by from_preset(..., image_size=...)."
        )
    return [
        row.name
        for row in CATALOG.values()
        if variant in (None, row.variant)
        and data in (None, row.data)
        and resolution in (None, row.image_size)
        and hybrid in (None, row.hybrid)
        and family in (None, row.family)
    ]


def preset_named(name: str) -> Preset:
    """Returns the row of a name in the catalog, or of `augreg/<file name>.npz`.

    Raises:
        SourceError: the name is unknown; the message states the nearest names, or the presets
            if the name is a variant.
    """
    if name.startswith("augreg/"):
        return _augreg(name.removeprefix("augreg/"))
    if name in list_variants():
        of_it = ", ".join(list_presets(name)) or "none"
        raise SourceError(
            f"{name!r} is an architecture, not a preset. Its presets: {of_it}. For fresh weights "
            f"call keras_vit.{name}(), or `keras-vit finetune --from-scratch {name}`."
        )
    if name not in CATALOG:
        near = difflib.get_close_matches(name, CATALOG, n=3, cutoff=0.5)
        guess = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise SourceError(
            f"{name!r} is no preset, and no existing file or folder.{guess} list_presets() and "
            "`keras-vit list` show all; search_augreg() finds more."
        )
    return CATALOG[name]


def _augreg(file_name: str) -> Preset:
    file = AugRegFile.of(file_name)
    adapted = f"_ft_{file.adapt_data}" if file.adapt_data else ""
    return Preset(
        name=f"augreg/{file.name}.npz",
        variant=file.variant,
        data=file.data + adapted,
        source=file.url,
        image_size=file.resolution,
        num_classes=file.num_classes,
        protocol=file.protocol,
        labels=file.labels,
    )
