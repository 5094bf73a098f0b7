"""What people have, read into plain graphs, and which output of the model is explained."""
