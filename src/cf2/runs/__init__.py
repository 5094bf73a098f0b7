"""One request carried out: a session, a run directory, and the engines that do the work."""
