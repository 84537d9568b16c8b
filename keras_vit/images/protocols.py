"""The protocols, named ways to resize and scale an image for a model, as plain JSON.

A protocol is a name, or an object of a name and parameters: `{"name": "timm", "crop_pct": 0.9}`.
Presets store the protocol of their weights. `keras_vit.images.resizing` applies it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_vit.config.rules import Values, choice, is_number, is_positive_int
from keras_vit.errors import ConfigError, nearest

ProtocolSpec = str | Mapping[str, Any]

FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
"""The names of Pillow's filters."""

TENSOR_FILTERS = ("bilinear", "bicubic")
"""The filters of torchvision on tensors that antialias."""

_OF_ALL: dict[str, Any] = {"mean": 0.5, "std": 0.5}

PROTOCOLS: dict[str, dict[str, Any]] = {
    "paper": {},
    "big_vision": {"resize_small": None, "image_size": None, "method": "area", "antialias": False},
    "timm": {"crop_pct": 0.9, "interpolation": "bicubic", "crop_mode": "center"},
    "transformers": {
        "interpolation": "bilinear", "crop_pct": 1.0, "crop_mode": "squash", "resize": "pillow"
    },
    "keras_hub": {"crop_to_aspect_ratio": True, "antialias": False},
}  # fmt: skip
"""Parameters and their defaults, by protocol.

To squash is to resize without keeping the aspect ratio.

- `paper`: squash, bilinear without antialias (`vit_jax/input_pipeline.py`).
- `big_vision`: the smaller side to `resize_small`, then a central crop
  (`big_vision/pp/ops_image.py`). `resize_small` is the side for images of `image_size`, and
  scales with the size of the model; None is 256 for 224. `method` is `"area"` or `"bilinear"`.
- `timm`: the smaller side to image_size / `crop_pct`, then a central crop; or the whole
  image squashed (`crop_mode="squash"`) or framed (`"border"`). `interpolation` is one of
  Pillow's filters (`timm/data/transforms_factory.py`).
- `transformers`: squash; with `crop_pct` below 1 to image_size / `crop_pct`, then a central crop.
  With `crop_mode="center"` the smaller side becomes the larger side of image_size / `crop_pct`
  (`shortest_edge` of CLIP and DINOv2), then a central crop, which begins up to a pixel before
  timm's.
  `resize` is `"pillow"`, one of Pillow's filters (the processors of transformers 4, `...Pil` in
  transformers 5); `"tensor"`, torchvision's bilinear or bicubic with antialias, rounded to 8 bits
  (`...Fast`, the default of transformers 5); or `"float"`, the same without rounding
  (`DINOv3ViTImageProcessor` of every release, which rescales before it resizes).
- `keras_hub`: a central crop of the model's aspect ratio, then bilinear
  (`ViTImageConverter`).

Every protocol ends in (x / 255 - `mean`) / `std`, which are numbers or lists of one number per
channel. The defaults, 0.5 and 0.5, give [-1, 1], the range of the official ViT.
"""


def _per_channel(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _are_numbers(value: Any) -> bool:
    return bool(_per_channel(value)) and all(map(is_number, _per_channel(value)))


_SIZE = Values(lambda v: v is None or is_positive_int(v), "a positive number of pixels")
_FLAG = Values(lambda v: isinstance(v, bool), "true or false")
_VALUES = {
    "mean": Values(_are_numbers, "a number or one per channel, of pixels in [0, 1]"),
    "std": Values(
        lambda v: _are_numbers(v) and min(_per_channel(v)) > 0,
        "a positive number or one per channel",
    ),
    "resize_small": _SIZE,
    "image_size": _SIZE,
    "method": choice("area", "bilinear"),
    "antialias": _FLAG,
    "crop_to_aspect_ratio": _FLAG,
    "crop_pct": Values(lambda v: is_number(v) and 0 < v <= 1, "a number above 0, at most 1"),
    "interpolation": choice(*FILTERS),
    "crop_mode": choice("center", "squash", "border"),
    "resize": choice("pillow", "tensor", "float"),
}
_VALUES_OF = {"transformers": {"crop_mode": choice("center", "squash")}}
"""Values of a parameter that differ for the protocol of this name."""


def complete(protocol: ProtocolSpec) -> dict[str, Any]:
    """Returns a protocol with its name and every parameter.

    Raises:
        ConfigError: the name or a parameter is unknown, or a value is invalid.
    """
    if isinstance(protocol, str):
        protocol = {"name": protocol}
    if not isinstance(protocol, Mapping) or not isinstance(protocol.get("name"), str):
        raise ConfigError(
            f"protocol={protocol!r}: expected a name ({', '.join(PROTOCOLS)}), or an object with "
            "the key 'name' and parameters."
        )
    name = protocol["name"]
    choice(*PROTOCOLS).check("protocol", name)
    values, allowed = {**PROTOCOLS[name], **_OF_ALL}, {**_VALUES, **_VALUES_OF.get(name, {})}
    for key, value in protocol.items():
        if key == "name":
            continue
        if key not in values:
            raise ConfigError(
                f"Protocol {name!r} has no parameter {key!r}.{nearest(str(key), values)} It has "
                f"{', '.join(values)}."
            )
        allowed[key].check(f"Protocol {name!r}: {key}", value)
        values[key] = value
    if values.get("resize", "pillow") != "pillow" and values["interpolation"] not in TENSOR_FILTERS:
        raise ConfigError(
            f"Protocol {name!r}: resize={values['resize']!r} has the filters "
            f"{' and '.join(TENSOR_FILTERS)}, found interpolation={values['interpolation']!r}."
        )
    for key in _OF_ALL:
        values[key] = _one_if_equal(values[key])
    return {"name": name, **values}


def compact(protocol: ProtocolSpec) -> str | dict[str, Any]:
    """Returns a protocol without parameters that have their default, as it is stored.

    Raises:
        ConfigError: as `complete`.
    """
    values = complete(protocol)
    name = values.pop("name")
    defaults = {**PROTOCOLS[name], **_OF_ALL}
    others = {key: value for key, value in values.items() if value != defaults[key]}
    return {"name": name, **others} if others else name


def _one_if_equal(value: Any) -> float | list[float]:
    several = [float(v) for v in (value if isinstance(value, (list, tuple)) else [value])]
    return several[0] if len(set(several)) == 1 else several
