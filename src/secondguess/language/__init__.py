"""Pairs of sequences on any Hugging Face causal language model."""
