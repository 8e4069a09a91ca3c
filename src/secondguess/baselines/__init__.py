"""What the paper compares with, one method per file, over any network.

Each file has the same two functions, `loss(model, batch)` on a `PairBatch` for the training loop
and `predict(model, inputs)`, which gives a `Prediction` of shape `(n, num_classes)`. Networks give
`(n, num_classes)` logits, or `(n, 1)` for the log-odds of class 1 of two. (The Gaussian process
and the random forest have a `fit` of their own in place of the loss, and SNGP one after it, for its
posterior. The forest is not among the paper's.)
"""
