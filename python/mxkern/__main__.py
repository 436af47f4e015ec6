# mxkern/__main__.py: python -m mxkern is the command line.
import sys

from mxkern.cli.main import main

sys.exit(main())
