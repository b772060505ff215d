"""Rungs of a climb, one file each: a name, a predicted time, and an attempt that is judged before it is finished."""
