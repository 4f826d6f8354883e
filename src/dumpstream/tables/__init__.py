"""What a run has, as tables for programs that ask in their own words."""
