"""Quality of a model: its accuracy, its frozen features, and classifiers on these features."""

from keras_vit.evaluation.embedding import Embedding
from keras_vit.evaluation.extraction import Features, features
from keras_vit.evaluation.many_labels import choose_thresholds
from keras_vit.evaluation.numbers import NumbersEvaluation
from keras_vit.evaluation.probe_page import write_page
from keras_vit.evaluation.probes import LinearProbe, few_shot, linear_probe
from keras_vit.evaluation.probing import NumbersProbe, Pair, Probe, Suspect
from keras_vit.evaluation.scores import Evaluation

__all__ = [
    "Embedding",
    "Evaluation",
    "Features",
    "LinearProbe",
    "NumbersEvaluation",
    "NumbersProbe",
    "Pair",
    "Probe",
    "Suspect",
    "choose_thresholds",
    "features",
    "few_shot",
    "linear_probe",
    "write_page",
]
