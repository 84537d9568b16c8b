"""Files, JSON, arguments and models that do not fit are refused before anything is written."""

import pickle
import shutil

import keras
import numpy as np
import pytest
import torch

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints.libraries import LibraryUnavailableError
from keras_vit.config.fields import nest
from keras_vit.errors import CheckpointError, ConfigError, KerasViTError, SourceError
from tests.checkpoints import files
from tests.checkpoints.files import arrays_of, copy, timm_shapes, write_shapes
from tests.checkpoints.shards import split
from tests.helpers import random_tiny, tiny, to_numpy
from tests.live import read_shapes, transformers
from tests.plain import edit_json, raises, stored

HEADS, PICKLE = {"num_heads": 3}, {"allow_pickle_weights": True}
TRUNK = "px_open_clip_trunk_linear.safetensors"
VIT, PROCESSOR = "vit_token_published.npz", "preprocessor_config.json"
ARRAYS = arrays_of("timm_token")


def saves(fragment, *family, error=CheckpointError, model=None, **fields):
    """A row: a model with other fields, or what a function makes, is saved."""

    def call(world):
        checkpoints.save(model() if model else tiny(**nest(fields)), world.out, *family)

    return f"saving {family}: {fragment}", (call, error, fragment)


def both(source, out, **fields):
    """Loads and converts a file; both refuse it in the same words."""
    with pytest.raises(KerasViTError) as loaded:
        VisionTransformer.from_preset(source, **fields)
    with raises(type(loaded.value), str(loaded.value)):
        keras_vit.convert(source, out, "google", **fields)
    raise loaded.value


def verifies(source, out):
    keras_vit.verify(source)


def loads(source, out, **fields):
    VisionTransformer.from_preset(source, **fields)


def given(
    name, fragment, change=lambda path: None, error=CheckpointError, ask=both, family="", **fields
):
    """A row: reference data is copied and changed, and read or converted to a family."""

    def call(world):
        source = copy(name, world.path)
        change(source)
        if family:
            keras_vit.convert(source, world.out, family, **fields)
        ask(source, world.out, **fields)

    return f"{name}: {fragment}", (call, error, fragment)


def says(name, place, fragment, **changes):
    """A row of a folder with other values in the object below the keys of a JSON file."""
    file, *keys = place.split() if ".json" in place else ("config.json", *place.split())
    return given(name, fragment, lambda path: edit_json(path / file, *keys, **changes))


def holds(name, change, fragment, **how):
    """A row of a file, or a folder, whose arrays are changed."""

    def rewrite(path):
        file = path / "model.safetensors" if path.is_dir() else path
        arrays = {name: array.copy() for name, array in stored(file).items()}
        arrays = change(arrays) or arrays
        if file.suffix == ".npz":
            np.savez(file, **arrays)
        else:
            files.write_arrays(file, ("", arrays))

    return given(name, fragment, rewrite, **how)


def reads(fragment, write, name="x", error=CheckpointError, **fields):
    """A row of a file that a function writes."""

    def call(world):
        write(world.path / name)
        VisionTransformer.from_preset(world.path / name, **fields)

    return f"{name}: {fragment}", (call, error, fragment)


def trains(fragment, *parts, **read):
    """A row of a file that a training left; each part is a prefix, and arrays or shapes."""
    write = lambda path: files.write_arrays(path, *parts)  # noqa: E731
    return reads(fragment, write, "training.safetensors", **HEADS, read=read)


def counts(positions, registers, fragment, **fields):
    """A row of a number of positions that fits two grids or none."""
    fields |= {"pool": POOL, "rope": None, "num_heads": 2, "block": BLOCK}
    write = lambda path: write_shapes(path, timm_shapes(positions, registers))  # noqa: E731
    return reads(fragment, write, f"{positions}_positions", **fields)


def pickled(fragment, write):
    """A row of a folder whose pickle is written anew from its arrays."""

    def call(world):
        path = world.pickle / "pytorch_model.bin"
        write(path, torch.load(path, weights_only=True))
        keras_vit.info(world.pickle, read=PICKLE)

    return f"a pickle: {fragment}", (call, CheckpointError, fragment)


def with_tensor(value, **form):
    """Saves something else in the place of an array."""
    return lambda path, arrays: torch.save(arrays | {"classifier.weight": value}, path, **form)


def another(fragment, kind, **fields):
    """A row of another network of transformers, which is named beside the nearest families."""

    def call(world):
        config = kind.config_class(**fields)
        with torch.device("meta"):
            shapes = read_shapes(kind(config))
        stated = {"model_type": config.model_type, "architectures": [kind.__name__]}
        write_shapes(world.path / "model.safetensors", shapes, stated)
        keras_vit.info(world.path)

    return f"{kind.__name__}: {fragment}", (call, CheckpointError, fragment)


class Hostile:
    """Fails the test when it is unpickled."""

    def __reduce__(self):
        return exec, ("raise AssertionError('A pickle ran code.')",)


def with_weight(value):
    """A model one of whose weights has a value that is no number or too large."""
    model = random_tiny()
    bias = model.get_layer("block_0").mlp.dense_0.bias
    bias.assign(np.where(np.arange(32) == 3, value, to_numpy(bias)))
    return model


def shards(change):
    """Splits the weights of a folder, and changes the two files."""
    return lambda folder: change(*(folder / name for name in sorted({*split(folder).values()})))


def flawed(name, value, dtype="float32"):
    """Arrays one of which has one value."""
    return lambda a: a.update({name: np.full(a[name].shape, value, dtype)})


def config(text):
    """Another config.json."""
    return lambda folder: (folder / "config.json").write_text(text)


def without(word):
    """Arrays without those of a name."""
    return lambda arrays: {name: array for name, array in arrays.items() if word not in name}


def add_bias(arrays):
    arrays["visual.head.proj.bias"] = arrays["visual.head.proj.weight"][:, 0].copy()


def rename(arrays):
    arrays[f"{MLP}s"] = arrays.pop(MLP)
    arrays[NORM] = np.zeros(25, "float32")


MLP, NORM = "Transformer/encoderblock_1/MlpBlock_3/Dense_0/kernel", "Transformer/encoder_norm/scale"
BLOCK, POOL = {"activation": "gelu", "epsilon": 1e-6}, {"kind": "token"}
ONES, LAYER = torch.ones(5, 16), torch.nn.Linear(2, 2)
EXTRAS = {"projector.0.weight": (8, 24), "aux_head.weight": (2, 24)}
SIDES = {"height": None, "width": 224}
ADAPTER = {"blocks.0.attn.qkv.lora_A.default.weight": (24, 2)}
SHARED = "use_shared_relative_position_bias"
SOURCES = {
    "no path": (lambda w: keras_vit.info({"w": 1}), "found {'w': 1}"),
    "an absent file": (lambda w: keras_vit.info(w.path / "x.npz"), "not exist"),
    "an empty folder": (lambda w: keras_vit.info(w.path), "one weight file"),
    "no pickle allowed": (lambda w: keras_vit.info(w.pickle), "'allow_pickle_weights': True"),
}
ROWS = (
    saves("found a keras.Sequential", model=lambda: keras.Sequential(name="other")),
    saves("contains NaN or infinity", model=lambda: with_weight(np.inf)),
    # Models that a library cannot hold, or that are written nowhere.
    saves("pool/probe", "google", **{"pool.kind": "map"}),
    saves("text tower", "open_clip", num_classes=0),
    given(VIT, "a conversion cannot make a new head", family="google", num_classes=3),
    given(VIT, "save_to_preset", family="keras_vit"),
    given("timm_token", "the file has a weight enc", family="timm", pool={"norm": "none"}),
    # JSON that states what keras_vit does not compute, or other values than the arrays.
    says("timm_token", "model_args", "act_layer='relu'", act_layer="relu"),
    says("timm_token", "", "rpn", architecture="vit_base_patch16_rpn_224"),
    says("timm_token", "", "num_heads", architecture=None),
    says("hf_classifier", "", "hidden_size=48", hidden_size=48, num_hidden_layers=3),
    given("hf_classifier", "found list", config("[1]"), SourceError),
    given("hf_classifier", "16,777,217", config(" " * 2**24 + "1"), SourceError),
    says("hf_classifier", "", "num_heads=5", num_attention_heads=5),
    says("hf_classifier", "", "multi_label_classification", problem_type="odd"),
    says("hf_dinov3_model", "", "V4", model_type="dinov4_vit", architectures=["V4"]),
    says("hf_clip_two_towers", "", "vision_config='large'", vision_config="large"),
    says("hf_beit_classifier", "", "image_size=[16, 24]", image_size=[16, 24]),
    says("hf_beit_classifier", "", SHARED, **{SHARED: True}),
    says("kh_intermediate", "task.json config", "pooling=None", pooling=None),
    given("kh_intermediate", "missing: task/", lambda path: (path / "task.weights.h5").unlink()),
    says("timm_avg", "pretrained_cfg", "found 'all'", crop_pct="all"),
    says("hf_classifier", PROCESSOR, "'height': None", size=SIDES),
    # Arrays of another network, damaged ones, and folders of no or several files.
    holds(VIT, rename, f"shape mismatch: {NORM} is (25,), expected (24,)"),
    holds(VIT, without("block_0"), "missing: Transformer/encoderblock_0/LayerNorm_0/scale"),
    holds(VIT, flawed("head/kernel", np.nan), "'head/kernel' contains NaN"),
    holds(VIT, flawed("head/kernel", -1e300, "float64"), "float32 maximum 3.4", ask=loads),
    holds("vit_token_linen.npz", without("pos_embedding"), "position='sincos2d'"),
    holds("hf_classifier", flawed("classifier.bias", 0, "int32"), "int32"),
    holds("hf_clip_two_towers", without("vision_"), "no Vision Transformer"),
    another("23 names", transformers.SwinModel, embed_dim=8, depths=[1], num_heads=[2]),
    another("lacks embeddings.patch_embeddings", transformers.BertModel, num_hidden_layers=1),
    given("../naflex", "Choose one: <folder>/naflex/hf_siglip2.npz", error=SourceError),
    reads("/x/best", lambda path: tiny().save_to_preset(path / "best"), error=SourceError),
    given("hf_classifier", "two files", shards(shutil.copy)),
    given("hf_classifier", "no such file", shards(lambda first, _: first.unlink()), SourceError),
    reads("keras_vit>VisionTransformer", lambda path: tiny().save(path), "x.keras"),
    reads("load_weights(", lambda path: tiny().save_weights(path), "x.weights.h5"),
    reads("bias contains 1e+06", lambda p: checkpoints.save(with_weight(1e6), p), dtype="float16"),
    holds(TRUNK, add_bias, "visual.head.proj.bias", pool=POOL, rope=None, block=BLOCK, **HEADS),
    # Files that need more facts, and arguments that contradict a file.
    given("hf_dinov3_model/model.safetensors", "rope", **HEADS),
    given("hf_clip_vision/model.safetensors", "block={", **HEADS),
    given("px_facebook_deit3.safetensors", "'family': 'facebook'", image_size=(12, 20), **HEADS),
    given("hybrid_r26.npz", "hybrid, which are cells of a feature map", patch_size=2),
    given(VIT, "Dense_0/bias is (40,), expected (41,) [mlp_dim]", mlp_dim=41),
    given(VIT, "representation_size=24", representation_size=24),
    given(VIT, "'image_size'", error=ConfigError, image_siz=24),
    given(VIT, "'vit_b16'", error=ConfigError, read={"variant": "vitb16"}),
    given(VIT, "'google'", read={"family": "gogle"}),
    given("hf_model", "'vit'", read={"family": "transformers/dinov2"}),
    given(VIT, "'prefix'", error=ConfigError, read={"prefx": "a."}),
    given(VIT, "read={'prefix'", error=ConfigError, prefix="a."),
    given("bv_gap.npz", "unexpected: pos_embedding", position="sincos2d", image_size=16),
    given("vit_rep.npz", "another checkpoint", error=LibraryUnavailableError, ask=verifies),
    # Positions that fit two grids, both named with the argument that chooses; or none.
    counts(16, 0, "4 x 4 patches and 0 other"),
    counts(50, 0, "7 x 7 patches and 1", image_size=(20, 40)),
    counts(24, 0, "position_grid="),
    counts(25, 0, "(5, 6)", position_grid=(5, 6)),
    # What trainings leave.
    trains("unexpected: net.projector", ("net.", ARRAYS | EXTRAS)),
    trains("'ignore': 'decoder.*'", ("", ARRAYS), ignore="decoder.*"),
    trains("unexpected: head.norm.weight", ("", ARRAYS | {"head.norm.weight": (24,)})),
    trains("merge_and_unload()", ("", ARRAYS | ADAPTER)),
    trains("adapter", ("base_model.model.", ADAPTER)),
    trains("'weights': 'ema'", ("model.", ARRAYS), weights="ema"),
    trains("'prefix': 'net'", ("model.", ARRAYS), prefix="net"),
    trains("'teacher_model.'", ("model.", ARRAYS), ("teacher_model.", ARRAYS)),
    trains("'teacher.'", ("teacher.", ARRAYS), ("student.", without("blocks.1")(ARRAYS))),
    trains("ZeRO-3", ("", ARRAYS | {"blocks.0.attn.qkv.weight": (0,)})),
    # Pickles of anything but arrays; nothing runs, and only a cut file is called incomplete.
    pickled("torch.float8_e4m3fn", with_tensor(ONES.to(torch.float8_e4m3fn))),
    pickled("Linear", with_tensor(LAYER, _use_new_zipfile_serialization=False)),
    pickled("exec", with_tensor(Hostile())),
    pickled("TorchScript", lambda path, _: torch.jit.script(LAYER).save(str(path))),
    pickled("torch.save", lambda path, _: path.write_bytes(pickle.dumps({"a": Hostile()}))),
    pickled("complete", lambda path, _: path.write_bytes(path.read_bytes()[:500])),
)
REFUSALS = {name: (call, SourceError, word) for name, (call, word) in SOURCES.items()}
REFUSALS |= dict(ROWS)


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.filterwarnings("ignore")
def test_refusals(name, world, messages):
    messages.check(name, REFUSALS, world)


def test_other_files_and_the_source_are_not_overwritten(tmp_path):
    """A folder with an older checkpoint is."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").touch()
    with raises(CheckpointError, "notes.txt"):
        checkpoints.save(tiny(), out, "transformers")
    (out / "notes.txt").unlink()
    for _ in range(2):
        checkpoints.save(tiny(), out, "transformers")
    assert keras_vit.info(out).config.hidden_size == 16
    tiny().save_to_preset(tmp_path / "preset")
    npz, preset = copy(VIT, tmp_path), tmp_path / "preset" / "model.safetensors"
    for source, target, family in ((npz, npz, "google"), (preset.parent, preset, "keras_vit")):
        before = target.read_bytes()
        with raises(CheckpointError, "source and destination"):
            keras_vit.convert(source, target, family, num_classes=0)
        assert target.read_bytes() == before
