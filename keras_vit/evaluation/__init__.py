"""How good a model is: its accuracy, its frozen features, and linear classifiers on them."""

from keras_vit.evaluation.embedding import Embedding, embed
from keras_vit.evaluation.extraction import Features, features
from keras_vit.evaluation.probes import LinearProbe, few_shot, linear_probe
from keras_vit.evaluation.scores import Evaluation, evaluate

__all__ = [
    "Embedding",
    "Evaluation",
    "Features",
    "LinearProbe",
    "embed",
    "evaluate",
    "features",
    "few_shot",
    "linear_probe",
]
