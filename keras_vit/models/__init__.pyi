"""The public names of the room and their homes, for type checkers and for `lazy_loader`."""

from .costs import flops as flops
