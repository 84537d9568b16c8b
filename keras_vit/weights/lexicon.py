"""The weights of keras_vit, each stated once: path, axes, and the models that have it.

A path is the place of a weight in a `VisionTransformer`; a placeholder in braces stands
for each of the values that the configuration gives it. The names of the axes let a dialect
state the axes of its arrays.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from keras_vit.config import ViTConfig
from keras_vit.weights.axes import shape_of
from keras_vit.weights.templates import filled, placeholders, values_of

AXIS_NAMES = {
    "p": "patch rows",
    "q": "patch columns",
    "c": "channels into the patches",
    "m": "hidden_size",
    "n": "positions",
    "h": "num_heads",
    "d": "head_dim",
    "f": "mlp_dim",
    "r": "representation_size",
    "e": "features into the head",
    "k": "num_classes",
    "g": "num_registers",
    "t": "projection_dim",
    "z": "coordinates",
    "j": "pairs of channels",
    "y": "kernel rows",
    "x": "kernel columns",
    "i": "image channels",
    "a": "channels in",
    "w": "channels",
    "v": "channels out",
    "o": "channels out",
}


@dataclasses.dataclass(frozen=True)
class Word:
    """One kind of weight.

    Args:
        path: template of the weight's path in a model.
        axes: axes of the weight.
        held_by: the models that have the weight: names of fields or properties of `ViTConfig`
            that must all be true, or a condition. `""` stands for every model.
        part: the part of the model, in words, if the paper's model lacks it; for messages.
        bound_by: condition on the values of the placeholders, for a weight that a model has
            for some of the values only.
    """

    path: str
    axes: str
    held_by: str | Callable[[ViTConfig], bool] = ""
    part: str = ""
    bound_by: Callable[[ViTConfig, Mapping[str, str]], bool] = lambda config, binding: True

    def is_held_by(self, config: ViTConfig) -> bool:
        """Whether a model has this weight."""
        if callable(self.held_by):
            return self.held_by(config)
        return all(getattr(config, name) for name in self.held_by.split())


@dataclasses.dataclass(frozen=True)
class Weight:
    """One weight of one model: a word with values for its placeholders and sizes of its axes."""

    word: Word
    binding: dict[str, str]
    sizes: dict[str, int]

    @property
    def path(self) -> str:
        return filled(self.word.path, self.binding)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.word.axes, self.sizes)


def _learned(config: ViTConfig) -> bool:
    return config.position == "learned"


def _map(config: ViTConfig) -> bool:
    return config.classifier == "map"


def _mixed(config: ViTConfig) -> bool:
    return config.rope is not None and config.rope.form == "mixed"


def _one_head(config: ViTConfig) -> bool:
    return config.num_classes > 0 and not config.has_two_heads


def _has_bias(config: ViTConfig, binding: Mapping[str, str]) -> bool:
    return binding["qkv"] in config.biased_projections


UNIT = "stage{s}_unit{u}"

LEXICON: tuple[Word, ...] = (
    # stem of a hybrid
    Word("root/conv/kernel", "y x i w", "resnet"),
    Word("root/norm/gamma", "w", "resnet"),
    Word("root/norm/beta", "w", "resnet"),
    Word(UNIT + "/conv_proj/kernel", "y x a o", "resnet"),
    Word(UNIT + "/norm_proj/gamma", "o", "resnet"),
    Word(UNIT + "/norm_proj/beta", "o", "resnet"),
    Word(UNIT + "/conv1/kernel", "y x a w", "resnet"),
    Word(UNIT + "/norm1/gamma", "w", "resnet"),
    Word(UNIT + "/norm1/beta", "w", "resnet"),
    Word(UNIT + "/conv2/kernel", "y x w v", "resnet"),
    Word(UNIT + "/norm2/gamma", "w", "resnet"),
    Word(UNIT + "/norm2/beta", "w", "resnet"),
    Word(UNIT + "/conv3/kernel", "y x w o", "resnet"),
    Word(UNIT + "/norm3/gamma", "o", "resnet"),
    Word(UNIT + "/norm3/beta", "o", "resnet"),
    # Eq. 1
    Word("patch_embedding/kernel", "p q c m"),
    Word("patch_embedding/bias", "m", "patch_bias"),
    Word("patch_norm/gamma", "m", "patch_norm", "a norm behind the patches"),
    Word("patch_norm/beta", "m", "patch_norm norms_have_bias", "a norm behind the patches"),
    Word("mask_token/token", "1 1 m", "mask_token", "a mask token"),
    Word("class_token/token", "1 1 m", "has_class_token"),
    Word("distillation_token/token", "1 1 m", "distillation_token", "a distillation token"),
    Word("register_tokens/tokens", "1 g m", "num_registers", "register tokens"),
    Word("position_embedding/embedding", "1 n m", _learned),
    Word("pre_norm/gamma", "m", "pre_norm", "a norm before the blocks"),
    Word("pre_norm/beta", "m", "pre_norm norms_have_bias", "a norm before the blocks"),
    # Eqs. 2 and 3
    Word("block_{l}/attention_norm/gamma", "m"),
    Word("block_{l}/attention_norm/beta", "m", "norms_have_bias"),
    Word("block_{l}/attention/{qkv}/kernel", "m h d"),
    Word("block_{l}/attention/{qkv}/bias", "h d", "qkv_bias", bound_by=_has_bias),
    Word("block_{l}/attention/rotary_frequencies", "z h j", _mixed, "rotary positions"),
    Word("block_{l}/attention/sub_norm/gamma", "m", "sub_norm_attention", "a sub-norm"),
    Word(
        "block_{l}/attention/sub_norm/beta", "m", "sub_norm_attention norms_have_bias", "a sub-norm"
    ),
    Word("block_{l}/attention/out/kernel", "h d m"),
    Word("block_{l}/attention/out/bias", "m", "projection_bias"),
    Word("block_{l}/attention_scale/gamma", "m", "layer_scale", "layer scale"),
    Word("block_{l}/mlp_norm/gamma", "m"),
    Word("block_{l}/mlp_norm/beta", "m", "norms_have_bias"),
    Word("block_{l}/mlp/dense_0/kernel", "m f", "mlp_is_plain"),
    Word("block_{l}/mlp/dense_0/bias", "f", "mlp_is_plain mlp_bias"),
    Word("block_{l}/mlp/{gate}/kernel", "m f", "mlp_is_gated", "a gated MLP"),
    Word("block_{l}/mlp/{gate}/bias", "f", "mlp_is_gated mlp_bias", "a gated MLP"),
    Word("block_{l}/mlp/sub_norm/gamma", "f", "sub_norm_mlp", "a sub-norm"),
    Word("block_{l}/mlp/sub_norm/beta", "f", "sub_norm_mlp norms_have_bias", "a sub-norm"),
    Word("block_{l}/mlp/dense_1/kernel", "f m"),
    Word("block_{l}/mlp/dense_1/bias", "m", "mlp_bias"),
    Word("block_{l}/mlp_scale/gamma", "m", "layer_scale", "layer scale"),
    # Eq. 4
    Word("encoder_norm/gamma", "m", "final_norm"),
    Word("encoder_norm/beta", "m", "final_norm norms_have_bias"),
    Word("pool/probe", "1 1 m", _map),
    Word("pool/attention/{qkv}/kernel", "m h d", _map),
    Word("pool/attention/{qkv}/bias", "h d", _map),
    Word("pool/attention/out/kernel", "h d m", _map),
    Word("pool/attention/out/bias", "m", _map),
    Word("pool/norm/gamma", "m", _map),
    Word("pool/norm/beta", "m", _map),
    Word("pool/mlp/dense_0/kernel", "m f", _map),
    Word("pool/mlp/dense_0/bias", "f", _map),
    Word("pool/mlp/dense_1/kernel", "f m", _map),
    Word("pool/mlp/dense_1/bias", "m", _map),
    # the head
    Word("projection/kernel", "m t", "projection_dim", "a projection behind the pooling"),
    Word("pre_logits/kernel", "m r", "representation_size"),
    Word("pre_logits/bias", "r", "representation_size"),
    Word("head/kernel", "e k", _one_head),
    Word("head/bias", "k", _one_head),
    Word("head/{head}/kernel", "e k", "num_classes has_two_heads", "a distillation head"),
    Word("head/{head}/bias", "k", "num_classes has_two_heads", "a distillation head"),
)


def num_parameters(config: ViTConfig) -> int:
    """Returns the number of parameters of the model that a configuration describes."""
    return sum(math.prod(weight.shape) for weight in weights(config))


def weights(config: ViTConfig) -> Iterator[Weight]:
    """Yields every weight of the model that a configuration describes."""
    sizes = _sizes(config)
    for word in LEXICON:
        if not word.is_held_by(config):
            continue
        if word.path.startswith("root"):
            width = config.resnet.width  # type: ignore[union-attr]
            yield Weight(word, {}, {"y": 7, "x": 7, "i": config.channels, "w": width})
        elif word.path.startswith(UNIT):
            yield from _unit_weights(word, config)
        else:
            names = placeholders(word.path)
            for values in itertools.product(*(values_of(name, config) for name in names)):
                binding = dict(zip(names, values, strict=True))
                if word.bound_by(config, binding):
                    yield Weight(word, binding, sizes | _sizes_of_pool(word, config))


def _sizes(config: ViTConfig) -> dict[str, int]:
    return {
        "p": config.patch_size[0],
        "q": config.patch_size[1],
        "c": config.resnet.out_channels if config.resnet else config.channels,
        "m": config.hidden_size,
        "n": config.num_positions,
        "h": config.num_heads,
        "d": config.head_dim,
        "f": config.mlp_dim,
        "r": config.representation_size or 0,
        "e": config.representation_size or config.projection_dim or config.pooled_size,
        "k": config.num_classes,
        "g": config.num_registers,
        "t": config.projection_dim or 0,
        "z": 2,
        "j": config.head_dim // 2,
    }


def _sizes_of_pool(word: Word, config: ViTConfig) -> dict[str, int]:
    """Returns the sizes in which attention pooling may differ from the blocks."""
    if not word.path.startswith("pool/"):
        return {}
    heads = config.map_num_heads or config.num_heads
    return {"h": heads, "d": config.hidden_size // heads, "f": config.map_mlp_dim or config.mlp_dim}


def _unit_weights(word: Word, config: ViTConfig) -> Iterator[Weight]:
    channels = config.resnet.width  # type: ignore[union-attr]
    for s, units in enumerate(config.resnet.num_layers, start=1):  # type: ignore[union-attr]
        width = config.resnet.width * 2 ** (s - 1)  # type: ignore[union-attr]
        for u in range(1, units + 1):
            kernel = 3 if "/conv2/" in word.path else 1
            sizes = {
                "y": kernel,
                "x": kernel,
                "a": channels,
                "w": width,
                "v": width,
                "o": 4 * width,
            }
            channels = 4 * width
            if u == 1 or "_proj/" not in word.path:  # only a stage's first unit projects
                yield Weight(word, {"s": str(s), "u": str(u)}, sizes)
