"""Tables: where the statistics sink keeps its rows."""
