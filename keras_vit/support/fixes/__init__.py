"""Workarounds for faults of Keras, TensorFlow, torch and XLA, one module or function per fault.

`faults.py` states the library and the releases of each fault. Each module states the symptom, the
workaround, and under "Leans on" the private names that the workaround uses. `docs/upstream/` has a
report of each fault, ready to be filed, and a table of the private names.
`tests/support/fixes/` has a canary for each workaround: a test that fails when a private name is
gone, or when the fault is gone, so that the workaround can be removed.
"""
