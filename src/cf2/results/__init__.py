"""Results: frozen explanations, their files, what they score, and how sure a number is."""
