"""Declares all weights of keras_vit, each once: path, axes, and the models that have it.

A path locates a weight in a `VisionTransformer`; a placeholder in braces, such as `{l}`, takes
several values, which follow from the configuration. Families state the axes of their arrays by
the names of these axes.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from keras_vit.config import DenseHead, Stem, ViTConfig
from keras_vit.config.weights.axes import compute_shape
from keras_vit.config.weights.conditions import Place, Term, parse
from keras_vit.config.weights.templates import PLACEHOLDERS, fill, matcher, placeholders


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis of weights.

    Args:
        words: name of the axis, for messages: the path of the field of `ViTConfig` with its size,
            if there is such a field.
        size: function that returns the size; None for the value of the field. The sizes of a stem
            are computed separately.
    """

    words: str
    size: Callable[[ViTConfig], int] | None = None

    def size_in(self, config: ViTConfig) -> int:
        """Returns the size of the axis in a model."""
        return self.size(config) if self.size else Place(self.words).read(config) or 0


AXES = {
    "p": Axis("patch rows", lambda c: c.patch_size[0]),
    "q": Axis("patch columns", lambda c: c.patch_size[1]),
    "c": Axis(
        "channels into the patches",
        lambda c: c.stem.out_channels if c.stem.is_resnet else c.channels,
    ),
    "m": Axis("hidden_size"),
    "n": Axis("positions", lambda c: c.num_positions),
    "R": Axis("rows of positions", lambda c: c.source_grid[0]),
    "S": Axis("columns of positions", lambda c: c.source_grid[1]),
    "u": Axis("distances between patches", lambda c: c.num_distances),
    "h": Axis("num_heads"),
    "d": Axis("head_dim"),
    "b": Axis(
        "channels of a norm of queries and keys",
        lambda c: c.hidden_size if c.block.qk_norm == "width" else c.head_dim,
    ),
    "f": Axis("mlp_dim"),
    "r": Axis("representation_size"),
    "e": Axis(
        "features into the head",
        lambda c: c.representation_size or c.projection_size or c.pooled_size,
    ),
    "k": Axis("num_classes"),
    "s": Axis("tokens.class_tokens"),
    "g": Axis("tokens.registers"),
    "t": Axis("projection_size"),
    "z": Axis("coordinates", lambda c: 2),
    "j": Axis("pairs of channels", lambda c: c.head_dim // 2),
    "y": Axis("kernel rows"),
    "x": Axis("kernel columns"),
    "i": Axis("image channels"),
    "a": Axis("channels in"),
    "w": Axis("channels"),
    "v": Axis("channels out"),
    "o": Axis("channels out"),
}


@dataclasses.dataclass(frozen=True)
class Word:
    """One kind of weight.

    Args:
        path: template of the weight's path in a model.
        axes: axes of the weight.
        held_by: condition of the models that have the weight (`conditions`), without alternatives.
        bound_by: function that returns whether a model has the weight with these values of the
            placeholders.
    """

    path: str
    axes: str
    held_by: str = ""
    bound_by: Callable[[ViTConfig, Mapping[str, str]], bool] = lambda config, binding: True

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of `held_by`, which must all hold."""
        (terms,) = parse(self.held_by).alternatives
        return terms

    @property
    def part(self) -> str:
        """The feature that the weight belongs to, for messages; "" for the paper's model."""
        return next((term.part for term in self.terms if term.part), "")

    def is_held_by(self, config: ViTConfig) -> bool:
        """Whether a model has this weight."""
        return parse(self.held_by).holds(config)


@dataclasses.dataclass(frozen=True)
class Weight:
    """One weight of one model: a word with the values of its placeholders and axes."""

    word: Word
    binding: dict[str, str]
    sizes: dict[str, int]

    @property
    def path(self) -> str:
        return fill(self.word.path, self.binding)

    @property
    def shape(self) -> tuple[int, ...]:
        return compute_shape(self.word.axes, self.sizes)


def _has_bias(config: ViTConfig, binding: Mapping[str, str]) -> bool:
    return binding["qkv"] in config.block.biased_projections


UNIT = "stage{s}_unit{u}"
RESIDUAL = "head/residual_{s}_{u}"

LEXICON: tuple[Word, ...] = (
    # stem of a hybrid
    Word("root/conv/kernel", "y x i w", "stem.is_resnet"),
    Word("root/norm/gamma", "w", "stem.is_resnet"),
    Word("root/norm/beta", "w", "stem.is_resnet"),
    Word(UNIT + "/conv_proj/kernel", "y x a o", "stem.is_resnet"),
    Word(UNIT + "/norm_proj/gamma", "o", "stem.is_resnet"),
    Word(UNIT + "/norm_proj/beta", "o", "stem.is_resnet"),
    Word(UNIT + "/conv1/kernel", "y x a w", "stem.is_resnet"),
    Word(UNIT + "/norm1/gamma", "w", "stem.is_resnet"),
    Word(UNIT + "/norm1/beta", "w", "stem.is_resnet"),
    Word(UNIT + "/conv2/kernel", "y x w v", "stem.is_resnet"),
    Word(UNIT + "/norm2/gamma", "w", "stem.is_resnet"),
    Word(UNIT + "/norm2/beta", "w", "stem.is_resnet"),
    Word(UNIT + "/conv3/kernel", "y x w o", "stem.is_resnet"),
    Word(UNIT + "/norm3/gamma", "o", "stem.is_resnet"),
    Word(UNIT + "/norm3/beta", "o", "stem.is_resnet"),
    # Eq. 1
    Word("patch_embedding/kernel", "p q c m"),
    Word("patch_embedding/bias", "m", "patch_bias"),
    Word("patch_norm/gamma", "m", "block.input_norm=patches"),
    Word("patch_norm/beta", "m", "block.input_norm=patches block.norm=layer"),
    Word("mask_token/token", "1 1 m", "tokens.mask"),
    Word("class_tokens/tokens", "1 s m", "tokens.class_tokens!=0|1"),
    Word("class_token/token", "1 1 m", "tokens.class_tokens=1"),
    Word("distillation_token/token", "1 1 m", "tokens.distillation"),
    Word("register_tokens/tokens", "1 g m", "tokens.registers"),
    Word("position_embedding/embedding", "1 n m", "has_learned_positions"),
    Word("relative_position_bias/table", "u h", "relative_position_bias=shared"),
    Word("pre_norm/gamma", "m", "block.input_norm=tokens"),
    Word("pre_norm/beta", "m", "block.input_norm=tokens block.norm=layer"),
    # Eqs. 2 and 3
    Word("position_bias_{l}/table", "u h", "relative_position_bias=block"),
    Word("block_{l}/attention_norm/gamma", "m"),
    Word("block_{l}/attention_norm/beta", "m", "block.norm=layer"),
    Word("block_{l}/attention/{qkv}/kernel", "m h d"),
    Word("block_{l}/attention/{qkv}/bias", "h d", "block.qkv_bias", bound_by=_has_bias),
    Word("block_{l}/attention/query_norm/gamma", "b", "block.qk_norm"),
    Word("block_{l}/attention/query_norm/beta", "b", "block.qk_norm block.norm=layer"),
    Word("block_{l}/attention/key_norm/gamma", "b", "block.qk_norm"),
    Word("block_{l}/attention/key_norm/beta", "b", "block.qk_norm block.norm=layer"),
    Word("block_{l}/attention/rotary_frequencies", "z h j", "rope.is_learned"),
    Word("block_{l}/attention/sub_norm/gamma", "m", "block.sub_norm=attention|both"),
    Word(
        "block_{l}/attention/sub_norm/beta", "m", "block.sub_norm=attention|both block.norm=layer"
    ),
    Word("block_{l}/attention/out/kernel", "h d m"),
    Word("block_{l}/attention/out/bias", "m", "block.projection_bias"),
    Word("block_{l}/attention_scale/gamma", "m", "block.layer_scale!=None"),
    Word("block_{l}/mlp_norm/gamma", "m"),
    Word("block_{l}/mlp_norm/beta", "m", "block.norm=layer"),
    Word("block_{l}/mlp/dense_0/kernel", "m f", "block.gated!"),
    Word("block_{l}/mlp/dense_0/bias", "f", "block.gated! block.mlp_bias"),
    Word("block_{l}/mlp/{gate}/kernel", "m f", "block.gated"),
    Word("block_{l}/mlp/{gate}/bias", "f", "block.gated block.mlp_bias"),
    Word("block_{l}/mlp/sub_norm/gamma", "f", "block.sub_norm=mlp|both"),
    Word("block_{l}/mlp/sub_norm/beta", "f", "block.sub_norm=mlp|both block.norm=layer"),
    Word("block_{l}/mlp/dense_1/kernel", "f m"),
    Word("block_{l}/mlp/dense_1/bias", "m", "block.mlp_bias"),
    Word("block_{l}/mlp_scale/gamma", "m", "block.layer_scale!=None"),
    # Eq. 4
    Word("encoder_norm/gamma", "m", "pool.norm!=none"),
    Word("encoder_norm/beta", "m", "pool.norm!=none block.norm=layer"),
    Word("pool/probe", "1 1 m", "pool.is_map"),
    Word("pool/attention/{qkv}/kernel", "m h d", "pool.is_map"),
    Word("pool/attention/{qkv}/bias", "h d", "pool.is_map"),
    Word("pool/attention/out/kernel", "h d m", "pool.is_map"),
    Word("pool/attention/out/bias", "m", "pool.is_map"),
    Word("pool/norm/gamma", "m", "pool.is_map"),
    Word("pool/norm/beta", "m", "pool.is_map"),
    Word("pool/mlp/dense_0/kernel", "m f", "pool.is_map"),
    Word("pool/mlp/dense_0/bias", "f", "pool.is_map"),
    Word("pool/mlp/dense_1/kernel", "f m", "pool.is_map"),
    Word("pool/mlp/dense_1/bias", "m", "pool.is_map"),
    # the head
    Word("projection/kernel", "m t", "projection_size"),
    Word("pre_logits/kernel", "m r", "representation_size"),
    Word("pre_logits/bias", "r", "representation_size"),
    Word("head/kernel", "e k", "num_classes pool.kind!=token_and_distillation dense!"),
    Word("head/bias", "k", "num_classes pool.kind!=token_and_distillation dense!"),
    Word("head/{head}/kernel", "e k", "num_classes pool.kind=token_and_distillation"),
    Word("head/{head}/bias", "k", "num_classes pool.kind=token_and_distillation"),
    # a dense head
    Word("head/readout_{s}/kernel", "a o", "dense.readout=project"),
    Word("head/readout_{s}/bias", "o", "dense.readout=project"),
    Word("head/stage_{s}/kernel", "a o", "dense.is_dpt"),
    Word("head/stage_{s}/bias", "o", "dense.is_dpt"),
    Word("head/larger_{s}/kernel", "y x o a", "dense.is_dpt"),
    Word("head/larger_{s}/bias", "o", "dense.is_dpt"),
    Word("head/smaller_{s}/kernel", "y x a o", "dense.is_dpt"),
    Word("head/smaller_{s}/bias", "o", "dense.is_dpt"),
    Word("head/map_{s}/kernel", "y x a o", "dense.is_dpt"),
    Word(RESIDUAL + "_conv_{v}/kernel", "y x a o", "dense.is_dpt"),
    Word(RESIDUAL + "_conv_{v}/bias", "o", "dense.is_dpt dense.residual_bias"),
    Word(RESIDUAL + "_norm_{v}/gamma", "o", "dense.is_dpt dense.batch_norm"),
    Word(RESIDUAL + "_norm_{v}/beta", "o", "dense.is_dpt dense.batch_norm"),
    Word(RESIDUAL + "_norm_{v}/moving_mean", "o", "dense.is_dpt dense.batch_norm"),
    Word(RESIDUAL + "_norm_{v}/moving_variance", "o", "dense.is_dpt dense.batch_norm"),
    Word("head/fusion_{s}/kernel", "a o", "dense.is_dpt"),
    Word("head/fusion_{s}/bias", "o", "dense.is_dpt"),
    Word("head/projection/kernel", "y x a o", "dense.projection"),
    Word("head/projection/bias", "o", "dense.projection"),
    Word("head/hidden_0/kernel", "y x a o", "dense.is_dpt"),
    Word("head/hidden_0/bias", "o", "dense.is_dpt dense.output!=logits"),
    Word("head/hidden_1/kernel", "y x a o", "dense.is_dpt dense.output!=logits"),
    Word("head/hidden_1/bias", "o", "dense.is_dpt dense.output!=logits"),
    Word("head/norm/gamma", "o", "dense.is_dpt dense.output=logits"),
    Word("head/norm/beta", "o", "dense.is_dpt dense.output=logits"),
    Word("head/norm/moving_mean", "o", "dense.is_dpt dense.output=logits"),
    Word("head/norm/moving_variance", "o", "dense.is_dpt dense.output=logits"),
    Word("head/output/kernel", "a k", "dense.kind"),
    Word("head/output/bias", "k", "dense.kind"),
)


Kind = tuple[Word, dict[str, int], list[dict[str, str]]]
"""A word, the sizes of its axes in a model, and the placeholder values of each weight."""


def num_parameters(config: ViTConfig) -> int:
    """Returns the number of parameters of the model that a configuration describes."""
    kinds = _kinds(config)
    return sum(len(own) * math.prod(compute_shape(w.axes, sizes)) for w, sizes, own in kinds)


def weights(config: ViTConfig) -> Iterator[Weight]:
    """Yields every weight of the model that a configuration describes."""
    for word, sizes, bindings in _kinds(config):
        for binding in bindings:
            yield Weight(word, binding, sizes)


def _kinds(config: ViTConfig) -> Iterator[Kind]:
    """Yields each word of a model with the sizes of its axes and its placeholder values."""
    sizes = {symbol: axis.size_in(config) for symbol, axis in AXES.items()}
    for word in LEXICON:
        if not word.is_held_by(config):
            continue
        if config.stem.is_resnet and word.path.startswith("root"):
            root = {"y": 7, "x": 7, "i": config.channels, "w": config.stem.width}
            yield word, root, [{}]
        elif config.stem.is_resnet and word.path.startswith(UNIT):
            yield from _unit_kinds(word, config.stem)
        elif config.dense is not None and word.path.startswith("head/"):
            yield from _dense_kinds(word, config, config.dense)
        else:
            names = placeholders(word.path)
            values = itertools.product(*(PLACEHOLDERS[n].values(config) for n in names))
            bindings = [dict(zip(names, own, strict=True)) for own in values]
            bound = [binding for binding in bindings if word.bound_by(config, binding)]
            yield word, sizes | _read_pool_sizes(word, config), bound


def _read_pool_sizes(word: Word, config: ViTConfig) -> dict[str, int]:
    """Returns the sizes that attention pooling may choose differently from the blocks."""
    if not word.path.startswith("pool/"):
        return {}
    heads = config.pool.num_heads or config.num_heads
    return {
        "h": heads,
        "d": config.hidden_size // heads,
        "f": config.pool.mlp_dim or config.mlp_dim,
    }


def _unit_kinds(word: Word, stem: Stem) -> Iterator[Kind]:
    kernel = 3 if "/conv2/" in word.path else 1
    for unit in stem.list_units():
        if unit.number == 1 or "_proj/" not in word.path:  # only a stage's first unit projects
            width = unit.filters
            channels = {"a": unit.channels, "w": width, "v": width, "o": 4 * width}
            binding = {"s": str(unit.stage), "u": str(unit.number)}
            yield word, {"y": kernel, "x": kernel, **channels}, [binding]


def _dense_kinds(word: Word, config: ViTConfig, head: DenseHead) -> Iterator[Kind]:
    for layer in head.list_layers(config.hidden_size, config.num_classes):
        binding = matcher(word.path.rpartition("/")[0])(f"head/{layer.name}")
        if binding is not None:
            sides = {"y": layer.side, "x": layer.side, "k": layer.outputs}
            yield word, {**sides, "a": layer.inputs, "o": layer.outputs}, [binding]
