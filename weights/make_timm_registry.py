"""Writes `registry.json` of timm's families: the arguments of every architecture's constructor.

    python -m weights.make_timm_registry

Sizes that arrays tell (`embed_dim`, `depth`) and arguments that play no part in inference are left
out. `width` is the usual `embed_dim`, to which the number of heads belongs.
`tests/checkpoints/test_live_timm.py` compares the file with the timm that is installed.
"""

import functools
import importlib
import json
from pathlib import Path
from unittest import mock

from tests import torchvision_shim  # noqa: F401

import timm  # isort: skip
from timm.models import _registry  # isort: skip

FILE = (
    Path(__file__).parents[1] / "keras_vit" / "checkpoints" / "families" / "timm" / "registry.json"
)
MODULES = ("vision_transformer", "vision_transformer_hybrid", "deit", "eva", "beit", "naflexvit")
_LEFT_OUT = (
    *("embed_dim", "depth", "dynamic_img_size", "rope_rescale_coords"),
    *("pretrained_filter_fn", "pretrained_strict", "feature_cfg"),
)


class _Built(Exception):  # noqa: N818  carries what an entry point passes on; nothing failed
    """The class and the arguments that an entry point builds a model with."""


def _plain(value):
    """A value as JSON: a class or function by its name, with epsilon where it has one."""
    if isinstance(value, functools.partial):
        epsilon = value.keywords.get("eps")
        name = _plain(value.func)
        return {"name": name, "eps": epsilon} if epsilon is not None else name
    return getattr(value, "__name__", value)


def _arguments(module, name: str) -> dict:
    def record(cls, variant, pretrained, **arguments):
        raise _Built(cls, arguments)

    with mock.patch.object(module, "build_model_with_cfg", record):
        try:
            _registry._model_entrypoints[name](pretrained=False)
        except _Built as built:
            cls, arguments = built.args
    if (own := arguments.pop("cfg", None)) is not None:
        arguments = {k: v for k, v in vars(own).items() if v != getattr(type(own), k)} | arguments
    found = {k: v for k, v in arguments.items() if k not in _LEFT_OUT}
    if (layer := found.pop("embed_layer", None)) is not None:
        backbone = getattr(layer, "keywords", {}).get("backbone")
        found["stem"] = type(backbone).__name__ if backbone is not None else "ConvStem"
    found = {key: _plain(value) for key, value in found.items()}
    if cls.__name__ != "VisionTransformer":
        found["class"] = cls.__name__
    found["width"] = arguments.get("embed_dim", 768)
    sizes = _image_sizes(name, found.pop("img_size", None))
    patch = found.get("patch_size", 16)
    if any(side % patch for side in sizes if "stem" not in found):
        found["img_size"] = max(sizes)
    return dict(sorted(found.items()))


def _image_sizes(name: str, own) -> set[int]:
    tags = _registry._model_pretrained_cfgs
    stated = {cfg.input_size[-1] for tag, cfg in tags.items() if tag.partition(".")[0] == name}
    return {own} if own and not stated else stated


def registry() -> dict:
    """Returns the content of the file for the timm that is installed."""
    models: dict[str, dict] = {}
    for name in MODULES:
        module = importlib.import_module(f"timm.models.{name}")
        models |= {n: _arguments(module, n) for n in timm.list_models(module=name)}
    renamed = {
        old: new.partition(".")[0]
        for old, new in _registry._deprecated_models.items()
        if new and new.partition(".")[0] in models
    }
    return {"timm": timm.__version__, "models": models, "renamed": dict(sorted(renamed.items()))}


def text(content: dict) -> str:
    """Returns the file: a line for each architecture."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict):
            rows = ",\n".join(f'  "{name}": {json.dumps(row)}' for name, row in value.items())
            lines.append(f' "{key}": {{\n{rows}\n }}')
        else:
            lines.append(f' "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(registry()))
