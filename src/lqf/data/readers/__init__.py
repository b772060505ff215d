"""Readers: one file per kind of source, each giving a `Table` of samples or a source of images."""
