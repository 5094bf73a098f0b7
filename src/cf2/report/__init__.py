"""Explanations in words, pictures and one self-contained HTML page."""
