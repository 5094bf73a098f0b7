"""What an explanation is made of: kinds of unit, edits, constraints, and packs of many instances."""
