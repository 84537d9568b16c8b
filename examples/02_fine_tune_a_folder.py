"""
Transfer learning on a folder of images
=======================================

Fine-tune a pretrained model on your classes, with one folder of images per class::

    python examples/02_fine_tune_a_folder.py

The program first writes scikit-learn's handwritten digits to a folder, for a task that the preset
was not trained on: does the digit have a loop? To use your own photos, start at ``from_folder``.
The command line does the same: ``keras-vit finetune digits --source vit_digits --path loops``.
"""

from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import keras_vit
from keras_vit.training import TransferRecipe, train

keras.utils.set_random_seed(0)
digits, folder = load_digits(), Path("digits")
for k, (pixels, digit) in enumerate(zip(digits.images[:600], digits.target, strict=False)):
    path = folder / ("loop" if digit in (0, 6, 8, 9) else "open") / f"{k:04d}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.round(pixels * (255 / 16)).astype("uint8")).resize((32, 32)).save(path)

# %%
# The recipe follows appendix B.1.1 of the ViT paper: momentum, cosine decay, warm-up and clipping.
# The images are prepared at twice the image size of the preset, so the model has more patches of
# the same size. A fifth of each class is held out for validation.

recipe = TransferRecipe(steps=60, batch_size=32, learning_rate=0.01, steps_per_epoch=10)
preprocessor = keras_vit.Preprocessor.from_preset("vit_digits", image_size=32)
images = keras_vit.data.from_folder(folder, preprocessor, **recipe.data_args)
data, validation = images.hold_out(0.2)
print(data.class_counts)

# %%
# A new head starts at zero, and the position embeddings are resized from 4x4 to 8x8.

model = keras_vit.VisionTransformer.from_preset(
    "vit_digits", num_classes=data.num_classes, class_names=data.class_names, image_size=32
)

# %%
# ``train`` calls ``compile`` and ``fit`` with the arguments of the recipe, and writes the best
# preset, a log and the training state. After an interruption, run the program again to resume.

history = train(model, data, validation, recipe=recipe, path="loops", resume=True, verbose=2)

figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
updates = np.arange(10, recipe.steps + 1, 10)
axis.plot(updates, history["accuracy"], label="training")
axis.plot(updates, history["val_accuracy"], label="validation")
axis.set(xlabel="updates", ylabel="accuracy")
axis.legend()

# %%
# The best preset is a folder. ``keras_vit.upload_preset`` shares it on the Hub.

tuned = keras_vit.VisionTransformer.from_preset("loops/best")
print(tuned.classify(keras_vit.data.example_image(), top=1))
