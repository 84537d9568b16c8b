"""Files that trainings leave: the model below a prefix, twice, beside other arrays, in a pickle."""

import argparse
import json
import re

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.checkpoints import Source
from keras_vit.cli import main
from tests.checkpoints.cases import VISION
from tests.checkpoints.files import arrays_of, find, write_arrays
from tests.helpers import assert_close, to_numpy
from tests.plain import normal, raises, stored

TIMM, PICKLE = {"num_heads": 3}, {"allow_pickle_weights": True}
BESIDE = {"criterion.weight": (5,), "projector.0.weight": (8, 24), "optimizer.state.0.exp": (7,)}
ARRAYS, DEIT = arrays_of("timm_token"), arrays_of("hf_deit_teacher")
"""The arrays of a ViT of timm with 7 classes and 2 blocks."""
HEADLESS = {name: array for name, array in ARRAYS.items() if not name.startswith("head.")}
SMALL = {name: array for name, array in ARRAYS.items() if not name.startswith("blocks.1")}
CHUNKS = {
    re.sub(r"blocks\.(\d)", r"blocks.\1.\1", n).replace("attn.", "attn._orig_mod."): array
    for n, array in ARRAYS.items()
}
"""As FSDP of DINOv2 keeps two chunks of one block, and with a wrapper inside."""
TWO, PARTS = [("student.", ARRAYS), ("teacher.", ARRAYS)], {"shared.gate": (24,), "scale": (24,)}
HEADS = {"head.0.weight": (8, 24), "head.2.weight": (5, 8)}
FILES = {
    "beside": ([("model.", ARRAYS), ("", BESIDE)], {}, "model.", BESIDE),
    "wrapped": ([("module._orig_mod.", ARRAYS)], {}, "module._orig_mod.", ()),
    "chunks": ([("teacher.backbone.", CHUNKS)], {}, "teacher.backbone.", ()),
    "parts": ([("", ARRAYS | PARTS)], {"ignore": ["*gate", "scale"]}, "", PARTS),
    "a head of layers": ([("", HEADLESS | HEADS)], {}, "", HEADS),
    "average": (TWO, {}, "teacher.", None),
    "raw": (TWO, {"weights": "raw"}, "student.", None),
    "one of two": (TWO, {"prefix": "student"}, "student.", None),
    "own prefix": ([("net.", DEIT), ("rgb.", ARRAYS)], {"prefix": "net"}, "net.deit.", None),
    "tower": ([("rgb.", ARRAYS), ("depth.", SMALL)], {"prefix": "depth"}, "depth.", None),
}
"""Parts of a file, how it is read, the prefix of the model, and all arrays that are left out."""


WORDS = {"beside": ["criterion. (1)", "projector. (1)"], "average": ["'teacher.'", "'student.'"]}


@pytest.mark.parametrize("name", FILES)
def test_the_model_of_a_file_is_found(name, tmp_path, caplog):
    """One line of log names what is left out, or which of two is read."""
    parts, how, prefix, left = FILES[name]
    info = keras_vit.info(write_arrays(tmp_path / "x", *parts), **TIMM, read=how)
    assert info.prefix == prefix
    assert left is None or info.ignored.keys() == set(left)
    assert [word for word in WORDS.get(name, ()) if word not in caplog.text] == []


def test_names_of_transformers_5_in_memory_are_read(tmp_path):
    """As a Lightning module of such a model saves them."""
    pytest.importorskip("transformers", "5")
    from tests.live import random_transformers, read_shapes

    for name, family in (("ViT", "transformers"), ("Dinov2", "transformers/dinov2")):
        model = random_transformers(f"{name}ForImageClassification", **VISION)
        file = write_arrays(tmp_path / "x", ("model.", read_shapes(model)))
        info = keras_vit.info(file, **TIMM)
        assert (info.family, info.config.num_classes) == (family, 2)


def test_the_average_of_timms_trainings_is_read_as_timm_reads_it(tmp_path):
    from tests.live import timm

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


def sharded(path, arrays):
    """As transformers 4 wrote a model of more than 10 GB."""
    path.unlink()
    names = {name: f"part_{k % 2}.bin" for k, name in enumerate(arrays)}
    for part in set(names.values()):
        shard = {name: array for name, array in arrays.items() if names[name] == part}
        torch.save(shard, path.with_name(part))
    path.with_name(f"{path.name}.index.json").write_text(json.dumps({"weight_map": names}))


def nested(path, arrays):
    """Below a key, beside itself, the optimizer and the options of the command line."""
    content = {"x.y": arrays, "epoch": 3, "args": argparse.Namespace(lr=1), "odd": ODD}
    content |= {"itself": content, "optimizer": {"state": {0: arrays}}}
    torch.save(content, path)


ODD = torch.eye(3).to_sparse()
FORMS = {
    "plain": lambda path, arrays: torch.save(arrays, path),
    "old": lambda path, arrays: torch.save(arrays, path, _use_new_zipfile_serialization=False),
    "bfloat16": lambda path, arrays: torch.save({n: arrays[n].bfloat16() for n in arrays}, path),
    "nested": nested,
    "sharded": sharded,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_pickle_is_read_and_options_that_may_be_unpickled_stay(form, world):
    path = world.pickle / "pytorch_model.bin"
    arrays = torch.load(path, weights_only=True)
    FORMS[form](path, arrays)
    model = VisionTransformer.from_preset(world.pickle, read=PICKLE)
    assert argparse.Namespace not in torch.serialization.get_safe_globals()
    with torch.serialization.safe_globals([argparse.Namespace]):
        assert keras_vit.info(world.pickle, read=PICKLE).family == "transformers"
        assert argparse.Namespace in torch.serialization.get_safe_globals()
    images = normal(2, 16, 16, 3)
    if form != "bfloat16":
        assert_close(model(images), to_numpy(world.model(images)), 1e-6)
    else:
        kernel = model.get_layer("block_0").mlp.dense_0.kernel.value.detach().T
        name = "vit.encoder.layer.0.intermediate.dense.weight"
        torch.testing.assert_close(kernel, arrays[name].bfloat16().float(), atol=0, rtol=0)


def test_permission_for_pickles_leaves_safetensors_what_they_are(tmp_path):
    """The header's length is their first byte; one of 32 files begins as a pickle does."""
    path, lengths = tmp_path / "x", iter(range(300))
    while not path.exists() or path.read_bytes()[:1] != b"\x80":
        save_file(ARRAYS, path, metadata={"note": "x" * next(lengths)})
    assert keras_vit.info(path, **TIMM, read=PICKLE).family == "timm"


def test_every_function_keeps_the_permission_of_a_source(tmp_path):
    other = find("px_torchvision.safetensors")
    torch.save({n: torch.tensor(a) for n, a in stored(other).items()}, tmp_path / "x.pth")
    allowed, plain = (Source.parse(tmp_path / "x.pth", **allows) for allows in (PICKLE, {}))
    assert keras_vit.verify(allowed, other, **TIMM).passed
    assert keras_vit.verify(other, plain, read=PICKLE, **TIMM).passed
    assert not plain.allow_pickle_weights
    with raises(keras_vit.KerasViTError, "'allow_pickle_weights': True"):
        keras_vit.verify(plain, other, **TIMM)


def test_the_command_line_names_the_option_that_reads_a_pickle(world, capsys):
    command = ["convert", str(world.pickle), str(world.out), "--family", "transformers"]
    assert main(command) == 2
    assert "--allow-pickle-weights" in capsys.readouterr().err
    assert main([*command, "--allow-pickle-weights"]) == 0
