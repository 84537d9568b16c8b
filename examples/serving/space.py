"""A Space of the Hugging Face Hub, or a page on this machine: an image in, its classes out.

MODEL=hf://owner/repo python examples/serving/space.py
"""

import os

import gradio

from keras_vit import VisionTransformer

model = VisionTransformer.from_preset(os.environ.get("MODEL", "vit_digits"))


def classify(image):
    """Returns the probabilities of the five likeliest classes."""
    return dict(model.classify([image], top=5)[0])


page = gradio.Interface(classify, gradio.Image(type="pil"), gradio.Label())
if __name__ == "__main__":
    page.launch()
