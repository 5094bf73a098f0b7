"""Verified sets: what a set of units does to a graph, what counts as the same answer, and the smallest set that passes.

intervention   what a set does: only(S), without(S), edited(S)
criterion      what counts as the same answer, and by how much
question       which tests a set must pass
verdict        the final check, from which every verdict comes
cache          what trials have given so far, so that nothing is evaluated twice
field          a trial's own receptive field
carried_out    trials of whole instances as one pack
trials         packed tests of many candidate sets
race           trials of candidates of which one wins
pruning        dropping what is not needed
moves          the other moves of the search
connected      exhaustion for nodes: what is joined to the target first
alike          shapes of sets: which look the same to a model of graphs
parts          every shape that sets of a graph have, from connected parts
bounds         which of these cannot pass, refuted whole by bounds of the model's head
proof          proof by exhaustion
search         from scores to the smallest set that passes
"""
