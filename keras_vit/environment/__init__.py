"""The machine: chosen backend, processor, limits on files, installed packages."""
