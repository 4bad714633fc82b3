"""The controller: pure core (events in, instructions out) and the loop that carries instructions out."""
