"""Inference methods for questions over documents, with bitwise order invariance.

Names are imported when they are first used, so that `import pine_engine` alone loads fast. docs/library.md
documents each name.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
