"""``python -m localspec``."""

import sys

if __name__ == "__main__":
    try:
        from localspec.cli.main import main
    except KeyboardInterrupt:
        # Ctrl-C, or a memory request that was cancelled at once: exit without a traceback.
        sys.exit(130)
    main()
