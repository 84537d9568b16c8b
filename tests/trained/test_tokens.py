"""Tokens and attention of trained weights equal those of ONNX Runtime and transformers."""

import numpy as np
import pytest

from keras_vit import VisionTransformer
from keras_vit.explanation import attention_maps
from keras_vit.models.inference import run
from tests.helpers import assert_close
from tests.trained.photographs import ENCODER, FOLDER, needs_encoder, photographs, shapes
from weights.trained import TOKENS, reference

pytestmark = needs_encoder
LAST = "block_11/norm"
ATTENTION = 1e-4
"""Tolerance of attention weights: the softmax of trained logits enlarges their rounding."""


def channels_first(batch):
    return np.ascontiguousarray(batch.transpose(0, 3, 1, 2))


@pytest.fixture(scope="module")
def model():
    return VisionTransformer.from_preset(ENCODER, image_size=224)


@pytest.fixture(scope="module")
def batch(model):
    """Thirty photographs and crops of all shapes."""
    return model.preprocessor(shapes())


@pytest.mark.openvino
def test_tokens_equal_those_of_onnx_runtime(model, batch):
    (expected,) = reference(FOLDER / "model.onnx")(channels_first(batch))
    assert_close(run(model, batch, [LAST])[LAST], expected)


@pytest.mark.openvino
def test_attention_of_every_block_equals_that_of_onnx_runtime(model, batch):
    """Three photographs at a time: the weights of all blocks and heads are large."""
    names = [f"/backbone/encoder/layer.{k}/attention/attention/Softmax_output_0" for k in range(12)]
    theirs = reference(FOLDER / "model.onnx", names)
    for start in range(0, len(batch), 3):
        three = batch[start : start + 3]
        maps = attention_maps(model, three, prepared=True)
        for block, expected in enumerate(theirs(channels_first(three))):
            assert_close(maps[f"block_{block}/attention"], expected, ATTENTION)


@pytest.mark.openvino
@pytest.mark.parametrize("size", [98, 224, 518, 896, (224, 448)])
def test_positions_of_other_sizes_equal_those_of_onnx_runtime(size):
    model = VisionTransformer.from_preset(ENCODER, image_size=size)
    images = model.preprocessor([photographs()["chelsea"]])
    (expected,) = reference(FOLDER / "model.onnx", [TOKENS])(channels_first(images))
    assert_close(run(model, images, [LAST])[LAST], expected)


@pytest.mark.openvino
def test_tokens_and_attention_equal_those_of_transformers(model, batch):
    from tests.live import torch, transformers

    theirs = transformers.AutoModel.from_pretrained(ENCODER, attn_implementation="eager").eval()
    with torch.no_grad():
        outputs = theirs(torch.from_numpy(channels_first(batch[:6])), output_attentions=True)
    assert_close(run(model, batch[:6], [LAST])[LAST], outputs.last_hidden_state.numpy())
    maps = attention_maps(model, batch[:6], prepared=True)
    for block, expected in enumerate(outputs.attentions):
        assert_close(maps[f"block_{block}/attention"], expected.numpy(), ATTENTION)
