"""Campaigns of damaged and hostile inputs; `make fuzz` runs them, the suite a small share."""
