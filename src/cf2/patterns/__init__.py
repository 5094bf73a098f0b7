"""What the explanations of a whole class share: patterns, edit rules and prototypes."""
