"""Results for people: explanations, summaries, test errors, shifts, one page of all."""
