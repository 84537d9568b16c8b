"""Dense heads for semantic segmentation and depth estimation: linear, and DPT."""

import math

import keras
import numpy as np
from keras import ops

from keras_vit.config import DenseHead
from keras_vit.config.dense import SCALES
from keras_vit.kernels.sizes import is_known, number, steps
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.layers.dense import Dense
from keras_vit.layers.initializers import LecunNormal
from keras_vit.layers.mlp import activate
from keras_vit.layers.precision import float32_under_mixed
from keras_vit.support.interpolation import resampling_weights

_HALF_PIXEL, _CORNERS = "bilinear_half_pixel", "bilinear_align_corners"


@keras.saving.register_keras_serializable("keras_vit")
class DenseMap(ConfiguredLayer):
    """Predicts a segmentation or depth map of the image's size from the tokens of some blocks.

    The linear head applies a linear layer to the patch tokens and resizes the result bilinearly to
    the image, as DINOv2's linear segmentation does. DPT (Ranftl et al. 2021, arXiv 2103.13413; the
    reference is `modeling_dpt.py` and `modeling_depth_anything.py` of transformers) makes four maps
    of four sizes, fuses them from the coarsest to the finest with residual units, and ends
    with convolutions. If DPT's map has another size than the image, it is resized as in
    transformers' post-processing. Pixels that fill no patch get the nearest values.

    Inputs: a list of tokens `(batch, tokens, hidden_size)`, one for each stage; the grid of patches
    `(batch, rows, columns, hidden_size)` and the images, of which only the sizes are read.
    Output: logits `(batch, height, width, num_outputs)`, or depths `(batch, height, width)`.

    Args:
        head: the head, a `DenseHead` or a dict of its fields.
        num_outputs: outputs per pixel.
        num_prefix_tokens: number of tokens before the patches; the first is the class token.
        stride: rows and columns of pixels per patch.
        activation: activation of the readout, as of `keras_vit.config.Block`.
        data_format: data format of the images.
    """

    def __init__(
        self,
        head,
        num_outputs,
        num_prefix_tokens=1,
        stride=(16, 16),
        activation="gelu",
        data_format="channels_last",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.head = DenseHead.read(head)
        self.num_outputs = num_outputs
        self.num_prefix_tokens = num_prefix_tokens
        self.stride = tuple(stride)
        self.activation = activation
        self.data_format = data_format

    def build(self, tokens_shape, patches_shape, images_shape):
        self.parts = {}
        for own in self.head.list_layers(patches_shape[-1], self.num_outputs):
            part = self.parts[own.name] = self._make(own)
            part.build((None, None, None, own.inputs))

    def _make(self, own):
        shared = {"dtype": self.dtype_policy, "name": own.name}
        if own.kind == "norm":
            return keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, **shared)
        if own.name == "output":
            # Zeros after a ReLU would make all channels of DPT equal, and then inactive.
            initial = LecunNormal() if self.head.is_dpt else "zeros"
            float32 = float32_under_mixed(self.dtype_policy)
            shared |= {"dtype": float32, "kernel_initializer": initial}
            if self.head.output == "relu":  # which passes no gradient on at 0
                shared["bias_initializer"] = "ones"
        else:
            shared |= {"kernel_initializer": LecunNormal(), "use_bias": own.use_bias}
        if own.kind == "dense":
            return Dense(own.outputs, **shared)
        kind = keras.layers.Conv2DTranspose if own.kind == "larger" else keras.layers.Conv2D
        strides = {"larger": own.side, "smaller": 2}.get(own.kind, 1)
        padding = "same" if own.kind == "conv" else "valid"
        shared |= {"strides": strides, "padding": padding, "data_format": "channels_last"}
        return kind(own.outputs, own.side, **shared)

    def reset_output(self):
        """Reinitialises the last layer, for new classes."""
        output = self.parts["output"]
        for part in ("kernel", "bias"):
            weight, initial = getattr(output, part), getattr(output, f"{part}_initializer")
            weight.assign(initial(weight.shape, weight.dtype))

    def call(self, tokens, patches, images, training=None):
        grid = ops.shape(patches)[1:3]
        covered = [side * pixels for side, pixels in zip(grid, self.stride, strict=True)]
        sides = self._sides(ops.shape(images))
        if self.head.is_dpt:
            z = self._activate(self._decode(tokens, grid, covered, training))
            z = _resize(z, sides, _HALF_PIXEL, covered)
        else:
            z = ops.concatenate([each[:, self.num_prefix_tokens :] for each in tokens], axis=-1)
            z = ops.reshape(self.parts["output"](z), (-1, *grid, self.num_outputs))
            z = self._activate(_resize(z, sides, _HALF_PIXEL, covered))
        return z if self.head.is_segmentation else z[..., 0]

    def _decode(self, tokens, grid, covered, training):
        """Returns DPT's map before the activation, `(batch, rows, columns, num_outputs)`."""
        head, part = self.head, self.parts
        maps = [self._map(s, each, grid) for s, each in enumerate(tokens)]
        z, sizes = maps[-1], [ops.shape(each)[1:3] for each in maps]
        for s in range(len(maps)):
            size = ops.shape(z)[1:3]
            if s:
                added = _resize(maps[-1 - s], size, _HALF_PIXEL)
                z = z + self._residual(f"residual_{s}_1", added, training)
            z = self._residual(f"residual_{s}_2", z, training)
            is_fitted = not head.doubles and s + 1 < len(maps)
            size = sizes[-2 - s] if is_fitted else [2 * side for side in size]
            # The reference resizes first; for a layer that acts on single pixels, both are equal.
            z = _resize(part[f"fusion_{s}"](z), size, _CORNERS)
        size = [2 * side for side in size] if head.doubles else covered
        z = part["hidden_0"](ops.relu(part["projection"](z)) if head.projection else z)
        if head.is_segmentation:
            z = part["output"](ops.relu(part["norm"](z, training=training)))
            return _resize(z, size, _CORNERS)
        z = ops.relu(part["hidden_1"](_resize(z, size, _CORNERS)))
        return part["output"](z)

    def _map(self, s, tokens, grid):
        """Returns the map of a stage, `(batch, rows, columns, fusion_size)`."""
        part, of_class, z = self.parts, tokens[:, :1], tokens[:, self.num_prefix_tokens :]
        if self.head.readout == "add":
            z = z + of_class
        elif self.head.readout == "project":
            both = ops.concatenate([z, of_class + ops.zeros_like(z)], axis=-1)
            z = activate(part[f"readout_{s}"](both), self.activation)
        z = ops.reshape(part[f"stage_{s}"](z), (-1, *grid, self.head.widths[s]))
        if SCALES[s] > 1:
            z = part[f"larger_{s}"](z)
        elif SCALES[s] < 1:
            z = part[f"smaller_{s}"](ops.pad(z, ((0, 0), (1, 1), (1, 1), (0, 0))))
        return part[f"map_{s}"](z)

    def _residual(self, name, inputs, training):
        z = inputs
        for v in (1, 2):
            z = self.parts[f"{name}_conv_{v}"](ops.relu(z))
            if self.head.batch_norm:
                z = self.parts[f"{name}_norm_{v}"](z, training=training)
        return inputs + z

    def _activate(self, z):
        if self.head.is_segmentation:
            return z
        function = {"exp": ops.exp, "relu": ops.relu, "sigmoid": ops.sigmoid}[self.head.output]
        return function(z) * self.head.max_depth

    def _sides(self, images_shape):
        first = 1 if self.data_format == "channels_last" else 2
        return images_shape[first : first + 2]

    def compute_output_spec(self, tokens, patches, images, training=None):
        shape = (patches.shape[0], *self._sides(images.shape), self.num_outputs)
        dtype = float32_under_mixed(self.dtype_policy).compute_dtype
        return keras.KerasTensor(shape if self.head.is_segmentation else shape[:-1], dtype)


def _resize(maps, size, method, covered=None):
    """Resizes maps `(batch, rows, columns, channels)` bilinearly.

    Args:
        maps: the maps.
        size: rows and columns of the result.
        method: as in `resampling_weights`.
        covered: rows and columns of the result that the maps cover; None for all. The rest gets the
            nearest values.
    """
    for axis in (1, 2):
        shape = ops.shape(maps)
        have, want = shape[axis], size[axis - 1]
        whole = want if covered is None else covered[axis - 1]
        if is_known(have, want, whole):
            if have == want == whole:
                continue
            points = np.arange(have, dtype="float64"), np.arange(want, dtype="float64")[:, None]
            matrix = resampling_weights(have, whole, *points, method, np)
        else:
            points = steps(have), steps(want)[:, None]
            matrix = resampling_weights(number(have), number(whole), *points, method, ops)
        # LiteRT has no einsum for a dynamic batch, and `ops.matmul` drops float64 on torch.
        rest = shape[axis + 1 :]
        flat = ops.reshape(maps, (-1, have, math.prod(rest)))
        flat = ops.cast(matrix, maps.dtype) @ flat
        maps = ops.reshape(flat, (-1, *shape[1:axis], want, *rest))
    return maps
