"""The relay: writes the records that efo reads into a sink."""
