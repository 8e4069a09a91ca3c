"""Pairs of labels: data, heads, losses, the joint they predict, the estimator. Needs torch."""
