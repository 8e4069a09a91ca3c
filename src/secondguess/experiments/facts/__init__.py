"""Facts of the world, asked of a pretrained language model that was never told them."""
