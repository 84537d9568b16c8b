"""Chosen backend, processor, limits, packages, files, text; workarounds for faults of others."""
