"""One-dimensional binary regression (appendix F.1 of the paper)."""
