"""Sources of models: files of this machine, the Hub, the official bucket, the catalog."""
