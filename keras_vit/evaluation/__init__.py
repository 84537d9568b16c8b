"""Evaluation: metrics of a model, feature extraction, and linear probes on frozen features."""

from keras_vit.evaluation.embedding import Embedding
from keras_vit.evaluation.extraction import Features, features
from keras_vit.evaluation.neighbours import effective_rank, knn_accuracy
from keras_vit.evaluation.probe_page import write_page
from keras_vit.evaluation.probes import LinearProbe, few_shot, linear_probe
from keras_vit.evaluation.probing import ClassScore, Pair, Probe, Suspect
from keras_vit.evaluation.scores import Evaluation
from keras_vit.evaluation.thresholds import choose_thresholds

__all__ = [
    "ClassScore",
    "Embedding",
    "Evaluation",
    "Features",
    "LinearProbe",
    "Pair",
    "Probe",
    "Suspect",
    "choose_thresholds",
    "effective_rank",
    "features",
    "few_shot",
    "knn_accuracy",
    "linear_probe",
    "write_page",
]
__dir__ = __all__.copy
