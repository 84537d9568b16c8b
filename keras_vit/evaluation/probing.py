"""Fits and checks a linear probe on a folder of images in about a minute."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.config import Pool, Task, ViTConfig
from keras_vit.config.pool import StagePooling
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
from keras_vit.evaluation.thresholds import best_thresholds
from keras_vit.models.heads import copy_with_head
from keras_vit.models.vision_transformer import VisionTransformer

_KINDS = {"token": "class token", "gap": "mean of the patches", "token_and_mean": "both"}
_SCORE = {"single_label": "Accuracy", "multi_label": "Mean average precision", "regression": "R2"}
_MOST = 100
"""Largest number of suspects, and of pairs, that a probe lists."""


@dataclasses.dataclass(frozen=True)
class Suspect:
    """An image whose label is probably wrong.

    Args:
        image: path of the image, or its index.
        label: its label; multi-label, the one that is probably wrong: a class, or `"not CLASS"`
            if the class is probably missing.
        likely: the most probable class, by the classifier without this image; multi-label, the
            opposite of `label`.
        probability: the probability of `likely`.
    """

    image: str
    label: str
    likely: str
    probability: float


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two similar images with different labels, such as duplicates in different classes.

    Args:
        images: paths or indices of the images.
        labels: their labels; several labels of one image are separated by commas.
        similarity: cosine similarity of the standardised means of their patch tokens after half of
            the blocks.
    """

    images: tuple[str, str]
    labels: tuple[str, str]
    similarity: float


@dataclasses.dataclass(frozen=True)
class ClassScore:
    """The score of one class, or of one output of a regression.

    Args:
        name: name of the class or output.
        images: number of its images.
        score: as `Probe.score`, of this class or output.
        interval: confidence interval of the score; None for regression.
        mean_absolute_error: of an output, in its units; None for a class.
    """

    name: str
    images: int
    score: float
    interval: tuple[float, float] | None = None
    mean_absolute_error: float | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Probe:
    """The result of `keras_vit.probe`: a linear model on frozen features, and its findings.

    Args:
        task: `"single_label"`, `"multi_label"` or `"regression"`.
        stage: name of the stage that gives the features, such as `"block_3/norm"`; `"pre_logits"`
            for the model's own output.
        pooling: how the tokens of the stage become one vector, as in `features`; None for the
            model's own output.
        l2: strength of the regularisation.
        score: leave-one-out accuracy, with features and strength that were chosen without the
            image's tenth of the images. Multi-label, the mean average precision; regression, the
            mean R2.
        class_names: names of the classes, or of the outputs.
        class_scores: the score of each.
        kernel, bias: float64 `(width, classes)` and `(classes,)`; the softmax of
            `features @ kernel + bias`, or multi-label the sigmoid, is calibrated on the
            leave-one-out scores. For regression `features @ kernel + bias` are the predictions.
        predictions: leave-one-out probability of each class, `(images, classes)`; for regression
            the predicted values, `(images, outputs)`.
        tried: mean squared error of each combination, `{(features, l2): error}`, where features are
            named as stages (`"block_3/norm/gap"`); for regression, as a fraction of the variance of
            the targets.
        thresholds: multi-label, the decision threshold of each class with the best F1 on
            `predictions`. Otherwise None.
        interval: confidence interval of the score; in simulations the true score lies in it in more
            than nine of ten samples. None for regression, for which the findings below are empty.
        curve: learning curve, scores by number of images, `[(images, score), ...]`.
        suspects: images whose label is most likely wrong, the most certain first.
        pairs: near-duplicates across classes, the most similar first.
        confusion: confusion matrix `(classes, classes)`, the number of images by label (rows) and
            prediction (columns), as `score` counts them; None unless an image has one class.
    """

    task: Task
    stage: str
    pooling: StagePooling | None
    l2: float
    score: float
    class_names: tuple[str, ...]
    class_scores: tuple[ClassScore, ...]
    kernel: np.ndarray
    bias: np.ndarray
    predictions: np.ndarray
    tried: dict[tuple[str, float], float]
    thresholds: tuple[float, ...] | None = None
    interval: tuple[float, float] | None = None
    curve: Sequence[tuple[int, float]] = ()
    suspects: Sequence[Suspect] = ()
    pairs: Sequence[Pair] = ()
    confusion: np.ndarray | None = None

    def gain(self, more: int) -> float:
        """Estimates by the learning curve how much `more` images would add to the score.

        It is NaN for regression, and for fewer images than a curve needs.
        """
        return predict_gain(self.curve, more)

    def build_model(
        self, model: VisionTransformer, provenance: Mapping[str, Any] | None = None
    ) -> VisionTransformer:
        """Returns a model with the probe as its head, to predict, save and export.

        It is the probed model up to the chosen block, with the chosen pooling. The probabilities of
        a classifier are calibrated.

        Args:
            model: the model that was probed; it is not changed.
            provenance: facts to add to those of the model and the score, as plain JSON types.

        Raises:
            ConfigError: it is not the model that was probed.
        """
        found: dict[str, Any] = {"score": self.score, "images": len(self.predictions)}
        found |= {"interval": self.interval and [*self.interval], "features": self._features}
        fields = {
            **_choose_fields(expect_model(model).config, self.stage, self.pooling),
            "thresholds": self.thresholds,
            "task": self.task,
            "provenance": {**model.provenance, **(provenance or {}), "probe": found},
        }
        return copy_with_head(model, self.kernel, self.bias, self.class_names, fields)

    def summary(self) -> list[str]:
        """Returns the results in sentences."""
        count = len(self.predictions)
        more = max(100, count // 1000 * 100)
        value = f"{self.score:.3f}" if self.task == "regression" else f"{self.score:.1%}"
        total = f"{_SCORE[self.task]} {value} on {count:,} images, each predicted without itself"
        if self.interval is not None:
            low, high = self.interval
            total += f" (90% confidence interval {low:.1%} to {high:.1%})"
        lines = [f"{total}.", self._features]
        for each in self.class_scores if self.task == "regression" else ():
            error = f"mean absolute error {each.mean_absolute_error:.4g}"
            lines.append(f"{each.name}: {error}, R2 {each.score:.3f}.")
        if math.isfinite(gain := self.gain(more)):
            lines.append(f"{more:,} more images would add about {100 * gain:.1f} points.")
        if self.task != "regression":
            lines.append(
                f"Labels that look wrong: {len(self.suspects)}. Similar pairs of images with "
                f"different labels: {len(self.pairs)}."
            )
        return lines

    @property
    def _features(self) -> str:
        place = "the model's output"
        if self.pooling is not None:
            place = f"{_KINDS[self.pooling]} of {self.stage}"
        return f"Features: {place}; l2={self.l2:g}."

    def to_dict(self) -> dict[str, Any]:
        """Returns the results, without the arrays of weights and images, as plain JSON types."""
        facts = dataclasses.asdict(self)
        for name in ("kernel", "bias", "predictions"):
            del facts[name]
        facts["tried"] = [[*key, error] for key, error in self.tried.items()]
        facts["confusion"] = None if self.confusion is None else self.confusion.tolist()
        return facts


def probe(
    model: VisionTransformer,
    data: Any,
    *,
    cache: str | os.PathLike[str] | None = None,
    similarity: float = 0.9,
    batch_size: int = 32,
    progress: bool = False,
) -> Probe:
    """Fits a linear classifier or regression on frozen features, and checks the labels.

    It takes one pass over the images. The fit is a ridge regression to -1 and 1 for each class, or
    to the targets of a regression (`ImageSource.task`). The features are the class token, the mean
    of the patch tokens, or both, of the last block or of the blocks at one half and three quarters
    of the depth; or the model's own output. The leave-one-out error, exact in closed form, chooses
    features and strength, so that all images are used both to fit and to score.

    Args:
        model: a `VisionTransformer`; its head is not used.
        data: a folder with a folder of images per class, `"tfds:NAME"` or `"hf:OWNER/NAME"`; an
            `ImageSource`, which has further options; or an `ImageData`, in order and without
            augmentation.
        cache: a folder that keeps the features, see `keras_vit.evaluation.features`.
        similarity: smallest cosine similarity of the pairs that are listed, see `Pair`. It is that
            of an early block, because the last block makes all images of a class similar.
        batch_size: images per step.
        progress: whether a progress bar is shown on stderr, if it is a terminal.

    Raises:
        ConfigError: the model predicts a map; a class has fewer than two images, or all but one;
            all images have the same regression target; the data are augmented or not in order, or
            the features are the same for all images or not finite.
    """
    expect_model(model).config.refuse_map("probe")
    if not isinstance(data, ImageData):
        named = data if isinstance(data, ImageSource) else ImageSource(data)
        preprocessor = model.preprocessor
        data = named.for_training().read(preprocessor, batch_size=batch_size)
    if data.augmentation is not None:
        raise ConfigError("A probe needs images without augmentation: augmentation=None.")
    names = data.class_names
    for name, count in {} if data.task == "regression" else data.class_counts.items():
        if not 2 <= count <= data.num_images - 2:
            raise ConfigError(
                f"The class {shown(name)} has {count} of {data.num_images} images; expected at "
                "least two with each class, and at least two without it."
            )
    stages, parts = _list_features(model.config)
    values, labels = gather(model, stages, data, batch_size, cache, progress)
    if labels is None or not np.array_equal(labels, data.labels):
        raise ConfigError("The batches are in another order than data.labels: shuffle=False.")
    candidates = {name: values[:, columns] for name, (_, _, columns) in parts.items()}
    task, mean, spread = data.task, np.zeros(1), np.ones(1)
    if task == "regression":
        labels = labels.astype("float64")
        mean, spread = labels.mean(axis=0), labels.std(axis=0)
        if same := [name for name, value in zip(names, spread, strict=True) if not value]:
            raise ConfigError(f"All images have the same target {shown(same[0])}; remove it.")
        labels = (labels - mean) / spread  # all outputs count alike in the choice
    fit = choose(candidates, labels, len(names))
    total = score(fit.unseen, labels)
    findings: dict[str, Any] = {}
    if task != "regression":
        early = next(values for name, values in candidates.items() if name.endswith("/gap"))
        images = data.paths or [f"image {k}" for k in range(len(labels))]
        findings = {
            "interval": compute_interval(total, labels),
            "curve": learning_curve(candidates[fit.name], labels, len(names), fit.l2, total),
            "suspects": _suspects(fit.predictions, labels, names, images),
            "pairs": _pairs(early, labels, names, images, similarity),
        }
    if task == "multi_label":
        findings["thresholds"] = best_thresholds(fit.predictions, labels, [0.5] * len(names))
    if task == "single_label":
        findings["confusion"] = confusion = np.zeros((len(names), len(names)), int)
        np.add.at(confusion, (labels, fit.unseen.argmax(axis=1)), 1)
    return Probe(
        task,
        *parts[fit.name][:2],
        l2=fit.l2,
        score=total,
        class_names=names,
        class_scores=_score_classes(fit.unseen, labels, names, spread),
        kernel=fit.kernel * spread,
        bias=fit.bias * spread + mean,
        predictions=fit.predictions * spread + mean,
        tried=fit.errors,
        **findings,
    )


def _score_classes(
    estimates: np.ndarray, labels: np.ndarray, names: Sequence[str], spread: np.ndarray
) -> tuple[ClassScore, ...]:
    scores = []
    for k, name in enumerate(names):
        # The images of a class; multi-label, every image, of which some have the class.
        part: Any = np.s_[:, k : k + 1] if labels.ndim == 2 else labels == k
        found, chosen = score(estimates[part], labels[part]), labels[part]
        if labels.dtype.kind == "f":
            error = float(np.abs(estimates[part] - chosen).mean() * spread[k])
            scores.append(ClassScore(name, len(chosen), found, mean_absolute_error=error))
            continue
        count = int(chosen.sum()) if labels.ndim == 2 else len(chosen)
        scores.append(ClassScore(name, count, found, compute_interval(found, chosen)))
    return tuple(scores)


def _list_features(
    config: ViTConfig,
) -> tuple[list[str], dict[str, tuple[str, StagePooling | None, slice]]]:
    """Returns the stages to read, and the stage, pooling and columns of each kind of features.

    The columns are those of the concatenated stages.
    """
    depth, width = config.num_layers, config.hidden_size
    blocks = sorted({max(math.ceil(depth * share), 1) - 1 for share in (0.5, 0.75, 1)})
    parts: dict[str, tuple[str, StagePooling | None, slice]] = {}
    stages: list[str] = []
    end = 0
    has_class_token = config.tokens.class_tokens > 0
    for block in blocks:
        stage = f"block_{block}/norm"
        start, end = end, end + width * (1 + has_class_token)
        stages += [f"{stage}/{k}" for k in config.poolings if k != "token_and_mean"]
        columns: dict[StagePooling, slice] = {"gap": slice(end - width, end)}
        if has_class_token:
            both = slice(start, end)
            columns = {"token": slice(start, start + width), **columns, "token_and_mean": both}
        parts |= {f"{stage}/{kind}": (stage, kind, part) for kind, part in columns.items()}
    if config.is_pooled and not config.has_two_heads:
        parts["pre_logits"] = "pre_logits", None, slice(end, None)
        stages.append("pre_logits")
    return stages, parts


def _choose_fields(config: ViTConfig, stage: str, pooling: str | None) -> dict[str, Any]:
    """Returns the fields of the model that end at a block; empty for the model's own output."""
    if pooling is None:
        return {}
    norm = config.pool.norm if config.pool.norm == "before" else "none"
    return {
        "num_layers": int(stage.removeprefix("block_").removesuffix("/norm")) + 1,
        "pool": Pool(pooling, norm=norm),
        "representation_size": None,
        "projection_size": None,
    }


def _suspects(
    probabilities: np.ndarray, labels: np.ndarray, names: Sequence[str], images: Sequence[str]
) -> list[Suspect]:
    """Returns labels that are probably wrong, and classes that are probably missing.

    A class is missing if its probability is above one half. Multi-label, a label is wrong if its
    probability is below the fraction of images with the class, because probabilities of rare
    classes are seldom above one half.
    """
    is_multi_label = labels.ndim == 2
    truth = labels if is_multi_label else labels[:, None] == np.arange(len(names))
    least = truth.mean(axis=0) if is_multi_label else 0
    is_doubtful = np.where(truth, probabilities < least, probabilities > 0.5)
    opposite = np.where(truth, 1 - probabilities, probabilities)
    rows, columns = np.nonzero(is_doubtful)
    order = np.argsort(-opposite[rows, columns], kind="stable")[:_MOST]
    suspects = []
    for row, k in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        label = f"not {names[k]}" if is_multi_label else names[labels[row]]
        label, likely = (names[k], label) if truth[row, k] else (label, names[k])
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
    """Returns the name of a class, or the names of the classes of a boolean row."""
    if np.ndim(label) == 0:
        return names[label]
    return ", ".join(names[k] for k in np.flatnonzero(label).tolist()) or "no label"
