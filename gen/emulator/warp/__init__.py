"""What the lanes of a warp do together: `masks` of lanes, `shuffles` and votes, `mma`."""
