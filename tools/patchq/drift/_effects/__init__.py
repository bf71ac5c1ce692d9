"""Detection of functions that do the same in two versions although their code differs."""
