"""Presets: their catalog and places (Hub, bucket, folder), saving, model card, upload."""
