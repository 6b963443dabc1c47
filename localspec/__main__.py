"""``python -m localspec``."""

from localspec.cli.main import main

if __name__ == "__main__":
    main()
