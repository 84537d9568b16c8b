"""The configuration of dense heads: semantic segmentation and depth estimation."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from keras_vit.config.fields import Fields, field
from keras_vit.config.rules import POSITIVE_NUMBER, Values, choice, is_int, is_positive_int

IGNORE_LABEL = 255
"""Label of the pixels of a mask that loss and metrics ignore, as in PASCAL VOC."""
SCALES = (4, 2, 1, 0.5)
"""Sizes of DPT's four maps, as multiples of the grid of patches (arXiv 2103.13413, section 3)."""


def _are_stages(value: Any) -> bool:
    are_blocks = isinstance(value, tuple) and all(is_int(i) and i >= 0 for i in value)
    return are_blocks and bool(value) and [*value] == sorted({*value})


_STAGES = Values(_are_stages, "increasing block numbers, counted from 0")
_WIDTHS = Values(lambda v: len(v) == len(SCALES) and all(map(is_positive_int, v)), "four widths")
_LABEL = Values(lambda v: v is None or (is_int(v) and v >= 0), "a non-negative int or None")

_OF_BOTH_KINDS = ("stages", "kind", "output", "max_depth", "ignore_label")
"""Fields of linear heads and DPT heads; all other fields are for DPT only."""


class DenseLayer(NamedTuple):
    """A layer of a dense head.

    Args:
        name: name of the layer; the paths of its weights start with `head/` and this name.
        kind: `"dense"`, `"conv"`, `"larger"` (a transposed convolution whose stride is its side),
            `"smaller"` (a convolution of stride 2) or `"norm"` (a batch norm).
        inputs, outputs: channels.
        side: rows and columns of a kernel.
        use_bias: whether it has a bias.
    """

    name: str
    kind: str
    inputs: int
    outputs: int
    side: int = 1
    use_bias: bool = True


@dataclasses.dataclass(frozen=True)
class DenseHead(Fields):
    """The options of a head that predicts a map of the image's size from patch tokens.

    The map holds classes (semantic segmentation) or depths. `keras_vit.layers.DenseMap` documents
    the computation. The fields from `widths` on are for DPT only.

    Args:
        stages: the blocks whose tokens the head reads, counted from 0; the last of them is the last
            block of the model. DPT reads four.
        kind: `"linear"`: a linear layer on the patch tokens, concatenated if there are several
            stages; `"dpt"`: the convolutional decoder of arXiv 2103.13413.
        output: `"logits"` of the classes of every pixel (semantic segmentation); or, for depth,
            `"exp"` (the head predicts the logarithm), `"relu"` (relative depth) or `"sigmoid"`
            (metric depth).
        max_depth: factor of the depth; for `"sigmoid"` the largest depth, in the unit of the
            targets.
        ignore_label: label of the pixels that loss and metrics ignore; None for no such label.
        widths: channels of the four maps, from the finest to the coarsest.
        fusion_size: channels of the fused maps.
        depth_size: channels before the last layer of a depth head.
        readout: use of the class token: `"add"` adds it to every patch; `"project"` concatenates
            it with every patch, followed by a layer with the MLP's activation; None ignores it.
        batch_norm: whether the residual units of the fusion have batch norms.
        residual_bias: whether the convolutions of these units have biases.
        projection: whether a depth head has one more convolution before its last three (DINOv2).
        doubles: whether each fusion stage doubles the size of the map, as in DPT, whose output has
            16 x 16 pixels per patch; False resizes it to the size of the next map (Depth Anything).

    Raises:
        ConfigError: a field is invalid; the message names it, its value and the valid values.
    """

    _prefix = "dense."

    stages: tuple[int, ...] = field((), _STAGES)
    kind: str = field("linear", choice("linear", "dpt"))
    output: str = field("logits", choice("logits", "exp", "relu", "sigmoid"))
    max_depth: float = field(1.0, POSITIVE_NUMBER)
    ignore_label: int | None = field(IGNORE_LABEL, _LABEL)
    widths: tuple[int, ...] = field((96, 192, 384, 768), _WIDTHS)
    fusion_size: int = 256
    depth_size: int = 32
    readout: str | None = field(None, choice("add", "project", None))
    batch_norm: bool = False
    residual_bias: bool = True
    projection: bool = False
    doubles: bool = False

    def __post_init__(self) -> None:
        for name in ("stages", "widths"):
            if isinstance(getattr(self, name), (list, range)):
                self._set(name, tuple(getattr(self, name)))
        super().__post_init__()
        # Unused fields get their defaults, so that equal heads have equal configurations.
        for own in () if self.is_dpt else dataclasses.fields(self):
            if own.name not in _OF_BOTH_KINDS:
                self._set(own.name, own.default)
        if not self.is_segmentation:
            self._set("ignore_label", None)

    def _faults(self) -> Iterator[str]:
        if self.is_dpt and len(self.stages) != len(SCALES):
            yield f"stages={self.stages}: kind='dpt' reads {len(SCALES)} blocks."
        if self.is_dpt and self.fusion_size % 2:
            yield f"fusion_size={self.fusion_size}, expected an even number."

    @property
    def is_dpt(self) -> bool:
        """Whether this is a DPT head."""
        return self.kind == "dpt"

    @property
    def is_segmentation(self) -> bool:
        """Whether the map holds logits of classes, rather than depths."""
        return self.output == "logits"

    @property
    def task(self) -> str:
        """The task of the head: `"segmentation"` or `"depth"`."""
        return "segmentation" if self.is_segmentation else "depth"

    def list_layers(self, hidden_size: int, num_outputs: int) -> Iterator[DenseLayer]:
        """Yields the layers with weights, in the order of their calls.

        Args:
            hidden_size: width of a token.
            num_outputs: outputs per pixel.
        """
        if not self.is_dpt:
            yield DenseLayer("output", "dense", hidden_size * len(self.stages), num_outputs)
            return
        size = self.fusion_size
        for s, (width, scale) in enumerate(zip(self.widths, SCALES, strict=True)):
            if self.readout == "project":
                yield DenseLayer(f"readout_{s}", "dense", 2 * hidden_size, hidden_size)
            yield DenseLayer(f"stage_{s}", "dense", hidden_size, width)
            if scale > 1:
                yield DenseLayer(f"larger_{s}", "larger", width, width, int(scale))
            elif scale < 1:
                yield DenseLayer(f"smaller_{s}", "smaller", width, width, 3)
            yield DenseLayer(f"map_{s}", "conv", width, size, 3, use_bias=False)
        for s in range(len(SCALES)):  # from the coarsest map to the finest
            for unit in (1, 2) if s else (2,):  # the coarsest has no map to add
                for v in (1, 2):
                    name = f"residual_{s}_{unit}"
                    conv = DenseLayer(f"{name}_conv_{v}", "conv", size, size, 3, self.residual_bias)
                    yield conv
                    if self.batch_norm:
                        yield DenseLayer(f"{name}_norm_{v}", "norm", size, size)
            yield DenseLayer(f"fusion_{s}", "dense", size, size)
        if self.is_segmentation:
            yield DenseLayer("hidden_0", "conv", size, size, 3, use_bias=False)
            yield DenseLayer("norm", "norm", size, size)
            yield DenseLayer("output", "dense", size, num_outputs)
        else:
            if self.projection:
                yield DenseLayer("projection", "conv", size, size, 3)
            yield DenseLayer("hidden_0", "conv", size, size // 2, 3)
            yield DenseLayer("hidden_1", "conv", size // 2, self.depth_size, 3)
            yield DenseLayer("output", "dense", self.depth_size, num_outputs)
