"""Explanations as frozen values, with their files and metrics."""
