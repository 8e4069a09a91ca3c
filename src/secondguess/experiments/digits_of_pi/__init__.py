"""Section 5.2: statements about digits of pi, by a model that has learned only some of them."""
