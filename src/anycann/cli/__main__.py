"""`python -m anycann.cli`."""

from anycann.cli import main

main()
