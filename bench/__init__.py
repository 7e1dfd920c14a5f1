"""The measuring half of the lab: ``python -m bench``. It knows variants and times; what is right is cplab's word."""
