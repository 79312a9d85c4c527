"""Colours of magnitudes: cividis for importance, one blue for positions."""

from collections.abc import Sequence

# Ten even stops of cividis, which looks much the same to all kinds of colour vision (Nuñez et al. 2018).
CIVIDIS = (
    *("#00224E", "#123570", "#3B496C", "#575D6D", "#707173"),
    *("#8A8678", "#A59C74", "#C3B369", "#E1CC55", "#FEE838"),
)
BLUES = ("#F2F6FA", "#C9DCEC", "#8DB6D6", "#4A86B8", "#1F5A91", "#0B3560")


def ramp_color(ramp: Sequence[str], level: float) -> str:
    """Colour at `level` of a ramp as #RRGGBB; level 0 is its first stop and 1 its last.

    Linear between evenly spaced stops, in sRGB; levels outside 0 .. 1 take the nearest end.
    """
    place = min(max(level, 0.0), 1.0) * (len(ramp) - 1)
    below = min(int(place), len(ramp) - 2)
    weight = place - below
    channels = [
        round(int(ramp[below][i : i + 2], 16) * (1 - weight) + int(ramp[below + 1][i : i + 2], 16) * weight)
        for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{channel:02X}" for channel in channels)
