"""The outputs of libraries that tests/data stores, and our stages under the libraries' names.

A row of a JSON file of `tests/data/golden` or `tests/data/families` is a case; those of
`tests/data/naflex`, whose images have unequal shapes, have no JSON.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from keras_vit import VisionTransformer
from keras_vit.models.inference import run

DATA = Path(__file__).parent / "data"
FOLDER, FAMILIES, NAFLEX = DATA / "golden", DATA / "families", DATA / "naflex"


def _read_cases() -> dict[str, dict[str, Any]]:
    cases = {}
    for file in (FOLDER / "cases.json", *sorted(FAMILIES.glob("*.json"))):
        for case in json.loads(file.read_text())["cases"]:
            if "checkpoint" in case:
                paths = {key: file.parent / case[key] for key in ("checkpoint", "expected")}
                cases[case["name"]] = {**case, **paths}
    for file in sorted(NAFLEX.glob("*.npz")):
        layout = "transformers" if file.stem.startswith("hf") else "timm"
        paths = {"checkpoint": NAFLEX / file.stem, "expected": file}
        tolerances = {"tolerance": 1e-5, "tolerance_tokens": 1e-5}
        cases[file.stem] = {**paths, **tolerances, "family": "naflex", "layout": layout}
    return cases


CASES = _read_cases()
"""All cases by name; `checkpoint` and `expected` are paths."""
OFFICIAL = {n: c for n, c in CASES.items() if c["family"] == "vision_transformer"}


def _trunk(epsilon: float) -> dict[str, Any]:
    """What the arrays of a trunk of timm do not tell."""
    return {"rope": None, "block": {"activation": "gelu", "epsilon": epsilon}}


_UNPOOLED = {"pool": {"kind": "unpooled"}}
FACTS: dict[str, dict[str, Any]] = {
    # The arrays do not show it.
    **dict.fromkeys(("bv_none", "vit_unpooled", "vit_token_unpooled"), _UNPOOLED),
    # The reference has this layer in the file and ignores it.
    "vit_rep_dropped": {"num_classes": 0, "representation_size": None},
    "hf_siglip2_naflex": {"stem": {"kind": "none"}},  # its goldens are of images of one size
    "px_open_clip_gelu": {"block": {"activation": "gelu"}},
    "px_open_clip_quickgelu": {"block": {"activation": "quick_gelu"}},
    "px_open_clip_trunk_linear": {"pool": {"kind": "token"}, **_trunk(1e-5)},
    "px_open_clip_trunk_siglip": {"pool": {"kind": "map"}, **_trunk(1e-6)},
}
"""Arguments of `from_preset`, such as what a bare file does not tell, beside `load_with`."""


def arguments(name: str) -> dict[str, Any]:
    """What `from_preset` is told of a case."""
    case = CASES[name]
    size = {}
    if case["checkpoint"].is_relative_to(FOLDER):
        size = {"image_size": tuple(case["config"]["image_size"])}
    return {**size, **(case.get("load_with") or {}), **FACTS.get(name, {})}


def load_case(name: str, **fields):
    """Loads the checkpoint of a case with the facts that the bare file does not contain."""
    return VisionTransformer.from_preset(CASES[name]["checkpoint"], **arguments(name) | fields)


def expected(name: str) -> dict[str, np.ndarray]:
    """The library's images and outputs by name; `image_24x24` has a second image size."""
    with np.load(CASES[name]["expected"]) as file:
        return dict(file)


def outputs(model, image, names) -> dict[str, np.ndarray]:
    """Runs a model and returns the stages named in `names` that the model has.

    Args:
        image: a prepared batch, or the patches, shapes and mask of images of unequal shapes.
    """
    if "last_hidden_state" in names and model.config.pool.norm == "none":
        names = set(names) - {"encoded"}  # CLIP's classifier leaves the library's last norm out
    mask = None
    if isinstance(image, dict):
        mask = image["mask"]
        image = model.preprocessor.pack(image["patches"], image["shapes"], mask)
    found = {}
    for name in [name for name in names if name.startswith("tokens")]:
        stage = f"block_{model.config.num_layers - 1}" + "/norm" * (name == "tokens norm")
        parts = [part for part in model.tokens(image, stage, prepared=True) if part is not None]
        rows = [_to_numpy(part).reshape(len(image), -1, part.shape[-1]) for part in parts]
        found[name] = np.concatenate(rows, axis=1)
    if "pos_embedding" in names:
        found["pos_embedding"] = _to_numpy(model.get_layer("position_embedding").embedding)
    stages = {name: stage for name in names if (stage := _stage(model, name)) is not None}
    for are_maps in (False, True):  # the attention of a block is computed otherwise for its map
        chosen = {n: s for n, s in stages.items() if s.endswith("/attention") == are_maps}
        values = run(model, image, [*chosen.values()]) if chosen else {}
        found |= {name: values[stage] for name, stage in chosen.items()}
    if mask is not None and "encoded" in found:
        found["encoded"] = without_padding(found["encoded"], mask)
    return found


def without_padding(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Tokens with zeros in place of those of padding; `mask` says it of the patches alone."""
    kept = np.ones(tokens.shape[:2], bool)
    kept[:, tokens.shape[1] - mask.shape[1] :] = mask
    return np.where(kept[..., None], tokens, 0)


def _stage(model, name: str) -> str | None:
    """The stage under a library's name, or None if keras_vit's model has no such stage."""
    config = model.config
    kind, _, number = name.partition("_")
    if kind in ("block", "attention") and number.isdecimal():
        return f"block_{int(number)}" + "/attention" * (kind == "attention")
    if kind == "stage":
        prefix = f"stage{number[0]}_unit"
        return [layer.name for layer in model.layers if layer.name.startswith(prefix)][-1]
    last = f"block_{config.num_layers - 1}"
    one_vector = config.projection_size is None and not config.has_two_heads
    pooled = "pool" if config.projection_size is None else "projection"
    end = "pre_logits" if config.num_classes == 0 else "logits"
    return {
        "patch_grid": "patch_embedding",
        "with_posemb": None if config.num_prefix_positions else "position_embedding",
        "embedded": "block_0/input",
        "last_hidden_state": last,
        "encoded": "encoder_norm" if config.pool.norm == "before" else last,
        "pooled": "encoder_norm" if config.pool.norm == "after" else pooled,
        "pre_logits": "pre_logits" if one_vector else None,
        "pooler_output": "pre_logits" if one_vector else None,
        "logits": end if model.prediction.classifier_activation is None else "probabilities",
        "image_embeds": end,
    }.get(name)


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """max |got - want| / max |want|."""
    assert got.shape == want.shape, (got.shape, want.shape)
    return float(np.abs(got.astype("float64") - want).max() / np.abs(want).max())


def _to_numpy(tensor: Any) -> np.ndarray:
    """As `tests.helpers.to_numpy`, which needs pytest; `weights.release` runs without it."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))
