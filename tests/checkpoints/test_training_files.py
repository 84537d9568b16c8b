"""Files that trainings leave: the model below a prefix, in wrappers, twice, beside other arrays."""

import argparse
import re

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.checkpoints import Source
from keras_vit.errors import ConfigError
from tests.checkpoints import files
from tests.checkpoints.cases import VISION
from tests.checkpoints.files import arrays_of, find, write_arrays
from tests.helpers import random_tiny, to_numpy
from tests.plain import assert_same_arrays, stored

TIMM, PICKLE = {"num_heads": 3}, {"allow_pickle_weights": True}
EXTRAS = {
    **{"criterion.weight": (5,), "projector.0.weight": (8, 24), "aux_head.weight": (2, 24)},
    "optimizer.state.0.exp_avg": (7,),
}
ARRAYS = arrays_of("timm_token")
"""The arrays of a ViT of timm with 7 classes and 2 blocks."""


@pytest.fixture
def write(tmp_path):
    """Writes a file; each part is a prefix, and arrays or shapes."""
    return lambda *parts: write_arrays(tmp_path / "x.safetensors", *parts)


def read(path, **how):
    info = keras_vit.info(path, **TIMM, read=how)
    assert info.family == "timm"
    return info


def refused(path, *words, **how):
    files.refused(path, *words, **TIMM, read=how)


@pytest.mark.parametrize("prefix", ["model.", "module._orig_mod."])
def test_the_model_is_found_beside_other_arrays(prefix, write, caplog):
    """One line names what is left out, such as a head of transformers."""
    beside = EXTRAS | {"classifier.weight": (5, 24)}
    info = read(write((prefix, ARRAYS), ("", beside)))
    assert (info.prefix, info.config.num_classes) == (prefix, 7)
    assert set(info.ignored) == set(beside)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    for part in ("criterion", "projector", "aux_head"):
        assert f"{part}. (1)" in record.getMessage()


@pytest.mark.parametrize("prefix", ["", "state_dict.", "model.net."])
def test_modules_that_share_the_prefix_of_the_model_are_parts_of_it(prefix, write):
    """As timm's `shared_rel_pos`; all but the optimizer, a second model and a head of layers."""
    known = {"optimizer.state.0.exp_avg": (7,)}
    known |= {f"ema.{name}": array for name, array in ARRAYS.items()}
    path = write((prefix, ARRAYS | known | EXTRAS))
    words = ("3 arrays", f"unexpected: {prefix}projector.0.weight", "'ignore': ")
    refused(path, *words, weights="raw")
    info = read(path, weights="raw", ignore=[prefix + n for n in EXTRAS if n not in known])
    assert (info.prefix, len(info.ignored)) == (prefix, len(EXTRAS) + len(ARRAYS))


@pytest.mark.parametrize("name", ["blocks.0.gate.weight", "scale", "ln_f.weight"])
def test_arrays_that_may_be_parts_of_the_model_are_not_left_out(name, write):
    """Inside of its modules, next to them without a module, and norms of its tokens."""
    path = write(("net.", ARRAYS), ("net.", {name: (24,)}))
    refused(path, f"unexpected: net.{name} (24,)", "'ignore': ")
    assert read(path, ignore=f"net.{name}").config.num_classes == 7
    assert read(path, ignore=["*" + name]).ignored == {f"net.{name}": "ignored by the caller"}
    refused(path, "'ignore': 'decoder.*'", ignore="decoder.*")


def test_a_head_of_several_layers_is_left_out(write, tmp_path):
    """`num_classes=0` leaves out a head of any form."""
    body = {name: array for name, array in ARRAYS.items() if not name.startswith("head.")}
    path = write(("", body), ("", {"head.0.weight": (8, 24), "head.2.weight": (5, 8)}))
    assert read(path).config.num_classes == 0
    odd = write(("", ARRAYS), ("", {"head.norm.weight": (24,)}))
    refused(odd, "unexpected: head.norm.weight")
    keras_vit.convert(odd, tmp_path / "y", "timm", num_classes=0, **TIMM)
    assert_same_arrays(stored(tmp_path / "y" / "model.safetensors"), body)


def test_dinov2s_chunks_and_wrappers_inside_are_plain_names(write):
    """As FSDP of DINOv2 keeps two chunks of one block."""
    names = {name: re.sub(r"blocks\.(\d)", r"blocks.\1.\1", name) for name in ARRAYS}
    inside = {names[n].replace("attn.", "attn._orig_mod."): array for n, array in ARRAYS.items()}
    info = read(write(("teacher.backbone.", inside)))
    assert (info.prefix, info.config.num_layers) == ("teacher.backbone.", 2)


@pytest.mark.parametrize("name", ["lora_A.default.weight", "ia3_l", "base_layer.weight"])
def test_adapters_are_refused_with_merge_and_unload(name, write, tmp_path):
    """Alone, or beside the arrays of the model and in its folder."""
    adapter = {f"blocks.0.attn.qkv.{name}": (24, 2)}
    refused(write(("", ARRAYS), ("", adapter)), "adapter", "merge_and_unload()")
    write(("", ARRAYS)).rename(tmp_path / "model.safetensors")
    path = tmp_path / "adapter_model.safetensors"
    write(("base_model.model.", adapter)).rename(path)
    for source in (path, tmp_path):
        refused(source, "adapter", "merge_and_unload()")


def test_of_weights_and_their_average_the_average_is_read_and_said(write, caplog):
    path = write(("student.", ARRAYS), ("teacher.", ARRAYS))
    assert read(path).prefix == "teacher."
    assert "'teacher.'" in caplog.text and "'student.'" in caplog.text
    assert read(path, weights="raw").prefix == "student."
    assert read(path, weights="ema").prefix == "teacher."
    assert read(path, prefix="student").prefix == "student."
    path = write(("model.", ARRAYS))
    refused(path, "'weights': 'ema'", "'model.'", weights="ema")
    refused(path, "'prefix': 'net'", prefix="net")
    files.refused(path, "'ema'", "'raw'", error=ConfigError, read={"weights": "mean"}, **TIMM)


TOWERS = (("model.", "teacher_model."), ("rgb.", "depth."), ("teacher.", "student."))


@pytest.mark.parametrize(("first", "second"), TOWERS)
def test_of_two_towers_none_is_guessed(first, second, write):
    """Nor of a teacher of another size than the student, or of a model it was distilled to."""
    small = {name: array for name, array in ARRAYS.items() if not name.startswith("blocks.1")}
    path = write((first, ARRAYS), (second, small))
    refused(path, "2 Vision Transformers", repr(first), repr(second), "'prefix': ")
    assert read(path, prefix=second).config.num_layers == 1
    if first == "model.":
        refused(write((first, ARRAYS), (second, ARRAYS)), "2 Vision Transformers", repr(first))


def test_empty_arrays_of_a_sharded_training_are_called_so(write):
    for end in ("", "qkv.weight"):
        empty = {name: (0,) if name.endswith(end) else array for name, array in ARRAYS.items()}
        refused(write(("module.", empty)), "ZeRO-3", "zero_to_fp32.py")


@pytest.mark.parametrize("key", ["state_dict", "x.y"])
def test_a_pickle_of_a_training_is_read(key, tmp_path):
    """Below any key, beside the optimizer and the options of the command line."""
    import torch

    path, tensors = tmp_path / "x.pth", {n: torch.tensor(array) for n, array in ARRAYS.items()}
    rest = {"epoch": 3, "args": argparse.Namespace(lr=1), "optimizer": {"state": {0: tensors}}}
    for others in (rest, {"odd": torch.eye(3).to_sparse()}):
        torch.save({key: tensors, **others}, path)
        assert read(path, **PICKLE).prefix == f"{key}."
        assert argparse.Namespace not in torch.serialization.get_safe_globals()


def test_the_average_of_timms_trainings_is_read_as_timm_reads_it(tmp_path):
    from tests.live import timm, torch

    sizes = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    models = [timm.models.VisionTransformer(**sizes, num_classes=5).eval() for _ in range(2)]
    raw, average = (model.state_dict() for model in models)
    torch.save({"state_dict": raw, "state_dict_ema": average}, tmp_path / "x.pth")
    images = torch.rand(2, 3, 16, 16)
    for weights, theirs in ((None, 1), ("ema", 1), ("raw", 0)):
        timm.models.load_checkpoint(models[theirs], str(tmp_path / "x.pth"), use_ema=bool(theirs))
        how = {"weights": weights, **PICKLE}
        model = VisionTransformer.from_preset(tmp_path / "x.pth", **TIMM, read=how)
        outputs = to_numpy(model(images.permute(0, 2, 3, 1).numpy()))
        np.testing.assert_allclose(outputs, models[theirs](images).detach().numpy(), atol=1e-6)


def test_every_function_keeps_the_permission_of_a_source(tmp_path):
    import torch

    other, name = find("px_torchvision.safetensors"), "px_torchvision.safetensors"
    torch.save({n: torch.tensor(array) for n, array in arrays_of(name).items()}, tmp_path / "x.pth")
    allowed, plain = (Source.parse(tmp_path / "x.pth", **allows) for allows in (PICKLE, {}))
    assert keras_vit.verify(allowed, other, **TIMM).passed
    assert keras_vit.verify(other, plain, read=PICKLE, **TIMM).passed
    assert keras_vit.info(plain, read=PICKLE, **TIMM).family == "torchvision"
    assert not plain.allow_pickle_weights
    with pytest.raises(keras_vit.KerasViTError, match="'allow_pickle_weights': True"):
        keras_vit.verify(plain, other, **TIMM)


def test_names_of_transformers_5_in_memory_are_read(write):
    """As a Lightning module of such a model saves them."""
    pytest.importorskip("transformers", "5")
    from tests.live import random_transformers, read_shapes

    for name, family in (("ViT", "transformers"), ("Dinov2", "transformers/dinov2")):
        model = random_transformers(f"{name}ForImageClassification", **VISION)
        info = keras_vit.info(write(("model.", read_shapes(model))), **TIMM)
        assert (info.family, info.config.num_classes) == (family, 2)


def test_keras_vits_own_weights_are_loaded_by_load_weights(tmp_path):
    path = tmp_path / "best.weights.h5"
    random_tiny().save_weights(path)
    files.refused(path, "load_weights(", ask=VisionTransformer.from_preset)
