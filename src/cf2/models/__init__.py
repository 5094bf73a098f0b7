"""How the user's model is called, masked and checked, and the oracle that answers the search."""
