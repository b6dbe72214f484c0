"""Carries the program `sabir`, which pip puts beside the Python interpreter."""
