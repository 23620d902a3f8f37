"""Events folded into what a run is: frames, compiles, recompiles, breaks, steps. Pure."""
