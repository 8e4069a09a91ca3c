"""Free association: the first word that comes to mind, asked of a pretrained language model."""
