"""One function for each library of `cases`, which makes the model of a row with random weights.

The modules of torch are imported where a model is made, so that the goldens need no library.
"""

import json
import operator
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer
from tests import golden
from tests.checkpoints.cases import SIZES, VISION, Case
from tests.checkpoints.keras_hub_backbones import make_backbone
from tests.helpers import randomise, to_numpy
from tests.plain import edit_json, normal


class Reading(NamedTuple):
    """One way to read a model: a path, arguments of `from_preset`, images, and outputs by name."""

    path: Path
    fields: dict[str, Any]
    images: Any
    want: dict[str, np.ndarray]


class Reference(NamedTuple):
    """What a library stored and computes.

    Args:
        readings: all give the same model.
        facts: what `info` says, by attributes of the configuration; and the `family`.
        module: the library's model.
        compute: the outputs of such a model.
    """

    readings: list[Reading]
    facts: dict[str, Any]
    module: Any = None
    compute: Callable[[Any, Any], dict[str, np.ndarray]] | None = None


def refer(case: Case, folder: Path | None = None, *given: Any) -> Reference:
    """Makes the model of a row, and its files in a folder, which a golden does not need.

    Args:
        given: the model of an architecture of timm, in place of a new one.
    """
    return _LIBRARIES[case.library](case, folder, *given)


def differences(reading: Reading) -> dict[str, float]:
    """Reads a model; the error of each output, as a share of the largest value."""
    model = VisionTransformer.from_preset(reading.path, **reading.fields)
    errors = {}
    for name, found in golden.outputs(model, reading.images, reading.want).items():
        want = reading.want[name]
        if name.startswith("tokens"):  # the library may lack those in front of the patches
            found = found[:, found.shape[1] - want.shape[1] :]
        if name.startswith("stage"):  # the first channels
            found = found[..., : want.shape[-1]]
        errors[name] = golden.relative_error(found, want)
    return errors


def said(reading: Reading, facts: dict[str, Any]) -> dict[str, Any]:
    """What `info` says in place of the facts."""
    info = keras_vit.info(reading.path, **reading.fields)
    told = {"family": info.family, "format": info.family.partition("/")[0]}
    return {name: told.get(name) or operator.attrgetter(name)(info.config) for name in facts}


_SIZES = (
    *("channels", "patch_size", "hidden_size", "mlp_dim", "num_heads", "num_layers"),
    *("num_classes", "representation_size"),
)
_GELUS = {"exact": "gelu", "tanh": "gelu_tanh", "quick": "quick_gelu"}
_FORMATS = {"pre_linen": "google", "linen": "google_linen"}


def _golden(case: Case, folder: Path | None) -> Reference:
    row, want = golden.CASES[case.kind], golden.expected(case.kind)
    fields = golden.arguments(case.kind) | case.fields
    if row["family"] == "naflex":
        images = {name: want.pop(name) for name in ("patches", "mask", "shapes")}
        assert len(set(images["mask"].sum(axis=1))) > 1  # padding is part of the batch
        if "encoded" in want:
            want["encoded"] = golden.without_padding(want["encoded"], images["mask"])
        reading = Reading(row["checkpoint"], fields, images, want)
        return Reference([reading], {"stem.is_packed": True}, compute=run_naflex)
    readings = []
    for name in [n for n in want if n.startswith("image") and n != "image_embeds"]:
        suffix = name.removeprefix("image")
        given = {"image_size": want[name].shape[1:3]} if suffix else {}
        stages = {n.removesuffix(suffix): want[n] for n in want if n.endswith(suffix)}
        if case.output:  # in place of the model's own name for its last stage
            stages = {"image_embeds": stages[case.output]}
        readings.append(
            Reading(row["checkpoint"], {**fields, **given, **case.fields}, want[name], stages)
        )
    config, numerics = row["config"], row["config"]["numerics"]
    facts = {name: config[name] for name in _SIZES if name not in fields}
    facts["patch_size"] = tuple(facts["patch_size"])
    facts["block.activation"] = _GELUS.get(numerics["gelu"], numerics.get("gate"))
    facts["block.epsilon"] = numerics["ln_eps"]
    if row["layout"] != "torch":  # files of several libraries
        facts["format"] = _FORMATS.get(row["layout"], row["layout"])
    norm = {True: "before", False: "after"}.get(numerics.get("pool_after_norm"))
    if norm == "before" or (config["num_classes"] and norm):
        facts |= {"pool.norm": norm} if config.get("final_norm", True) else {}
    return Reference(readings, facts)


def _tower_of(model: Any, part: str) -> tuple[Any, Any]:
    """The vision tower, and the module around it."""
    if not part:
        return model, model
    name = next(n for n, _ in model.named_modules() if n.rpartition(".")[2] == part)
    return model.get_submodule(name), model.get_submodule(name.rpartition(".")[0])


def _features(case: Case, output: Any, around: Any) -> dict[str, np.ndarray]:
    """The outputs of a tower by our names."""
    known = {
        "projected": lambda: around.visual_projection(output.pooler_output),
        "token": lambda: output.last_hidden_state[:, 0],
        "mean": lambda: output.last_hidden_state.mean(1),
    }
    found = {}
    if case.output:
        found["logits"] = known.get(case.output, lambda: output[case.output])()
    if case.tokens and "feature_maps" in output:
        found[f"tokens {case.tokens}"] = output.feature_maps[-1].flatten(2).transpose(1, 2)
    elif case.tokens:
        tokens = output["features" if "features" in output else "last_hidden_state"]
        found[f"tokens {case.tokens}"] = tokens
    return {name: value.numpy() for name, value in found.items()}


def _transformers(case: Case, folder: Path) -> Reference:
    from tests.live import channels_first, random_transformers, torch

    def compute(model, images):
        tower, around = _tower_of(model, case.part)
        if hasattr(tower, "make_preprocessor_external"):  # RADIO's own mean and std
            tower.make_preprocessor_external()
        with torch.no_grad():
            return _features(case, tower(channels_first(images)), around)

    invalid = {k: v for k, v in case.fields.items() if any(k in word for word in case.refused)}
    valid = {k: v for k, v in case.fields.items() if k not in invalid}
    module = random_transformers(case.kind, **({} if case.part else VISION) | valid)
    module.save_pretrained(folder)
    edit_json(folder / "config.json", **invalid)
    if case.refused:
        return Reference([Reading(folder, {}, None, {})], {})
    images = normal(2, *case.size, 3)
    reading = Reading(folder, {"image_size": case.size}, images, compute(module, images))
    heads = case.fields.get("num_attention_heads", VISION["num_attention_heads"])
    facts = {"family": f"transformers/{case.family}".removesuffix("/"), "num_heads": heads}
    return Reference([reading], {**facts, "num_layers": 2, "hidden_size": 24}, module, compute)


def _maps(case: Case, folder: Path) -> Reference:
    """A map at every size, by a model of this size and by one of any size.

    Where the class gives a map of another size, it is resized as its users do.
    """
    from tests.live import channels_first, random_transformers, torch

    def compute(model, images):
        with torch.no_grad():
            output = model(channels_first(images))
        maps = output["logits"] if "logits" in output else output["predicted_depth"][:, None]
        resize = torch.nn.functional.interpolate
        maps = resize(maps, size=images.shape[1:3], mode="bilinear").movedim(1, -1).numpy()
        return {"logits": maps if "logits" in output else maps[..., 0]}

    module = random_transformers(case.kind, **case.fields)
    module.save_pretrained(folder)
    readings = []
    for size in case.maps:
        want = compute(module, images := normal(2, *size, 3))
        assert np.ptp(want["logits"]) > 0  # no map of zeros
        for side in (size, (None, None)):
            readings.append(Reading(folder, {"image_size": side}, images, want))
    facts = {"family": f"transformers/{case.family}", "num_heads": 3, "num_layers": 4}
    return Reference(readings, facts, module, compute)


def save_timm(architecture: str, folder: Path, model: Any = None, **arguments: Any) -> Any:
    """A model of timm with random weights, and its files, whose JSON states no classes."""
    from tests.live import randomised, timm

    arguments = {"num_classes": 3, **arguments}
    if model is None:
        model = randomised(timm.create_model(architecture, **arguments))
    shown = ("num_classes", "mlp_ratio")  # by the arrays
    plain = {k: v for k, v in arguments.items() if k not in shown and not callable(v)}
    given = {**dict.fromkeys(arguments.keys() - {"num_classes"}), **plain}
    timm.models.save_for_hf(model, folder, model_args=given, safe_serialization=True)
    edit_json(folder / "config.json", model_args=plain)
    if hasattr(model, "patch_embed"):
        size = [3, *model.patch_embed.img_size]
        edit_json(folder / "config.json", "pretrained_cfg", input_size=size)
    return model


def with_classes(fields: dict[str, Any]) -> dict[str, Any]:
    """Arguments of timm with the layers that their words name."""
    from tests.live import timm, torch

    places = {"mlp_layer": timm.layers, "act_layer": torch.nn}
    return {k: getattr(places[k], v) if k in places else v for k, v in fields.items()}


def run_timm(model: Any, images: np.ndarray) -> dict[str, np.ndarray]:
    """The output of a model of timm, or of transformers' wrapper."""
    from tests.live import channels_first, torch

    with torch.no_grad():
        output = model.eval()(channels_first(images))
    return {"logits": (output if torch.is_tensor(output) else output[0]).numpy()}


_TIMM_SIZES = {"num_heads": "num_heads", "embed_dim": "hidden_size", "depth": "num_layers"}


def _timm(case: Case, folder: Path, model: Any = None) -> Reference:
    """By config.json; by the arguments of timm; and by the arrays alone for what they show.

    timm's push_to_hf_hub writes no arguments, unless its caller repeats them.
    """
    changed = case.sizes | with_classes(case.fields)
    module = save_timm(case.kind, folder / "x", model, **changed)
    images = normal(2, *module.patch_embed.img_size, changed.get("in_chans", 3))
    want = run_timm(module, images)
    card = {"model_name": case.kind, "pretrained": True, **changed}
    alone = shutil.copy(folder / "x" / "model.safetensors", folder)
    ways = [(folder / "x", {}), (alone, {"read": {"timm": card}})]
    if case.are_shown:
        ways.append((shutil.copytree(folder / "x", folder / "y"), {}))
        edit_json(folder / "y" / "config.json", model_args=case.sizes, global_pool=...)
    facts = {ours: changed[theirs] for theirs, ours in _TIMM_SIZES.items() if theirs in changed}
    facts["num_classes"] = module.num_classes
    return Reference([Reading(*way, images, want) for way in ways], facts, module, run_timm)


def _open_clip(case: Case, folder: Path) -> Reference:
    """open_clip_config.json decides what no array tells: heads, GELU, epsilon, pooling, rope."""
    from safetensors.torch import save_file

    from tests.live import randomised, timm, torch

    sizes = {"embed_dim": 96, "depth": 1, "img_size": case.size[0], "num_classes": 0}
    kind = "vit_small_patch16_224" if case.refused else case.kind
    trunk = randomised(timm.create_model(kind, **sizes))
    if case.fields["timm_pool"] == "avg":
        trunk.global_pool = "avg"  # as `reset_classifier` of the trunk does it
    projection = torch.from_numpy(normal(10, trunk.num_features))
    arrays = {f"visual.trunk.{name}": value for name, value in trunk.state_dict().items()}
    arrays |= {"visual.head.proj.weight": projection, "text.proj.weight": projection.clone()}
    save_file(arrays, folder / "open_clip_model.safetensors")
    vision = {"timm_model_name": case.kind, "image_size": case.size[0], "timm_proj": "linear"}
    content = {"model_cfg": {"embed_dim": 10, "vision_cfg": {**vision, **case.fields}}}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    images = normal(2, *case.size, 3)
    want = {"logits": run_timm(trunk, images)["logits"] @ projection.numpy().T}
    heads = {"num_heads": 12}  # those of the whole width
    return Reference([Reading(folder, heads, images, want)], {"projection_size": 10, **heads})


def run_naflex(model: Any, images: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a model of timm, or of transformers, computes of patches, their places and a mask."""
    from tests.live import torch, transformers

    patches, mask, shapes = (torch.from_numpy(images[n]) for n in ("patches", "mask", "shapes"))
    with torch.no_grad():
        if isinstance(model, transformers.PreTrainedModel):
            compute = getattr(model, "get_image_features", model)
            return {"logits": compute(patches, mask, shapes).pooler_output.numpy()}
        places = np.zeros((*mask.shape, 2), "int64")
        for image, (rows, columns) in zip(places, images["shapes"], strict=True):
            image[: rows * columns] = np.argwhere(np.ones((rows, columns)))
        places = {"patch_coord": torch.from_numpy(places), "patch_valid": mask.bool()}
        return {"logits": model.eval()({"patches": patches, **places}).numpy()}


def _naflex(case: Case, folder: Path) -> Reference:
    from tests.live import random_transformers

    heads = {"num_heads": 3, "hidden_size": 24}
    ways: list[tuple[Any, dict[str, Any]]] = [(folder, {})]
    if case.kind == "Siglip2Model":
        vision = {**SIZES, "patch_size": 4, "num_patches": 25}
        text = {**SIZES, "vocab_size": 30, "projection_size": 24}
        module = random_transformers(case.kind, vision_config=vision, text_config=text)
        module.save_pretrained(folder)
        images, heads["family"] = golden.expected("hf_siglip2"), "transformers/siglip2"
    else:
        module = save_timm(case.kind, folder / "x", **case.sizes, **case.fields)
        alone = shutil.copy(folder / "x" / "model.safetensors", folder)
        size, card = {"image_size": 12}, {"model_name": case.kind, **case.sizes, **case.fields}
        ways = [(folder / "x", size), (alone, {**size, "read": {"timm": card}})]
        images = {"patches": normal(1, 8, 48), "mask": np.ones((1, 8), bool)}
        images["shapes"] = np.array([[2, 4]])
        heads["family"] = "timm/naflex"
    want = run_naflex(module, images)
    return Reference([Reading(*way, images, want) for way in ways], heads, module, run_naflex)


def _keras_hub(case: Case, folder: Path) -> Reference:
    keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)
    if case.kind in ("CLIPBackbone", "SigLIPBackbone"):  # with a text encoder, which is left out
        model, _ = make_backbone(case.kind.removesuffix("Backbone"))
        compute = model.get_vision_embeddings
    else:
        model = compute = getattr(keras_hub.models, case.kind)(**case.sizes, **case.fields)
    randomise(model)
    for weight in model.weights:
        if "int" in str(weight.dtype):  # the numbers of the positions
            weight.assign(np.arange(weight.shape[-1])[None])
    if "DINOV2" in case.kind:
        table = model.embeddings
        table.interpolated_position_embeddings.assign(table.position_embeddings)
    model.save_to_preset(str(folder))
    images = normal(2, 16, 16, 3)
    is_named = compute is model and isinstance(model.input, dict)
    want = to_numpy(compute({next(iter(model.input)): images} if is_named else images))
    want = {"logits": want if want.ndim == 2 else want[:, 0]}
    facts = {"family": f"keras_hub/{case.family}".removesuffix("/"), "num_heads": 2}
    return Reference([Reading(folder, {"image_size": 16}, images, want)], facts)


_MAKERS = (_golden, _transformers, _maps, _timm, _open_clip, _naflex, _keras_hub)
_LIBRARIES = {make.__name__.removeprefix("_"): make for make in _MAKERS}


def load_again(folder: Path, ours: VisionTransformer) -> Iterator[Any]:
    """The models that timm and transformers load from a folder in which keras_vit wrote ours."""
    from tests.live import load_folder, transformers

    yield load_folder(folder)
    if "architecture" not in json.loads((folder / "config.json").read_text()):
        return
    kind = "TimmWrapperForImageClassification" if ours.config.num_classes else "TimmWrapperModel"
    wrapper, info = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    yield wrapper.timm_model
