"""The core: the user's graph and model, what is explained, what explanations are made of, and packed runs of the model.

graph             the user's data, checked and indexed once; one prediction's graph
targets           which output is explained: a node's, a graph's
units             what an explanation is made of, and which elements each unit governs
packing           many instances -> one disjoint graph, and back
outputs           what the model's numbers are
adapter           the packed graph -> the user's own call -> one row per target
hooks             borrowing the model, and putting everything back
predictor         the only code that runs the model: with soft weights, or with elements really gone
receptive_field   the smallest graph that gives the very same output
"""
