"""keras_vit and keras-hub on the backend of this process, as their users run them."""

import functools
from typing import Any

import keras
import numpy as np

from benchmarks.peers import Job, Step


def ours(job: Job, mode: str, compiled: bool | str = "auto") -> Step:
    """A keras_vit model, trained with the optimizer of its recipes."""
    import keras_vit
    from keras_vit.training import LayerwiseAdamW

    model = keras_vit.VisionTransformer(**job.size.fields(), dtype=job.dtype)
    return _step(job, model, mode, compiled, LayerwiseAdamW)


def without_labels(job: Job) -> Step:
    """A keras_vit encoder in `SelfSupervised`, on as many pixels of views as a batch of images has.

    Choose a batch for which that is a whole number of images: 31 for the 10 images of 224 pixels.
    """
    import keras_vit
    from keras_vit.training import PretrainRecipe, SelfSupervised

    fields = {**job.size.fields(), "image_size": (None, None), "num_classes": 0}
    encoder = keras_vit.VisionTransformer(**fields, dtype=job.dtype)
    model = SelfSupervised(encoder)
    groups = {name: (count, size) for name, (count, size, _) in model.views.groups.items()}
    pixels = sum(count * size**2 for count, size in groups.values())
    images = round(job.batch * job.size.image_size**2 / pixels)
    rng = np.random.default_rng(0)
    views = {
        name: rng.standard_normal((images, count, size, size, 3), dtype="float32")
        for name, (count, size) in groups.items()
    }
    model.compile(**PretrainRecipe(1000).compile_args(model))

    def fit(steps: int) -> None:
        x = {name: np.concatenate([each] * steps) for name, each in views.items()}
        model.fit(x, batch_size=images, epochs=1, verbose=0)

    fit(2)
    return fit


def hub(job: Job, mode: str, compiled: bool | str = "auto") -> Step:
    """keras-hub's vision backbone with a linear head, on prepared images."""
    import keras_hub

    size = job.size
    shape = (size.image_size, size.image_size, 3)
    name, more = {
        "": ("ViTBackbone", {}),
        "dinov2": ("DINOV2Backbone", {"position_embedding_shape": shape}),
        "dinov3": ("DINOV3Backbone", {"num_register_tokens": 4}),
        "siglip": ("SigLIPVisionEncoder", {}),
        "clip": ("CLIPVisionEncoder", {"intermediate_activation": "quick_gelu"}),
    }[size.family]
    backbone = getattr(keras_hub.models, name)(
        image_shape=shape,
        patch_size=size.patch_size,
        num_layers=size.num_layers,
        num_heads=size.num_heads,
        hidden_dim=size.hidden_size,
        dtype=job.dtype,
        **{"intermediate_dim" if size.family else "mlp_dim": size.mlp_dim},
        **more,
    )
    images = keras.Input(shape)
    named = isinstance(backbone.input, dict)
    found = backbone({next(iter(backbone.input)): images} if named else images)
    pooled = found if len(found.shape) == 2 else found[:, 0]  # SigLIP's output is pooled
    model = keras.Model(images, keras.layers.Dense(size.num_classes)(pooled))
    return _step(job, model, mode, compiled, keras.optimizers.AdamW)


def _step(job: Job, model: Any, mode: str, compiled: bool | str, optimizer: Any) -> Step:
    side = job.size.image_size
    images = np.random.default_rng(0).standard_normal((job.batch, side, side, 3), dtype="float32")
    if mode == "predict":
        model.compile(jit_compile=compiled)
        return _predicted(model, images, job.batch)
    if mode == "call":
        return _called(model, images, bool(compiled is True))
    labels = np.random.default_rng(1).integers(0, job.size.num_classes, job.batch)
    model.compile(
        optimizer(1e-4, weight_decay=0.03),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=compiled,
    )
    if mode == "loop":
        return _hand_written(model, images, labels)
    return _fitted(model, images, labels, job.batch)


def _predicted(model: Any, images: np.ndarray, batch: int) -> Step:
    many: dict[int, np.ndarray] = {}

    def predict(steps: int) -> None:
        if steps not in many:
            many[steps] = np.concatenate([images] * steps)
        if hasattr(model, "inference"):  # of a VisionTransformer, not of keras-hub
            model.inference.run(model, many[steps], batch_size=batch)
        else:
            model.predict(many[steps], batch_size=batch, verbose=0)

    predict(1)
    return predict


def _fitted(model: Any, images: np.ndarray, labels: np.ndarray, batch: int) -> Step:
    def fit(steps: int) -> None:
        x, y = np.concatenate([images] * steps), np.concatenate([labels] * steps)
        model.fit(x, y, batch_size=batch, epochs=1, verbose=0)

    fit(2)
    return fit


def _called(model: Any, images: np.ndarray, compiled: bool) -> Step:
    """The model of torch called directly, or that of JAX in a jitted function."""
    if keras.backend.backend() == "torch":
        import torch

        run = torch.compile(model) if compiled else model
        tensor = keras.ops.convert_to_tensor(images)  # dynamo fails on arrays in inference mode

        @torch.inference_mode()
        def called(steps: int) -> None:
            for _ in range(steps):
                keras.ops.convert_to_numpy(run(tensor, training=False))

    else:
        import jax

        values = [variable.value for variable in model.variables]

        @jax.jit
        def jitted(values: Any, images: Any) -> Any:
            with keras.StatelessScope(zip(model.variables, values, strict=True)):
                return model(images, training=False)

        def called(steps: int) -> None:
            for _ in range(steps):
                jax.device_get(jitted(values, images))

    called(2)
    return called


def _hand_written(model: Any, images: np.ndarray, labels: np.ndarray) -> Step:
    """The training loop of the guide of torch or JAX, without `fit`."""
    compute_loss, optimizer = model.loss, model.optimizer
    optimizer.build(model.trainable_variables)
    x, y = keras.ops.convert_to_tensor(images), keras.ops.convert_to_tensor(labels)
    if keras.backend.backend() == "torch":
        import torch

        def loop(steps: int) -> None:
            for _ in range(steps):
                loss = compute_loss(y, model(x, training=True))
                model.zero_grad()
                loss.backward()
                gradients = [variable.value.grad for variable in model.trainable_variables]
                with torch.no_grad():
                    optimizer.apply(gradients, model.trainable_variables)
            if torch.cuda.is_available():
                torch.cuda.synchronize()

    else:
        import jax

        def compute(trainable: Any, fixed: Any, x: Any, y: Any) -> Any:
            logits, fixed = model.stateless_call(trainable, fixed, x, training=True)
            return compute_loss(y, logits), fixed

        @functools.partial(jax.jit, donate_argnums=0)
        def train_step(state: Any, x: Any, y: Any) -> Any:
            trainable, fixed, slots = state
            compute_both = jax.value_and_grad(compute, has_aux=True)
            (loss, fixed), gradients = compute_both(trainable, fixed, x, y)
            trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
            return loss, (trainable, fixed, slots)

        state = tuple(
            [variable.value for variable in variables]
            for variables in (
                model.trainable_variables,
                model.non_trainable_variables,
                optimizer.variables,
            )
        )

        def loop(steps: int) -> None:
            nonlocal state
            for _ in range(steps):
                loss, state = train_step(state, x, y)
            jax.block_until_ready((loss, state))

    loop(2)
    return loop
