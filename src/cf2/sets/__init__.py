"""Search, proof and verdicts over sets of units; torch only, no graphs."""
