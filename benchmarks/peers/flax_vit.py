"""A plain Flax Vision Transformer with the operations of the official JAX code.

`tests/test_benchmarks.py` holds it against the golden outputs of that code.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from benchmarks.peers import Job, Step
from benchmarks.sizes import Size


class Block(nn.Module):
    """A pre-norm encoder block, under the reference's names."""

    num_heads: int
    mlp_dim: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, inputs: Any) -> Any:
        x = nn.LayerNorm(dtype=self.dtype)(inputs)
        x = nn.MultiHeadDotProductAttention(
            self.num_heads, dtype=self.dtype, kernel_init=nn.initializers.xavier_uniform()
        )(x, x)
        x = x + inputs
        y = nn.LayerNorm(dtype=self.dtype)(x)
        return x + MlpBlock(self.mlp_dim, self.dtype)(y)


class MlpBlock(nn.Module):
    """Two Dense layers around a GELU."""

    mlp_dim: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, inputs: Any) -> Any:
        x = nn.gelu(nn.Dense(self.mlp_dim, dtype=self.dtype)(inputs))
        return nn.Dense(inputs.shape[-1], dtype=self.dtype)(x)


class Encoder(nn.Module):
    """Positions, blocks, norm."""

    num_layers: int
    num_heads: int
    mlp_dim: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = AddPositions(name="posembed_input")(x)
        for i in range(self.num_layers):
            block = Block(self.num_heads, self.mlp_dim, self.dtype, name=f"encoderblock_{i}")
            x = block(x)
        return nn.LayerNorm(dtype=self.dtype, name="encoder_norm")(x)


class AddPositions(nn.Module):
    """Learned position embeddings."""

    @nn.compact
    def __call__(self, inputs: Any) -> Any:
        shape = (1, *inputs.shape[1:])
        positions = self.param("pos_embedding", nn.initializers.normal(0.02), shape)
        return inputs + positions.astype(inputs.dtype)


class FlaxViT(nn.Module):
    """Images `(batch, height, width, 3)` to logits, with a class token."""

    size: Size
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, images: Any) -> Any:
        size = self.size
        patch = (size.patch_size, size.patch_size)
        x = nn.Conv(
            size.hidden_size, patch, strides=patch, padding="VALID", dtype=self.dtype,
            name="embedding",
        )(images)  # fmt: skip
        x = x.reshape(x.shape[0], -1, size.hidden_size)
        cls = self.param("cls", nn.initializers.zeros, (1, 1, size.hidden_size))
        cls = jnp.broadcast_to(cls.astype(x.dtype), (x.shape[0], 1, size.hidden_size))
        x = jnp.concatenate([cls, x], axis=1)
        x = Encoder(size.num_layers, size.num_heads, size.mlp_dim, self.dtype, name="Transformer")(
            x
        )
        return nn.Dense(size.num_classes, dtype=self.dtype, name="head")(x[:, 0])


def make(job: Job) -> Step:
    """The jitted forward pass, or a jitted training step that donates parameters and state."""
    dtype = jnp.dtype(job.dtype)
    model = FlaxViT(job.size, dtype)
    side = job.size.image_size
    images = jnp.asarray(jax.random.normal(jax.random.key(0), (job.batch, side, side, 3)), dtype)
    params = jax.jit(model.init)(jax.random.key(1), images)
    if job.task == "forward":
        run = jax.jit(model.apply)

        def forward(steps: int) -> None:
            for _ in range(steps):
                jax.device_get(run(params, images))

        forward(2)
        return forward

    labels = jax.random.randint(jax.random.key(2), (job.batch,), 0, job.size.num_classes)
    optimizer = optax.adamw(1e-4, weight_decay=0.03)
    state = jax.jit(optimizer.init)(params)

    def update(params: Any, state: Any, images: Any, labels: Any) -> Any:
        def compute_loss(params: Any) -> Any:
            logits = model.apply(params, images).astype(jnp.float32)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = jax.value_and_grad(compute_loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    jitted = jax.jit(update, donate_argnums=(0, 1))

    def train(steps: int) -> None:
        nonlocal params, state
        loss = None
        for _ in range(steps):
            params, state, loss = jitted(params, state, images, labels)
        jax.block_until_ready((params, loss))

    train(2)
    return train
