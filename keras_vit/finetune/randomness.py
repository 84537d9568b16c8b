"""The global random states that training draws from; torch is imported for its generator.

Layers keep their seeds as variables. `fit` shuffles with Python's `random` or NumPy's, and
on torch a dropout without a seed draws from torch's global generator.
"""

import random
from collections.abc import Mapping

import keras
import numpy as np


def random_states() -> dict[str, np.ndarray]:
    """Returns every global state as arrays, by name."""
    version, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state()
    states = {
        "python": np.array([version, *words], "int64"),
        "python_gauss": np.array([] if gauss is None else [gauss], "float64"),
        "numpy": np.array([*keys, position, has_gauss], "int64"),
        "numpy_gauss": np.array([cached], "float64"),
    }
    if keras.backend.backend() == "torch":
        import torch

        states["torch"] = torch.get_rng_state().numpy()
        for device, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"torch_cuda_{device}"] = state.numpy()
    return states


def set_random_states(states: Mapping[str, np.ndarray]) -> None:
    """Sets the states that `random_states` returned."""
    version, *words = states["python"].tolist()
    gauss = states["python_gauss"].tolist()
    random.setstate((version, tuple(words), gauss[0] if gauss else None))
    *keys, position, has_gauss = states["numpy"].tolist()
    cached = float(states["numpy_gauss"][0])
    np.random.set_state(("MT19937", np.array(keys, "uint32"), position, has_gauss, cached))
    if "torch" in states:
        import torch

        torch.set_rng_state(torch.from_numpy(states["torch"].copy()))
        for device in range(torch.cuda.device_count()):
            if f"torch_cuda_{device}" in states:
                state = torch.from_numpy(states[f"torch_cuda_{device}"].copy())
                torch.cuda.set_rng_state(state, device)
