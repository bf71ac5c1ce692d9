"""Functions that do the same in two versions, however they are written."""
