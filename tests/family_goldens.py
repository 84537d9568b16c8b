"""The reference outputs of `tests/data/families`, and the stages of keras_vit's model of a case."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit import VisionTransformer
from keras_vit.models.inference import run
from tests.golden import relative_error

__all__ = ["CASES", "FOLDER", "expected", "list_cases", "load_case", "outputs", "relative_error"]

FOLDER = Path(__file__).parent / "data" / "families"
CASES = {
    case["name"]: case
    for file in sorted(FOLDER.glob("*.json"))
    for case in json.loads(file.read_text())["cases"]
}
"""All cases by name; each library has a JSON file."""


def _trunk(epsilon: float) -> dict[str, Any]:
    """What the arrays of a trunk of timm do not tell."""
    return {"rope": None, "block": {"activation": "gelu", "epsilon": epsilon}}


FACTS: dict[str, dict[str, Any]] = {
    "hf_siglip2_naflex": {"stem": {"kind": "none"}},  # its goldens are of images of one size
    "px_open_clip_gelu": {"block": {"activation": "gelu"}},
    "px_open_clip_quickgelu": {"block": {"activation": "quick_gelu"}},
    "px_open_clip_trunk_linear": {"pool": {"kind": "token"}, **_trunk(1e-5)},
    "px_open_clip_trunk_siglip": {"pool": {"kind": "map"}, **_trunk(1e-6)},
}
"""Arguments of `from_preset`, such as what a bare file does not tell, beside `load_with`."""

OF_THE_HEAD = ("pre_logits", "logits", "image_embeds", "pooler_output")
"""Outputs that are compared within `tolerance`; other outputs within `tolerance_tokens`."""


def list_cases(layout: str) -> list[str]:
    """Names of the cases of one library."""
    return [name for name, case in CASES.items() if case["layout"] == layout]


def load_case(name: str, **fields):
    """Loads the checkpoint of a case with the facts that the bare file does not contain."""
    facts = {**(CASES[name].get("load_with") or {}), **FACTS.get(name, {})}
    return VisionTransformer.from_preset(FOLDER / CASES[name]["checkpoint"], **{**facts, **fields})


def expected(name: str) -> dict[str, np.ndarray]:
    """The library's images and outputs by name; `image_24x24` has a second image size."""
    with np.load(FOLDER / CASES[name]["expected"]) as file:
        return dict(file)


def outputs(model, image: np.ndarray, names) -> dict[str, np.ndarray]:
    """Runs a model and returns the stages named in `names` that the model has."""
    if "last_hidden_state" in names and model.config.pool.norm == "none":
        names = set(names) - {"encoded"}  # CLIP's classifier leaves the library's last norm out
    stages = {name: stage for name in names if (stage := _stage(model, name)) is not None}
    values = run(model, image, list(stages.values()))
    return {name: values[stage] for name, stage in stages.items()}


def _stage(model, name: str) -> str | None:
    """The stage under a library's name, or None if keras_vit's model has no such stage."""
    config = model.config
    last = f"block_{config.num_layers - 1}"
    one_vector = config.projection_size is None and not config.has_two_heads
    end = "pre_logits" if config.num_classes == 0 else "logits"
    if name.startswith("block_"):
        return f"block_{int(name[6:])}"
    return {
        "embedded": "block_0/input",
        "last_hidden_state": last,
        "encoded": "encoder_norm" if config.pool.norm == "before" else last,
        "logits": end if model.prediction.classifier_activation is None else "probabilities",
        "image_embeds": end,
        "pre_logits": "pre_logits" if one_vector else None,
    }.get(name)
