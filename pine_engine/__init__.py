"""Inference methods for questions over documents, with bitwise order invariance.

Names are imported when they are first used, so that `import pine_engine` alone loads fast. docs/library.md
documents each name.
"""

import lazy_loader

from pine_engine.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
