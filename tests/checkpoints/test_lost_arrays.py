"""Files that have lost all arrays of a kind, which then look like files of another model."""

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.checkpoints.containers import renamed
from keras_vit.checkpoints.opening import OpenSource, open_source
from keras_vit.checkpoints.reading import open_checkpoint
from keras_vit.errors import CheckpointError
from keras_vit.presets.source import Source
from tests import family_goldens, golden
from tests.checkpoints.drawn import WRITTEN, models, written
from tests.checkpoints.headers import Headers
from tests.checkpoints.test_laws import open_written, shapes_of
from tests.runs import times

STATED = [format for format in WRITTEN if format.library.json]
FOLDERS = [
    path.parent
    for module in (golden, family_goldens)
    for path in sorted(module.FOLDER.glob("*/model.safetensors"))
]
MAY_LACK = ("head/", "pre_logits/", "projection/", "mask_token/")
"""Starts of the paths of weights without which a file holds an encoder."""
UNSTATED = ("class_token/", "block_0/attention/query/bias")
"""Starts of the paths of weights without which people train an architecture of timm, whose
config.json does not say so."""


def kinds_of(moves, optional=MAY_LACK):
    """The names of the arrays of a file, by kind: those that differ in their numbers."""
    kinds = {}
    for move in moves:
        if not move.paths[0].startswith(optional):
            kinds.setdefault(re.sub(r"\d+", "#", move.name), set()).add(move.name)
    return kinds.values()


@pytest.mark.parametrize("format", STATED, ids=lambda f: f"{f.name} {f.class_name}")
@given(data=st.data())
@settings(max_examples=times(1, 10), deadline=None)
def test_arrays_that_the_json_promises_are_missed(format, data):
    own = written(format, data.draw(models(format)))
    _, asked = open_written(own, format.row.prefix, "")
    is_radio = format.class_name == "RadioModel"  # whose files have layer scales or not
    scales = ("block_0/attention_scale/", "block_0/mlp_scale/") if is_radio else ()
    for lost in kinds_of(own.moves, MAY_LACK + scales):
        left = Headers(shapes_of(move for move in own.moves if move.name not in lost))
        with pytest.raises(CheckpointError):
            open_checkpoint(OpenSource(left, own.files, is_folder=True), asked)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_arrays_that_a_class_or_an_architecture_implies_are_missed(folder):
    with open_source(Source.parse(folder), headers=True) as files:
        opened = open_checkpoint(files, {})
        for lost in kinds_of(opened.moves, (*MAY_LACK, *UNSTATED)):
            names = (
                n for n in files.reader.shapes if n.removeprefix(opened.info.prefix) not in lost
            )
            left = renamed(files.reader, ((name, name) for name in names))
            with pytest.raises(CheckpointError):
                open_checkpoint(dataclasses.replace(files, reader=left), {})
