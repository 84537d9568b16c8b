"""Fine-tune a preset on a folder of images, with a folder per class; run again, it goes on.

python examples/02_fine_tune_a_folder.py digits 40
"""

import sys

import keras

import keras_vit
from keras_vit.finetune import train, transfer_recipe

folder, steps = sys.argv[1], int(sys.argv[2])
keras.utils.set_random_seed(0)

# Twice the preset's resolution, as the paper fine-tunes: more patches of the same size.
preprocessor = keras_vit.Preprocessor.from_preset("vit_digits", image_size=32)
data, validation = keras_vit.data.from_folder(
    folder, preprocessor, batch_size=32, validation_split=0.2, steps_per_epoch=10
)
print(data.class_counts)

# A new head starts at zero, and the position embeddings are resized from 4x4 to 8x8.
model = keras_vit.VisionTransformer.from_preset(
    "vit_digits", num_classes=data.num_classes, labels=data.class_names, image_size=32
)

# Momentum, cosine decay, warm-up and clipping of appendix B.1.1. `train` compiles and fits with
# `recipe.compile_args` and `recipe.fit_args`, two dicts for a compile and fit of your own.
recipe = transfer_recipe(model, steps, batch_size=32, learning_rate=0.01, steps_per_epoch=10)
history = train(model, data, validation, recipe=recipe, out="loops", resume=True, verbose=2)
print(f"best validation accuracy {max(history['val_accuracy']):.1%}, see loops/curves.png")

tuned = keras_vit.VisionTransformer.from_preset("loops/best")
print(tuned.classify("digit.png", top=1))
