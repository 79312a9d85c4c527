"""Prompts that the tests of the engine share."""

from pine_engine import TokenLayout

LAYOUT = TokenLayout(
    (5, 9, 60),
    ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35), (41,)),
    (51, 52, 53),
    scores=(0.5, 2.0, -1.0, 0.5),
)
LAYOUTS = [
    TokenLayout((5, 9), ((11, 12, 13), (21, 22, 23, 24, 25, 26)), (51,), scores=(0.5, 2.0)),
    LAYOUT,
    TokenLayout(
        (7,),
        ((11, 12), (21,), (31, 32, 33, 34), (41, 42), (61, 62), (71,)),
        (52, 53, 54, 55),
        scores=(0.5, 2.0, -1.0, 0.5, 1.0, 0.0),
    ),
]
