"""`python -m sknimo` is the command `sknimo`."""

from sknimo.cli import main

if __name__ == "__main__":
    main()
