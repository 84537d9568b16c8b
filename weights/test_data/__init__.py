"""Writes the folders and files of `tests/data` that other libraries made."""
