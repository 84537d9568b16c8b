"""The fourteen variants: parameter counts of the reference code, builders, foreign words."""

import dataclasses
import inspect
import math

import keras
import pytest

import keras_vit
from keras_vit.config import foreign_words
from keras_vit.config.variants import find_variant
from keras_vit.config.weights import lexicon
from keras_vit.errors import ConfigError
from keras_vit.models import builders
from keras_vit.models.builders import list_variants, variant
from tests.plain import raises

COUNTS = {
    # name: (1000 classes, 21843 classes, tokens) at 224 pixels
    "vit_ti16": (5_717_416, 9_740_115, 197),
    "vit_s16": (22_050_664, 30_075_219, 197),
    "vit_s32": (22_878_952, 30_903_507, 50),
    "vit_b8": (86_576_872, 102_605_139, 785),
    "vit_b16": (86_567_656, 102_595_923, 197),
    "vit_b32": (88_224_232, 104_252_499, 50),
    "vit_l16": (304_326_632, 325_690_707, 197),
    "vit_l32": (306_535_400, 327_899_475, 50),
    "vit_h14": (632_045_800, 658_745_683, 257),
    "r_vit_ti16": (6_337_704, 10_360_403, 50),
    "r26_vit_s32": (36_431_912, 44_456_467, 50),
    "r26_vit_b32": (101_383_976, 117_412_243, 50),
    "r50_vit_b16": (98_659_112, 114_687_379, 197),
    "r50_vit_l32": (328_994_856, 350_358_931, 50),
}
DROPOUT = {"vit_l16", "vit_h14", "r50_vit_b16", "r50_vit_l32"}

every_variant = pytest.mark.parametrize("name", list_variants())


def count(config) -> int:
    """Parameters of the model that a configuration describes, from the lexicon's shapes."""
    return sum(math.prod(weight.shape) for weight in lexicon.weights(config))


@every_variant
def test_parameters_and_tokens_equal_those_of_the_reference(name):
    """At 1000 and at 21843 classes, from `models_test.py` of vision_transformer."""
    small, large, tokens = COUNTS[name]
    assert count(variant(name).config()) == small
    assert count(variant(name).config(num_classes=21843)) == large
    assert variant(name).config().num_tokens == tokens


@pytest.mark.parametrize("name", ["vit_ti16", "vit_s32", "r_vit_ti16"])
def test_the_built_model_has_the_counts_of_its_config(name):
    """Parameters, name, output shape and tokens of the Keras model."""
    keras.utils.clear_session()  # which counts the names of models
    model = variant(name)()
    assert model.count_params() == COUNTS[name][0]
    assert model.name == name
    assert model.output_shape == (None, 1000)
    assert model.get_layer("encoder_norm").output.shape[1] == COUNTS[name][2]


@every_variant
def test_variant_of_recognises_the_config_of_a_variant(name):
    """Other fields, such as classes, channels or rates, make no difference."""
    config = variant(name).config(
        image_size=None, num_classes=3, pool={"kind": "map"}, dropout_rate=0.3, channels=1
    )
    assert find_variant(config) == name


@pytest.mark.parametrize(
    "fields",
    [{"num_heads": 6}, {"mlp_dim": 3000}, {"patch_size": 14}, {"stem": {"kind": "resnet"}}],
    ids=str,
)
def test_a_config_with_one_other_size_is_no_variant(fields):
    """Another image size alone keeps the variant."""
    config = variant("vit_b16").config(image_size=448)
    assert find_variant(config) == "vit_b16"
    assert find_variant(config.replace(**fields)) is None


@every_variant
def test_a_variant_is_a_public_callable(name):
    """`keras_vit.<name>` is the variant, with the dropout rate of the reference."""
    assert getattr(keras_vit, name) is variant(name) is getattr(builders, name)
    assert variant(name).config().dropout_rate == (0.1 if name in DROPOUT else 0.0)


def test_a_builder_passes_fields_and_the_arguments_of_the_model_on():
    """Each by its name; the fields of the variant that are not given stay."""
    built = keras_vit.vit_ti16(
        (32, 64), 2, num_layers=1, channels=1, class_names=["a cat", "a dog"], protocol="timm",
        remat=True, trainable=False, provenance={"made": "here"}, dtype="mixed_bfloat16",
        data_format="channels_first", name="mine", task="multi_label", thresholds=0.3,
    )  # fmt: skip
    assert built.input_shape == (None, 1, 32, 64)
    assert built.output_shape == (None, 2)
    assert built.config.hidden_size == 192
    assert built.class_names == ("a cat", "a dog")
    assert built.preprocessor.protocol == "timm"
    assert (built.remat, built.trainable, built.name) == (True, False, "mine")
    assert dict(built.provenance) == {"made": "here"}
    assert built.dtype_policy.name == "mixed_bfloat16"
    assert built.thresholds == (0.3, 0.3)


@pytest.mark.parametrize("word", foreign_words.ANSWERS)
def test_arguments_of_other_libraries_are_answered_with_what_does_it_here(word):
    """In builders, configurations and loaders, by an existing argument or by a sentence."""
    answer = foreign_words.ANSWERS[word]
    fields = {field.name for field in dataclasses.fields(keras_vit.ViTConfig)}
    names = fields | set(inspect.signature(keras_vit.VisionTransformer.__init__).parameters)
    named = answer.removesuffix(" here").removeprefix(f"{word} is ")
    assert word not in names
    assert named in names or not named.isidentifier()
    for call in (
        lambda **fields: keras_vit.vit_ti16(32, **fields),
        lambda **fields: keras_vit.VisionTransformer.from_preset("vit_digits", **fields),
        lambda **fields: keras_vit.ViTConfig.from_dict(fields),
        lambda **fields: keras_vit.vit_ti16.config().replace(**fields),
    ):
        with raises(ConfigError, word, answer):
            call(**{word: 1})


def test_a_dict_changes_one_field_of_the_stem_of_a_hybrid():
    config = keras_vit.r50_vit_b16.config(stem={"kind": "resnet_timm"})
    assert config == keras_vit.r50_vit_b16.config().replace(stem={"kind": "resnet_timm"})
    assert config.stem.units == (3, 4, 9)
