"""The paper: its data sets, base models, their training and weights, and the experiments on them."""
