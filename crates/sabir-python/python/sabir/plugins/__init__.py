"""Plugins for inference servers and clients, one file each. ``python -m sabir.plugins NAME`` prints the path of a file."""
