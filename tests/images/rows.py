"""The protocols of the table in docs/preprocessing.md, and drawn pictures."""

import json
import re
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from tests.images.pictures import THIRTY, picture

DOCS = (Path(__file__).parents[2] / "docs" / "preprocessing.md").read_text()
ROWS = {
    protocol: (json.loads(protocol), float(difference))
    for protocol, difference in re.findall(r"^\| `(.+?)` \|.*\| ([\d.e-]+) \|$", DOCS, re.MULTILINE)
}
"""JSON -> the protocol, and its largest difference from its library as the table says."""

SIZES = [(32, 32), (33, 48), (45, 31)]
MODES = ("RGB", "L", "RGBA", "LA", "P", "CMYK")


@st.composite
def pictures(draw, least=1):
    """Pillow images of drawn sides from `least` on, mode and contents."""
    side = st.integers(least, 120)
    known = st.sampled_from([sides for sides in THIRTY if min(sides) >= least])
    sides = draw(st.tuples(side, side) | known)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    contents = {
        "noise": lambda: rng.integers(0, 256, (*sides, 3), "uint8"),
        "flat": lambda: np.full((*sides, 3), rng.integers(4, 255, 3), "uint8"),
        "formula": lambda: picture(sides),
    }
    pixels = contents[draw(st.sampled_from(sorted(contents)))]()
    return Image.fromarray(pixels).convert(draw(st.sampled_from(MODES)))
