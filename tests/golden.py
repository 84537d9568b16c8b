"""The reference outputs of `tests/data/golden`, and the stages of keras_vit's model of a case."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit import VisionTransformer
from keras_vit.models.inference import run

FOLDER = Path(__file__).parent / "data" / "golden"
_ALL = json.loads((FOLDER / "cases.json").read_text())["cases"]
CASES = {case["name"]: case for case in _ALL if "checkpoint" in case}
OFFICIAL = {n: c for n, c in CASES.items() if c["family"] == "vision_transformer"}

_LAYERS = {
    "patch_grid": "patch_embedding",
    "with_posemb": "position_embedding",
    "embedded": "embedding_dropout",
    "encoded": "encoder_norm",
    "pre_logits": "pre_logits",
    "pooler_output": "pre_logits",
    "logits": "head",
}
"""The stages of the references, and the layers of keras_vit whose outputs they are."""


def load_case(name: str, **fields):
    """Loads the checkpoint of a case at the case's image size."""
    case = CASES[name]
    arguments: dict[str, Any] = {"image_size": tuple(case["config"]["image_size"])}
    if case["config"]["pooling"].endswith("unpooled"):  # the arrays do not show it
        arguments["pool"] = {"kind": "unpooled"}
    if name == "vit_rep_dropped":  # the reference has this layer in the file and ignores it
        arguments |= {"num_classes": 0, "representation_size": None}
    return VisionTransformer.from_preset(FOLDER / case["checkpoint"], **{**arguments, **fields})


def expected(name: str) -> dict[str, np.ndarray]:
    """The reference's image and outputs."""
    with np.load(FOLDER / CASES[name]["expected"]) as file:
        return dict(file)


def outputs(model, image: np.ndarray, names) -> dict[str, np.ndarray]:
    """Runs keras_vit's model and returns its stages under the reference's names."""
    stages = {name: stage for name in names if (stage := _stage(model, name)) is not None}
    values = run(model, image, list(stages.values()))
    return {name: values[stage] for name, stage in stages.items()}


def _stage(model, name: str) -> str | None:
    """The stage under a reference's name, or None if keras_vit's model has no such stage."""
    config = model.config
    if name.startswith("block_"):
        return f"block_{int(name[6:])}"
    if name.startswith("stage_"):
        prefix = f"stage{name.split('_')[1]}_unit"
        return [layer.name for layer in model.layers if layer.name.startswith(prefix)][-1]
    if name == "pooled":
        last = "encoder_norm" if config.pool.norm == "after" else "pool"
        return last if config.projection_size is None else "projection"
    if name == "encoded" and config.pool.norm == "after":
        return f"block_{config.num_layers - 1}"
    if name == "with_posemb" and config.num_prefix_positions:
        return None
    return _LAYERS.get(name)


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """max |got - want| / max |want|."""
    assert got.shape == want.shape, (got.shape, want.shape)
    return float(np.abs(got.astype("float64") - want).max() / np.abs(want).max())
