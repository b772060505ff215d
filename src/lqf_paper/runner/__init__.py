"""How experiments are run: cells, their registry and store, the processes that share them."""
