"""Runs: one request carried out (`session`), a run directory (`directory`), and where the work runs (`engines`)."""
