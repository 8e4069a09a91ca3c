"""Learning from pairs of labels: data, heads, losses, training. Needs torch."""
