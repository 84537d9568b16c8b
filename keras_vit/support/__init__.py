"""Helpers of all rooms: backend, processor, limits, packages, files, text; workarounds for bugs."""
