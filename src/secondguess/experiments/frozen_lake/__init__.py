"""Section 5.3: imitating walkers who see which part of a lake is unsafe when the model may not."""
