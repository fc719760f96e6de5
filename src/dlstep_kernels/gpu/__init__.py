"""Triton kernels with the names and modules of their twins. Importing one imports triton."""
