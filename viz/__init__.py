"""Figures: records of the engine in, plotly figures out, without importing torch.

`viz.plot_importance(run.traces["pine"])` returns a plotly.graph_objects.Figure. `import viz` alone imports
nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
