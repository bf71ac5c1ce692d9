"""C++ and CUDA definitions of two versions: their facts, and what changed for a patch."""
