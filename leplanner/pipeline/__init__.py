"""Stages between artifacts, and what each scale and recipe does in them."""
