"""A trustworthy classifier from a folder of images, in a minute, without training."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.data import ImageData, ImageSource
from keras_vit.errors import ConfigError, expect_model, shown
from keras_vit.evaluation.extraction import gather
from keras_vit.evaluation.leave_one_out import (
    choose,
    compute_interval,
    learning_curve,
    predict_gain,
    score,
)
from keras_vit.evaluation.many_labels import best_thresholds
from keras_vit.evaluation.numbers import NumbersEvaluation, score_numbers
from keras_vit.models.heads import copy_with_head
from keras_vit.models.vision_transformer import VisionTransformer

_KINDS = {"token": "class token", "gap": "mean of the patches", "token_and_mean": "both"}
_MOST = 100
"""Largest number of suspects, and of pairs, that a probe lists."""


@dataclasses.dataclass(frozen=True)
class Suspect:
    """An image whose label is probably wrong.

    Args:
        image: path of the image, or its number.
        label: its label. Among many labels, the one that looks wrong: a class, or `"not CLASS"`
            where the class looks forgotten.
        likely: the most probable class, by the classifier without this image; among many labels
            the opposite of `label`.
        probability: the probability of `likely`.
    """

    image: str
    label: str
    likely: str
    probability: float


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two images of different classes, or sets of labels, that look alike.

    Args:
        images: paths or numbers of the images.
        labels: their labels; several of one image have commas between them.
        similarity: cosine of the whitened means of their patches behind half of the blocks.
    """

    images: tuple[str, str]
    labels: tuple[str, str]
    similarity: float


@dataclasses.dataclass(frozen=True)
class ClassScore:
    """The score of one class.

    Args:
        name: name of the class.
        images: number of its images.
        accuracy: share of its images that are right, as `Probe.accuracy`; with many labels per
            image, the average precision of the class.
        interval: lowest and highest accuracy that the number of images allows.
    """

    name: str
    images: int
    accuracy: float
    interval: tuple[float, float]


@dataclasses.dataclass(frozen=True, eq=False)
class Probe:
    """A linear classifier of frozen features, with its findings about the images.

    Args:
        block: number of the block whose tokens are the features, from 0; None for the model's own
            output.
        pooling: `"token"`, `"gap"` or `"token_and_mean"`, see `ViTConfig.pooling`; None for the
            model's own output.
        l2: strength of the regularisation.
        accuracy: share of images that the classifier without them gets right (leave-one-out), by
            features and strength that were chosen without their tenth of the images. With many
            labels per image (multi-label), the mean average precision of these classifiers.
        interval: lowest and highest accuracy that the number of images allows; in simulations the
            true accuracy lies between them in more than nine of ten draws.
        class_names: names of the classes.
        kernel, bias: float64 `(width, classes)` and `(classes,)`; the softmax of
            `features @ kernel + bias`, or with many labels the sigmoid, is calibrated on the
            leave-one-out scores.
        probabilities: probability of each class by the classifier without the image,
            `(images, classes)`.
        curve: accuracies by number of images, `[(images, accuracy), ...]`.
        suspects: images whose label is most likely wrong, the surest first.
        pairs: near-duplicates across classes, the most similar first.
        tried: mean squared error of each combination, `{(features, l2): error}`.
        thresholds: with many labels, the probability of each class from which the class is an
            answer: that with the best F1 on `probabilities`. Otherwise None.
        class_scores: the score of each class.
        confusion: numbers of images by class (rows) and answer (columns), `(classes, classes)`, as
            `accuracy` counts them; None with many labels.
    """

    block: int | None
    pooling: str | None
    l2: float
    accuracy: float
    interval: tuple[float, float]
    class_names: tuple[str, ...]
    kernel: np.ndarray
    bias: np.ndarray
    probabilities: np.ndarray
    curve: list[tuple[int, float]]
    suspects: list[Suspect]
    pairs: list[Pair]
    tried: dict[tuple[str, float], float]
    thresholds: tuple[float, ...] | None = None
    class_scores: tuple[ClassScore, ...] = ()
    confusion: np.ndarray | None = None

    def gain(self, more: int) -> float:
        """Returns the accuracy that `more` images would add, by the learning curve.

        It is NaN for fewer images than a curve needs.
        """
        return predict_gain(self.curve, more)

    def build_classifier(
        self, model: VisionTransformer, provenance: Mapping[str, Any] | None = None
    ) -> VisionTransformer:
        """Returns a classifier with calibrated probabilities that predicts, saves and exports.

        It is the model up to the chosen block, with the chosen pooling and the probe as its head.

        Args:
            model: the model that was probed; it is not changed.
            provenance: facts that join the model's own and the scores, as plain JSON types.

        Raises:
            ConfigError: the model is another.
        """
        scores = {"accuracy": self.accuracy, "interval": list(self.interval)}
        scores |= {"images": len(self.probabilities)}
        return _with_head(self, model, {"thresholds": self.thresholds}, scores, provenance)

    def summary(self) -> list[str]:
        """Returns the results in sentences."""
        low, high = self.interval
        more = max(100, len(self.probabilities) // 1000 * 100)
        measure = "accuracy" if self.thresholds is None else "mean average precision"
        gain = self.gain(more)
        learns = [f"{more:,} more images would add about {100 * gain:.1f} points."]
        return [
            f"{measure.capitalize()} {self.accuracy:.1%} of {len(self.probabilities):,} images, "
            "each scored by the classifier of all others; nine times in ten the true "
            f"{measure} is between {low:.1%} and {high:.1%}.",
            _features_in_words(self),
            *(learns if math.isfinite(gain) else []),
            f"Labels that look wrong: {len(self.suspects)}. Pairs of images that look alike across "
            f"classes: {len(self.pairs)}.",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Returns the results, without arrays, as plain JSON types."""
        facts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in ("kernel", "bias", "probabilities"):
            del facts[name]
        facts["suspects"] = [dataclasses.asdict(each) for each in self.suspects]
        facts["pairs"] = [dataclasses.asdict(each) for each in self.pairs]
        facts["tried"] = [[*key, error] for key, error in self.tried.items()]
        facts["class_scores"] = [dataclasses.asdict(each) for each in self.class_scores]
        if self.confusion is not None:
            facts["confusion"] = self.confusion.tolist()
        return facts


@dataclasses.dataclass(frozen=True, eq=False)
class NumbersProbe:
    """A linear model of numbers on frozen features, from `probe` of data with `regression`.

    Args:
        block, pooling, l2: as in `Probe`.
        scores: mean absolute error and R2 on images that the fit did not have (leave-one-out), by
            features and strength that were chosen without their tenth of the images.
        class_names: names of the numbers.
        kernel, bias: float64 `(width, outputs)` and `(outputs,)`.
        predictions: numbers of each image by the fit without it, float64 `(images, outputs)`.
        tried: mean squared error of each combination, as a share of the variance of the numbers,
            `{(features, l2): error}`.
    """

    block: int | None
    pooling: str | None
    l2: float
    scores: NumbersEvaluation
    class_names: tuple[str, ...]
    kernel: np.ndarray
    bias: np.ndarray
    predictions: np.ndarray
    tried: dict[tuple[str, float], float]

    def build_model(
        self, model: VisionTransformer, provenance: Mapping[str, Any] | None = None
    ) -> VisionTransformer:
        """Returns a model with `regression` that predicts, saves and exports.

        It is the model up to the chosen block, with the chosen pooling and the probe as its head.

        Args:
            model: the model that was probed; it is not changed.
            provenance: facts that join the model's own and the scores, as plain JSON types.

        Raises:
            ConfigError: the model is another.
        """
        return _with_head(self, model, {"regression": True}, self.scores.to_dict(), provenance)

    def summary(self) -> list[str]:
        """Returns the results in sentences."""
        scores = self.scores
        errors, shares = scores.output_mean_absolute_error, scores.output_r2
        return [
            f"Scores of {scores.count:,} images, each predicted by the fit of all others:",
            *(
                f"{name}: mean absolute error {errors[k]:.4g}, R2 {shares[k]:.3f}."
                for k, name in enumerate(self.class_names)
            ),
            _features_in_words(self),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Returns the results, without arrays, as plain JSON types."""
        facts = {k: v for k, v in vars(self).items() if not isinstance(v, np.ndarray)}
        tried = [[*key, error] for key, error in self.tried.items()]
        return {**facts, "scores": self.scores.to_dict(), "tried": tried}


def probe(
    model: VisionTransformer,
    data: Any,
    *,
    cache: str | os.PathLike[str] | None = None,
    similarity: float = 0.9,
    batch_size: int = 32,
    progress: bool = False,
) -> Probe:
    """Fits a linear classifier to the frozen features of a folder of images, in one pass.

    Ridge regression onto targets of -1 and 1, one per class; an image may have many labels. It
    reads the class token, the mean of the patches, or both, of the last block or of the blocks at
    one half and three quarters of the depth; or the model's own output. The leave-one-out error,
    exact in closed form, chooses features and strength, so that all images serve for fit and score.

    With numbers in place of classes (`ImageSource.regression`) it is ridge regression onto the
    numbers, chosen in the same way, and the result is a `NumbersProbe`.

    Args:
        model: a `VisionTransformer`; its head is not used.
        data: a folder with a folder of images per class, `"tfds:NAME"` or `"hf:OWNER/NAME"`; an
            `ImageSource`, which says more about them; or an `ImageData`, in order and without
            augmentation.
        cache: a folder that keeps the features, see `keras_vit.evaluation.features`.
        similarity: least cosine of two images that look alike, see `Pair`. Features of an early
            block tell pictures apart that the last block brings together by class.
        batch_size: images per step.
        progress: whether a bar is shown on stderr, if it is a terminal.

    Raises:
        ConfigError: a class has fewer than two images, or with many labels fewer than two images
            are without it; there is one class, or all images have the same number; the data are
            augmented or not in order, or the features are the same for all images or not finite.
    """
    if not isinstance(data, ImageData):
        named = data if isinstance(data, ImageSource) else ImageSource(data)
        preprocessor = expect_model(model).preprocessor
        data = named.for_training().read(preprocessor, batch_size=batch_size)
    if data.augmentation is not None:
        raise ConfigError("A probe reads unchanged images; give data with augmentation=None.")
    names = data.class_names
    for name, count in {} if data.regression else data.class_counts.items():
        if count < 2:
            raise ConfigError(
                f"The class {shown(name)} has {'one' if count else 'no'} image; expected two or "
                "more of each class."
            )
        if data.multi_label and count > data.num_images - 2:
            raise ConfigError(
                f"The class {shown(name)} has {count} of {data.num_images} images; expected two or "
                "more without it."
            )
    if len(names) < 2 and not (data.multi_label or data.regression):
        raise ConfigError(f"There is one class, {shown(names[0])}; expected two or more.")
    stages, parts = _list_features(expect_model(model).config)
    values, labels = gather(model, stages, data, batch_size, cache, progress)
    if labels is None or not np.array_equal(labels, data.labels):
        raise ConfigError("The data come in another order than their labels: shuffle=False.")
    candidates = {name: values[:, columns] for name, (_, _, columns) in parts.items()}
    if data.regression:
        # The type is that of classes, as of `evaluate`: no type checker knows the kind of data.
        numbers: Any = _probe_numbers(candidates, parts, labels.astype("float64"), names)
        return numbers
    fit = choose(candidates, labels, len(names))
    features = candidates[fit.name]
    early = next(values for name, values in candidates.items() if name.endswith("/gap"))
    accuracy = score(fit.unseen, labels)
    confusion = None
    if not data.multi_label:
        confusion = np.zeros((len(names), len(names)), int)
        np.add.at(confusion, (labels, fit.unseen.argmax(axis=1)), 1)
    images = data.paths or [f"image {k}" for k in range(len(labels))]
    return Probe(
        *parts[fit.name][:2],
        l2=fit.l2,
        accuracy=accuracy,
        interval=compute_interval(accuracy, labels),
        class_names=names,
        kernel=fit.kernel,
        bias=fit.bias,
        probabilities=fit.probabilities,
        curve=learning_curve(features, labels, len(names), fit.l2, accuracy),
        suspects=_suspects(fit.probabilities, labels, names, images),
        pairs=_pairs(early, labels, names, images, similarity),
        tried=fit.errors,
        thresholds=best_thresholds(fit.probabilities, labels, [0.5] * len(names))
        if data.multi_label
        else None,
        class_scores=_score_classes(fit.unseen, labels, names),
        confusion=confusion,
    )


def _score_classes(
    estimates: np.ndarray, labels: np.ndarray, names: Sequence[str]
) -> tuple[ClassScore, ...]:
    scores = []
    for k, name in enumerate(names):
        # The images of a class; with many labels every image, of which some have the class.
        part: Any = np.s_[:, k : k + 1] if labels.ndim == 2 else labels == k
        accuracy, chosen = score(estimates[part], labels[part]), labels[part]
        count = int(chosen.sum()) if labels.ndim == 2 else len(chosen)
        scores.append(ClassScore(name, count, accuracy, compute_interval(accuracy, chosen)))
    return tuple(scores)


def _probe_numbers(
    candidates: Mapping[str, np.ndarray],
    parts: Mapping[str, tuple[int | None, str | None, slice]],
    labels: np.ndarray,
    names: tuple[str, ...],
) -> NumbersProbe:
    """Returns the fit of numbers `(images, outputs)`; all outputs count alike in the choice."""
    mean, spread = labels.mean(axis=0), labels.std(axis=0)
    if same := [name for name, value in zip(names, spread, strict=True) if not value]:
        raise ConfigError(f"All images have the same number {shown(same[0])}: nothing to learn.")
    fit = choose(candidates, (labels - mean) / spread, len(names))
    return NumbersProbe(
        *parts[fit.name][:2],
        l2=fit.l2,
        scores=score_numbers(fit.unseen * spread + mean, labels),
        class_names=names,
        kernel=fit.kernel * spread,
        bias=fit.bias * spread + mean,
        predictions=fit.probabilities * spread + mean,
        tried=fit.errors,
    )


def _features_in_words(result: "Probe | NumbersProbe") -> str:
    place = "the model's output"
    if result.pooling is not None:
        place = f"{_KINDS[result.pooling]} of block {result.block}"
    return f"Features: {place}; l2={result.l2:g}."


def _with_head(
    result: "Probe | NumbersProbe",
    model: VisionTransformer,
    fields: dict[str, Any],
    scores: Mapping[str, Any],
    provenance: Mapping[str, Any] | None,
) -> VisionTransformer:
    """Returns the model up to the block of a probe, with its kernel and bias as the head."""
    config, block, kernel = expect_model(model).config, result.block, result.kernel
    width = config.hidden_size * (1 + (result.pooling == "token_and_mean"))
    if block is None:
        width = model.get_layer("pre_logits").output.shape[-1]
    if width != len(kernel) or (block or 0) >= config.num_layers:
        raise ConfigError(
            f"The probe reads {len(kernel)} features of block {block}; this model has "
            f"{config.num_layers} blocks and {width} such features. Give the model that was probed."
        )
    found = {**scores, "features": _features_in_words(result)}
    origin = {**model.provenance, **(provenance or {}), "probe": found}
    fields = {**_choose_fields(config, block, result.pooling), **fields, "provenance": origin}
    return copy_with_head(model, kernel, result.bias, result.class_names, fields)


def _list_features(
    config: ViTConfig,
) -> tuple[list[str], dict[str, tuple[int | None, str | None, slice]]]:
    """Returns the stages to read, and block, pooling and columns of each kind of features.

    The columns are those of the concatenated stages.
    """
    depth, width = config.num_layers, config.hidden_size
    blocks = sorted({max(math.ceil(depth * share), 1) - 1 for share in (0.5, 0.75, 1)})
    parts: dict[str, tuple[int | None, str | None, slice]] = {}
    stages: list[str] = []
    end = 0
    for block in blocks:
        start, end = end, end + width * (1 + config.has_class_token)
        stages += [f"block_{block}/norm/{k}" for k in config.poolings if k != "token_and_mean"]
        columns = {"gap": slice(end - width, end)}
        if config.has_class_token:
            both = slice(start, end)
            columns = {"token": slice(start, start + width), **columns, "token_and_mean": both}
        parts |= {f"block_{block}/{kind}": (block, kind, part) for kind, part in columns.items()}
    if config.is_pooled and not config.has_two_heads:
        parts["output"] = None, None, slice(end, None)
        stages.append("pre_logits")
    return stages, parts


def _choose_fields(config: ViTConfig, block: int | None, pooling: str | None) -> dict[str, Any]:
    """Returns what differs in the classifier on features of a block; nothing for the output."""
    if block is None:
        return {}
    before_norm = config.numerics.pool_before_norm
    return {
        "num_layers": block + 1,
        "pooling": pooling,
        "class_token": config.has_class_token,
        "class_token_blocks": 1,
        "class_token_in_mean": False,
        "representation_size": None,
        "projection_dim": None,
        "final_norm": config.final_norm and not before_norm,
        "numerics": dataclasses.replace(config.numerics, pool_before_norm=False),
    }


def _suspects(
    probabilities: np.ndarray, labels: np.ndarray, names: Sequence[str], images: Sequence[str]
) -> list[Suspect]:
    """Returns labels beside which another class has a probability above one half."""
    if labels.ndim == 2:
        return _doubtful_labels(probabilities, labels, names, images)
    likely, surest = probabilities.argmax(axis=1), probabilities.max(axis=1)
    chosen = np.flatnonzero((likely != labels) & (surest > 0.5))
    return [
        Suspect(images[k], names[labels[k]], names[likely[k]], float(surest[k]))
        for k in chosen[np.argsort(-surest[chosen], kind="stable")][:_MOST]
    ]


def _doubtful_labels(
    probabilities: np.ndarray, labels: np.ndarray, names: Sequence[str], images: Sequence[str]
) -> list[Suspect]:
    """Returns labels that look wrong, and classes that look forgotten.

    A class looks forgotten if its probability is above one half. A label looks wrong if its
    probability is below the share of the class in the data; labels of rare classes are seldom
    above one half.
    """
    is_doubtful = np.where(labels, probabilities < labels.mean(axis=0), probabilities > 0.5)
    opposite = np.where(labels, 1 - probabilities, probabilities)
    rows, columns = np.nonzero(is_doubtful)
    order = np.argsort(-opposite[rows, columns], kind="stable")[:_MOST]
    suspects = []
    for row, k in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        words = (names[k], f"not {names[k]}")
        label, likely = words if labels[row, k] else words[::-1]
        suspects.append(Suspect(images[row], label, likely, float(opposite[row, k])))
    return suspects


def _pairs(
    features: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    images: Sequence[str],
    least: float,
) -> list[Pair]:
    white = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-5)
    white = (white / np.linalg.norm(white, axis=1, keepdims=True)).astype("float32")
    alike: list[tuple[float, int, int]] = []
    for start in range(0, len(white), 1024):
        cosines = white[start : start + 1024] @ white.T
        rows, columns = np.nonzero(cosines >= least)
        first = rows + start
        differ = labels[first] != labels[columns]
        keep = (first < columns) & (differ.any(axis=1) if differ.ndim == 2 else differ)
        alike += zip(cosines[rows, columns][keep].tolist(), first[keep], columns[keep], strict=True)
    return [
        Pair((images[i], images[j]), (_words(labels[i], names), _words(labels[j], names)), cosine)
        for cosine, i, j in sorted(alike, key=lambda one: -one[0])[:_MOST]
    ]


def _words(label: Any, names: Sequence[str]) -> str:
    """Returns the name of a class, or the names of the classes whose place is True."""
    if np.ndim(label) == 0:
        return names[label]
    return ", ".join(names[k] for k in np.flatnonzero(label).tolist()) or "no label"
