"""Networks. Each knows its architecture and nothing of pairs, losses or data."""
