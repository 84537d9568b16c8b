"""A small Vision Transformer in torch, float64, whose explicit attention autograd differentiates.

It shares no code with keras_vit: weights come by name, formulas from the papers. The tokens that
enter the first block are read off the model; the projection of patches is computed here too, for
gradients by pixels.
"""

import keras
import numpy as np
import torch
from torch import nn

from tests.helpers import read_weights


class Reference:
    """The model's logits, and explanations of them by the formulas of the papers.

    Args:
        model: a `VisionTransformer`.
        images: float batch as the model takes it.
        classes: the class of each image.
    """

    def __init__(self, model, images, classes):
        self.config, self.classes = model.config, list(classes)
        self.weights = {
            layer.name: {k: torch.tensor(v) for k, v in read_weights(layer).items()}
            for layer in model.layers
        }
        first = keras.Model(model.input, model.get_layer("embedding_dropout").output)
        self.z, self.constant = (
            torch.tensor(first.predict(x, verbose=0)).double().requires_grad_()
            for x in (images, np.zeros_like(images))
        )
        if model.data_format == "channels_first":
            images = np.moveaxis(images, 1, -1)
        self.images = torch.tensor(images).double()

    def tokens(self, images):
        """z_0 of Eq. 1: the tokens of a zero image, plus the projection of each patch."""
        kernel, size = self.weights["patch_embedding"]["kernel"], self.config.patch_size
        cut = nn.functional.unfold(images.permute(0, 3, 1, 2), size, stride=size).mT
        patches = cut @ kernel.permute(2, 0, 1, 3).flatten(0, 2)
        before = self.constant.shape[1] - patches.shape[1]
        return self.constant + nn.functional.pad(patches, (0, 0, before, 0))

    def encoder(self, z):
        """The logits of tokens; stores the input tokens and attention weights of every block."""
        self.attention, self.entered = [], []
        for i in range(self.config.num_layers):
            w = self.weights[f"block_{i}"]
            self.entered.append(z)
            x = norm(z, w, "attention_norm")
            z = z + self.attend(x, x, w, "attention/")
            x = norm(z, w, "mlp_norm")
            z = z + mlp(x, w, "mlp/")
        return self.head(norm(z, self.weights["encoder_norm"], ""))

    def attend(self, x, context, w, at):
        q, k, v = (
            torch.einsum("btm,mhd->bhtd", y, w[f"{at}{n}/kernel"]) + w[f"{at}{n}/bias"][:, None]
            for y, n in ((x, "query"), (context, "key"), (context, "value"))
        )
        a = torch.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5, -1)
        if a.requires_grad:
            a.retain_grad()
        self.attention.append(a)
        return torch.einsum("bhtd,hdm->btm", a @ v, w[f"{at}out/kernel"]) + w[f"{at}out/bias"]

    def head(self, y):
        kind, w = self.config.pool.kind, self.weights["head"]
        if self.config.pool.is_map:
            of_pool = self.weights["pool"]
            probe = of_pool["probe"].expand(len(y), 1, -1)
            x = self.attend(probe, self.attended(y), of_pool, "attention/")
            pooled = (x + mlp(norm(x, of_pool, "norm"), of_pool, "mlp/"))[:, 0]
        elif kind == "token_and_mean":
            pooled = torch.cat([y[:, 0], y[:, self.config.num_prefix_tokens :].mean(1)], 1)
        else:
            pooled = self.read(y)
        return pooled @ w["kernel"] + w["bias"]

    def attended(self, rows):
        """The rows of the tokens that attention pooling attends to."""
        return rows[:, self.config.num_prefix_tokens * (self.config.pool.kind != "map") :]

    def score(self, logits):
        return logits[torch.arange(len(logits)), self.classes].sum()

    def relevance(self):
        self.score(self.encoder(self.z)).backward()
        seen = [(a.grad * a).clamp(min=0).mean(1) for a in self.attention]
        total = torch.eye(self.z.shape[1]).double()
        for step in seen[: self.config.num_layers]:
            total = total + step @ total
        return self.read(total, seen[-1])[:, self.config.num_prefix_tokens :].detach().numpy()

    def read(self, rows, probe=None):
        """Combines the rows of a matrix over tokens as the head combines tokens."""
        if self.config.pool.is_map:
            return (probe @ self.attended(rows))[:, 0]
        mean = rows[:, self.config.num_prefix_tokens :].mean(1)
        return {
            "token": rows[:, 0],
            "gap": mean,
            "mean": rows.mean(1),
            "token_and_mean": (rows[:, 0] + mean) / 2,
        }[self.config.pool.kind]

    def gradcam(self, block):
        logits = self.encoder(self.z)
        entered = self.entered[block]
        (slope,) = torch.autograd.grad(self.score(logits), entered)
        skip = self.config.num_prefix_tokens
        channels = slope[:, skip:].mean(1, keepdim=True)
        return (entered[:, skip:] * channels).sum(-1).clamp(min=0).detach().numpy()

    def integrated_gradients(self, start, steps):
        start, total = torch.as_tensor(start), torch.zeros_like(self.images)
        for k in range(steps):
            x = start + (k + 0.5) / steps * (self.images - start)
            x.requires_grad_()
            (slope,) = torch.autograd.grad(self.score(self.encoder(self.tokens(x))), x)
            total += slope
        return (total / steps * (self.images - start)).sum(-1).numpy()


def norm(x, w, at):
    gamma, beta = (w[f"{at}/{n}".lstrip("/")] for n in ("gamma", "beta"))
    return nn.functional.layer_norm(x, x.shape[-1:], gamma, beta, 1e-6)


def mlp(x, w, at):
    x = nn.functional.gelu(
        x @ w[f"{at}dense_0/kernel"] + w[f"{at}dense_0/bias"], approximate="tanh"
    )
    return x @ w[f"{at}dense_1/kernel"] + w[f"{at}dense_1/bias"]
