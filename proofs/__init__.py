"""How we know that efo works: simulation, fuzzing, end-to-end runs, interoperability and benchmarks."""
