"""`python -m tesseract_fl`"""

from tesseract_fl.cli import main

if __name__ == "__main__":
    main()
