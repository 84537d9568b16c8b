"""Files that trainings leave: the model below a prefix, in wrappers, twice, beside other arrays."""

import argparse
import logging
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.checkpoints import Source
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.plain_names import plain_name
from keras_vit.config.weights import templates
from keras_vit.errors import CheckpointError, ConfigError
from tests.family_goldens import FOLDER as FAMILIES
from tests.golden import FOLDER
from tests.helpers import to_numpy
from tests.words import raises

TIMM = {"num_heads": 3}
EXTRAS = {
    "criterion.weight": (5,),
    "projector.0.weight": (8, 24),
    "aux_head.weight": (2, 24),
    "optimizer.state.0.exp_avg": (7,),
}


@pytest.fixture(scope="module")
def arrays():
    """The arrays of a ViT of timm with 7 classes and 2 blocks."""
    return load_file(FOLDER / "timm_token" / "model.safetensors")


def written(path, *parts):
    """Writes arrays; each part is a prefix and arrays, or shapes."""
    content = {}
    for prefix, part in parts:
        for name, value in part.items():
            content[prefix + name] = np.ones(value, "float32") if type(value) is tuple else value
    save_file(content, path)
    return path


def chunked(arrays):
    """As FSDP of DINOv2 keeps two chunks of one block."""
    return {re.sub(r"blocks\.(\d)", r"blocks.\1.\1", name): a for name, a in arrays.items()}


def read(path, **how):
    info = keras_vit.info(path, **TIMM, read=how)
    assert info.family == "timm"
    return info


@pytest.mark.without_backend
@pytest.mark.parametrize(
    "prefix", ["model.", "net.", "a.b_c.", "_orig_mod.module.", "module._orig_mod."]
)
def test_the_model_is_found_beside_other_arrays(arrays, prefix, tmp_path, caplog):
    """Below any prefix; one line names what is left out."""
    path = written(tmp_path / "x.safetensors", (prefix, arrays), ("", EXTRAS))
    info = read(path)
    assert (info.prefix, info.config.num_classes) == (prefix, 7)
    assert set(info.ignored) == set(EXTRAS)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for part in ("criterion. (1)", "projector. (1)", "aux_head. (1)"):
        assert part in record.getMessage()


@pytest.mark.without_backend
@pytest.mark.parametrize("prefix", ["", "state_dict.", "model.net."])
def test_modules_that_share_the_prefix_of_the_model_are_parts_of_it(arrays, prefix, tmp_path):
    """As timm's `shared_rel_pos`; all but the optimizer, a second model and a head of layers."""
    known = {"optimizer.state.0.exp_avg": (7,)}
    known |= {f"ema.{name}": array for name, array in arrays.items()}
    path = written(tmp_path / "x.safetensors", (prefix, arrays | known | EXTRAS))
    with raises(CheckpointError, "3 arrays", "unexpected: projector.0.weight", "'ignore': "):
        read(path, weights="raw")
    ignore = [prefix + name for name in EXTRAS if name not in known]
    info = read(path, weights="raw", ignore=ignore)
    assert (info.prefix, len(info.ignored)) == (prefix, len(EXTRAS) + len(arrays))


@pytest.mark.without_backend
def test_arrays_that_may_be_parts_of_the_model_are_not_left_out(arrays, tmp_path):
    """Inside of its modules, beside them without a module, and norms of its tokens."""
    for name, shape in (("blocks.0.gate.weight", (24,)), ("scale", (24,)), ("ln_f.weight", (24,))):
        path = written(tmp_path / "x.safetensors", ("net.", arrays), ("net.", {name: shape}))
        with raises(CheckpointError, f"unexpected: {name} {shape}", "'ignore': "):
            read(path)
        assert read(path, ignore=f"net.{name}").config.num_classes == 7
        assert read(path, ignore=["*" + name]).ignored == {f"net.{name}": "ignored by the caller"}
    with raises(CheckpointError, "read={'ignore': 'decoder.*'} fits no array"):
        read(path, ignore="decoder.*")


@pytest.mark.on_one_backend("torch")
def test_a_head_of_several_layers_is_left_out(arrays, tmp_path):
    """`num_classes=0` leaves out a head of any form."""
    body = {name: array for name, array in arrays.items() if not name.startswith("head.")}
    layers = {"head.0.weight": (8, 24), "head.2.weight": (5, 8)}
    path = written(tmp_path / "x.safetensors", ("", body), ("", layers))
    assert read(path).config.num_classes == 0
    odd = written(tmp_path / "y.safetensors", ("", arrays), ("", {"head.norm.weight": (24,)}))
    with raises(CheckpointError, "unexpected: head.norm.weight"):
        read(odd)
    images = np.linspace(-1, 1, 2 * 32 * 32 * 3, dtype="float32").reshape(2, 32, 32, 3)
    size = keras_vit.info(FOLDER / "timm_token").config.image_size
    images = images[:, : size[0], : size[1]]
    first, second = (
        VisionTransformer.from_preset(p, num_classes=0, **TIMM)(images) for p in (path, odd)
    )
    np.testing.assert_array_equal(to_numpy(first), to_numpy(second))


@pytest.mark.without_backend
def test_dinov2s_chunks_and_wrappers_inside_are_plain_names(arrays, tmp_path):
    inside = {n.replace("attn.", "attn._orig_mod."): a for n, a in chunked(arrays).items()}
    path = written(tmp_path / "x.safetensors", ("teacher.backbone.", inside))
    info = read(path)
    assert (info.prefix, info.config.num_layers) == ("teacher.backbone.", 2)


@pytest.mark.without_backend
def test_the_names_of_every_dialect_are_plain_already():
    """Rules for names in a training change no name of a file."""
    for dialect in DIALECTS.values():
        for names in dialect.words.values():
            for stored in names:
                for name in templates.examples(stored.name):
                    assert all(plain_name(p + name) == p + name for p in dialect.prefixes)


@pytest.mark.without_backend
@pytest.mark.parametrize("name", ["lora_A.default.weight", "ia3_l", "base_layer.weight"])
def test_adapters_are_refused_with_merge_and_unload(arrays, name, tmp_path):
    """Alone, or beside the arrays of the model and in its folder."""
    written(tmp_path / "model.safetensors", ("", arrays))
    adapter = {f"blocks.0.attn.qkv.{name}": (24, 2)}
    path = written(tmp_path / "adapter_model.safetensors", ("base_model.model.", adapter))
    whole = written(tmp_path / "x.safetensors", ("", arrays), ("", adapter))
    for source in (path, whole, tmp_path):
        with raises(CheckpointError, "this is an adapter", "model.merge_and_unload()"):
            read(source)


@pytest.mark.without_backend
def test_of_weights_and_their_average_the_average_is_read_and_said(arrays, tmp_path, caplog):
    path = written(tmp_path / "x.safetensors", ("student.", arrays), ("teacher.", arrays))
    assert read(path).prefix == "teacher."
    assert "'teacher.' (the average of the weights, not 'student.'" in caplog.text
    assert read(path, weights="raw").prefix == "student."
    assert read(path, weights="ema").prefix == "teacher."
    assert read(path, prefix="student").prefix == "student."
    alone = written(tmp_path / "y.safetensors", ("model.", arrays))
    with raises(CheckpointError, "read={'weights': 'ema'}", "below 'model.'"):
        read(alone, weights="ema")
    with raises(ConfigError, "expected 'ema' or 'raw'"):
        read(alone, weights="mean")
    with raises(CheckpointError, "no array is below read={'prefix': 'net'}"):
        read(alone, prefix="net")


@pytest.mark.without_backend
def test_of_two_towers_none_is_guessed(arrays, tmp_path):
    """Nor of a teacher of another size than the student, or of a model it was distilled to."""
    small = {name: array for name, array in arrays.items() if not name.startswith("blocks.1")}
    path = written(tmp_path / "x.safetensors", ("model.", arrays), ("teacher_model.", arrays))
    with raises(CheckpointError, "2 Vision Transformers", "'model.'", "read={'prefix': "):
        read(path)
    for first, second in (("rgb.", "depth."), ("teacher.", "student.")):
        path = written(tmp_path / "x.safetensors", (first, arrays), (second, small))
        named = sorted(map(repr, (first, second)))
        with raises(CheckpointError, "2 Vision Transformers", *named, "read={'prefix': "):
            read(path)
        assert read(path, prefix=second).config.num_layers == 1


@pytest.mark.without_backend
def test_empty_arrays_of_a_sharded_training_are_called_so(arrays, tmp_path):
    for names in (arrays, [n for n in arrays if n.endswith("qkv.weight")]):
        empty = {name: (0,) if name in names else array for name, array in arrays.items()}
        with raises(CheckpointError, "ZeRO-3", "zero_to_fp32.py"):
            read(written(tmp_path / "x.safetensors", ("module.", empty)))


@pytest.mark.on_one_backend("torch")
@pytest.mark.parametrize("key", ["model_state_dict", "state_dict", "net", "model", "x.y"])
def test_a_pickle_of_a_training_is_read(arrays, key, tmp_path):
    """Below any key, beside the optimizer and the options of the command line."""
    import torch

    path = tmp_path / "x.pth"
    tensors = {name: torch.tensor(array) for name, array in arrays.items()}
    rest = {"epoch": 3, "args": argparse.Namespace(lr=1), "optimizer": {"state": {0: tensors}}}
    torch.save({key: tensors, **rest}, path)
    assert read(path, allow_pickle_weights=True).prefix == f"{key}."
    assert argparse.Namespace not in torch.serialization.get_safe_globals()
    torch.save({key: tensors, "odd": torch.eye(3).to_sparse()}, path)
    assert read(path, allow_pickle_weights=True).prefix == f"{key}."


@pytest.mark.on_one_backend("torch")
def test_the_average_of_timms_trainings_is_read_as_timm_reads_it(tmp_path):
    import torch

    from tests import torchvision_shim  # noqa: F401

    timm = pytest.importorskip("timm")
    sizes = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    models = [timm.models.VisionTransformer(**sizes, num_classes=5).eval() for _ in range(2)]
    raw, average = (model.state_dict() for model in models)
    torch.save({"state_dict": raw, "state_dict_ema": average}, tmp_path / "x.pth")
    images = torch.rand(2, 3, 16, 16)
    for weights, is_average in ((None, True), ("ema", True), ("raw", False)):
        target = timm.models.VisionTransformer(**sizes, num_classes=5).eval()
        timm.models.load_checkpoint(target, str(tmp_path / "x.pth"), use_ema=is_average)
        model = VisionTransformer.from_preset(
            tmp_path / "x.pth", **TIMM, read={"weights": weights, "allow_pickle_weights": True}
        )
        outputs = to_numpy(model(images.permute(0, 2, 3, 1).numpy()))
        np.testing.assert_allclose(outputs, target(images).detach().numpy(), atol=1e-6)


@pytest.mark.on_one_backend("torch")
def test_every_function_keeps_the_permission_of_a_source(tmp_path):
    import torch

    other = FAMILIES / "px_torchvision.safetensors"
    arrays = load_file(other)
    torch.save({name: torch.tensor(array) for name, array in arrays.items()}, tmp_path / "x.pth")
    heads = {"num_heads": 3}
    allowed = Source.parse(tmp_path / "x.pth", allow_pickle_weights=True)
    plain = Source.parse(tmp_path / "x.pth")
    assert keras_vit.verify(allowed, other, **heads).passed
    assert keras_vit.verify(other, plain, read={"allow_pickle_weights": True}, **heads).passed
    allows = {"allow_pickle_weights": True}
    assert keras_vit.info(plain, read=allows, **heads).family == "torchvision"
    assert not plain.allow_pickle_weights
    with raises(CheckpointError, "read={'allow_pickle_weights': True}"):
        keras_vit.verify(plain, other, **heads)


@pytest.mark.on_one_backend("torch")
def test_names_of_transformers_5_in_memory_are_read(tmp_path):
    """As a Lightning module of such a model saves them."""
    import torch

    from tests import torchvision_shim  # noqa: F401

    transformers = pytest.importorskip("transformers", "5")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 24, "image_size": 16, "patch_size": 8}
    for family, dialect in (("ViT", "transformers"), ("Dinov2", "transformers/dinov2")):
        config = getattr(transformers, f"{family}Config")(**sizes)
        model = getattr(transformers, f"{family}ForImageClassification")(config)
        state = {f"model.{name}": array for name, array in model.state_dict().items()}
        torch.save({"state_dict": state}, tmp_path / "x.ckpt")
        info = keras_vit.info(tmp_path / "x.ckpt", num_heads=2, read={"allow_pickle_weights": True})
        assert (info.family, info.config.num_classes) == (dialect, 2)


def test_keras_vits_own_weights_are_loaded_by_load_weights(tmp_path):
    sizes = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "mlp_dim": 32}
    model = VisionTransformer(**sizes, num_heads=2, num_layers=1, num_classes=3)
    path = tmp_path / "best.weights.h5"
    model.save_weights(path)
    with raises(CheckpointError, "weights alone", f"model.load_weights({str(path)!r})"):
        VisionTransformer.from_preset(path)
