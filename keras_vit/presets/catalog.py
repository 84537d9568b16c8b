"""The catalog of presets: reads `catalog.json`, which has one row per published checkpoint.

The form of a name is `<variant>.<recipe>_<data>[_ft_<data>]_<size>`. For other families it is
`<size><patch>.<family>_<data>_<pixels>`, without data or pixels if the family has a single choice.
Every other file of AugReg has the name `augreg/<file name>.npz`. Sources: the README of
google-research/vision_transformer (the "README" in the rows) and its issues ("VT#"), `VANITY_NAMES`
in `models/vit.py` of big_vision, the papers that the groups of rows name, and the tables of timm. A
group states the fields of `ViTConfig` that its rows share, and a row all further facts;
`tests/presets/test_counterparts.py` compares them with timm's and keras-hub's, and names each
difference with its reason. When a preset is loaded from the Hub, the repository's files decide.

These files are not in the catalog: FlexiViT's (patches of 32 pixels to be resized: big_vision#31)
and big_vision's DeiT-3 (LayerScale), which the family big_vision cannot hold;
`imagenet21k/ViT-B_8.npz` (VT#139), for which only its existence is documented; and a fine-tuned
H/14, which was never published (VT#133).
"""

import dataclasses
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten, nest
from keras_vit.config.variants import VARIANTS, variant_named
from keras_vit.errors import ConfigError, PresetError, SourceError, listed, nearest, shown
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.presets import bucket
from keras_vit.presets.augreg import read_file_name
from keras_vit.presets.bucket import BucketFile
from keras_vit.presets.hub import SCHEME, HubFolder
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.support.text import log


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
        fields: fields of `ViTConfig`, by path, in which the model differs from its variant.
        format_name: format of the file, for its arithmetic; the file is recognised without it.
        class_names: name of a shipped list, or None.
        license: SPDX identifier; the strictest of `licenses`.
        licenses: SPDX identifier by who states it, where two sources state different ones.
        family: family for `list_presets`; `"vit"` for the paper's model.
        folder: folder of an embedded preset.
        counterparts: name of the same weights in timm and in keras-hub, by the library.
        files_elsewhere: AugReg's file to which the library gives that name, if it is not `source`
            but another training of the same model on the same data.
        timm: arguments of timm's model that the card of the repository states, for
            `VisionTransformer.from_preset`.
        feature: the feature vector that the card of a domain-specific encoder recommends.
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
    alternatives: Sequence[str] = dataclasses.field(default=(), hash=False)
    zero_head: bool = False
    note: str = ""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    format_name: str = "google"
    class_names: str | None = None
    license: str = "Apache-2.0"
    licenses: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    family: str = "vit"
    folder: Path | None = None
    counterparts: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    files_elsewhere: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    timm: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    feature: str = ""

    def is_called(self, name: str, library: str) -> bool:
        """Whether a library gives these weights that name; timm's may lack the part after a dot."""
        theirs = self.counterparts.get(library)
        return theirs is not None and name in (theirs, theirs.partition(".")[0])

    @property
    def hybrid(self) -> bool:
        """Whether the model has a ResNet before the Transformer."""
        return self.variant is not None and variant_named(self.variant).config().stem.is_resnet

    def config(self) -> ViTConfig:
        """Returns the configuration, without a download.

        Raises:
            PresetError: only the file, or the `config.json` of a folder, states it.
        """
        if self.num_classes is None or (self.variant is None and "hidden_size" not in self.fields):
            unknown = "number of classes" if self.variant else "size"
            raise PresetError(
                f"{self.name}: its {unknown} is only in its files. Load it with its weights, or "
                "build the model by a variant's name."
            )
        sizes = flatten(variant_named(self.variant).fields) if self.variant else {}
        # A checkpoint states no dropout; AugReg fine-tunes without dropout (`configs/augreg.py`).
        own = {"dropout_rate": 0.0, **self.fields}
        return ViTConfig.from_dict(
            nest({**sizes, "image_size": self.image_size, "num_classes": self.num_classes, **own})
        )

    def preset_config(self) -> PresetConfig:
        """Returns the `PresetConfig` of the row, without a download; raises as `config`."""
        return PresetConfig(self.config(), self.protocol, self.class_names, self.provenance())

    def place(self) -> "BucketFile | HubFolder":
        """Returns the place of the files; for a repository, the Hub is asked for the commit.

        Raises:
            PresetError: the request to the Hub fails.
        """
        source = str(self.source)
        if source.startswith(SCHEME):
            return HubFolder.locate(source)
        doubt = f" {self.name}: unverified is {self.unverified}." if self.unverified else ""
        return BucketFile(source, self.alternatives, doubt)

    def defaults(self) -> dict[str, Any]:
        """Returns arguments of `from_preset`, without the format, which the file shows."""
        defaults: dict[str, Any] = {"class_names": self.class_names}
        if self.family == "vit":
            defaults["protocol"] = self.protocol  # files of other families state their protocol
        if self.variant and not str(self.source).startswith(SCHEME):
            defaults["variant"] = self.variant
        if self.timm:
            defaults["timm"] = self.timm
        if self.fields.get("position") == "sincos2d":
            defaults["image_size"] = self.image_size  # the file has no positions to infer it from
        return defaults

    def provenance(self) -> dict[str, Any]:
        """Returns the origin of the weights, as plain JSON types."""
        facts: dict[str, Any] = {"preset": self.name, "source": self.source}
        if self.source and not self.source.startswith(SCHEME):
            cached = bucket.sha256_in_cache(self.source, *self.alternatives)
            facts |= dict(zip(("source", "sha256"), cached, strict=True)) if cached else {}
        facts |= {"license": self.license, "data": self.data}
        facts |= {"licenses": dict(self.licenses)} if self.licenses else {}
        if self.top1 is not None:
            facts |= {"reported_top1": self.top1, "reported_by": self.reported}
        if self.upstream_top1 is not None:
            facts |= {"upstream_top1": self.upstream_top1, "upstream_reported_by": _UPSTREAM}
        return facts | ({"note": self.note} if self.note else {})

    def announce(self, config: ViTConfig) -> None:
        """Warns in the log if the loaded model has kept a head that was published as zeros."""
        if self.zero_head and config.num_classes == self.num_classes:
            log.warning(
                "%s: the head was published as zeros, so all logits are 0. Give num_classes=n for "
                "a new head to train, or num_classes=0 for features.",
                self.name,
            )


_UPSTREAM = "VT#62, on held-out images of ImageNet-21k, with the head that was not published"


def _read() -> dict[str, Preset]:
    """Returns the rows of `catalog.json`, by name; a group states the fields of all its rows."""
    groups = json.loads(Path(__file__).with_name("catalog.json").read_text(encoding="utf-8"))
    catalog = {}
    for group in groups:
        for row in group["rows"]:
            fields = {**group.get("fields", {}), **row.get("fields", {})}
            folder = Path(__file__).parent / row["folder"] if "folder" in row else None
            facts = {"variant": None, "source": None, **row, "fields": fields, "folder": folder}
            catalog[row["name"]] = Preset(**facts)
    return catalog


CATALOG = _read()


def list_presets(
    variant: str | None = None,
    data: str | None = None,
    resolution: int | None = None,
    hybrid: bool | None = None,
    family: str | None = None,
) -> list[str]:
    """Lists the presets, pretrained models with a name, that match every given argument.

    Args:
        variant: name of a variant, such as `"vit_b16"`.
        data: training data, `"i21k"` or `"i1k"`, or with fine-tuning `"i21k_ft_i1k"`.
        resolution: image size in pixels.
        hybrid: True for models with a ResNet before the Transformer, False for models without.
        family: name of a family, such as `"dinov2"`; `"vit"` is the paper's model and AugReg's.

    Raises:
        ConfigError: the variant is unknown, or no row has such data, resolution or family.
    """
    if variant is not None:
        variant_named(variant)
    filters = {"data": data, "family": family, "image_size": resolution}
    for column, value in filters.items():
        values = sorted({getattr(row, column) for row in CATALOG.values()})
        if value is not None and value not in values:
            names = [str(each) for each in values]
            argument = "resolution" if column == "image_size" else column
            advice = " from_preset(..., image_size=...) loads a model at any other size."
            raise ConfigError(
                f"{argument}={value!r}: no such preset.{nearest(value, names)} Known: "
                f"{', '.join(names)}.{advice if argument == 'resolution' else ''}"
            )
    filters |= {"variant": variant, "hybrid": hybrid}
    return [
        row.name
        for row in CATALOG.values()
        if all(value in (None, getattr(row, column)) for column, value in filters.items())
    ]


def preset_named(name: str) -> Preset:
    """Returns the row of a name in the catalog, or of `augreg/<file name>.npz`.

    Raises:
        SourceError: the name is unknown; the message states the nearest names, or the presets
            if the name is a variant.
    """
    if name.startswith("augreg/"):
        return Preset(**read_file_name(name.removeprefix("augreg/")))
    if name in VARIANTS:
        of_it = ", ".join(list_presets(name)) or "none"
        raise SourceError(
            f"{name!r} is an architecture, not a preset. Its presets: {of_it}. For random weights "
            f"call keras_vit.{name}(), or `keras-vit finetune --from-scratch {name}`."
        )
    if name not in CATALOG:
        raise SourceError(
            f"{shown(name)}: there is no such preset, file or folder.{_advice(name)} list_presets() "
            "and `keras-vit list` show all; AugReg's other files are 'augreg/<file name>.npz'."
        )
    return CATALOG[name]


def _advice(name: str) -> str:
    """Returns a sentence with the preset or address for a name of another library, or the nearest."""
    for library in ("timm", "keras-hub"):
        rows = [row for row in CATALOG.values() if row.is_called(name, library)]
        files = {row.name: row.files_elsewhere.get(library) for row in rows}
        ours = [repr(f"augreg/{file}" if file else row) for row, file in files.items()]
        others = [repr(row) for row, file in files.items() if file]
        if ours:
            advice = f" The weights with this name in {library} are {listed(ours)} here."
            return advice + (
                f" Other trainings of the same model: {listed(others)}." if others else ""
            )
    if match := _NAME_OF_TORCH_HUB.fullmatch(name):
        start = f"vit_{match[2]}{'_reg4' if match[3] else ''}.{match[1]}"
        if named := [repr(row) for row in CATALOG if f"{row}_".startswith(f"{start}_")]:
            return f" The encoder with this name in torch.hub is {listed(named)} here."
    if address := _address_on_hub(name):
        return f" For the repository on the Hub write {address!r}."
    near = difflib.get_close_matches(name[:200], {**VARIANTS, **CATALOG}, n=3, cutoff=0.5)
    if near and near[0] in VARIANTS:
        return f" Did you mean {near[0]!r}? Its presets: {', '.join(list_presets(near[0]))}."
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


_NAME_OF_TORCH_HUB = re.compile(r"(dinov\d)_vit([a-z\d]+)(_reg)?(_\w+)?")
"""`dinov2_vits14`, `dinov2_vitb14_reg_lc`, `dinov3_vits16plus`."""
_OWNER_AND_REPO = re.compile(r"(?:hf[_-]hub:)?([\w-]+/[\w.-]+)")
_NAME_OF_TIMM = re.compile(r"(\w+_patch\d+\w*|[a-z]+\d*_[a-z]{4,}(_\w+)?)\.\w+")
"""`vit_base_r50_s16_224.orig_in21k`, `vit_so150m_patch16_reg4_gap_256.sbb_e250_in12k`."""


def _address_on_hub(name: str) -> str:
    """Returns the address of a repository for `owner/repo` and for a name of timm, else ""."""
    if match := _OWNER_AND_REPO.fullmatch(name):
        return f"hf://{match[1]}"
    if match := re.fullmatch(r"dino(v3)?_vit[a-z\d]+", name):  # of torch.hub
        return f"hf://facebook/{name.replace('_', '-')}{'-pretrain-lvd1689m' if match[1] else ''}"
    return f"hf://timm/{name}" if _NAME_OF_TIMM.fullmatch(name) else ""
