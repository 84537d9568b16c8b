"""Presets: their catalog, loading from the Hub, a bucket or a folder, saving and uploading."""
