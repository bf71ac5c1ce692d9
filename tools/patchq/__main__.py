"""``python -m patchq``."""

from patchq.cli import main

if __name__ == "__main__":
    main()
