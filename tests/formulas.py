"""The formulas of the papers in NumPy and float64, independent of the code under test."""

import math

import numpy as np
from scipy import ndimage
from scipy.special import ndtr

from keras_vit.config import Block

PLAIN = Block()


def activate(x: np.ndarray, name: str) -> np.ndarray:
    """The Gaussian error linear unit in one of its forms, or SiLU."""
    if name in ("quick_gelu", "silu"):
        return x / (1 + np.exp(-x * (1.702 if name == "quick_gelu" else 1.0)))
    if name == "gelu":
        return x * ndtr(x)
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, by `np` alone: a test puts jax.numpy in its place."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: np.ndarray, w: dict, name: str, epsilon: float = 1e-6) -> np.ndarray:
    """Normalises the last axis, then scales and shifts by the weights below `name`."""
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return x * w[f"{name}/gamma"] + w[f"{name}/beta"]


def rms_norm(x: np.ndarray, w: dict, name: str, epsilon: float = 1e-6) -> np.ndarray:
    """Divides by the root of the mean square of the last axis, then scales."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * w[f"{name}/gamma"]


def group_norm(x: np.ndarray, w: dict, name: str, epsilon: float = 1e-6) -> np.ndarray:
    """Normalises rows, columns and channels within each of 32 groups of channels."""
    batch, rows, columns, channels = x.shape
    g = x.reshape(batch, rows, columns, 32, channels // 32)
    axes = (1, 2, 4)
    g = (g - g.mean(axes, keepdims=True)) / np.sqrt(g.var(axes, keepdims=True) + epsilon)
    return g.reshape(x.shape) * w[f"{name}/gamma"] + w[f"{name}/beta"]


def standardise(kernel: np.ndarray, arithmetic: str = "resnet") -> np.ndarray:
    """The kernel with mean 0 and a standard deviation of about 1 in each filter."""
    kernel = kernel - kernel.mean((0, 1, 2))
    if arithmetic == "resnet":
        return kernel / (kernel.std((0, 1, 2)) + 1e-5)
    return kernel / np.sqrt(kernel.var((0, 1, 2)) + 1e-8)


def windows(x: np.ndarray, size: int, strides: int, fill: float) -> np.ndarray:
    """SAME-padded windows, `(batch, rows, columns, channels, size, size)`."""
    pads = []
    for side in x.shape[1:3]:
        total = max((math.ceil(side / strides) - 1) * strides + size - side, 0)
        pads.append((total // 2, total - total // 2))
    x = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
    return view[:, ::strides, ::strides]


def conv(x: np.ndarray, kernel: np.ndarray, strides: int) -> np.ndarray:
    """SAME convolution of `(batch, height, width, channels)`."""
    return np.einsum("brcixy,xyio->brco", windows(x, kernel.shape[0], strides, 0.0), kernel)


def max_pool(x: np.ndarray, size: int, strides: int) -> np.ndarray:
    """SAME max pool of `(batch, height, width, channels)`."""
    return windows(x, size, strides, -np.inf).max((-2, -1))


def conv_norm(x: np.ndarray, w: dict, strides: int, suffix: str = "") -> np.ndarray:
    """A standardised convolution and its GroupNorm."""
    kernel = standardise(w[f"conv{suffix}/kernel"])
    return group_norm(conv(x, kernel, strides), w, f"norm{suffix}")


def bottleneck(x: np.ndarray, w: dict, strides: int) -> np.ndarray:
    """A unit with a projected shortcut; the 3x3 convolution and the shortcut have the stride."""
    y = np.maximum(conv_norm(x, w, 1, "1"), 0)
    y = conv_norm(np.maximum(conv_norm(y, w, strides, "2"), 0), w, 1, "3")
    return np.maximum(conv_norm(x, w, strides, "_proj") + y, 0)


def normed(x: np.ndarray, w: dict, name: str, config: Block) -> np.ndarray:
    """The norm of a configuration over the last axis."""
    return {"layer": layer_norm, "rms": rms_norm}[config.norm](x, w, name, config.epsilon)


def heads(x: np.ndarray, w: dict, name: str, norm: str | None = None, config=PLAIN) -> np.ndarray:
    """A projection to heads, `(batch, tokens, heads, head_dim)`, and its norm by head or width."""
    y = np.einsum("btm,mhd->bthd", x, w[f"{name}/kernel"]) + w[f"{name}/bias"]
    if norm is None:
        return y
    rows = y.reshape(*y.shape[:2], -1) if norm == "width" else y
    return normed(rows, w, f"{name}_norm", config).reshape(y.shape)


def attention_weights(x, context, w: dict, at: str = "", config=PLAIN, bias=0) -> np.ndarray:
    """Eq. 6 with a bias of the scores, `(batch, heads, tokens, tokens of the context)`."""
    query = heads(x, w, f"{at}query", config.qk_norm, config)
    key = heads(context, w, f"{at}key", config.qk_norm, config)
    return softmax(np.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(query.shape[-1]) + bias)


def attention(x, context, w: dict, at: str = "", config=PLAIN, bias=0) -> np.ndarray:
    """Eqs. 5 to 8, weights under the prefix `at`."""
    weights = attention_weights(x, context, w, at, config, bias)
    y = np.einsum("bhqk,bkhd->bqhd", weights, heads(context, w, f"{at}value"))
    return np.einsum("bthd,hdm->btm", y, w[f"{at}out/kernel"]) + w[f"{at}out/bias"]


def mlp(x: np.ndarray, w: dict, config: Block = PLAIN, at: str = "") -> np.ndarray:
    """Two Dense layers with an activation or a gate and a norm between them."""

    def dense(x, name):
        bias = w[f"{at}{name}/bias"] if config.mlp_bias else 0
        return x @ w[f"{at}{name}/kernel"] + bias

    y = activate(dense(x, "gate" if config.gated else "dense_0"), config.activation)
    if config.gated:
        y = y * dense(x, "value")
    if config.sub_norm in ("mlp", "both"):
        y = normed(y, w, f"{at}sub_norm", config)
    return dense(y, "dense_1")


def block(x: np.ndarray, w: dict, config: Block = PLAIN) -> np.ndarray:
    """Eqs. 2 and 3."""
    y = layer_norm(x, w, "attention_norm", config.epsilon)
    x = attention(y, y, w, "attention/") + x
    return mlp(layer_norm(x, w, "mlp_norm", config.epsilon), w, config, "mlp/") + x


def map_head(x: np.ndarray, w: dict, config: Block = PLAIN) -> np.ndarray:
    """A probe attends to all tokens; then y + MLP(LN(y)), as in big_vision."""
    y = attention(np.repeat(w["probe"], len(x), axis=0), x, w, "attention/")
    z = layer_norm(y, w, "norm", config.epsilon)
    return (y + mlp(z, w, config, "mlp/"))[:, 0]


def rotary_angles(rows: int, columns: int, head_dim: int, **rope) -> np.ndarray:
    """The angles of rotary positions, DINOv3's or axial, `(rows * columns, head_dim / 2)`."""
    form, theta = rope["form"], rope["theta"]
    first = 1 if form == "axial_xy_from_1" else 0
    reference = rope.get("reference_grid") or (rows, columns)
    y, x = (axis.ravel() for axis in np.mgrid[:rows, :columns].astype("float64"))
    if form == "dinov3":
        y = 2 * np.pi * (2 * (y + 0.5) / rows - 1)
        x = 2 * np.pi * (2 * (x + 0.5) / columns - 1)
    else:
        y = (y + first) / rows * reference[0]
        x = (x + first) / columns * reference[1]
    frequencies = theta ** (-4 * np.arange(head_dim // 4) / head_dim)
    axes = (x, y) if form.startswith("axial_xy") else (y, x)
    return np.concatenate([np.outer(axis, frequencies) for axis in axes], axis=1)


def rotated(x: np.ndarray, angles: np.ndarray, pairs: str) -> np.ndarray:
    """Rotates each pair of channels, as a complex number, by its angle.

    Args:
        x: `(..., tokens, head_dim)`.
        angles: `(..., tokens, head_dim / 2)`.
        pairs: `"halves"` pairs channels half a head apart, `"neighbours"` adjacent channels.
    """
    half = x.shape[-1] // 2
    y = np.empty(x.shape)
    first, second = {
        "halves": (slice(0, half), slice(half, None)),
        "neighbours": (slice(0, None, 2), slice(1, None, 2)),
    }[pairs]
    z = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angles)
    y[..., first], y[..., second] = z.real, z.imag
    return y


def sincos2d(rows: int, columns: int, width: int) -> np.ndarray:
    """The fixed embeddings of big_vision's `posemb_sincos_2d`, `(tokens, width)`."""
    y, x = np.mgrid[:rows, :columns]
    omega = 1.0 / 10_000 ** (np.arange(width // 4) / (width // 4 - 1))
    y, x = np.outer(y.ravel(), omega), np.outer(x.ravel(), omega)
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)


def zoom(embedding: np.ndarray, source: tuple, target: tuple) -> np.ndarray:
    """The resize of positions in vit_jax: `(rows * columns, width)` to another grid."""
    factors = (target[0] / source[0], target[1] / source[1], 1)
    grid = embedding.reshape(*source, -1)
    return ndimage.zoom(grid, factors, order=1).reshape(target[0] * target[1], -1)


def jax_resize(embedding: np.ndarray, source: tuple, target: tuple) -> np.ndarray:
    """The bicubic resize of positions that JAX computes without antialiasing."""
    import jax

    grid = embedding.reshape(*source, -1)
    size = (*target, grid.shape[-1])
    return np.asarray(jax.image.resize(grid, size, "bicubic", antialias=False)).reshape(
        target[0] * target[1], -1
    )


def resize_to_longer_side(embedding: np.ndarray, source: tuple, target: tuple) -> np.ndarray:
    """RADIO's rule, with the arguments of `zoom`: torch's resize to a square, cut to the target."""
    side = max(target)
    square = torch_resize("bilinear")(embedding, source, (side, side)).reshape(side, side, -1)
    return square[: target[0], : target[1]].reshape(target[0] * target[1], -1)


def torch_resize(mode: str, antialias: bool = False):
    """A function with the arguments of `zoom` that resizes positions by torch."""

    def resize(embedding: np.ndarray, source: tuple, target: tuple) -> np.ndarray:
        from torch import from_numpy
        from torch.nn.functional import interpolate

        grid = from_numpy(embedding.reshape(1, *source, -1)).permute(0, 3, 1, 2)
        grid = interpolate(grid, size=target, mode=mode, antialias=antialias)
        return grid.permute(0, 2, 3, 1).reshape(target[0] * target[1], -1).numpy()

    return resize
