"""Comparison of C++ and CUDA definitions between two versions: facts about them, and changes that affect a patch."""
