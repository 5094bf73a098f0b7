"""Small data sets and trained models for the demo, the tutorials and `cf2 explain NAME`."""
