"""``python -m localspec``."""

import sys

if __name__ == "__main__":
    try:
        from localspec.cli.main import main
    except KeyboardInterrupt:
        # Ctrl-C, or a request of the memory that was cancelled at once: no traceback for that.
        sys.exit(130)
    main()
