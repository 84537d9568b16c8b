"""A model as a preset: its folder, its card, its upload to the Hub."""
