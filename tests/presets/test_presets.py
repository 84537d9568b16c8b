"""Presets load by name, from a folder and from a file, and are saved whole or not at all.

`tests.fuzz.kills` kills saves.
"""

import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import Preprocessor, VisionTransformer, checkpoints
from keras_vit.checkpoints.opening import open_source
from keras_vit.errors import CheckpointError, PresetError
from keras_vit.presets.catalog import preset_named
from keras_vit.support.files import OpenFolder
from tests.digits import digits
from tests.helpers import KERAS_3_14, assert_close, random_tiny, tiny
from tests.plain import edit_json, normal, raises


@pytest.fixture
def saved(tmp_path):
    """A preset folder and the model that it was saved from."""
    model = random_tiny(
        class_names=["a", "b", "c", "d", "e"],
        provenance={"source": "nowhere"},
        block={"activation": "gelu", "epsilon": 1e-12},
        image_size=(16, 24),
    )
    model.save_to_preset(tmp_path / "mine")
    return tmp_path / "mine", model


def test_vit_digits_reads_digits():
    """At least 98 % of the 360 held-out digits, as its provenance records, in under 1 MB."""
    _, test, _, wanted = digits()
    model = VisionTransformer.from_preset("vit_digits")
    answers = model.classify(test, top=1)
    right = np.mean([int(a[0][0]) == k for a, k in zip(answers, wanted, strict=True)])
    assert right >= 0.98
    assert right == pytest.approx(model.provenance["test_top1"], abs=1 / 360)
    folder = preset_named("vit_digits").folder
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000


def test_fields_of_a_preset_can_be_overridden(saved):
    """Head, image size, dtype and dropout rate; a new head drops the labels."""
    folder, _ = saved
    model = VisionTransformer.from_preset(
        folder, num_classes=2, image_size=32, dtype="mixed_bfloat16", dropout_rate=0.1
    )
    assert model.output_shape == (None, 2)
    assert model.class_names is None
    assert model.config.image_size == (32, 32)
    assert model.config.dropout_rate == 0.1
    assert model.config.block.activation == "gelu"
    relabelled = VisionTransformer.from_preset(folder, num_classes=2, class_names=("x", "y"))
    assert relabelled.class_names == ("x", "y")


def test_a_preset_loads_as_an_any_size_model(saved):
    """`image_size=None` keeps the stored rectangular grid."""
    folder, model = saved
    back = VisionTransformer.from_preset(folder, image_size=(None, None))
    assert back.config.source_grid == (2, 3)
    images = normal(2, 16, 24, 3)
    assert_close(back.predict(images, verbose=0), model.predict(images, verbose=0))


@pytest.mark.xfail(
    KERAS_3_14, reason="Keras 3.14 neither trains nor saves such a layer of a functional model."
)
@pytest.mark.filterwarnings("error::UserWarning")
def test_weights_of_the_users_own_layers_are_left_out_with_a_warning(tmp_path):
    class Adapted(VisionTransformer):
        def __init__(self, *args, **fields):
            super().__init__(*args, **fields)
            self.adapter = keras.layers.Dense(3, name="adapter")
            self.adapter.build((None, 3))

    model = Adapted(tiny(num_classes=3).config)
    with pytest.warns(
        UserWarning, match="Adapted has 2 weights of its own, such as adapter/kernel"
    ):
        model.save_to_preset(tmp_path / "preset")
    VisionTransformer(model.config).save_to_preset(tmp_path / "plain")


def test_saving_again_replaces_the_preset_and_no_other_files(saved):
    """No temporary folder is left. Fresh weights have a head of zeros."""
    folder, _ = saved
    other = random_tiny(num_classes=2)
    other.save_to_preset(folder)
    fresh = VisionTransformer.from_preset(folder, load_weights=False)
    assert VisionTransformer.from_preset(folder).config == fresh.config == other.config
    assert not keras.ops.convert_to_numpy(fresh.get_layer("head").kernel).any()
    assert [path.name for path in folder.parent.iterdir()] == ["mine"]
    (folder / "chapter1.tex").touch()
    with pytest.raises(PresetError, match="holds chapter1.tex, so it is not overwritten"):
        other.save_to_preset(folder)


def edited(folder, **changes):
    """Changes fields of a preset's config.json; the value ... removes a field."""
    edit_json(folder / "config.json", **changes)
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "timm"}, "format is 'timm', expected 'keras_vit'"),
        (
            {"format_version": 2, "keras_vit_version": "9.1"},
            "format_version is 2, this release of keras_vit reads 1. Update keras_vit: release 9.1",
        ),
        ({"format_version": "1", "keras_vit_version": ...}, "reads 1. Update keras_vit."),
        ({"class_names": ["a"]}, "1 class_names, expected 5 strings"),
        ({"class_names": [1, 2, 3, 4, 5]}, "expected 5 strings"),
        ({"protocol": ...}, "field 'protocol' is None"),
        ({"protocol": 1}, "field 'protocol' is 1"),
        ({"protocol": "tim"}, "Did you mean 'timm'?"),
        ({"protocol": {"name": "timm", "crop_pct": 2}}, "crop_pct must be a number above 0"),
        ({"protocols": "x"}, "unknown field 'protocols'. Did you mean 'protocol'?"),
        ({"config": {}}, "needs patch_size"),
    ],
)
def test_a_fault_in_config_json_is_refused_by_its_field(saved, changes, message):
    """The message names the file and the field, for a model and for its preprocessor alone."""
    folder = edited(saved[0], **changes)
    for read in (VisionTransformer.from_preset, Preprocessor.from_preset):
        with raises(PresetError, f"{folder / 'config.json'}", message):
            read(folder)


def test_a_preset_keeps_the_activation_of_the_head_without_a_warning(tmp_path, caplog):
    outputs = {"task": "multi_label", "classifier_activation": "sigmoid", "rescale": True}
    tiny(**outputs).save_to_preset(tmp_path / "x")
    again = VisionTransformer.from_preset(tmp_path / "x")
    assert (again.task, again.rescale) == ("multi_label", True)
    assert again.prediction.classifier_activation == "sigmoid"
    logits = VisionTransformer.from_preset(tmp_path / "x", classifier_activation=None)
    assert logits.prediction.returns_logits
    new = VisionTransformer.from_preset(tmp_path / "x", num_classes=3)
    assert (new.task, new.prediction.classifier_activation) == ("single_label", "softmax")
    assert not caplog.text


def test_a_preset_without_labels_has_none(saved):
    """As if the field were null."""
    folder, model = saved
    back = VisionTransformer.from_preset(edited(folder, class_names=...))
    assert back.class_names is None and back.config == model.config


def contradict(folder):
    edit_json(folder / "config.json", "config", mlp_dim=33)


def lose_the_weights(folder):
    (folder / "model.safetensors").unlink()


def lose_the_config(folder):
    (folder / "config.json").unlink()


def let_the_config_dangle(folder):
    lose_the_config(folder)
    (folder / "config.json").symlink_to("gone.json")


@pytest.mark.parametrize(
    ("spoil", "reads_numbers", "error", "message"),
    [
        (contradict, True, CheckpointError, r"dense_0/bias is \(32,\), expected \(33,\)"),
        (lose_the_weights, True, CheckpointError, r"model.safetensors: .* does not exist"),
        (lose_the_config, False, PresetError, "without the config.json"),
        (let_the_config_dangle, False, PresetError, "its target is missing"),
    ],
)
def test_a_preset_that_is_not_whole_is_refused(saved, spoil, reads_numbers, error, message):
    """By the arrays that differ, or by the missing file, which alone says which GELU it is."""
    spoil(saved[0])
    for read in (VisionTransformer.from_preset, *([] if reads_numbers else [keras_vit.info])):
        with pytest.raises(error, match=message):
            read(saved[0])


def test_weights_with_another_checksum_than_the_config_states_are_refused(saved):
    """One byte is changed; `checksum` of `read` skips the check; old presets have no checksum."""
    folder, model = saved
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    with pytest.raises(
        CheckpointError, match=r"model.safetensors: its sha256 is .* read={'checksum': False"
    ):
        VisionTransformer.from_preset(folder)
    with pytest.raises(CheckpointError, match="its sha256 is"):
        keras_vit.convert(folder, folder.parent / "x.npz", "google")
    assert not (folder.parent / "x.npz").exists()
    assert VisionTransformer.from_preset(folder, read={"checksum": False}).config == model.config
    edited(folder, weights_sha256=...)  # as presets of early releases are
    assert VisionTransformer.from_preset(folder).config == model.config


def test_weights_of_a_preset_alone_are_refused(saved, tmp_path):
    """The file alone does not say which GELU, unless the caller or the JSON beside it does."""
    folder, model = saved
    beside = VisionTransformer.from_preset(folder / "model.safetensors")
    assert beside.config == model.config
    weights = shutil.copy(folder / "model.safetensors", tmp_path / "alone.safetensors")
    for read in (VisionTransformer.from_preset, keras_vit.info):
        with pytest.raises(PresetError, match=r"config\.json that states .*block="):
            read(weights)
    asked = {"block": model.config.block, "image_size": model.config.image_size}
    told = VisionTransformer.from_preset(weights, **asked)
    assert told.config.block == model.config.block


def test_a_preset_that_is_replaced_while_it_is_read_gives_one_state(saved):
    """After it was opened."""
    folder, model = saved
    with open_source(checkpoints.Source.parse(folder)) as opened:
        random_tiny(num_classes=2).save_to_preset(folder)
        assert opened.preset.config == model.config
        assert opened.reader.read("head/bias").shape == (5,)


@pytest.mark.parametrize("lost", ["config.json", "model.safetensors"])
def test_a_preset_that_is_replaced_while_it_is_opened_gives_the_new_preset(
    tmp_path, monkeypatch, lost
):
    """The writer has removed a file of the old folder already."""
    place = tmp_path / "preset"
    for word in ("old", "new"):
        tiny(provenance={"word": word}).save_to_preset(tmp_path / word)
    (tmp_path / "old").rename(place)
    sizes = OpenFolder.sizes

    def replaced_meanwhile(folder):
        if (tmp_path / "new").exists():
            place.rename(tmp_path / "old")
            (tmp_path / "new").rename(place)
            (tmp_path / "old" / lost).unlink()
        return sizes(folder)

    monkeypatch.setattr(OpenFolder, "sizes", replaced_meanwhile)
    with open_source(checkpoints.Source.parse(place)) as opened:
        assert opened.preset.provenance["word"] == "new"


@pytest.mark.parametrize(
    ("name", "title"),
    [("vit_digits",) * 2, ("/home/me/run/best/", "run/best"), ("hf://us/vit", "us/vit")],
)
def test_the_title_of_a_source_has_at_most_two_parts(name, title):
    """Pages that others read have no path of this machine."""
    assert checkpoints.Source(name, lambda: None).title == title


def test_card_obeys_no_provenance(tmp_path):
    """Markup of strangers is text, also in a preset that is saved again."""
    told = {"note": "<script>x</script> [safe](http://evil)", "a\n# b": "`c` \x1b[2J"}
    tiny(provenance=told).save_to_preset(tmp_path / "x")
    VisionTransformer.from_preset(tmp_path / "x").save_to_preset(tmp_path / "y")
    text = (tmp_path / "y" / "README.md").read_text()
    assert r"- note: \<script\>x\</script\> \[safe\](http://evil)" in text
    assert "- a\\\\n\\# b: \\`c\\` \\\\x1b\\[2J" in text
    assert "\x1b" not in text
