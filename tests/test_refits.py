"""Out-of-sample outputs by refits: no label of a fold reaches its own predictions; they are those of real refits."""
